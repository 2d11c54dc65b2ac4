package console

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	if scene := os.Getenv(sceneVariable); scene != "" {
		os.Exit(play(scene))
	}
	goleak.VerifyTestMain(m)
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// plain is a console without any terminal.
func plain(in string) (c *Console, out, errOut *bytes.Buffer) {
	out, errOut = new(bytes.Buffer), new(bytes.Buffer)
	return build(bytes.NewBufferString(in), &stream{Writer: out}, &stream{Writer: errOut}), out, errOut
}

// onTerminal is a console with one terminal for everything.
func onTerminal(t *testing.T, columns, rows int) (*Console, *screen) {
	s := newScreen(t, columns, rows)
	return build(bytes.NewReader(nil), s.stream(false), s.stream(false)), s
}
