package bench

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

var compareCapture = flag.Bool("capture", false, "compare the gateway under load with and without a capture of 100 MB; takes minutes")

// captureVariants are what TestCapture measures.
var captureVariants = []captureVariant{
	{"default", ""},
	{"whole", "-s 0"},
	{"headers", "-s 128 --point node"},
	{"filtered", "--filter icmp"},
}

// captureVariant is one way to capture: arguments of gateway capture.
type captureVariant struct{ name, args string }

// Figures of a capture.
var (
	captureRate    = figure{"tcp1", "Gbit/s"}
	captureLoss    = figure{"tcp1/less", "%"}
	captureCPU     = figure{"tcp1/cpu", "cpu-s/Gbit"}
	captureClient  = figure{"tcp1/client", "cpu-s/Gbit"}
	captureSeconds = figure{"tcp1/seconds", "s"}
	capturePackets = figure{"tcp1/captured", "kpackets"}
	captureLost    = figure{"tcp1/lost", "%"}
	captureMemory  = figure{"memory/rss", "MiB"}
	captureAfter   = figure{"memory/rss-after", "MiB"}

	captureFigures = []figure{captureRate, captureLoss, captureCPU, captureClient, captureSeconds, capturePackets, captureLost, captureMemory, captureAfter}
)

// captureWindow is how long a window without a capture is, captureLongest the longest
// with one: those of headers take long to get to 100 MB.
const (
	captureWindow  = time.Second
	captureLongest = 4 * time.Second
)

// TestCapture measures what a stream through two gateways gets while one of
// them captures 100 MB of it. The variants take turns within one stream, so that
// what else the machine does falls on all of them alike.
func TestCapture(t *testing.T) {
	if !*compareCapture {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -capture runs it")
	}
	node := []lab.NodeSpec{{Encapsulation: lab.VXLAN}}
	l := lab.New(t, "iperf3")
	topo := l.NewTopology(node, node)
	binary := lab.Build(t, lab.GatewayPackage)
	a, b := topo.A.StartGateway(binary, lab.GatewayOptions{}), topo.B.StartGateway(binary, lab.GatewayOptions{})
	a.WaitConnected(lab.Patience)
	b.WaitConnected(lab.Patience)
	server := topo.B.Nodes[0].Pod.StartIperf()
	defer server.Stop(lab.Patience)

	m := captureMeasurement{t: t, binary: binary, topo: topo, gateway: a, file: filepath.Join(l.Dir, "capture.pcapng")}
	for round := range *rounds {
		stop := m.stream(time.Duration(len(captureVariants)+1) * (captureLongest + 2*captureWindow))
		for i := range captureVariants {
			m.variant(captureVariants[(i+round)%len(captureVariants)]) // nobody is always first
		}
		stop()
		t.Logf("round %d of %d is done", round+1, *rounds)
	}
	names := []string{"off"}
	for _, v := range captureVariants {
		names = append(names, v.name)
	}
	keep(t, "-capture", m.report.text(names, captureFigures))
}

// captureMeasurement is a stream and a gateway that captures it.
type captureMeasurement struct {
	t       *testing.T
	binary  string
	topo    *lab.Topology
	gateway *lab.Gateway
	file    string
	client  time.Duration // processor time of the last capture's client
	report  report
}

// stream starts a TCP stream and returns what ends it.
func (m *captureMeasurement) stream(most time.Duration) (stop func()) {
	m.t.Helper()
	pod, to := m.topo.A.Nodes[0].Pod, m.topo.A.Remote(m.topo.B.Nodes[0].PodAddr)
	var p *lab.Process
	lab.Eventually(m.t, lab.Patience, "the stream", func() error {
		if p == nil || !p.Running() { // a server opens its socket anew after each stream
			p = pod.Start(lab.Program{Name: "iperf3 -c", Args: []string{"iperf3", "-c", to.String(), "-t", fmt.Sprint(int(most.Seconds()))}})
		}
		before := m.received()
		time.Sleep(500 * time.Millisecond)
		if m.received()-before < 10<<20 {
			return fmt.Errorf("it does not flow: %s", p.Log())
		}
		return nil
	})
	return func() { _, _ = p.Stop(lab.Patience) }
}

// received is what has arrived at the far pod, in bytes.
func (m *captureMeasurement) received() (n uint64) {
	pod := m.topo.B.Nodes[0].Pod
	out := pod.Run("cat", "/proc/net/dev")
	for line := range strings.Lines(out) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == "eth0" {
			n, _ = strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
		}
	}
	if n == 0 {
		m.t.Fatalf("no counter of eth0 in\n%s", out)
	}
	return n
}

// variant measures a capture between two windows without one: what else the machine
// does comes and goes, and the three are near to each other.
func (m *captureMeasurement) variant(v captureVariant) {
	m.t.Helper()
	rest := func() { time.Sleep(captureWindow) }
	before := m.window("off", rest)
	m.client = 0
	with := m.window(v.name, func() { m.capture(v) })
	m.report.add(v.name, captureAfter, m.rss())
	after := m.window("off", rest)
	m.report.add(v.name, captureLoss, 100*(1-2*with/(before+after)))
}

// window measures the stream while something is done, and returns its rate.
func (m *captureMeasurement) window(name string, do func()) (rate float64) {
	m.t.Helper()
	used, before, began := m.cpu(), m.received(), time.Now()
	do()
	seconds, gbit := time.Since(began).Seconds(), float64(m.received()-before)*8/1e9
	m.report.add(name, captureRate, gbit/seconds)
	m.report.add(name, captureCPU, (m.cpu()-used).Seconds()/gbit)
	m.report.add(name, captureSeconds, seconds)
	if name != "off" {
		m.report.add(name, captureClient, m.client.Seconds()/gbit)
	}
	return gbit / seconds
}

// capture runs a capture to its end and notes what it says of itself, and the most
// that the gateway holds meanwhile.
func (m *captureMeasurement) capture(v captureVariant) {
	m.t.Helper()
	args := []string{m.binary, "capture", "--admin-socket", m.gateway.AdminSocket, "-w", m.file, "--duration", captureLongest.String()}
	p := m.topo.A.Gateway.Start(lab.Program{Name: "gateway capture", Args: append(args, strings.Fields(v.args)...)})
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	most := 0.0
	for running := true; running; {
		select {
		case <-p.Done():
			running = false
		case <-tick.C:
			most = max(most, m.rss())
			if used, err := p.CPU(); err == nil { // it has not ended meanwhile
				m.client = used
			}
		}
	}
	var captured, lost float64
	if _, err := fmt.Sscanf(p.Log(), "%f packets captured, %f lost", &captured, &lost); err != nil || p.ExitCode() != 0 {
		m.t.Errorf("%s: %v: %s", v.name, err, p.Log())
		return
	}
	m.report.add(v.name, capturePackets, captured/1e3)
	m.report.add(v.name, captureLost, 100*lost/max(captured+lost, 1))
	m.report.add(v.name, captureMemory, most)
	_ = os.Remove(m.file)
}

// cpu is the processor time that the gateway has used.
func (m *captureMeasurement) cpu() time.Duration {
	used, err := m.gateway.CPU()
	if err != nil {
		m.t.Fatal(err)
	}
	return used
}

// rss is what the gateway holds, in MiB.
func (m *captureMeasurement) rss() float64 {
	rss, err := m.gateway.RSS()
	if err != nil {
		m.t.Fatal(err)
	}
	return float64(rss) / (1 << 20)
}
