package bench

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/deploy/e2e/lab"
)

var (
	compare = flag.Bool("compare", false, "compare the gateway with the stock composition; takes minutes")
	rounds  = flag.Int("rounds", 5, "interleaved repeats of -compare")
	seconds = flag.Int("seconds", 4, "length of each measurement of -compare")
	results = flag.String("results", "", "directory that -compare writes its result to")
)

func TestMain(m *testing.M) {
	if name := os.Getenv(linkProgram); name != "" {
		runLink(name) // this process is one of the programs that TestNodeLink compares
		return
	}
	os.Exit(lab.Main(m))
}

// variant is one way to join two clusters.
type variant struct {
	name string
	// start brings both gateways up and returns their processes and what ends them.
	start func(topo *lab.Topology) (gateways []*lab.Process, stop func())
}

// TestComposition measures all variants in the same namespaces, taking turns,
// so that what else the machine does falls on all of them alike.
func TestComposition(t *testing.T) {
	if !*compare {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -compare runs it")
	}
	node := []lab.NodeSpec{{Encapsulation: lab.VXLAN}}
	topo := lab.New(t, "iperf3").NewTopology(node, node)
	gateway, wireguard := lab.Build(t, lab.GatewayPackage), lab.Build(t, lab.WireGuardPackage)
	variants := []variant{
		{"stock", func(topo *lab.Topology) ([]*lab.Process, func()) {
			a, b := topo.A.StartStock(wireguard), topo.B.StartStock(wireguard)
			return []*lab.Process{a.Process, b.Process}, func() { a.Stop(); b.Stop() }
		}},
		{"sluice", func(topo *lab.Topology) ([]*lab.Process, func()) {
			a, b := topo.A.StartGateway(gateway, lab.GatewayOptions{}), topo.B.StartGateway(gateway, lab.GatewayOptions{})
			a.WaitConnected(20 * time.Second)
			b.WaitConnected(20 * time.Second)
			return []*lab.Process{a.Process, b.Process}, func() {
				for _, g := range []*lab.Gateway{a, b} {
					if _, err := g.Stop(2 * time.Second); err != nil {
						t.Error(err)
					}
				}
			}
		}},
	}
	server := topo.B.Nodes[0].Pod.StartIperf()
	defer server.Stop(2 * time.Second)
	var r report
	for round := range *rounds {
		for i := range variants {
			v := variants[(i+round)%len(variants)] // nobody is always first
			gateways, stop := v.start(topo)
			measure(t, &r, v.name, topo, gateways)
			stop()
		}
		t.Logf("round %d of %d is done", round+1, *rounds)
	}
	keep(t, "", r.text([]string{"stock", "sluice"}, figures))
}

// keep shows a report and writes it if that was asked for. what distinguishes
// the files of different comparisons.
func keep(t *testing.T, what, text string) {
	t.Helper()
	fmt.Print(text)
	if *results == "" {
		return
	}
	path := resultPath(*results, what)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("written to %s", path)
}

// measure takes one round of one variant.
func measure(t *testing.T, r *report, name string, topo *lab.Topology, gateways []*lab.Process) {
	t.Helper()
	pod, to := topo.A.Nodes[0].Pod, topo.A.Remote(topo.B.Nodes[0].PodAddr)
	pod.IP("tcp_metrics flush all")
	lab.Eventually(t, 10*time.Second, "the first ping", func() error {
		if p := pod.Ping(to, "-c1 -W1"); p.Received == 0 {
			return fmt.Errorf("no answer:\n%s", p.Output)
		}
		return nil
	})

	rtts := pod.Ping(to, "-i0.002 -c1000 -W2").RTTs
	if len(rtts) > 0 {
		slices.Sort(rtts)
		r.add(name, latencyP50, microseconds(rtts[len(rtts)/2]))
		r.add(name, latencyP99, microseconds(rtts[len(rtts)*99/100]))
	}
	duration := time.Duration(*seconds) * time.Second
	for _, m := range []struct {
		what     figure
		streams  int
		backward bool
	}{{tcp1, 1, false}, {tcp1Back, 1, true}, {tcp4, 4, false}, {tcp4Back, 4, true}} {
		before := cpuNow(t, gateways)
		result, err := pod.Iperf(lab.Iperf{To: to, Streams: m.streams, Reverse: m.backward, Duration: duration})
		if err != nil {
			t.Errorf("%s: %s: %v", name, m.what.name, err)
			continue
		}
		used := cpuNow(t, gateways).since(before)
		gbit := result.BitsPerSecond * duration.Seconds() / 1e9
		r.add(name, m.what, result.BitsPerSecond/1e9)
		if m.what == tcp1 {
			r.add(name, cpuProcesses, used.processes.Seconds()/gbit)
			r.add(name, cpuMachine, used.machine.Seconds()/gbit)
		}
	}
	for _, what := range []figure{udp64, udp64Back} {
		result, err := pod.Iperf(lab.Iperf{To: to, UDPLength: 64, Reverse: what == udp64Back, Duration: duration})
		if err != nil {
			t.Errorf("%s: %s: %v", name, what.name, err)
			continue
		}
		r.add(name, what, result.PacketsPerSecond/1e3)
	}
	for _, g := range gateways {
		rss, err := g.RSS()
		if err != nil {
			t.Fatal(err)
		}
		r.add(name, memory, float64(rss)/(1<<20))
	}
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

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
		used, err := g.CPU()
		if err != nil {
			t.Fatal(err)
		}
		c.processes += used
	}
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
	c.machine = time.Duration(user+nice+system+irq+softirq) * 10 * time.Millisecond
	return c
}
