package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/source"
)

var update = flag.Bool("update", false, "write the golden files anew")

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

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with: go test ./cmd/liqoctl -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
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

// liqoctlAs runs it under a name and with something on its standard input.
func liqoctlAs(ctx context.Context, name, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, append([]string{name}, args...), strings.NewReader(stdin), &stdout, &stderr)
	return result{stdout.String(), stderr.String(), code}
}
