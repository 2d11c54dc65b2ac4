package bench

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/bench/load"
	"github.com/sluice-net/sluice/bench/record"
	"github.com/sluice-net/sluice/test/lab"
)

const quickLoads = "tcp1,tcp4,udp64,latency,gateway1300,gateway64"

var loadNames = flag.String("loads", quickLoads, "what -compare measures, with commas, or all; bench/README.md lists them")

// path is a variant that runs, with what is measured on it.
type path struct {
	t        *testing.T
	variant  string
	topo     *lab.Topology
	gateways []*lab.Process
	report   *report
	// half is the bits per second of half a load, the same for all variants.
	half float64
}

// kind is one kind of load.
type kind struct {
	name string
	run  func(p *path)
}

// loads are all that -loads can name. README.md says what each answers.
var loads = []kind{
	{"latency", (*path).latency},
	{"wakes", (*path).wakes},
	{"tcp1", func(p *path) { p.tcp(1) }},
	{"tcp4", func(p *path) { p.tcp(4) }},
	{"tcp16", func(p *path) { p.tcp(16) }},
	{"udp64", func(p *path) { p.udp(64) }},
	{"udp512", func(p *path) { p.udp(512) }},
	{"udp1300", func(p *path) { p.udp(1300) }},
	{"rr", func(p *path) { p.exchange("rr", load.Exchange{Clients: 1}) }},
	{"rr16", func(p *path) { p.exchange("rr16", load.Exchange{Clients: 16}) }},
	{"crr", func(p *path) { p.exchange("crr", load.Exchange{Clients: 4, Reconnect: true}) }},
	{"loaded", (*path).loaded},
	{"loss", (*path).loss},
	{"mix", (*path).mix},
	{"gateway1300", func(p *path) { p.gatewayOnly(1300) }},
	{"gateway512", func(p *path) { p.gatewayOnly(512) }},
	{"gateway64", func(p *path) { p.gatewayOnly(64) }},
}

// add records a sample of this round.
func (p *path) add(name, unit string, value float64) {
	p.report.add(p.variant, figure{name, unit}, value)
}

func (p *path) client() *lab.Host { return p.topo.A.Nodes[0].Pod }
func (p *path) server() *lab.Host { return p.topo.B.Nodes[0].Pod }

// to is the server as the client knows it.
func (p *path) to() netip.Addr { return p.topo.A.Remote(p.topo.B.Nodes[0].PodAddr) }

func duration() time.Duration { return time.Duration(*seconds) * time.Second }

// ready waits for the first packets, and forgets what TCP has learned from another
// variant.
func (p *path) ready() {
	p.t.Helper()
	for _, pod := range []*lab.Host{p.client(), p.server()} {
		pod.IP("tcp_metrics flush all")
	}
	lab.Eventually(p.t, lab.Patience, p.variant+": the first ping", func() error {
		if r := p.client().Ping(p.to(), "-c1 -W1"); r.Received == 0 {
			return fmt.Errorf("no answer:\n%s", r.Output)
		}
		return nil
	})
}

// iperf runs iperf3 for a figure of a load, which value takes from the result, and
// records what the processors spent.
func (p *path) iperf(load string, f figure, m lab.Iperf, value func(lab.IperfResult) float64) {
	p.t.Helper()
	m.To, m.Duration = p.to(), duration()
	wait := p.profile(f.name, m.Duration)
	before := cpuNow(p.t, p.gateways)
	result, err := p.client().Iperf(m)
	used := cpuNow(p.t, p.gateways).since(before)
	wait()
	if err != nil {
		p.t.Errorf("%s: %s: %v", p.variant, f.name, err)
		return
	}
	p.report.add(p.variant, f, value(result))
	if m.UDPLength == 0 {
		p.add(f.name+"/retransmits", "segments", float64(result.Retransmits))
	}
	p.add(f.name+"/busy", "% of machine", 100*used.machine.Seconds()/(m.Duration.Seconds()*float64(runtime.NumCPU())))
	p.spent(load, used, result.BitsPerSecond*m.Duration.Seconds()/1e9)
}

func gbits(r lab.IperfResult) float64 { return r.BitsPerSecond / 1e9 }
func kpps(r lab.IperfResult) float64  { return r.PacketsPerSecond / 1e3 }

// spent records processor time per Gbit that arrived.
func (p *path) spent(load string, used cpu, gbit float64) {
	if len(p.gateways) > 0 {
		p.add(load+"/cpu/gateways", "cpu-s/Gbit", used.processes.Seconds()/gbit)
	}
	p.add(load+"/cpu/machine", "cpu-s/Gbit", used.machine.Seconds()/gbit)
}

// tcp measures streams each way and both ways at once.
func (p *path) tcp(streams int) {
	load := fmt.Sprintf("tcp%d", streams)
	for _, m := range []struct {
		way string
		lab.Iperf
	}{
		{"a-to-b", lab.Iperf{}},
		{"b-to-a", lab.Iperf{Reverse: true}},
		{"both", lab.Iperf{Both: true}},
	} {
		m.Streams = streams
		p.iperf(load, figure{load + "/" + m.way, "Gbit/s"}, m.Iperf, gbits)
	}
}

// udp sends datagrams as fast as iperf3 can, one in each system call.
func (p *path) udp(size int) {
	load := fmt.Sprintf("udp%d", size)
	for _, way := range []string{"a-to-b", "b-to-a"} {
		p.iperf(load, figure{load + "/" + way, "kpps"}, lab.Iperf{UDPLength: size, Reverse: way == "b-to-a"}, kpps)
	}
}

// latency pings an idle path.
func (p *path) latency() { p.ping("latency", pings) }

func (p *path) ping(name string, count int) {
	rtts := p.client().Ping(p.to(), fmt.Sprintf("-i%g -c%d -W2", pingPause.Seconds(), count)).RTTs
	if len(rtts) == 0 {
		p.t.Errorf("%s: %s: no ping was answered", p.variant, name)
		return
	}
	slices.Sort(rtts)
	p.distribution(name, rtts)
}

// distribution records the percentiles of durations in ascending order.
func (p *path) distribution(name string, took []time.Duration) {
	for _, percent := range record.Percents {
		p.add(name+"/"+record.Percentile(percent), "µs", microseconds(took[int(float64(len(took)-1)*percent/100)]))
	}
}

// loaded pings while a stream takes half of what the path carries.
func (p *path) loaded() {
	m := lab.Iperf{To: p.to(), Duration: duration(), Bitrate: fmt.Sprintf("%.0f", p.half)}
	wait := p.profile("loaded", m.Duration)
	p.during(m, "loaded", func() { p.ping("loaded", int(m.Duration/(3*time.Millisecond))) })
	wait()
}

// during runs fn while iperf3 does, which has to last longer, and returns the
// bits per second that iperf3 saw.
func (p *path) during(m lab.Iperf, name string, fn func()) (rate float64) {
	var result lab.IperfResult
	var err error
	var work sync.WaitGroup
	work.Go(func() { result, err = p.client().Iperf(m) })
	fn()
	work.Wait()
	if err != nil {
		p.t.Errorf("%s: %s: %v", p.variant, name, err)
	}
	return result.BitsPerSecond
}

// exchangePort is where pods answer exchanges.
const exchangePort = 7000

// exchange measures requests and responses.
func (p *path) exchange(name string, e load.Exchange) {
	p.t.Helper()
	var server *load.Server
	if err := p.server().Do(func() (err error) {
		server, err = load.NewServer(exchangePort)
		return err
	}); err != nil {
		p.t.Fatal(err)
	}
	e.To, e.Duration = netip.AddrPortFrom(p.to(), exchangePort), duration()
	wait := p.profile(name, e.Duration)
	before := cpuNow(p.t, p.gateways)
	done, err := e.Run(p.client().Apart)
	used := cpuNow(p.t, p.gateways).since(before)
	wait()
	if err := errors.Join(err, server.Close()); err != nil {
		p.t.Errorf("%s: %s: %v", p.variant, name, err)
		return
	}
	p.add(name+"/rate", "1/s", done.PerSecond)
	p.distribution(name, done.Took)
	if len(p.gateways) > 0 {
		p.add(name+"/cpu/gateways", "µs/exchange", microseconds(used.processes)/(done.PerSecond*e.Duration.Seconds()))
	}
}

// loss measures streams while one packet of a hundred is lost on the way.
func (p *path) loss() {
	stop := p.topo.Lose(1)
	defer stop()
	for _, streams := range []int{1, 4} {
		p.iperf("loss", figure{fmt.Sprintf("loss/tcp%d", streams), "Gbit/s"}, lab.Iperf{Streams: streams}, gbits)
	}
}

// mix measures requests and responses beside two streams each way.
func (p *path) mix() {
	m := lab.Iperf{To: p.to(), Duration: duration() + time.Second, Streams: 2, Both: true}
	rate := p.during(m, "mix", func() { p.exchange("mix/rr", load.Exchange{Clients: 4}) })
	p.add("mix/tcp", "Gbit/s", rate/1e9)
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
