package controlplanetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	clientexec "k8s.io/client-go/util/exec"
	streaming "k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// executor runs commands in one container.
type executor struct {
	w *podWorker
	c *container
}

// ExecInContainer runs a command until it ends, or is killed because the client
// or the container is gone.
func (e executor) ExecInContainer(ctx context.Context, _, _, _ string, argv []string, in io.Reader, out, errs io.WriteCloser,
	_ bool, _ <-chan streaming.TerminalSize, _ time.Duration) error {
	var stdout, stderr io.Writer = io.Discard, io.Discard
	if out != nil {
		stdout = out
	}
	if errs != nil {
		stderr = errs
	}
	code, err := e.run(ctx, argv, in, stdout, stderr)
	if err == nil && code != 0 {
		return clientexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
	}
	return err
}

// run runs a command and returns its exit code.
func (e executor) run(ctx context.Context, argv []string, in io.Reader, stdout, stderr io.Writer) (code int, err error) {
	over, up := e.c.up()
	if !up {
		return 0, fmt.Errorf("container %s of pod %s/%s does not run", e.c.spec.Name, e.w.namespace, e.w.name)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(over, cancel)()
	name := ""
	if len(argv) > 0 {
		name = filepath.Base(argv[0])
	}
	switch {
	case e.c.image.Program == "" && e.c.image.Exec != nil:
		if in != nil {
			go func() { // ends with the stream, at the latest when the caller hangs up
				_, _ = io.Copy(io.Discard, in) // its end is all that counts
				cancel()
			}()
		}
		return e.c.image.Exec(ctx, e.w.current(), argv, stdout, stderr), nil
	case e.c.image.Program == "" || name != filepath.Base(e.c.image.Program):
		return 0, fmt.Errorf("failed to start exec: exec: %q: executable file not found in $PATH", strings.Join(argv[:min(1, len(argv))], ""))
	}
	return e.runProgram(ctx, argv[1:], in, stdout, stderr)
}

// runProgram runs the program of the image once more.
func (e executor) runProgram(ctx context.Context, args []string, in io.Reader, stdout, stderr io.Writer) (code int, err error) {
	_, env, err := e.w.environment(e.w.current(), e.c.spec)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, e.c.image.Program)
	for _, a := range args {
		cmd.Args = append(cmd.Args, e.w.inHost(e.c.spec, a))
	}
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, e.w.dir, stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential(e.w.first, e.c.spec)}
	cmd.WaitDelay = time.Second // for what it may have started and left behind
	if in != nil {
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return 0, err
		}
		go func() { // ends with the stream, at the latest when the caller hangs up
			_, _ = io.Copy(stdin, in) // the program may close its end first
			stdin.Close()
		}()
	}
	err = cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// Exec runs the program of a pod's first container once more, as `kubectl exec`
// does but without asking anybody, and returns what it prints.
func (k *Kubelet) Exec(ctx context.Context, namespace, pod string, args ...string) (string, error) {
	k.mu.Lock()
	var e executor
	for _, w := range k.workers {
		if w.namespace == namespace && w.name == pod && w.containers[0].running() != nil {
			e = executor{w, w.containers[0]}
		}
	}
	k.mu.Unlock()
	if e.w == nil {
		return "", fmt.Errorf("no pod %s/%s runs here", namespace, pod)
	}
	var out, errs strings.Builder
	code, err := e.runProgram(ctx, args, nil, &out, &errs)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit status %d", code)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), err
}
