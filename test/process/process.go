// Package process starts programs for tests: control planes, what plays pods. A
// program ends with the process that started it, however that ends.
package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// stopTimeout is how long Kill waits for the kernel to end a process.
const stopTimeout = 15 * time.Second

// RareCollection makes programs of Kubernetes collect garbage less often than by
// default, until they are large: it was a fifth of what a kube-apiserver computed. With
// thousands of pods it needs more memory than that, or does little else than
// collect: SLUICE_PLANE_MEMORY in the environment sets another limit, such as 4GiB.
var RareCollection = []string{"GOGC=400", "GOMEMLIMIT=" + cmp.Or(os.Getenv("SLUICE_PLANE_MEMORY"), "1GiB")}

// Command is a program to start.
type Command struct {
	Program string
	Args    []string
	// Env is the whole environment.
	Env []string
	Dir string
	// Log is a file to which the output is appended.
	Log string
	// Credential is the user; nil: that of this process.
	Credential *syscall.Credential
}

// Process is a program that was started.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// Start starts the program.
func (c Command) Start() (*Process, error) {
	p := &Process{cmd: exec.Command(c.Program, c.Args...), log: c.Log, done: make(chan struct{})}
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir, p.cmd.Env = f, f, c.Dir, c.Env
	// An interrupt from a terminal is for who started it: a control plane without its etcd would not end.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Credential: c.Credential}
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
		return nil, fmt.Errorf("start %s: %w", filepath.Base(c.Program), err)
	}
	return p, nil
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ID is the number of the process.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// State is how the program ended, once Done is closed.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Kill ends the program at once and waits for its end.
func (p *Process) Kill() {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return
	}
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
	}
}

// Signal sends a signal, unless the program has ended.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Tail is the end of the program's log.
func (p *Process) Tail() string {
	const size = 2000
	return Tail(p.log, size)
}

// Tail is the end of a file, for a message; empty if it cannot be read.
func Tail(path string, size int) string {
	b, _ := os.ReadFile(path) // no log is as good as an empty one
	return string(b[max(0, len(b)-size):])
}
