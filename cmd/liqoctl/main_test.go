package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/document"
	"github.com/sluice-net/sluice/test/source"
)

// asProgram is the variable by which the test binary becomes the program.
const asProgram = "LIQOCTL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// testProgram is a file that is the program where asProgram is set.
func testProgram(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// kubectl is the one that the tests' control plane comes with.
func kubectl(t *testing.T) string {
	t.Helper()
	source.NeedKubernetes(t)
	return filepath.Join(source.KubernetesFor(t), "kubectl")
}

// result is what a run of the program left.
type result struct {
	stdout, stderr string
	code           int
}

// liqoctl runs the program in this process.
func liqoctl(ctx context.Context, args ...string) result {
	return liqoctlAs(ctx, "liqoctl", "", args...)
}

// liqoctlAs runs it under a name and with something on its standard input. What it
// says about steps that take long is left out: whether one does is up to the machine.
func liqoctlAs(ctx context.Context, name, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, append([]string{name}, args...), strings.NewReader(stdin), &stdout, &stderr)
	var said strings.Builder
	for line := range strings.Lines(stderr.String()) {
		if !document.IsWait(line) {
			said.WriteString(line)
		}
	}
	return result{stdout.String(), said.String(), code}
}
