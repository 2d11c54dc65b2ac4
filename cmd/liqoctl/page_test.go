package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

const threeContexts = `apiVersion: v1
kind: Config
clusters:
- {name: rome, cluster: {server: "https://127.0.0.1:1"}}
- {name: milan, cluster: {server: "https://127.0.0.1:2"}}
contexts:
- {name: rome, context: {cluster: rome}}
- {name: milan, context: {cluster: milan}}
current-context: rome
`

// TestConsoleClusters: which clusters a page shows.
func TestConsoleClusters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(threeContexts), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, flags, contexts, want string }{
		{"the current one", "", "", "https://127.0.0.1:1"},
		{"contexts", "", "milan rome", "https://127.0.0.1:2 https://127.0.0.1:1"},
		{"two ends", "--context rome --remote-kubeconfig " + file + " --remote-context milan", "", "https://127.0.0.1:1 https://127.0.0.1:2"},
		{"a context that is not there", "", "turin", `kubeconfig ` + file + ` has no context "turin": it has milan, rome`},
		{"both ways to name one", "--context rome", "milan", "name contexts either with --context or as arguments, not both"},
	} {
		a := newApp("liqoctl", nil, new(bytes.Buffer), new(bytes.Buffer))
		cmd := consoleCommand(a)
		a.local.addTo(cmd)
		if err := cmd.ParseFlags(strings.Fields("--kubeconfig " + file + " " + tt.flags)); err != nil {
			t.Fatal(err)
		}
		clusters, err := (&pageRun{app: a}).clusters(strings.Fields(tt.contexts))
		var got []string
		for _, c := range clusters {
			got = append(got, c.Config.Host)
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, text, tt.want)
		}
	}
}

// TestConsolePrometheus: which addresses are taken.
func TestConsolePrometheus(t *testing.T) {
	for _, tt := range []struct{ values, want string }{
		{"http://localhost:9090", "map[:true]"}, {"http://localhost:9090?cluster=rome", "map[:true]"},
		{"rome=http://a?cluster=rome milan=http://b", "map[milan:true rome:true]"},
		{"rome=http://a rome=http://b", `two addresses for "rome"`}, {"http://a http://b", `two addresses for ""`}, {"rome", "not valid"},
	} {
		all, err := prometheusOf(strings.Fields(tt.values))
		got := make(map[string]bool)
		for id, p := range all {
			got[id] = p != nil
		}
		if text := fmt.Sprint(got, err); !strings.Contains(text, tt.want) {
			t.Errorf("%s: %s, want %s", tt.values, text, tt.want)
		}
	}
}

// TestConsole: the address that the command prints is that of the page, until Ctrl-C.
func TestConsole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(threeContexts), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	r, w := io.Pipe()
	code := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		code <- run(ctx, []string{"liqoctl", "console", "--no-browser", "--kubeconfig", file}, strings.NewReader(""), w, &stderr)
		w.Close()
	}()
	url, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	base, _, _ := strings.Cut(strings.TrimSpace(url), "#")
	answer, err := http.Get(base)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("status %d", answer.StatusCode)
	}
	interrupt()
	if c := <-code; c != 0 {
		t.Errorf("exit code %d: %s", c, stderr.String())
	}
}

// TestBrowserIsOpened: the token is in a file that only the user can read, not in the
// command line of the browser.
func TestBrowserIsOpened(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: the stand-in for a browser is a script")
	}
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$@\" >'" + dir + "/argv'\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", dir)
	const url = "http://127.0.0.1:4711/#SECRET"
	opened, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- openBrowser(t.Context(), url, opened) }()
	var argv []byte
	controlplanetest.Eventually(t, "the browser is run", func(context.Context) (err error) {
		if argv, err = os.ReadFile(filepath.Join(dir, "argv")); err == nil && !strings.HasSuffix(string(argv), "\n") {
			err = errors.New("it does not know what to open yet")
		}
		return err
	})
	file := strings.TrimSpace(string(argv))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 || !strings.Contains(string(text), `url=`+url) || strings.Contains(string(argv), "SECRET") {
		t.Errorf("%s, mode %v: %s", argv, info.Mode(), text)
	}
	close(opened)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file is still there")
	}
	t.Setenv("PATH", t.TempDir())
	if err := openBrowser(t.Context(), url, opened); err == nil {
		t.Error("a browser that is not there was opened")
	}
}
