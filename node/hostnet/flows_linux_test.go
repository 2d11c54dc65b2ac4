package hostnet

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// A tunnel whose gateway has sent before the rules were there, and goes on sending,
// gets its addresses back when they come.
func TestTunnelsThatBeganBeforeTheRules(t *testing.T) {
	for family, p := range addressPlans {
		t.Run(family, func(t *testing.T) {
			n := newNodeNetwork(t)
			udp := func(h *testHost, at netip.Addr) (c *net.UDPConn) {
				h.do(func() {
					var err error
					if c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 6091))); err != nil {
						t.Error(err)
					}
				})
				if t.Failed() {
					t.FailNow()
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			gateway, stranger, node := udp(n.pod, p.gatewayPod), udp(n.pod, p.pod), udp(n.world, p.world)
			seen := func(from *net.UDPConn) netip.Addr {
				t.Helper()
				if _, err := from.WriteToUDPAddrPort([]byte("datagram"), netip.AddrPortFrom(p.world, 6091)); err != nil {
					t.Fatal(err)
				}
				_ = node.SetReadDeadline(time.Now().Add(patience))
				_, at, err := node.ReadFromUDPAddrPort(make([]byte, 100))
				if err != nil {
					t.Fatal(err)
				}
				return at.Addr().Unmap()
			}
			for what, from := range map[string]*net.UDPConn{"gateway": gateway, "stranger": stranger} {
				if at := seen(from); at != p.worldNode {
					t.Fatalf("without rules the %s is seen as %v, want %v: the CNI of this test hides nothing", what, at, p.worldNode)
				}
			}
			// First another gateway, by which a table comes that is then changed.
			want := p.translation
			want.Gateways = addresses(p.other.String())
			n.translate(t, want)
			if at := seen(gateway); at != p.worldNode {
				t.Fatalf("the gateway is seen as %v before it is known as one", at)
			}
			want.Gateways = addresses(p.gatewayPod.String(), p.other.String())
			n.translate(t, want)
			if at := seen(gateway); at != p.gatewayPod {
				t.Errorf("a changed table: the gateway is seen as %v, want %v", at, p.gatewayPod)
			}
			if at := seen(stranger); at != p.worldNode {
				t.Errorf("somebody who is no gateway is seen as %v, want %v", at, p.worldNode)
			}
		})
	}
}

func TestHiddenTunnel(t *testing.T) {
	a := netip.MustParseAddr
	gateway, node, other := a("10.243.1.7"), a("192.0.2.1"), a("192.0.2.2")
	flow := flowTuple{source: gateway, dest: node, protocol: 17, destPort: 6091}
	back := flowTuple{source: node, dest: gateway, protocol: 17, destPort: 6091}
	hidden := back
	hidden.dest = other
	for name, tt := range map[string]struct {
		flow, back flowTuple
		want       bool
	}{
		"as it should be":        {flow, back, false},
		"hidden":                 {flow, hidden, true},
		"hidden, to the gateway": {flowTuple{node, gateway, 17, 6091}, flowTuple{gateway, other, 17, 6091}, true},
		"another port":           {flowTuple{gateway, node, 17, 53}, hidden, false},
		"another protocol":       {flowTuple{gateway, node, 6, 6091}, hidden, false},
		"nobody's tunnel":        {flowTuple{other, node, 17, 6091}, back, false},
	} {
		if got := hiddenTunnel(tt.flow, tt.back, 6091, []netip.Addr{gateway}); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// Whatever the kernel says does not end the agent.
func FuzzForgetRequest(f *testing.F) {
	f.Add(flowHeader(2))
	f.Add(appendAttribute(flowHeader(2), flowOriginal, appendAttribute(nil, tupleAddresses, appendAttribute(nil, addressSource4, []byte{10, 243, 1, 7}))))
	f.Fuzz(func(_ *testing.T, b []byte) {
		forgetRequest(b, 2, 6091, []netip.Addr{netip.MustParseAddr("10.243.1.7")})
	})
}
