package clusters

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// tmux is a terminal that tests can look at. It has a server of its own.
type tmux struct{ socket string }

// startTmux opens a terminal and runs a command in it. The terminal ends with the
// test.
func startTmux(t *testing.T, width, height int, env []string, command string) tmux {
	t.Helper()
	x := tmux{socket: filepath.Join(t.TempDir(), "tmux")}
	args := []string{"-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height)}
	for _, e := range env {
		args = append(args, "-e", e)
	}
	if out, err := x.run(append(args, command+`; printf '\nended with %d\n' $?; sleep 1000`)...); err != nil {
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
	out, err := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...).CombinedOutput()
	return string(out), err
}

// screen is what is to be seen, with colours as escape sequences if they are wanted.
func (x tmux) screen(colours bool) (string, error) {
	args := []string{"capture-pane", "-p", "-S", "-"}
	if colours {
		args = append(args, "-e")
	}
	return x.run(args...)
}

// testTerminal looks at network connect in terminals of several kinds, and at its
// output where there is none.
func testTerminal(t *testing.T, p *pair) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("SKIPPED: there is no tmux, so what liqoctl looks like in a terminal is NOT tested")
	}
	pe := p.known()
	t.Cleanup(func() { pe.remove(t) })
	pe.explainIfFailed(t)
	command := string(p.liqoctl) + " " + strings.Join(p.connectCommand(), " ")
	for _, tt := range []struct {
		name          string
		width, height int
		env           []string
		colours       bool
	}{
		{"a wide one", 120, 40, []string{"TERM=xterm-256color"}, true},
		{"a narrow one", 60, 20, []string{"TERM=xterm-256color"}, true},
		{"without colours", 120, 40, []string{"TERM=xterm-256color", "NO_COLOR=1"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.separate(t, "reset")
			x := startTmux(t, tt.width, tt.height, tt.env, command)
			lively := make(map[string]bool) // last lines while it waits
			controlplanetest.Eventually(t, "it ends", func(context.Context) error {
				s, err := x.screen(false)
				if err != nil {
					return err
				}
				if strings.Contains(s, "ended with 0") {
					return nil
				}
				for l := range strings.Lines(s) {
					if strings.Contains(l, "Waiting for") {
						lively[strings.TrimSpace(l)] = true
					}
				}
				return errors.New(s)
			})
			if len(lively) < 2 {
				t.Errorf("while it waited nothing moved: %v", lively)
			}
			final, err := x.screen(false)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", final)
			if strings.Contains(final, "Waiting") {
				t.Error("a spinner is left on the screen")
			}
			if diff := cmp.Diff(connectSays, done(linesOf(unwrapped(final)))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			raw, err := x.screen(true)
			if err != nil {
				t.Fatal(err)
			}
			if coloured := strings.Contains(raw, "\x1b["); coloured != tt.colours {
				t.Errorf("colours: %v, want %v\n%q", coloured, tt.colours, raw)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		p.separate(t, "reset")
		lines, err := p.liqoctl.listen(t.Context(), nil, p.connectCommand()...)
		if err != nil || strings.ContainsAny(text(lines), "\x1b\r") {
			t.Errorf("%v\n%q", err, text(lines))
		}
		if diff := cmp.Diff(connectSays, done(lines)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
	t.Run("Ctrl-C", func(t *testing.T) {
		p.separate(t, "reset")
		x := startTmux(t, 100, 30, []string{"TERM=xterm-256color"}, command)
		controlplanetest.Eventually(t, "it begins", func(context.Context) error {
			s, err := x.screen(false)
			if err == nil && !strings.Contains(s, "Waiting") {
				err = errors.New(s)
			}
			return err
		})
		if out, err := x.run("send-keys", "C-c"); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		controlplanetest.Eventually(t, "it ends", func(context.Context) error {
			s, err := x.screen(false)
			if err == nil && !strings.Contains(s, "ended with 1") {
				err = errors.New(s)
			}
			return err
		})
		final, err := x.screen(false)
		if err != nil || !strings.Contains(final, "interrupted") {
			t.Errorf("%v\n%s", err, final)
		}
		t.Logf("\n%s", final)
	})
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
