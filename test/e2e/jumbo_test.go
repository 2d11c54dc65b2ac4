package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

const (
	// jumboLink is the MTU of every link of a world of jumbo frames, jumboTunnel what an
	// administrator sets there: 9000 less 60 bytes of WireGuard, and some to spare.
	jumboLink   = 9000
	jumboTunnel = 8900
)

// newJumboWorld builds a world of jumbo frames, whose gateways are connected.
func newJumboWorld(t *testing.T, args ...string) *world {
	t.Helper()
	l := lab.New(t, tools...)
	topo := l.NewTopology(
		[]lab.NodeSpec{{Encapsulation: lab.Geneve, MTU: jumboLink - 50}},
		[]lab.NodeSpec{{Encapsulation: lab.VXLAN, MTU: jumboLink - 50}},
	)
	topo.SetLinkMTU(jumboLink)
	w := &world{Topology: topo, A1: topo.A.Nodes[0], B1: topo.B.Nodes[0]}
	binary := lab.Build(t, lab.GatewayPackage)
	var gateways []*lab.Gateway
	for _, c := range []*lab.Cluster{w.A, w.B} {
		c.MTU = jumboTunnel
		gateways = append(gateways, c.StartGateway(binary, lab.GatewayOptions{Args: args}))
	}
	w.gatewayA, w.gatewayB = gateways[0], gateways[1]
	for _, g := range gateways {
		g.WaitConnected(lab.Patience)
	}
	for _, n := range []*lab.Node{w.A1, w.B1} {
		if err := n.RouteIPv6(); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// TestJumboFrames sets a large MTU where all links are that large: pods use it, and no
// packet leaves in fragments.
func TestJumboFrames(t *testing.T) {
	w := newJumboWorld(t)
	runChecks(t, w, []check{{"large packets", testLargePackets, false}, {"large segments", testLargeSegments, false}}, false)
}

// TestPathMTUDiscovery has the gateways find out what the path carries, and changes
// that under a TCP connection: by a smaller link, of which the routes know, and by a
// black hole, of which nobody is told. That a hole is found within 5 seconds is a test
// of package plpmtu.
func TestPathMTUDiscovery(t *testing.T) {
	w := newJumboWorld(t, "--path-mtu-discovery")
	defer w.report(t)
	gateways := map[*lab.Cluster]*lab.Gateway{w.A: w.gatewayA, w.B: w.gatewayB}
	wantPath := func(when string, want int) {
		t.Helper()
		for c, g := range gateways {
			lab.Eventually(t, lab.Patience, when+": the path of cluster "+c.Name, func() error {
				if got := g.Status().DataPlane.PathMTU; got != want {
					return fmt.Errorf("packets have up to %d bytes, want %d", got, want)
				}
				return nil
			})
		}
	}
	wantPath("at first", jumboTunnel)
	runChecks(t, w, []check{{"large packets", testLargePackets, false}, {"large segments", testLargeSegments, false}}, false)

	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	var result lab.IperfResult
	var err error
	var traffic sync.WaitGroup
	traffic.Go(func() {
		result, err = w.A1.Pod.Iperf(lab.Iperf{To: w.fromA(w.B1.PodAddr), Bitrate: "20M", Both: true, Duration: 12 * time.Second})
	})
	const ethernet, fits = 1500, 1440
	for _, mtu := range []int{ethernet, jumboLink} {
		for c := range gateways {
			c.Gateway.IP("link set wan0 mtu %d", mtu)
		}
		wantPath(fmt.Sprintf("links of %d bytes", mtu), map[int]int{ethernet: fits, jumboLink: jumboTunnel}[mtu])
	}
	for c := range gateways {
		// A batch is one large packet to the rules unless it is cut before.
		c.Gateway.Run("ethtool", "-K", "wan0", "tx-udp-segmentation", "off")
		c.Gateway.Nft(fmt.Sprintf(`
table inet hole {
	chain in { type filter hook prerouting priority -300; iifname wan0 ip length > %d drop; }
}`, ethernet))
	}
	wantPath("a black hole", fits)
	wantAnswers(t, w.A1.Pod, w.fromA(w.B1.PodAddr), 2, "-M dont -s 8000")
	traffic.Wait()
	if err != nil || result.BitsPerSecond == 0 {
		t.Errorf("the connection did not live through the changes: %.0f bit/s, %v", result.BitsPerSecond, err)
	}
	t.Logf("%.1f Mbit/s, %d retransmits", result.BitsPerSecond/1e6, result.Retransmits)
	wantTransfer(t, w.A1.Pod, lab.Iperf{To: w.fromA(w.B1.PodAddr), Amount: "16M"})
	wantPath("at the end", fits)
}

// testLargePackets sends packets of exactly the MTU, and one byte more.
func testLargePackets(t *testing.T, w *world) {
	wantAnswers(t, w.A1.Pod, w.fromA(w.B1.PodAddr), 2, fmt.Sprintf("-M do -s %d", jumboTunnel-28))
	wantAnswers(t, w.A1.Pod, w.fromA(w.B1.PodAddr6), 2, fmt.Sprintf("-M do -s %d", jumboTunnel-48))
	wantAnswers(t, w.A1.Pod, w.fromA(w.B1.PodAddr), 2, "-M dont -s 30000")
	r := w.B1.Pod.Ping(w.fromB(w.A1.PodAddr), fmt.Sprintf("-c2 -i0.1 -W5 -M do -s %d", jumboTunnel-27))
	said := strings.ReplaceAll(strings.ToLower(r.Output), " ", "")
	if r.Received != 0 || !strings.Contains(said, fmt.Sprintf("mtu=%d", jumboTunnel)) {
		t.Errorf("a packet of %d bytes with DF: want it refused with an MTU of %d, got\n%s", jumboTunnel+1, jumboTunnel, r.Output)
	}
	w.B1.Pod.IP("route flush cache")
}

// testLargeSegments sends by TCP, and looks at what the gateways made of it.
func testLargeSegments(t *testing.T, w *world) {
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	gateways := map[*lab.Cluster]*lab.Gateway{w.A: w.gatewayA, w.B: w.gatewayB}
	fragments := map[*lab.Cluster]string{}
	for c := range gateways {
		fragments[c] = c.Gateway.Run("nstat", "-asz", "IpFragCreates", "IpReasmReqds")
	}
	for _, reverse := range []bool{false, true} {
		sender := w.gatewayA
		if reverse {
			sender = w.gatewayB
		}
		before := sender.Status().DataPlane.Egress
		wantTransfer(t, w.A1.Pod, lab.Iperf{To: w.fromA(w.B1.PodAddr), Reverse: reverse, Amount: "64M"})
		after := sender.Status().DataPlane.Egress
		packets, bytes := after.Packets-before.Packets, after.Bytes-before.Bytes
		// The acknowledgements of the other direction go through the other gateway.
		if packets == 0 || bytes/packets < jumboTunnel*3/4 {
			t.Errorf("reverse %v: %d bytes in %d packets: they are not %d bytes long", reverse, bytes, packets, jumboTunnel)
		}
		t.Logf("reverse %v: %d bytes in %d packets", reverse, bytes, packets)
	}
	for c, g := range gateways {
		if now := c.Gateway.Run("nstat", "-asz", "IpFragCreates", "IpReasmReqds"); now != fragments[c] {
			t.Errorf("cluster %s: there were fragments: before\n%safter\n%s", c.Name, fragments[c], now)
		}
		s := g.Status()
		if s.DataPlane.Sockets["wireguard"].WriteErrors != 0 || s.DataPlane.Sockets["geneve"].WriteErrors != 0 {
			t.Errorf("cluster %s: a socket refused what was sent: %+v", c.Name, s.DataPlane.Sockets)
		}
		// Buffers are as large as a datagram can be, whatever the MTU; what is used of
		// them is resident. docs/operations.md has the figure.
		const limit = 64 << 20
		t.Logf("cluster %s: %d MiB resident, %d MiB heap", c.Name, s.Memory.Resident>>20, s.Memory.Heap>>20)
		if s.Memory.Resident > limit {
			t.Errorf("cluster %s: the gateway has %d MiB resident, more than %d", c.Name, s.Memory.Resident>>20, limit>>20)
		}
	}
}
