package kubelab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

const cgroups = "/sys/fs/cgroup"

// cgroup is the name of the cgroup that holds the node's pods, in every
// hierarchy.
func (n *Node) cgroup() string { return n.Host.Namespace() }

// hierarchies are the roots of the cgroups: one for each controller in version
// 1, a single one in version 2.
func hierarchies() []string {
	if isHierarchy(cgroups) {
		return []string{cgroups}
	}
	roots, _ := filepath.Glob(cgroups + "/*")
	return slices.DeleteFunc(roots, func(root string) bool { return !isHierarchy(root) })
}

func isHierarchy(root string) bool {
	_, err := os.Stat(filepath.Join(root, "cgroup.procs"))
	return err == nil
}

// makeCgroups makes a cgroup in every hierarchy.
func makeCgroups(name string) error {
	for _, root := range hierarchies() {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		// A new cgroup of this controller is worth nothing until it has both.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			all, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), all, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// tryCgroups tells whether cgroups can be made here.
func tryCgroups() error {
	if len(hierarchies()) == 0 {
		return fmt.Errorf("there is no hierarchy below %s", cgroups)
	}
	name := fmt.Sprintf("sluice-%d-try", os.Getpid())
	return errors.Join(makeCgroups(name), removeCgroups(name))
}

// removeCgroups kills what runs in a cgroup of that name, and removes it.
func removeCgroups(name string) error {
	var left error
	for range 100 {
		left = nil
		for _, root := range hierarchies() {
			left = errors.Join(left, removeCgroup(filepath.Join(root, name)))
		}
		if left == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond) // processes end in their own time
	}
	return left
}

// removeCgroup removes one cgroup with those below it, the deepest first.
func removeCgroup(dir string) error {
	var all []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	var left error
	for _, path := range slices.Backward(all) {
		for _, pid := range pids(path) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			left = errors.Join(left, err)
		}
	}
	return left
}

// pids are the processes in a cgroup, without those in cgroups below it.
func pids(dir string) []int {
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	var out []int
	for _, field := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out
}

// Sweep removes what labs have left whose process is gone. Their processes went
// with it. New does it, too.
func Sweep(t lab.T) {
	t.Helper()
	lab.Sweep(t)
	names := map[string]bool{}
	for _, root := range hierarchies() {
		dirs, _ := filepath.Glob(filepath.Join(root, "*-*-*-*"))
		for _, dir := range dirs {
			if name := filepath.Base(dir); lab.OwnerIsDead(name) {
				names[name] = true
			}
		}
	}
	for name := range names {
		if err := removeCgroups(name); err != nil {
			t.Logf("leftover of a dead run: %v", err)
		}
	}
}

// counter reads a cgroup's file with one number.
func counter(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

// removeCgroups removes those of all nodes.
func (l *Lab) removeCgroups() {
	for _, c := range l.Clusters {
		for _, n := range c.Nodes {
			if err := removeCgroups(n.cgroup()); err != nil {
				l.t.Logf("%s: %v", n.Name, err)
			}
		}
	}
}
