package main

import (
	"io"
	"path/filepath"
	"strings"

	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

// app is what all commands share.
type app struct {
	name    string // as the user calls it: "liqoctl", or "kubectl liqo"
	stdout  io.Writer
	console *console.Console

	local, remote *clusterFlags
	skipConfirm   bool
	labels        map[string]string // for everything that is created
	annotations   map[string]string
}

func newApp(program string, stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{name: calledAs(program), stdout: stdout, console: console.New(stdin, stdout, stderr)}
}

// calledAs is how the user calls the program: kubectl runs its plug-ins under
// names that begin with kubectl-.
func calledAs(program string) string {
	base := strings.TrimSuffix(filepath.Base(program), ".exe")
	if plugin, ok := strings.CutPrefix(base, "kubectl-"); ok {
		return "kubectl " + plugin
	}
	return "liqoctl"
}
