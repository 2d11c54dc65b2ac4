package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// AdminSocketText explains AdminSockets.
func (p Program) AdminSocketText() string {
	return fmt.Sprintf("$XDG_RUNTIME_DIR/sluice/%[1]s.sock, else /run/sluice/%[1]s.sock, else in the temporary directory", p)
}

// AdminSockets are where a running program is asked, unless told otherwise: it
// takes the first that it can make, and a status command of the same user asks
// all. Several processes of one user need --admin-socket.
func (p Program) AdminSockets() (paths []string) {
	for _, dir := range socketDirs() {
		paths = append(paths, dir+"/"+string(p)+".sock")
	}
	return paths
}

// socketDirs are the folders of AdminSockets. A runtime directory that cannot be
// used, as after su, is passed over.
func socketDirs() (dirs []string) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && unix.Access(dir, unix.W_OK|unix.X_OK) == nil {
		dirs = append(dirs, filepath.Join(dir, "sluice"))
	}
	return append(dirs, "/run/sluice", filepath.Join(os.TempDir(), fmt.Sprintf("sluice-%d", os.Getuid())))
}

// listenAdmin opens the socket at path. Without a path it takes the first of
// AdminSockets that it can have; where it can have none, the listener is nil: the
// program cannot be asked then, but that is no reason not to work.
func (p Program) listenAdmin(path string, log *slog.Logger) (net.Listener, error) {
	if path != "" {
		return p.ListenAdmin(path)
	}
	var reasons []string
	for _, path := range p.AdminSockets() {
		l, err := p.ListenAdmin(path)
		if err == nil || errors.As(err, new(servedError)) {
			return l, err
		}
		reasons = append(reasons, err.Error())
	}
	log.Warn("there is no admin socket, so the status command cannot ask this process: choose a place with --admin-socket", "reason", strings.Join(reasons, "; "))
	return nil, nil
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

// makeSocketDir makes the folder of the socket if it is one of ours. Of another,
// which is most likely a slip of the pen, there should be something already.
func makeSocketDir(dir string) error {
	if slices.Contains(socketDirs(), dir) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return cause(err)
		}
	}
	_, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no directory %s: make it, or choose another place with --admin-socket", dir)
	case err != nil:
		return cause(err)
	}
	return checkOwner(dir)
}

// checkOwner refuses a folder in the temporary directory, where anybody could
// have made it, that is not ours.
func checkOwner(dir string) error {
	if filepath.Dir(dir) != filepath.Clean(os.TempDir()) {
		return nil
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return cause(err)
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
		return servedError{p}
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return cause(err)
}

// servedError says that a socket is in use.
type servedError struct{ program Program }

func (e servedError) Error() string {
	return fmt.Sprintf("another %s serves it: give this one its own with --admin-socket", e.program)
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

// AdminHandler serves what status returns as JSON, and further pages by the
// pattern that http.ServeMux takes: "GET /capture".
func AdminHandler(status func() any, more map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		WriteJSON(w, status()) // an error means that the client has gone
	})
	for pattern, h := range more {
		mux.Handle(pattern, h)
	}
	return mux
}

// WriteJSON prints v as a status command does.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// NoAnswerError says that there is no process that can be asked.
type NoAnswerError struct {
	Program Program
	Silent  []string // sockets that nobody serves
	Denied  []string // those that are not ours
}

func (e NoAnswerError) Error() string {
	var parts []string
	if len(e.Silent) > 0 {
		parts = append(parts, fmt.Sprintf("no %s answers on %s: is it running, and with this --admin-socket?", e.Program, strings.Join(e.Silent, " or ")))
	}
	if len(e.Denied) > 0 {
		parts = append(parts, fmt.Sprintf("%s belongs to another user: run status as the user of the %s", strings.Join(e.Denied, " and "), e.Program))
	}
	return strings.Join(parts, "; ")
}

const statusPath = "/status"

// maxStatus bounds the answer that is read: a hundred thousand routes.
const maxStatus = 64 << 20

// statusWithin bounds how long a status command waits.
const statusWithin = 5 * time.Second

// FetchStatus asks the process behind an admin socket for its status; without a
// path, the first of AdminSockets that answers. The error is a NoAnswerError where
// there is none.
func (p Program) FetchStatus(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, statusWithin)
	defer cancel()
	body, err := p.AdminGet(ctx, path, statusPath)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxStatus))
	if err != nil {
		return nil, fmt.Errorf("ask the %s: %w", p, err)
	}
	return text, nil
}

// AdminGet asks the process behind an admin socket for a page, as path and query:
// "/capture?point=node". Without a socket it asks the first of AdminSockets that
// answers. It returns the answer, which the caller closes, as it comes: it may be
// a stream, which ends with ctx. What the process refuses is an error of its own
// words; where there is no process, a NoAnswerError.
func (p Program) AdminGet(ctx context.Context, socket, target string) (*Answer, error) {
	if socket != "" {
		return p.adminGet(ctx, socket, target)
	}
	none := NoAnswerError{Program: p}
	for _, socket := range p.AdminSockets() {
		if err := checkOwner(filepath.Dir(socket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue // of somebody who would like to be asked
		}
		body, err := p.adminGet(ctx, socket, target)
		var e NoAnswerError
		if !errors.As(err, &e) {
			return body, err
		}
		none.Silent, none.Denied = append(none.Silent, e.Silent...), append(none.Denied, e.Denied...)
	}
	return nil, none
}

// Answer is what a process says to AdminGet.
type Answer struct {
	io.ReadCloser
	conn net.Conn
}

// Enough tells the process that no more is wanted: the context of its request ends.
// What it says until then and as its last words can still be read.
func (a *Answer) Enough() {
	if c, ok := a.conn.(*net.UnixConn); ok {
		_ = c.CloseWrite() // closed already is as good
	}
}

func (p Program) adminGet(ctx context.Context, socket, target string) (*Answer, error) {
	answer := new(Answer)
	client := http.Client{Transport: &http.Transport{
		// One connection, one question.
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			c, err = new(net.Dialer).DialContext(ctx, "unix", socket)
			answer.conn = c
			return c, err
		},
	}}
	// The host is not used; HTTP wants one.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(p)+target, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, NoAnswerError{Program: p, Silent: []string{socket}}
	case errors.Is(err, fs.ErrPermission):
		return nil, NoAnswerError{Program: p, Denied: []string{socket}}
	case err != nil:
		return nil, fmt.Errorf("ask the %s on %s: %w", p, socket, err)
	case resp.StatusCode == http.StatusOK:
		answer.ReadCloser = resp.Body
		return answer, nil
	}
	defer resp.Body.Close()
	return nil, p.refusal(resp)
}

// refusal is what a process says instead of an answer.
func (p Program) refusal(resp *http.Response) error {
	const longest = 4 << 10
	text, err := io.ReadAll(io.LimitReader(resp.Body, longest))
	switch reason := strings.TrimSpace(string(text)); {
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("the %s has no page %s: it is of another version", p, resp.Request.URL.Path)
	case err == nil && reason != "":
		return errors.New(reason)
	}
	return fmt.Errorf("the %s answers %s", p, resp.Status)
}
