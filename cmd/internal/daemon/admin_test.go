package daemon

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const gateway Program = "gateway"

// socketDir is shorter than t.TempDir, whose paths may exceed a socket's.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestListenAdmin(t *testing.T) {
	path := filepath.Join(socketDir(t), "admin.sock")
	l, err := gateway.ListenAdmin(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want only the owner", info.Mode())
	}
	if _, err := gateway.ListenAdmin(path); err == nil || !strings.Contains(err.Error(), "another gateway serves it") {
		t.Errorf("a socket in use: %v", err)
	}

	// What a crash leaves behind is in nobody's way.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	if l, err = gateway.ListenAdmin(path); err != nil {
		t.Fatalf("a socket that nobody serves: %v", err)
	}
	l.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stays after the end: %v", err)
	}
}

func TestListenAdminRefuses(t *testing.T) {
	dir := socketDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, path, want string }{
		{"a file", file, "there is a file of that name, which is no socket"},
		{"below a file", filepath.Join(file, "x"), "not a directory"},
		{"in a directory that is not there", filepath.Join(dir, "new", "s"), "there is no directory " + dir + "/new: make it, or choose another place with --admin-socket"},
		{"a long path", filepath.Join(dir, strings.Repeat("x", 120)), "a socket's may have 107"},
	} {
		_, err := gateway.ListenAdmin(tt.path)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.path) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "new")); !os.IsNotExist(err) {
		t.Errorf("the directory has been made: %v", err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
		t.Errorf("the file is now %q (%v)", data, err)
	}
}

func TestNoAnswerError(t *testing.T) {
	for _, tt := range []struct {
		err  NoAnswerError
		want string
	}{
		{NoAnswerError{Silent: []string{"/a"}}, "no gateway answers on /a: is it running, and with this --admin-socket?"},
		{NoAnswerError{Denied: []string{"/a"}}, "/a belongs to another user: run status as the user of the gateway"},
		{
			NoAnswerError{Silent: []string{"/a", "/b"}, Denied: []string{"/c"}},
			"no gateway answers on /a or /b: is it running, and with this --admin-socket?; /c belongs to another user: run status as the user of the gateway",
		},
	} {
		tt.err.Program = gateway
		if tt.err.Error() != tt.want {
			t.Errorf("got %v, want %s", tt.err, tt.want)
		}
	}
}
