package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

// loopShare is what each loop of the variants that startShares makes has of a processor, in percent. Two loops in both
// gateways leave a fifth of two processors to the load and to the kernels of pods and nodes.
const loopShare = 40

// startShares starts gateways with so many loops towards the nodes, and as many receivers, each gateway with a CFS quota of
// that many shares of a processor. How many times as much two shares carry as one is how a gateway scales where it is not
// short of processors.
func startShares(loops int) func(*testing.T, *lab.Topology) ([]*lab.Process, func()) {
	return func(t *testing.T, topo *lab.Topology) ([]*lab.Process, func()) {
		t.Helper()
		gateways, stop := startSluice(t, topo, lab.Build(t, lab.GatewayPackage), nil, fmt.Sprintf("--node-sockets=%d", loops))
		// A processor takes a slice of the quota at a time, by default more than two loops have in a period.
		restore := setSlice(t, time.Millisecond)
		lift := quota(loops*loopShare, 10*time.Millisecond)(t, gateways)
		return gateways, func() {
			lift()
			restore()
			stop()
		}
	}
}

// setSlice sets how much of a quota a processor takes at a time, of all groups of the machine. restore undoes it.
func setSlice(t *testing.T, slice time.Duration) (restore func()) {
	t.Helper()
	const path = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us"
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set := func(value string) {
		if err := os.WriteFile(path, []byte(value), 0); err != nil {
			t.Error(err)
		}
	}
	set(strconv.FormatInt(slice.Microseconds(), 10))
	return func() { set(strings.TrimSpace(string(before))) }
}

// quota gives each gateway so many percent of one processor in each period: CFS bandwidth control.
func quota(percent int, period time.Duration) func(*testing.T, []*lab.Process) (lift func()) {
	return func(t *testing.T, gateways []*lab.Process) (lift func()) {
		t.Helper()
		length := period.Microseconds()
		limit := length * int64(percent) / 100
		root, settings := "/sys/fs/cgroup", map[string]string{"cpu.max": fmt.Sprint(limit, " ", length)}
		if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil { // the first version
			root = filepath.Join(root, "cpu")
			settings = map[string]string{"cpu.cfs_period_us": fmt.Sprint(length), "cpu.cfs_quota_us": fmt.Sprint(limit)}
		}
		var dirs []string
		for _, g := range gateways {
			dir := filepath.Join(root, fmt.Sprintf("sluice-bench-%d", g.PID()))
			err := os.Mkdir(dir, 0o755)
			for name, value := range settings {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(value), 0))
			}
			if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(g.PID())), 0)); err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, dir)
		}
		return func() {
			for i, dir := range dirs {
				if err := os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(gateways[i].PID())), 0); err != nil {
					t.Error(err)
				}
				if err := os.Remove(dir); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
