package console

import (
	"bytes"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if scene := os.Getenv(sceneVariable); scene != "" {
		os.Exit(play(scene))
	}
	goleak.VerifyTestMain(m)
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
