package uml

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed init.sh
var initScript []byte

// Config says how to boot a guest.
type Config struct {
	// Kernel is the program to run, as Kernel returns it.
	Kernel string
	// Dir is an existing directory of the caller's. The scripts and their output
	// go there; inside the guest it is /mnt.
	Dir string
	// Tap names a tap device in the namespace that Start starts in; Wire is one end
	// of a datagram socket pair. At most one of them is set. The guest's end is its
	// device vec0, without an address and down.
	Tap  string
	Wire *os.File
	// MemoryMiB is the guest's memory. Zero means 256.
	MemoryMiB int
	// Start starts the command. Nil means cmd.Start; a namespace is entered here.
	Start func(cmd *exec.Cmd) error
}

// Guest is a running kernel. Its methods may be used by one goroutine at a
// time.
type Guest struct {
	dir      string
	cmd      *exec.Cmd
	commands *os.File // to the guest
	answers  *bufio.Reader
	answerFD *os.File
	console  *os.File
	scripts  int
	done     chan struct{}
}

// bootTime bounds the time from start to the first command. It takes half a
// second on an idle machine.
const bootTime = 30 * time.Second

// Boot starts a guest and waits until it takes commands.
func Boot(cfg Config) (*Guest, error) {
	if cfg.MemoryMiB == 0 {
		cfg.MemoryMiB = 256
	}
	g := &Guest{dir: cfg.Dir, done: make(chan struct{})}
	initPath := filepath.Join(cfg.Dir, "init.sh")
	if err := os.WriteFile(initPath, initScript, 0o755); err != nil {
		return nil, err
	}
	console, err := os.Create(filepath.Join(cfg.Dir, "console.log"))
	if err != nil {
		return nil, err
	}
	g.console = console
	fromHost, toGuest, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer fromHost.Close()
	fromGuest, toHost, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer toHost.Close()
	g.commands, g.answerFD, g.answers = toGuest, fromGuest, bufio.NewReader(fromGuest)

	g.cmd = exec.Command(cfg.Kernel,
		"mem="+strconv.Itoa(cfg.MemoryMiB)+"M",
		"root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
		"init="+initPath, "job="+cfg.Dir,
		"uml_dir="+cfg.Dir, "umid=guest",
		// The kernel's messages to the log, the commands on the second console.
		"con=null", "con0=null,fd:1", "con1=fd:3,fd:4", "ssl=null",
		"panic=-1", // end rather than hang
	)
	g.cmd.ExtraFiles = []*os.File{fromHost, toHost} // 3 and 4
	switch {
	case cfg.Tap != "":
		g.cmd.Args = append(g.cmd.Args, "vec0:transport=tap,ifname="+cfg.Tap+",depth=128,gro=1")
	case cfg.Wire != nil:
		g.cmd.ExtraFiles = append(g.cmd.ExtraFiles, cfg.Wire)
		g.cmd.Args = append(g.cmd.Args, "vec0:transport=fd,fd=5,vec=0")
	}
	g.cmd.Stdout, g.cmd.Stderr = console, console
	// Its own group: the kernel's processes are ended together.
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	start := cfg.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(g.cmd); err != nil {
		return nil, err
	}
	go func() {
		_ = g.cmd.Wait()
		close(g.done)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	defer cancel()
	if line, err := g.answer(ctx); err != nil || line != "ready" {
		g.Close()
		return nil, fmt.Errorf("boot: got %q: %w\n%s", line, err, g.Console())
	}
	return g, nil
}

// Run runs a bash script in the guest and returns its output. What the script
// leaves in the background stays.
func (g *Guest) Run(ctx context.Context, script string) (string, error) {
	g.scripts++
	name := fmt.Sprintf("script%d", g.scripts)
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte(script), 0o644); err != nil {
		return "", err
	}
	if _, err := io.WriteString(g.commands, name+"\n"); err != nil {
		return "", fmt.Errorf("tell the guest: %w", err)
	}
	line, err := g.answer(ctx)
	out, _ := os.ReadFile(filepath.Join(g.dir, name+".out"))
	if err != nil {
		return string(out), fmt.Errorf("%w; the console says:\n%s", err, g.Console())
	}
	if line != "exit 0" {
		return string(out), fmt.Errorf("the script ended with %q", line)
	}
	return string(out), nil
}

// answer reads one line from the guest. After an error the guest is unusable.
func (g *Guest) answer(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}
	c := make(chan result, 1)
	go func() { // ends at the latest when Close closes the pipe
		line, err := g.answers.ReadString('\n')
		c <- result{strings.TrimSpace(line), err}
	}()
	select {
	case r := <-c:
		return r.line, r.err
	case <-g.done:
		return "", errors.New("the kernel has ended")
	case <-ctx.Done():
		return "", fmt.Errorf("no answer from the guest: %w", ctx.Err())
	}
}

// Console returns what the kernel has said.
func (g *Guest) Console() string {
	b, _ := os.ReadFile(g.console.Name())
	return string(b)
}

// Close ends the guest and all its processes.
func (g *Guest) Close() {
	_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	<-g.done
	g.commands.Close()
	g.answerFD.Close()
	g.console.Close()
}
