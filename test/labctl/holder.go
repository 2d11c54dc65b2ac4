package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/test/kubelab"
)

const (
	// pidFile names the process that holds the lab, which has it locked.
	pidFile = "/run/sluice-lab.pid"
	// logFile is what libraries say in that process, and why it ended if it was not
	// meant to.
	logFile = "/run/sluice-lab.log"
	// helpFile says how to look around in the lab that is up.
	helpFile = "/run/sluice-lab.txt"
	// ready ends what the holder says of its progress. What follows is how to look
	// around.
	ready = "\x00"
	// downLimit bounds the removal.
	downLimit = time.Minute
)

// claim makes this process the one that holds the lab. The file's lock goes with
// the process, however it ends.
func claim(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("a lab is up already: labctl down (make lab-down) removes it")
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, err
	}
	_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	return f, err
}

// holder returns the process that has claimed the file, 0 when none lives.
func holder(path string) (int, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
		return 0, nil
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// up starts the process that holds the lab and passes on what it says until the
// lab is ready.
func up(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	if pid, err := holder(pidFile); err != nil {
		return err
	} else if pid != 0 {
		return showAgain(pid, helpFile, os.Stdout)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	said, says, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(self, "hold")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{says} // 3: the only tie to the terminal, until it is ready
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	says.Close()
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	if err := relay(said, os.Stderr, os.Stdout); err != nil {
		return errors.Join(err, cmd.Wait())
	}
	return cmd.Process.Release()
}

// showAgain says how to look around in a lab that is up already.
func showAgain(pid int, help string, to io.Writer) error {
	text, err := os.ReadFile(help)
	if err != nil {
		return fmt.Errorf("a lab is up already, or still coming up (process %d): labctl down (make lab-down) removes it", pid)
	}
	_, err = fmt.Fprintf(to, "A lab is up already.\n\n%s", text)
	return err
}

// relay copies what the holder says until it is ready to progress, and the rest
// to result.
func relay(from io.Reader, progress, result io.Writer) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if rest, ok := strings.CutPrefix(line, ready); ok {
			if _, err := io.WriteString(result, rest); err != nil {
				return err
			}
			_, err := io.Copy(result, lines)
			return err
		}
		if _, err := io.WriteString(progress, line); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return errors.New("the lab did not come up")
		} else if err != nil {
			return err
		}
	}
}

// down ends the process that holds the lab, which removes it, or removes what
// one has left that was killed.
func down(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	pid, err := holder(pidFile)
	if err != nil {
		return err
	}
	if pid == 0 {
		s := &session{log: func(text string) { fmt.Fprintln(os.Stderr, text) }}
		if err := s.run(func() error { kubelab.Sweep(s); kubelab.RestoreSysctls(s); return nil }); err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "no lab is up")
		return errors.Join(removeIfThere(pidFile), removeIfThere(logFile), removeIfThere(helpFile))
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, downLimit)
	defer cancel()
	for ctx.Err() == nil {
		// Not the process ID, which somebody else may get.
		if now, err := holder(pidFile); err == nil && now != pid {
			fmt.Fprintln(os.Stderr, "the lab is gone")
			return errors.Join(removeIfThere(logFile), removeIfThere(helpFile))
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the lab (process %d) did not end: %w; kill -9 %d, then labctl down again", pid, ctx.Err(), pid)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
