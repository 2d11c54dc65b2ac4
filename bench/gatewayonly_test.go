package bench

import (
	"errors"
	"flag"
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/bench/load"
	"github.com/sluice-net/sluice/test/lab"
)

var window = flag.Int("window", 1024, "packets that the gateway-only loads of -compare keep under way at most")

// gatewayOnlyFlows is how many flows those loads have.
const gatewayOnlyFlows = 4

// gatewayOnly makes a generator and a sink that take next to nothing: what arrives at
// the receiving node's link is counted there and dropped.
func gatewayOnly(t *testing.T, from *lab.Cluster, cfg load.SourceConfig) (sink *load.Sink, source *load.Source) {
	t.Helper()
	receiver := from.Peer.Nodes[0]
	cfg.To = from.Remote(receiver.PodAddr)
	err := errors.Join(
		receiver.Host.Do(func() (err error) {
			sink, err = load.NewSink("lan0", lab.GatewayPort)
			return err
		}),
		from.Nodes[0].Pod.Do(func() (err error) {
			source, err = load.NewSource(cfg)
			return err
		}))
	if err != nil {
		t.Fatal(err)
	}
	return sink, source
}

// gatewayOnly measures the gateways alone, from a to b.
func (p *path) gatewayOnly(size int) {
	p.t.Helper()
	name := fmt.Sprintf("gateway%d", size)
	sink, source := gatewayOnly(p.t, p.topo.A, load.SourceConfig{Size: size, Flows: gatewayOnlyFlows, Window: *window})
	defer sink.Close()
	defer source.Close()

	allocated, counted := mallocs(p.topo)
	wait := p.profile(name, duration())
	before := cpuNow(p.t, p.gateways)
	flow, err := source.Run(sink, duration())
	used := cpuNow(p.t, p.gateways).since(before)
	wait()
	if err != nil || flow.Arrived == 0 {
		p.t.Errorf("%s: %s: %d packets arrived: %v", p.variant, name, flow.Arrived, err)
		return
	}
	packets := float64(flow.Arrived)
	gbit := packets * float64(size) * 8 / 1e9
	p.add(name+"/packets", "kpps", packets/1e3/flow.Elapsed.Seconds())
	p.add(name+"/throughput", "Gbit/s", gbit/flow.Elapsed.Seconds())
	p.spent(name, used, gbit)
	if len(p.gateways) > 0 {
		p.add(name+"/cpu/packet", "µs", microseconds(used.processes)/packets)
	}
	p.add(name+"/cpu/source", "µs", microseconds(flow.CPU)/packets)
	p.add(name+"/lost", "%", 100*(1-packets/float64(flow.Sent)))
	if now, ok := mallocs(p.topo); ok && counted {
		p.add(name+"/allocs", "1/packet", (now-allocated)/packets)
	}
}
