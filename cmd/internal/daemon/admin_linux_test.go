package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/test/source"
)

// hideRun gives the thread of the test file systems of its own, in which /run is
// empty and read-only, and a temporary directory, which is returned.
func hideRun(t *testing.T) (temp string) {
	t.Helper()
	temp = socketDir(t)
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", temp)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := errors.Join(
		unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("none", "/run", "tmpfs", unix.MS_RDONLY, ""),
	); err != nil {
		source.Lacks(t, "it needs root, to make /run read-only: %v", err)
	}
	return temp
}

// Where the first places cannot be had, the program and those who ask it take
// the next one; where none can, it does without.
func TestDefaultSocket(t *testing.T) {
	temp := hideRun(t)
	missing := filepath.Join(temp, "missing")
	t.Setenv("XDG_RUNTIME_DIR", missing)
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))

	a := Addresses{}
	servers, err := gateway.Listen(&a, pages, log)
	if err != nil {
		t.Fatal(err)
	}
	if want := gateway.AdminSockets()[1]; a.AdminSocket != want || !strings.HasPrefix(want, temp) || text.Len() > 0 {
		t.Errorf("the socket is %s, want %s; log %q", a.AdminSocket, want, &text)
	}
	if _, err := gateway.Listen(new(Addresses), pages, log); !errors.As(err, new(servedError)) {
		t.Errorf("a second process: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g, _ := NewGroup(ctx)
	servers.Go(g)
	if body, err := gateway.FetchStatus(t.Context(), ""); err != nil || !strings.Contains(string(body), "{") {
		t.Errorf("asked in the default places: %v, %s", err, body)
	}
	cancel()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}

	if err := errors.Join(os.RemoveAll(filepath.Dir(a.AdminSocket)), os.WriteFile(filepath.Dir(a.AdminSocket), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	a = Addresses{}
	if servers, err = gateway.Listen(&a, pages, log); err != nil || len(servers) > 0 || a.AdminSocket != "" {
		t.Errorf("no place can be had: %v, %d servers, %q", err, len(servers), a.AdminSocket)
	}
	for _, want := range []string{"level=WARN", "the status command cannot ask this process", "/run/sluice/gateway.sock: read-only file system; admin socket " + temp} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the log lacks %q: %s", want, &text)
		}
	}
	if _, err := os.Lstat(missing); !os.IsNotExist(err) {
		t.Errorf("the runtime directory that is not there has been made: %v", err)
	}
	if _, err := gateway.Listen(&Addresses{AdminSocket: "/run/sluice/s"}, pages, log); err == nil || err.Error() != "admin socket /run/sluice/s: read-only file system" {
		t.Errorf("a place that was asked for: %v", err)
	}
}
