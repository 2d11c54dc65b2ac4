package load_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/bench/load"
	"github.com/sluice-net/sluice/test/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

const tunnelPort = 6091

// TestSource sends over a link, bare and in a tunnel: everything arrives, is counted
// by packets, and nothing else is touched.
func TestSource(t *testing.T) {
	for _, size := range []int{64, 1300} {
		for _, tunnel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, tunnel %v", size, tunnel), func(t *testing.T) {
				a, b := link(t)
				to := join(a, b, tunnel)
				// What waits until a busy machine has resolved the neighbours may find their queue full.
				a.Ping(to, "-c1 -W60")
				// Less than the queue of packets that a processor has received, net.core.netdev_max_backlog.
				const window = 512
				// A processor that is late has the source take for lost what is still on its way, so that the queue
				// overflows after all.
				all := func(f load.Flow) uint64 { return f.Sent - min(f.Sent, uint64(f.Stalls*window)) }
				flow := run(t, a, b, load.SourceConfig{To: to, Size: size, Flows: 4, Window: window}, all)
				if flow.Sent == 0 || flow.Arrived > flow.Sent {
					t.Errorf("%d packets arrived, want all %d", flow.Arrived, flow.Sent)
				}
				if p := a.Ping(to, "-c1 -W2"); p.Received != 1 {
					t.Errorf("the sink took a ping:\n%s", p.Output)
				}
			})
		}
	}
}

// TestSourceLosses drops half of the super-packets: what does not arrive does not
// keep a Source from sending, and is not counted.
func TestSourceLosses(t *testing.T) {
	a, b := link(t)
	to := join(a, b, false)
	a.Nft(`
table inet loss {
	chain out { type filter hook output priority 0; udp dport 9 numgen inc mod 2 0 drop; }
}`)
	half := func(f load.Flow) uint64 { return f.Sent/2 - min(f.Sent/2, 64) }
	flow := run(t, a, b, load.SourceConfig{To: to, Size: 64, Flows: 1, Window: 1024}, half)
	if flow.Sent < 1000 || flow.Arrived > flow.Sent/2+64 {
		t.Errorf("%d packets were sent and %d arrived, want half of many", flow.Sent, flow.Arrived)
	}
}

func link(t *testing.T) (a, b *lab.Host) {
	l := lab.New(t)
	a, b = l.Host("a"), l.Host("b")
	l.Link(a, "eth0", b, "eth0")
	return a, b
}

// run sends for a moment from a to a sink at b, and waits until it has got at least
// what want says of that many: on a busy machine, what is sent last arrives later.
func run(t *testing.T, a, b *lab.Host, cfg load.SourceConfig, want func(load.Flow) uint64) load.Flow {
	t.Helper()
	var sink *load.Sink
	var source *load.Source
	if err := b.Do(func() (err error) {
		sink, err = load.NewSink("eth0", tunnelPort)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if err := a.Do(func() (err error) {
		source, err = load.NewSource(cfg)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	flow, err := source.Run(sink, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, lab.Patience, "the last packets", func() error {
		if flow.Arrived = sink.Packets(); flow.Arrived < want(flow) {
			return fmt.Errorf("%d of %d arrived", flow.Arrived, flow.Sent)
		}
		return nil
	})
	t.Logf("%d packets in %v, %v of processor time, %d stalls", flow.Sent, flow.Elapsed, flow.CPU, flow.Stalls)
	return flow
}

// join gives both hosts an address, in a tunnel over theirs or not, and returns b's.
func join(a, b *lab.Host, tunnel bool) netip.Addr {
	for i, h := range []*lab.Host{a, b} {
		h.IP("addr add 192.0.2.%d/24 dev eth0", i+1)
		if tunnel {
			h.IP("link add vx0 type vxlan id 7 local 192.0.2.%d remote 192.0.2.%d dstport %d", i+1, 2-i, tunnelPort)
			h.IP("addr add 198.51.100.%d/24 dev vx0", i+1)
			h.IP("link set vx0 up")
		}
	}
	if tunnel {
		return netip.MustParseAddr("198.51.100.2")
	}
	return netip.MustParseAddr("192.0.2.2")
}

// TestExchange talks over a link in both ways.
func TestExchange(t *testing.T) {
	a, b := link(t)
	to := netip.AddrPortFrom(join(a, b, false), 7000)
	var server *load.Server
	err := b.Do(func() (err error) {
		server, err = load.NewServer(to.Port())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, reconnect := range []bool{false, true} {
		done, err := load.Exchange{To: to, Clients: 2, Reconnect: reconnect, Duration: 100 * time.Millisecond}.Run(a.Apart)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("reconnect %v: %d, %f a second", reconnect, len(done.Took), done.PerSecond)
		if done.PerSecond <= 0 || len(done.Took) == 0 || done.Took[0] <= 0 || !slices.IsSorted(done.Took) {
			t.Errorf("reconnect %v: %+v", reconnect, done)
		}
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}
