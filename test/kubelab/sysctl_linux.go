package kubelab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/test/lab"
)

// nodeSysctls are those of the machine that a kubelet sets when it starts, and what a lab
// raises itself. No namespace has its own.
var nodeSysctls = []string{"kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", inotifyInstances}

// inotifyInstances is how many instances of inotify all processes of root may have. The
// kernel's 128 are what two labs need, and a kubelet that gets none ends.
const inotifyInstances = "fs/inotify/max_user_instances"

// raiseInotify has the machine allow as many instances as several labs need.
func raiseInotify(root string) error {
	const enough = 2048
	path := filepath.Join(root, inotifyInstances)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || n >= enough {
		return err
	}
	return os.WriteFile(path, fmt.Appendln(nil, enough), 0o644)
}

const (
	procSys = "/proc/sys"
	// sysctlsBefore keeps what they were, for whoever cleans up after a lab that was killed.
	sysctlsBefore = "/run/sluice-lab.sysctls"
)

// sysctls are values, as lines of NAME VALUE.
type sysctls string

// rememberSysctls reads what the machine has, or had before another lab began.
func rememberSysctls(root, file string) (sysctls, error) {
	b, err := os.ReadFile(file)
	if err == nil {
		return sysctls(b), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	var text strings.Builder
	for _, name := range nodeSysctls {
		value, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "%s %s\n", name, strings.TrimSpace(string(value)))
	}
	// Another lab that begins now sees all of it or nothing.
	temporary := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(temporary, []byte(text.String()), 0o644); err != nil {
		return "", err
	}
	return sysctls(text.String()), os.Rename(temporary, file)
}

// restore puts the values back. Another lab that still runs does not need the others.
func (s sysctls) restore(root, file string) error {
	var errs []error
	for line := range strings.Lines(string(s)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			errs = append(errs, os.WriteFile(filepath.Join(root, name), []byte(value), 0o644))
		}
	}
	if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// RestoreSysctls puts back what a lab has changed that was killed.
func RestoreSysctls(t lab.T) {
	t.Helper()
	if _, err := os.Stat(sysctlsBefore); err != nil {
		return
	}
	before, err := rememberSysctls(procSys, sysctlsBefore)
	if err == nil {
		err = before.restore(procSys, sysctlsBefore)
	}
	if err != nil {
		t.Logf("leftover of a dead run: %v", err)
	}
}
