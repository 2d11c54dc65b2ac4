package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/release"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

// app is what all commands share.
type app struct {
	name    string // as the user calls it: "sluicectl", "liqoctl" or "kubectl liqo"
	stdout  io.Writer
	console *console.Console

	local, remote *clusterFlags
	skipConfirm   bool
	labels        map[string]string // for everything that is created
	annotations   map[string]string

	// running is set when a command begins its work: an error before that is the
	// user's way to call it.
	running bool
	// misspelt is the error of help for a command that there is not.
	misspelt error
}

func newApp(program string, stdin io.Reader, stdout, stderr io.Writer) *app {
	c := console.New(stdin, stdout, stderr)
	a := &app{name: calledAs(program), stdout: c.Out(), console: c}
	c.Words = a.asCalled
	a.local, a.remote = a.newClusterFlags(""), a.newClusterFlags("remote-")
	return a
}

// Names of the program. It is liqoctl in all texts, as in the documents, and sluicectl
// where Liqo's own liqoctl is in the PATH, too; kubectl runs it as its plug-in.
const (
	ourName         = "sluicectl"
	liqoName        = "liqoctl"
	kubectlPrefix   = "kubectl-"
	kubectlComplete = "kubectl_complete-liqo"
)

// calledAs is how the user calls the program: kubectl runs its plug-ins under
// names that begin with kubectl-, and asks another name for completions.
func calledAs(program string) string {
	base := programName(program)
	if base == kubectlComplete {
		return "kubectl liqo"
	}
	if plugin, ok := strings.CutPrefix(base, kubectlPrefix); ok {
		return "kubectl " + plugin
	}
	if base == ourName {
		return ourName
	}
	return liqoName
}

func programName(program string) string { return strings.TrimSuffix(filepath.Base(program), ".exe") }

// one is the cluster of a command that works on one. It has been asked who the
// user is: it can be reached, and it accepts the credentials.
func (a *app) one(ctx context.Context) (*access.Cluster, error) {
	c, err := a.local.connect()
	if err != nil {
		return nil, err
	}
	defer a.console.Close()
	return c, a.reach(ctx, c)
}

// inOne is how a command runs that does something in one cluster, and needs it for all it does.
func (a *app) inOne(do func(ctx context.Context, in *access.Cluster, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		return do(cmd.Context(), in, args)
	}
}

// two are the clusters of a command that works on both. Both can be reached;
// nothing tells yet that they are not the same.
func (a *app) two(ctx context.Context) (local, remote *access.Cluster, err error) {
	clusters, unreached, err := a.either(ctx)
	if err != nil {
		return nil, nil, err
	}
	return clusters[0], clusters[1], errors.Join(unreached[:]...)
}

// either are the local and the remote cluster of a command that tells something of one
// alone, too, and why each cannot be worked on. It fails where neither can.
func (a *app) either(ctx context.Context) (clusters [2]*access.Cluster, unreached [2]error, err error) {
	a.local.name, a.remote.name = access.Local, access.Remote
	if !a.remote.chosen() {
		return clusters, unreached, errNoRemote
	}
	for i, f := range []*clusterFlags{a.local, a.remote} {
		if clusters[i], err = f.connect(); err != nil {
			return clusters, unreached, err
		}
	}
	defer a.console.Close()
	copy(unreached[:], access.Together(clusters[:], func(c *access.Cluster) error { return a.reach(ctx, c) }))
	if ctx.Err() != nil || unreached[0] != nil && unreached[1] != nil {
		err = errors.Join(unreached[:]...)
	}
	return clusters, unreached, err
}

// errNoRemote is the refusal to work on whatever cluster the environment points to.
var errNoRemote = errors.New("no remote cluster given: name it with --remote-kubeconfig or --remote-context; it is never taken from the environment alone")

// chartFor is the chart, and the one cluster to which it is about to do something.
func (a *app) chartFor(ctx context.Context) (*release.Chart, *access.Cluster, error) {
	chart, err := release.Embedded(build())
	if err != nil {
		return nil, nil, err
	}
	c, err := a.one(ctx)
	return chart, c, err
}

// confirm asks before something is destroyed, and says what. Its error is the last word.
func (a *app) confirm(ctx context.Context, command string, what []string) error {
	if a.skipConfirm {
		return nil
	}
	return a.console.Confirm(ctx, command, what)
}
