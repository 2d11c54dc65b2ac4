package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// listenAdmin opens the socket that "gateway status" asks. Only its owner may
// connect: what it shows is not secret, but nobody else's business. A socket
// that a dead gateway left behind is replaced, a live one is not.
func listenAdmin(path string) (net.Listener, error) {
	if err := makeSocketDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("admin socket %s: %w", path, err)
	}
	if err := removeStale(path); err != nil {
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
func removeStale(path string) error {
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
		return errors.New("another gateway serves it: give this one its own with --admin-socket")
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

// adminHandler serves the status as JSON.
func adminHandler(status func() report) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.Encode(status()) // an error means that the client has gone
	})
	return mux
}
