package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// AdminSocketText explains AdminSocket.
func (p Program) AdminSocketText() string {
	return fmt.Sprintf("$XDG_RUNTIME_DIR/sluice/%[1]s.sock, else /run/sluice/%[1]s.sock, else in the temporary directory", p)
}

// AdminSocket is where a running program is asked, unless told otherwise: the
// same for the program and for a status command of the same user. Several
// processes of one user need --admin-socket. A runtime directory that cannot be
// used, as after su, is passed over.
func (p Program) AdminSocket() string {
	name := string(p) + ".sock"
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && writable(dir) {
		return dir + "/sluice/" + name
	}
	if os.Getuid() == 0 || writable("/run/sluice") {
		return "/run/sluice/" + name
	}
	return fmt.Sprintf("%s/sluice-%d/%s", strings.TrimSuffix(os.TempDir(), "/"), os.Getuid(), name)
}

// ListenAdmin opens the socket that the status command asks. Only its owner may
// connect: what it shows is not secret, but nobody else's business. A socket
// that a dead process left behind is replaced, a live one is not.
func (p Program) ListenAdmin(path string) (net.Listener, error) {
	if err := makeSocketDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("admin socket %s: %w", path, err)
	}
	if err := p.removeStale(path); err != nil {
		return nil, fmt.Errorf("admin socket %s: %w", path, err)
	}
	// The mode must be right from the first moment, so chmod would be too late.
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EINVAL) && len(path) > 107 {
		err = fmt.Errorf("the path has %d bytes, a socket's may have 107: give a shorter one with --admin-socket", len(path))
	}
	if err != nil {
		return nil, fmt.Errorf("admin socket %s: %w", path, cause(err))
	}
	return l, nil
}

// makeSocketDir makes the folder of the socket. In the temporary directory
// anybody could have made it before: then it must be ours.
func makeSocketDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return cause(err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return cause(err)
	}
	if filepath.Dir(dir) != filepath.Clean(os.TempDir()) {
		return nil
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s belongs to somebody else: choose another place with --admin-socket", dir)
	}
	return nil
}

// removeStale removes a socket that nobody serves.
func (p Program) removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cause(err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return errors.New("there is a file of that name, which is no socket")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("another %s serves it: give this one its own with --admin-socket", p)
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return cause(err)
}

// writable tells whether we may create files in dir.
func writable(dir string) bool {
	const writeAndSearch = 2 | 1 // W_OK | X_OK
	return syscall.Access(dir, writeAndSearch) == nil
}

// cause drops operation and address, which the caller's message names better.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return err
}

// AdminHandler serves what status returns as JSON.
func AdminHandler(status func() any) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		WriteJSON(w, status()) // an error means that the client has gone
	})
	return mux
}

// WriteJSON prints v as a status command does.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// NoAnswerError says that no process serves an admin socket.
type NoAnswerError struct {
	Program Program
	Path    string
}

func (e NoAnswerError) Error() string {
	return fmt.Sprintf("no %s answers on %s: is it running, and with this --admin-socket?", e.Program, e.Path)
}

// maxStatus bounds the answer that is read: a hundred thousand routes.
const maxStatus = 64 << 20

// FetchStatus asks the process behind an admin socket for its status. The error
// is a NoAnswerError where there is none.
func (p Program) FetchStatus(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	defer client.CloseIdleConnections()
	// The host is not used; HTTP wants one.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(p)+"/status", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, NoAnswerError{p, path}
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s belongs to another user: run status as the user of the %s", path, p)
	case err != nil:
		return nil, fmt.Errorf("ask the %s on %s: %w", p, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the %s on %s: %w", p, path, err)
	}
	return body, nil
}
