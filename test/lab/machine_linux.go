package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Boot makes the host a machine of its own: what is started on it from now on
// has process IDs, mounts and a host name apart from the test's. init is its
// first process: it reaps, and with it everything on the machine ends at once,
// which is also what happens when the test dies. mounts changes the machine's
// mounts; the test's are not touched.
func (h *Host) Boot(init Program, mounts func() error) (*Process, error) {
	p, err := h.launch(init, syscall.CLONE_NEWNS|syscall.CLONE_NEWPID|syscall.CLONE_NEWUTS)
	if err != nil {
		return nil, err
	}
	err = h.Do(func() error {
		if err := join(p.PID(), h.Name); err != nil {
			return err
		}
		return mounts()
	})
	if err != nil {
		return p, errors.Join(fmt.Errorf("%s: enter the machine: %w", h.Name, err), p.Kill())
	}
	h.thread().machine.Store(true)
	// By a process, as the thread's own process IDs stay those of the test.
	if out, err := h.Try("mount", "-t", "proc", "proc", "/proc"); err != nil {
		return p, errors.Join(fmt.Errorf("%s: mount /proc: %w: %s", h.Name, err, out), p.Kill())
	}
	return p, nil
}

// join moves the calling thread into the namespaces of a process.
func join(pid int, hostname string) error {
	// Threads of Go share root and working directory, which a thread with mounts of its own cannot.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	namespaces := []struct {
		name string
		kind int
	}{{"pid", unix.CLONE_NEWPID}, {"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}}
	for _, ns := range namespaces {
		if err := enter(fmt.Sprintf("/proc/%d/ns/%s", pid, ns.name), ns.kind); err != nil {
			return err
		}
	}
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return err
	}
	// Nothing that is mounted here shows on the test's side.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

// enter moves the calling thread into one namespace.
func enter(path string, kind int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), kind); err != nil {
		return fmt.Errorf("enter %s: %w", path, err)
	}
	return nil
}

// Replace puts a new host with the same name, without links, in the place of
// one whose processes have ended, as when a machine is switched on again.
func (h *Host) Replace() error {
	h.thread().end()
	if out, err := exec.Command("ip", "netns", "del", h.ns).CombinedOutput(); err != nil {
		return fmt.Errorf("remove the namespace %s: %w: %s", h.ns, err, out)
	}
	return h.create()
}

// InNamespace runs fn on a thread of its own inside the network namespace of a
// path such as /proc/1/ns/net. Sockets opened there stay there.
func InNamespace(path string, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := enter(path, unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

// Apart runs fn on a thread of its own inside the host's network namespace. fn
// may wait, which in Do would keep everybody else waiting.
func (h *Host) Apart(fn func() error) error { return InNamespace("/run/netns/"+h.ns, fn) }

// Exec runs a command to its end on the host.
func (h *Host) Exec(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = h.deathSignal()
	if err := h.Do(cmd.Start); err != nil {
		return fmt.Errorf("%s: start %s: %w", h.Name, strings.Join(cmd.Args, " "), err)
	}
	return cmd.Wait()
}
