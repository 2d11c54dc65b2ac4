package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// clockTick is the unit of the times in /proc/PID/stat, USER_HZ, which Linux
// fixes at 100 on every architecture Go runs on.
const clockTick = 10 * time.Millisecond

// logLimit bounds the kept output of one process: its end is what explains a
// failure.
const logLimit = 256 << 10

// Process is a program running on a host.
type Process struct {
	// Name is what logs call it.
	Name string

	host      *Host
	cmd       *exec.Cmd
	log       tail
	worthless bool // see Program
	done      chan struct{}
	err       error // valid once done is closed
}

// Program says what to run with Host.Start.
type Program struct {
	Name string
	Args []string
	// Env is added to the environment of the test.
	Env []string
	// Unprivileged runs the program as user 65532 without any capability and
	// without the possibility to gain one, as in a pod under the restricted
	// policy.
	Unprivileged bool
	// NetAdmin runs the program as root with the capability NET_ADMIN and no other,
	// as in a pod whose container adds it after dropping all.
	NetAdmin bool
	// Log is a file for the whole output, instead of its end in memory that is
	// shown when the test fails.
	Log string
	// Worthless says that nothing of the program is of use after the lab: it is
	// killed then, without being asked.
	Worthless bool
}

// UnprivilegedID is the user and group of an unprivileged program.
const UnprivilegedID = 65532

// command is the program's command line with what takes privileges away before
// it.
func (p Program) command() []string {
	// --pdeathsig, because a change of user clears the signal set at fork.
	drop := []string{"setpriv", "--no-new-privs", "--pdeathsig", "KILL"}
	switch {
	case p.Unprivileged:
		id := strconv.Itoa(UnprivilegedID)
		drop = append(drop, "--reuid", id, "--regid", id, "--clear-groups", "--inh-caps", "-all", "--bounding-set", "-all")
	case p.NetAdmin:
		drop = append(drop, "--inh-caps", "-all", "--ambient-caps", "-all", "--bounding-set", "-all,+net_admin")
	default:
		return p.Args
	}
	return append(drop, p.Args...)
}

// Start runs a program in the background until the end of the lab. Its output
// is shown when the test fails.
func (h *Host) Start(p Program) *Process {
	h.lab.t.Helper()
	proc, err := h.Launch(p)
	if err != nil {
		h.lab.t.Fatal(err)
	}
	return proc
}

// Launch is Start that returns its error.
func (h *Host) Launch(p Program) (*Process, error) { return h.launch(p, 0) }

// launch starts a program in new namespaces of the kinds in flags.
func (h *Host) launch(p Program, flags uintptr) (*Process, error) {
	proc := &Process{Name: p.Name, host: h, worthless: p.Worthless, done: make(chan struct{})}
	proc.cmd = h.command(context.Background(), p.command())
	proc.cmd.SysProcAttr.Cloneflags = flags
	proc.cmd.Env = append(os.Environ(), p.Env...)
	proc.cmd.Dir = h.lab.Dir
	proc.cmd.Stdout, proc.cmd.Stderr = &proc.log, &proc.log
	if p.Log != "" {
		f, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		proc.cmd.Stdout, proc.cmd.Stderr = f, f
	}
	if err := h.Do(proc.cmd.Start); err != nil {
		return nil, fmt.Errorf("%s: start %s: %w", h.Name, p.Name, err)
	}
	go func() {
		proc.err = proc.cmd.Wait()
		close(proc.done)
	}()
	h.mu.Lock()
	h.processes = append(h.processes, proc)
	h.mu.Unlock()
	if p.Log == "" {
		h.lab.t.Cleanup(func() {
			if h.lab.t.Failed() {
				h.lab.t.Logf("--- %s on %s said last:\n%s", proc.Name, h.Name, lastLines(proc.Log(), 40))
			}
		})
	}
	return proc, nil
}

// lastLines returns the last n lines of text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// stopAll ends the processes of the host that still run.
func (h *Host) stopAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.processes {
		if p.worthless {
			_ = p.Kill()
			continue
		}
		_, _ = p.Stop(Patience)
	}
	h.processes = nil
}

// Stop asks the process to end with SIGTERM and kills it after the limit. It
// returns how long the end took, and an error when it had to be killed or the
// process reported a failure.
func (p *Process) Stop(limit time.Duration) (time.Duration, error) {
	start := time.Now()
	if !p.Running() {
		return 0, p.err
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return time.Since(start), p.err
	case <-time.After(limit):
		_ = p.cmd.Process.Kill()
		<-p.done
		return time.Since(start), fmt.Errorf("%s did not end within %v of SIGTERM", p.Name, limit)
	}
}

// Kill ends the process at once, as a crash would.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running tells whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ExitCode is the code of an ended process, -1 when a signal ended it.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log returns the end of what the process wrote.
func (p *Process) Log() string { return p.log.String() }

// CPU returns the processor time the process has used, user and system. The
// kernel's work in interrupts on its behalf is not in it.
func (p *Process) CPU() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses and may hold spaces.
	_, rest, ok := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, fmt.Errorf("unexpected /proc/%d/stat: %q", p.PID(), b)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64) // field 14, utime
	sys, err2 := strconv.ParseInt(fields[12], 10, 64)  // field 15, stime
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("unexpected /proc/%d/stat: %q", p.PID(), b)
	}
	return time.Duration(user+sys) * clockTick, nil
}

// RSS returns the resident memory in bytes.
func (p *Process) RSS() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in /proc/%d/status", p.PID())
}

// tail is a writer that keeps the last logLimit bytes.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*logLimit { // copy rarely
		t.b = append(t.b[:0], t.b[len(t.b)-logLimit:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
