// Command controlplanes lends control planes to the tests that a command runs, so that
// these need not start one each:
//
//	go run ./test/controlplanes go test ./...
//
// It starts them when they are wanted, and ends them with the command, whose exit code
// is its own. Without a command it prints its socket, and ends with its standard input:
// this is how a test gets one when nobody has run it so.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-net/sluice/test/controlplanetest/plane"
	"github.com/sluice-net/sluice/test/source"
)

func main() {
	ctrl.SetLogger(logr.Discard())
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplanes:", err)
		code = 1
	}
	os.Exit(code)
}

func run(command []string) (code int, err error) {
	dir, err := os.MkdirTemp("", "controlplanes-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	l, err := listen(dir, len(command) > 0)
	if err != nil {
		return 0, err
	}
	pool := plane.NewPool(dir)
	done := make(chan struct{})
	go func() {
		pool.Serve(l)
		close(done)
	}()
	defer func() {
		l.Close()
		<-done
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if len(command) == 0 {
		fmt.Println(l.Addr())
		eof := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
			close(eof)
		}()
		select {
		case <-eof:
		case <-signals:
		}
		return 0, nil
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), source.ControlPlanes+"="+l.Addr().String())
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM { // a terminal interrupts both
				_ = cmd.Process.Signal(s) // or it has ended
			}
		}
	}()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if code = cmd.ProcessState.ExitCode(); code < 0 {
		code = 1 // a signal has ended it
	}
	return code, nil
}

// listen opens the socket. The path of one that is for a command is the same in every
// run that lends the same, in any clone, as far as no other one runs now: `go test` takes
// another environment for another test, whose result it does not know yet.
func listen(dir string, same bool) (net.Listener, error) {
	if !same {
		return net.Listen("unix", filepath.Join(dir, "socket"))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(cache, "sluice", "run")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	name, err := plane.Inputs()
	if err != nil {
		return nil, err
	}
	// Not an os.File, which closes when nobody refers to it: the lock is held to the end
	// of this process.
	lock, err := syscall.Open(filepath.Join(folder, name+".lock"), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return net.Listen("unix", filepath.Join(dir, "socket"))
	}
	socket := filepath.Join(folder, name)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) { // of one that was killed
		return nil, err
	}
	return net.Listen("unix", socket)
}
