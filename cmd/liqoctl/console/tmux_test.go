package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/golden"
	"github.com/sluice-net/sluice/test/source"
)

// In a real terminal, tmux, this program runs again as what it tests. It goes on
// when a line comes through a pipe, so nothing depends on time.
const (
	sceneVariable = "CONSOLE_TEST_SCENE"
	cueVariable   = "CONSOLE_TEST_CUES"
)

// scenes are what a user sees.
var scenes = map[string]func(ctx context.Context, c *Console, cue func()) error{
	"connect": func(_ context.Context, c *Console, cue func()) error {
		say := c.Progress()
		say.Done("local", "Network configuration correctly retrieved")
		say.Waiting("remote", "Waiting for gateway pod gw-milan to be ready")
		say.Waiting("local", "Waiting for gateway pod gw-rome-of-the-western-empire-with-a-long-name to be ready")
		cue()
		say.Done("remote", "Gateway pod gw-milan is ready")
		say.Warning("local", "the MTU of the gateways differs: large packets get lost in one direction; set spec.mtu of both to 1340")
		cue()
		return errors.New("(local) time is up after 2m0s, waiting for gateway pod gw-rome to be ready: ImagePullBackOff\n  Deployment liqo-tenant-milan/gw-rome: 0 of 1 pods are ready\nthe same command continues from there")
	},
	"page": func(_ context.Context, c *Console, _ func()) error {
		c.Show(examplePage)
		return nil
	},
	"live": func(ctx context.Context, c *Console, cue func()) error {
		n := 0
		return c.Live(ctx, 50*time.Millisecond, func(_ context.Context, p *Page) error {
			n++
			p.Table([]string{"PEER", "STATUS", "READ"}, [][]string{{"milan", Good("Connected"), fmt.Sprint(n)}, {"turin-with-a-long-name", Bad("Error"), "-"}})
			return nil
		})
	},
	"confirm": func(ctx context.Context, c *Console, _ func()) error { return c.Confirm(ctx, "disconnect", nil) },
}

// play is main of a scene.
func play(name string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cues, err := os.Open(os.Getenv(cueVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	lines := bufio.NewScanner(cues)
	c := New(os.Stdin, os.Stdout, os.Stderr)
	if err := scenes[name](ctx, c, func() { lines.Scan() }); err != nil {
		c.Error(err)
		return 1
	}
	c.Close()
	return 0
}

// window is a window of tmux in which a scene is played.
type window struct {
	t      *testing.T
	socket string
	cues   *os.File
}

func openWindow(t *testing.T, scene string, columns, rows int, env ...string) *window {
	t.Helper()
	source.NeedPrograms(t, "tmux")
	dir := t.TempDir()
	pipe := filepath.Join(dir, "cues")
	if out, err := exec.Command("mkfifo", pipe).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v: %s", err, out)
	}
	w := &window{t: t, socket: filepath.Join(dir, "s")}
	env = append([]string{sceneVariable + "=" + scene, cueVariable + "=" + pipe, "LC_ALL=C.UTF-8", "NO_COLOR="}, env...)
	command := fmt.Sprintf("trap : INT; env %s %s; echo \"exit code $?\"; exec cat", strings.Join(env, " "), os.Args[0])
	w.tmux("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows), command)
	t.Cleanup(func() { w.tmux("kill-server") })
	var err error
	if w.cues, err = os.OpenFile(pipe, os.O_WRONLY, 0); err != nil { // waits until the scene has opened it
		t.Fatal(err)
	}
	t.Cleanup(func() { w.cues.Close() })
	return w
}

func (w *window) tmux(args ...string) string {
	w.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-u", "-S", w.socket}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TMUX=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (w *window) cue() {
	w.t.Helper()
	if _, err := w.cues.WriteString("go on\n"); err != nil {
		w.t.Fatal(err)
	}
}

// moving are the parts of a picture that change by themselves.
var moving = regexp.MustCompile(`[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]|\(\d+s\)`)

// shows waits until the window shows something, and returns all that it shows,
// with pictures that turn and times that pass replaced.
func (w *window) shows(what string) string {
	w.t.Helper()
	var text string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		text = moving.ReplaceAllStringFunc(w.tmux("capture-pane", "-p"), func(s string) string {
			if strings.HasPrefix(s, "(") {
				return "(Ns)"
			}
			return "*"
		})
		if strings.Contains(text, what) {
			return strings.TrimRight(text, "\n ") + "\n"
		}
	}
	w.t.Fatalf("the window does not show %q:\n%s", what, text)
	return ""
}

func TestTmuxProgress(t *testing.T) {
	for _, tt := range []struct {
		name          string
		columns, rows int
		env           []string
	}{
		{"120x40", 120, 40, nil}, {"60x20", 60, 20, nil}, {"40x10", 40, 10, nil}, {"80x24-dumb", 80, 24, []string{"TERM=dumb"}}, {"80x24-ascii", 80, 24, []string{"LC_ALL=C"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openWindow(t, "connect", tt.columns, tt.rows, tt.env...)
			spinning := "gw-rome-of" // of a wait
			if tt.name == "80x24-dumb" {
				spinning = "correctly retrieved"
			} else if tt.columns == 40 {
				spinning = "(local) Waiting for"
			}
			picture := "--- two waits\n" + w.shows(spinning)
			w.cue()
			picture += "--- one is over\n" + w.shows("1340")
			w.cue()
			picture += "--- the end\n" + w.shows("exit code 1")
			if tt.name == "80x24-ascii" { // these turn, too
				picture = regexp.MustCompile(`(?m)^ [|/\\-]  `).ReplaceAllString(picture, " *  ")
			}
			golden.Compare(t, "testdata/tmux-connect-"+tt.name+".txt", picture)
		})
	}
}

// TestTmuxResize: a window that becomes narrower while spinners turn shows no
// remains of them.
func TestTmuxResize(t *testing.T) {
	w := openWindow(t, "connect", 120, 20)
	w.shows("long-name to be ready (Ns)")
	for _, step := range []struct{ columns, shows string }{
		{"60", "gw-milan to … (Ns)\n"}, {"45", "gateway p… (Ns)\n"}, {"100", "gw-milan to be ready (Ns)\n"}, {"50", "pod gw… (Ns)\n"},
	} {
		w.tmux("resize-window", "-x", step.columns, "-y", "20")
		w.shows(step.shows)
	}
	w.cue()
	w.shows("1340")
	w.cue()
	golden.Compare(t, "testdata/tmux-resized.txt", w.shows("exit code 1"))
}

func TestTmuxPage(t *testing.T) {
	for _, columns := range []int{120, 60, 40} {
		t.Run(fmt.Sprint(columns), func(t *testing.T) {
			w := openWindow(t, "page", columns, 60)
			golden.Compare(t, "testdata/"+fmt.Sprintf("tmux-page-%d.txt", columns), w.shows("exit code 0"))
		})
	}
}

func TestTmuxColours(t *testing.T) {
	for name, env := range map[string]string{"colours": "A=b", "no-colours": "NO_COLOR=1"} {
		w := openWindow(t, "connect", 80, 24, env)
		w.cue()
		w.cue()
		w.shows("exit code 1")
		golden.Compare(t, "testdata/tmux-"+name+".txt", strings.ReplaceAll(strings.TrimRight(w.tmux("capture-pane", "-p", "-e"), "\n")+"\n", "\x1b", "^["))
	}
}

func TestTmuxLive(t *testing.T) {
	w := openWindow(t, "live", 60, 20)
	w.shows("Connected   9")
	w.tmux("resize-window", "-x", "20", "-y", "20")
	w.shows("STATUS  Connected\nREAD    ") // records, now
	w.tmux("resize-window", "-x", "70", "-y", "20")
	w.shows("Connected   ")
	w.tmux("send-keys", "C-c")
	text := regexp.MustCompile(`Connected +\d+`).ReplaceAllString(w.shows("exit code 0"), "Connected   N")
	golden.Compare(t, "testdata/tmux-live.txt", text)
}

func TestTmuxConfirm(t *testing.T) {
	const question = "disconnect is a potentially destructive command.\nAre you sure you want to continue? [y/N]"
	for _, tt := range []struct{ name, keys, want string }{
		{"yes", "yes Enter", "yes\nexit code 0\n"},
		{"no", "Enter", "\n ERRO   action aborted\nexit code 1\n"},
		{"Ctrl-C", "C-c", "^C\n ERRO   action aborted\nexit code 1\n"},
		{"Ctrl-D", "C-d", "\n ERRO   disconnect asks for confirmation, and there is no answer on stdin: answer y, or run it again\n        with --skip-confirm\nexit code 1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openWindow(t, "confirm", 100, 24)
			w.shows("[y/N]")
			w.tmux(append([]string{"send-keys"}, strings.Fields(tt.keys)...)...)
			if got := w.shows("exit code"); got != question+tt.want {
				t.Errorf("the window shows:\n%swant:\n%s", got, question+tt.want)
			}
		})
	}
}
