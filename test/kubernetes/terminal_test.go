package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/lab"
)

// terminal is a kind of terminal.
type terminal struct {
	width, height int
	colours       bool
}

// tmux is a terminal that tests can look at. It has a server of its own.
type tmux struct {
	w      *world
	socket string
}

// startTmux opens a terminal on the WAN and runs liqoctl in it. The terminal ends
// with the test.
func (w *world) startTmux(t *testing.T, k terminal, args []string) tmux {
	t.Helper()
	x := tmux{w, filepath.Join(t.TempDir(), "tmux")}
	start := []string{"-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(k.width), "-y", fmt.Sprint(k.height), "-e", "TERM=xterm-256color"}
	if !k.colours {
		start = append(start, "-e", "NO_COLOR=1")
	}
	command := filepath.Join(w.bin, "liqoctl") + " " + strings.Join(args, " ")
	if out, err := x.run(append(start, command+`; printf '\nended with %d\n' $?; sleep 1000`)...); err != nil {
		t.Fatalf("tmux: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := x.run("kill-server"); err != nil {
			t.Errorf("tmux: %v\n%s", err, out)
		}
	})
	return x
}

func (x tmux) run(args ...string) (string, error) {
	out, errs, err := x.w.run(context.Background(), exec.Command("tmux", append([]string{"-S", x.socket}, args...)...))
	return out + errs, err
}

// screen is what is to be seen, with colours as escape sequences if they are wanted.
func (x tmux) screen(colours bool) (string, error) {
	args := []string{"capture-pane", "-p", "-S", "-"}
	if colours {
		args = append(args, "-e")
	}
	return x.run(args...)
}

// shows waits until the screen shows a text, and calls look with what it shows
// meanwhile.
func (x tmux) shows(t *testing.T, text string, look func(screen string)) (screen string) {
	t.Helper()
	lab.Eventually(t, commandLimit, "the terminal shows "+text, func() (err error) {
		if screen, err = x.screen(false); err != nil {
			return err
		}
		if strings.Contains(screen, text) {
			return nil
		}
		if look != nil {
			look(screen)
		}
		return errors.New(screen)
	})
	return screen
}

// connectOnTerminal runs network connect to its end. Then the terminal shows the steps
// and nothing else. It returns how many different lines it showed while it waited.
func (w *world) connectOnTerminal(t *testing.T, k terminal) (waits int) {
	t.Helper()
	x := w.startTmux(t, k, w.connectArgs())
	lively := make(map[string]bool)
	screen := x.shows(t, "ended with 0", func(screen string) {
		for l := range strings.Lines(screen) {
			if strings.Contains(l, "Waiting for") {
				lively[strings.TrimSpace(l)] = true
			}
		}
	})
	if diff := cmp.Diff(connectLines(t), told(linesOf(unwrapped(screen)))); diff != "" {
		t.Errorf("on a terminal (-want +got)\n%s\n%s", diff, screen)
	}
	if strings.Contains(screen, "Waiting") {
		t.Errorf("a spinner is left on the screen:\n%s", screen)
	}
	raw, err := x.screen(true)
	if coloured := strings.Contains(raw, "\x1b["); err != nil || coloured != k.colours {
		t.Errorf("colours: %v, want %v (%v)\n%q", coloured, k.colours, err, raw)
	}
	return len(lively)
}

// interruptOnTerminal presses Ctrl-C while network connect waits.
func (w *world) interruptOnTerminal(t *testing.T, k terminal) {
	t.Helper()
	x := w.startTmux(t, k, w.connectArgs())
	x.shows(t, "Waiting", nil)
	if out, err := x.run("send-keys", "C-c"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if screen := x.shows(t, "ended with 1", nil); !strings.Contains(screen, "interrupted") {
		t.Errorf("Ctrl-C:\n%s", screen)
	}
}

// unwrapped joins lines that were broken because a terminal is narrow: what goes
// on is indented.
func unwrapped(screen string) string {
	var b strings.Builder
	for l := range strings.Lines(screen) {
		l = strings.TrimRight(l, " \n")
		if rest := strings.TrimLeft(l, " "); len(l)-len(rest) > 4 && b.Len() > 0 {
			b.WriteString(" " + rest)
			continue
		}
		b.WriteString("\n" + l)
	}
	return b.String()
}
