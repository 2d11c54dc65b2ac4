package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

var profiles = flag.String("profile", "", "directory for processor profiles of gateways and agents under each load of -compare; they cost some speed")

// profiler is where our programs offer profiles with -profile.
const profiler = "127.0.0.1:6060"

// pprofAddress is where a program offers them in this run; "" is nowhere.
func pprofAddress() string {
	if *profiles == "" {
		return ""
	}
	return profiler
}

func profilerArgs() []string {
	if *profiles == "" {
		return nil
	}
	return []string{"--pprof-address", profiler}
}

// cpu is processor time used so far.
type cpu struct {
	processes time.Duration // by the gateways' processes
	// machine is everything the machine did: the kernel's work in interrupts, which
	// is most of a kernel tunnel's and belongs to no process, is only found there.
	machine time.Duration
}

func (c cpu) since(earlier cpu) cpu {
	return cpu{c.processes - earlier.processes, c.machine - earlier.machine}
}

func cpuNow(t *testing.T, gateways []*lab.Process) (c cpu) {
	t.Helper()
	for _, g := range gateways {
		c.processes += processCPU(t, g)
	}
	c.machine = machineCPU(t)
	return c
}

// machineCPU is the time that all processors have been busy.
func machineCPU(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	// cpu user nice system idle iowait irq softirq steal, in hundredths of a second
	var user, nice, system, idle, iowait, irq, softirq int64
	if _, err := fmt.Sscanf(first, "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq); err != nil {
		t.Fatalf("/proc/stat: %v: %q", err, first)
	}
	return time.Duration(user+nice+system+irq+softirq) * 10 * time.Millisecond
}

func processCPU(t *testing.T, p *lab.Process) time.Duration {
	t.Helper()
	used, err := p.CPU()
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// mallocs is how many objects the gateways have allocated so far. ok is false for
// programs that do not say.
func mallocs(topo *lab.Topology) (n float64, ok bool) {
	for _, c := range []*lab.Cluster{topo.A, topo.B} {
		text, err := c.Gateway.Try("curl", "-sf", "http://127.0.0.1:8082/metrics")
		_, rest, found := strings.Cut(text, "\ngo_memstats_mallocs_total ")
		value, _, _ := strings.Cut(rest, "\n")
		count, parseErr := strconv.ParseFloat(value, 64)
		if err != nil || !found || parseErr != nil {
			return 0, false
		}
		n += count
	}
	return n, true
}

// profile takes processor profiles, if they were asked for, while what follows is
// measured. It returns what waits for them.
func (p *path) profile(name string, duration time.Duration) (wait func()) {
	if *profiles == "" {
		return func() {}
	}
	if err := os.MkdirAll(*profiles, 0o755); err != nil {
		p.t.Fatal(err)
	}
	var work sync.WaitGroup
	for _, h := range []*lab.Host{p.topo.A.Gateway, p.topo.B.Gateway, p.topo.A.Nodes[0].Host, p.topo.B.Nodes[0].Host} {
		file := filepath.Join(*profiles, fmt.Sprintf("%s-%s-%s.pprof", p.variant, strings.ReplaceAll(name, "/", "-"), h.Name))
		file, err := filepath.Abs(file)
		if err != nil {
			p.t.Fatal(err)
		}
		work.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), duration+30*time.Second)
			defer cancel()
			url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", profiler, max(1, int(duration.Seconds())))
			// Who offers none, as stock programs and kernels do not, has none.
			_, _ = h.TryContext(ctx, "curl", "-sf", "-o", file, url)
		})
	}
	return work.Wait
}
