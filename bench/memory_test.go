package bench

import (
	"errors"
	"flag"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/bench/load"
	"github.com/sluice-net/sluice/test/lab"
)

// The promises about memory and start-up.
const (
	maxIdleRSS = 40 << 20
	// With all that one peering can bring, a dead peer and a flood among it.
	maxHeap  = 96 << 20
	maxRSS   = 160 << 20
	maxReady = time.Second
)

var promises = flag.Bool("promises", false, "watch the gateways' memory for longer, and hold their start to its second; wants a quiet machine")

// watched is how long the memory of gateways is watched. What bounds it, queues and the
// tables of flows and peers, is full after a second.
func watched() time.Duration {
	if *promises {
		return 12 * time.Second
	}
	return 2 * time.Second
}

// TestMemory looks at the memory of two gateways: when nothing happens, when they carry
// all that they can, and when a flood meets a dead peer.
func TestMemory(t *testing.T) {
	node := []lab.NodeSpec{{Encapsulation: lab.VXLAN}}
	topo := lab.New(t, "curl").NewTopology(node, node)
	binary := lab.Build(t, lab.GatewayPackage)
	a, b := topo.A.StartGateway(binary, lab.GatewayOptions{}), topo.B.StartGateway(binary, lab.GatewayOptions{})
	for _, g := range []*lab.Gateway{a, b} {
		ready := g.Ready(lab.Patience)
		t.Logf("ready after %v", ready.Round(time.Millisecond))
		if *promises && ready > maxReady {
			t.Errorf("ready after %v, want less than %v", ready, maxReady)
		}
	}
	a.WaitConnected(lab.Patience)
	b.WaitConnected(lab.Patience)

	t.Run("idle", func(t *testing.T) {
		for _, g := range []*lab.Gateway{a, b} {
			rss, err := g.RSS()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d MiB resident", rss>>20)
			if rss > maxIdleRSS {
				t.Errorf("%d MiB resident, want less than %d", rss>>20, maxIdleRSS>>20)
			}
		}
	})
	t.Run("full load", func(t *testing.T) { testFullLoad(t, topo, a, b) })
	t.Run("the peer dies", func(t *testing.T) {
		stop := flood(t, topo.B.Nodes[0].Pod, topo.B.Remote(topo.A.Nodes[0].PodAddr))
		before := a.Status().DataPlane.Ingress.Packets
		lab.Eventually(t, lab.Patience, "the flood", func() error {
			if a.Status().DataPlane.Ingress.Packets == before {
				return errors.New("nothing of it arrives")
			}
			return nil
		})
		if err := a.Kill(); err != nil {
			t.Fatal(err)
		}
		watchFlood(t, b, stop)
	})
	t.Run("the peer never answers", func(t *testing.T) {
		if _, err := b.Stop(lab.Patience); err != nil {
			t.Error(err)
		}
		// The client knows where its peer should be.
		b = topo.B.StartGateway(binary, lab.GatewayOptions{})
		b.Ready(lab.Patience)
		watchFlood(t, b, flood(t, topo.B.Nodes[0].Pod, topo.B.Remote(topo.A.Nodes[0].PodAddr)))
	})
}

// watchFlood watches a gateway under a flood, which it ends.
func watchFlood(t *testing.T, g *lab.Gateway, stop func() uint64) {
	t.Helper()
	watchMemory(t, watched(), g)
	t.Logf("%d datagrams were sent", stop())
	if !g.Running() {
		t.Errorf("the gateway has ended:\n%s", g.Log())
	}
}

// testFullLoad loads two gateways with all that they carry, both ways at once: large
// and small packets of many flows.
func testFullLoad(t *testing.T, topo *lab.Topology, a, b *lab.Gateway) {
	var work sync.WaitGroup
	for _, w := range []struct {
		from *lab.Cluster
		size int
	}{{topo.A, 1300}, {topo.B, 64}} {
		sink, source := gatewayOnly(t, w.from, load.SourceConfig{Size: w.size, Flows: 64, Window: 8192})
		defer sink.Close()
		defer source.Close()
		work.Go(func() {
			f, err := source.Run(sink, watched())
			t.Logf("%d bytes from %s: %d packets sent, %d arrived", w.size, w.from.Name, f.Sent, f.Arrived)
			if err != nil || f.Arrived == 0 {
				t.Errorf("%d packets arrived: %v", f.Arrived, err)
			}
		})
	}
	watchMemory(t, watched(), a, b)
	work.Wait()
}

// watchMemory samples gateways for a while and holds each to its promises.
func watchMemory(t *testing.T, duration time.Duration, gateways ...*lab.Gateway) {
	t.Helper()
	var heap, resident uint64
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(duration); time.Now().Before(end); <-tick.C {
		for _, g := range gateways {
			memory := g.Status().Memory
			heap, resident = max(heap, memory.Heap), max(resident, memory.Resident)
		}
	}
	t.Logf("at most %d MiB heap, %d MiB resident", heap>>20, resident>>20)
	if heap > maxHeap || resident > maxRSS {
		t.Errorf("%d MiB heap, %d MiB resident; want less than %d and %d", heap>>20, resident>>20, maxHeap>>20, maxRSS>>20)
	}
	if heap == 0 || resident == 0 {
		t.Error("the gateway reports no memory")
	}
}

// flood sends datagrams as fast as two senders can until the returned function
// is called, which returns how many.
func flood(t *testing.T, from *lab.Host, to netip.Addr) (stop func() uint64) {
	t.Helper()
	var sent atomic.Uint64
	var senders sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		var conn *net.UDPConn
		err := from.Do(func() (err error) {
			conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		senders.Go(func() {
			defer conn.Close()
			payload := make([]byte, 1200)
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := conn.Write(payload); err == nil { // errors: ICMP of the far side
					sent.Add(1)
				}
			}
		})
	}
	return func() uint64 {
		close(done)
		senders.Wait()
		return sent.Load()
	}
}
