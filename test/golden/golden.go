// Package golden compares what tests make with files that people have looked at.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that output is compared with")

// Update tells whether the files are to be written: go test -update.
func Update() bool { return *update }

// Compare fails the test where got is not what a file holds. The path is relative to the folder of the test's package.
func Compare(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		write(t, path, got)
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	compare(t, path, string(want), got)
}

// CompareEmbedded is Compare for a test that embeds the file, as want. It reads no file, so that `go test` knows its
// result in other clones too, which counts for packages whose tests take minutes.
func CompareEmbedded(t testing.TB, path, want, got string) {
	t.Helper()
	if *update {
		write(t, path, got)
		return
	}
	compare(t, path, want, got)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func compare(t testing.TB, path, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got), go test -update writes it:\n%s", path, diff)
	}
}
