package controlplanetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// command is a program to start.
type command struct {
	program    string
	args, env  []string
	dir, log   string
	credential *syscall.Credential // nil: as this process
}

// process is a program that was started. It ends with this process, however
// that ends.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// start runs the program with its output appended to its log.
func (c command) start() (*process, error) {
	p := &process{cmd: exec.Command(c.program, c.args...), log: c.log, done: make(chan struct{})}
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir, p.cmd.Env = f, f, c.dir, c.env
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: c.credential}
	started := make(chan error)
	go func() {
		// The kernel takes the end of the thread that started it for the end of
		// the parent, so this thread stays until the program ends.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // its state says how it ended
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(c.program), err)
	}
	return p, nil
}

// kill ends the program at once and waits for its end.
func (p *process) kill() {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return
	}
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
	}
}

// signal sends a signal, unless the program has ended.
func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// tail is the end of the program's log.
func (p *process) tail() string { return tail(p.log, 2000) }

// tail is the end of a file, for a message.
func tail(path string, size int) string {
	b, _ := os.ReadFile(path) // no log is as good as an empty one
	return string(b[max(0, len(b)-size):])
}
