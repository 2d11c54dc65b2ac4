package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
)

func port(a netip.Addr, p uint16) netip.AddrPort { return netip.AddrPortFrom(a, p) }

func TestForwardToPeer(t *testing.T) {
	tests := []struct {
		name string
		node int
		in   dataplanetest.Packet
		want string
	}{
		{
			name: "UDP from a pod is translated to the peer's own address",
			in:   dataplanetest.Packet{Src: port(localPod, 1000), Dst: port(remoteInside, 53), Payload: []byte("hello")},
			want: "10.243.1.10:1000 > 10.243.2.20:53 proto 17 ttl 63 len 33 valid true",
		},
		{
			name: "TCP",
			in:   dataplanetest.Packet{Proto: packet.ProtoTCP, Src: port(localPod, 1000), Dst: port(remoteInside, 80), Payload: []byte("GET /")},
			want: "10.243.1.10:1000 > 10.243.2.20:80 proto 6 ttl 63 len 45 valid true",
		},
		{
			name: "ICMP echo",
			in:   dataplanetest.Packet{Proto: packet.ProtoICMP, ICMPType: 8, Src: port(localPod, 77), Dst: port(remoteInside, 0), Payload: []byte("ping")},
			want: "10.243.1.10:77 > 10.243.2.20:77 proto 1 ttl 63 len 32 valid true",
		},
		{
			name: "a protocol without a checksum over addresses",
			in:   dataplanetest.Packet{Proto: 47, Src: port(localPod, 0), Dst: port(remoteInside, 0), Payload: []byte("GRE?")},
			want: "10.243.1.10:0 > 10.243.2.20:0 proto 47 ttl 63 len 24 valid true",
		},
		{
			name: "IPv6",
			in:   dataplanetest.Packet{Src: port(localPod6, 1000), Dst: port(remoteInside6, 53), Payload: []byte("hello")},
			want: "fd00:243:0:1::10:1000 > fd00:243:0:2::20:53 proto 17 ttl 63 len 53 valid true",
		},
		{
			name: "a pod on a node that has no route for it yet",
			node: 1,
			in:   dataplanetest.Packet{Src: port(netip.MustParseAddr("10.243.200.10"), 1000), Dst: port(remoteInside, 53)},
			want: "10.243.200.10:1000 > 10.243.2.20:53 proto 17 ttl 63 len 28 valid true",
		},
		{
			name: "a host behind the cluster leaves under its IP object's address",
			node: 1,
			in:   dataplanetest.Packet{Src: port(mappedHost, 443), Dst: port(remoteInside, 50000)},
			want: "10.70.0.7:443 > 10.243.2.20:50000 proto 17 ttl 63 len 28 valid true",
		},
		{
			name: "a pod with an IP object connects under its own address",
			in:   dataplanetest.Packet{Src: port(mappedPod, 1000), Dst: port(remoteInside, 53)},
			want: "10.243.1.50:1000 > 10.243.2.20:53 proto 17 ttl 63 len 28 valid true",
		},
		{
			name: "the peer's external CIDR",
			in:   dataplanetest.Packet{Src: port(localPod, 1000), Dst: port(netip.MustParseAddr("10.73.0.7"), 443)},
			want: "10.243.1.10:1000 > 10.70.0.7:443 proto 17 ttl 63 len 28 valid true",
		},
		{
			name: "a node's own address becomes the unknown source",
			in:   dataplanetest.Packet{Src: port(nodeIPs[0], 1000), Dst: port(remoteInside, 53)},
			want: "10.70.0.0:1000 > 10.243.2.20:53 proto 17 ttl 63 len 28 valid true",
		},
		{
			name: "the unknown source, translated by the node",
			node: 1,
			in:   dataplanetest.Packet{Src: port(unknownIP, 1000), Dst: port(remoteInside, 53)},
			want: "10.70.0.0:1000 > 10.243.2.20:53 proto 17 ttl 63 len 28 valid true",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.ipFromNode(tt.node, dataplanetest.Build(tt.in))
			got := h.egress()
			if len(got) != 1 || describe(got[0]) != tt.want {
				t.Errorf("tunnel got %d packets\n got %s\nwant %s", len(got), describeAll(got), tt.want)
			}
		})
	}
}

func describeAll(bs [][]byte) (out string) {
	for _, b := range bs {
		out += describe(b) + "\n     "
	}
	return out
}

func TestForwardToNode(t *testing.T) {
	tests := []struct {
		name string
		in   dataplanetest.Packet
		node int
		want string
	}{
		{
			name: "a pod behind the node that its route names",
			in:   dataplanetest.Packet{Src: port(remoteOutside, 53), Dst: port(localPod, 1000)},
			want: "10.71.2.20:53 > 10.243.1.10:1000 proto 17 ttl 63 len 28 valid true",
		},
		{
			name: "the longest prefix wins",
			in:   dataplanetest.Packet{Src: port(remoteOutside, 53), Dst: port(netip.MustParseAddr("10.243.2.99"), 1000)},
			want: "10.71.2.20:53 > 10.243.2.99:1000 proto 17 ttl 63 len 28 valid true",
		},
		{
			name: "the other node",
			node: 1,
			in:   dataplanetest.Packet{Src: port(remoteOutside, 53), Dst: port(netip.MustParseAddr("10.243.2.98"), 1000)},
			want: "10.71.2.20:53 > 10.243.2.98:1000 proto 17 ttl 63 len 28 valid true",
		},
		{
			name: "IPv6",
			in:   dataplanetest.Packet{Src: port(remoteOutside6, 53), Dst: port(localPod6, 1000)},
			want: "fd00:71:0:2::20:53 > fd00:243:0:1::10:1000 proto 17 ttl 63 len 48 valid true",
		},
		{
			name: "an IP object of a host behind the cluster",
			node: 1,
			in:   dataplanetest.Packet{Src: port(remoteOutside, 50000), Dst: port(mappedHostOut, 443)},
			want: "10.71.2.20:50000 > 192.168.7.7:443 proto 17 ttl 63 len 28 valid true",
		},
		{
			name: "an IP object of a pod",
			in:   dataplanetest.Packet{Src: port(remoteOutside, 50000), Dst: port(mappedPodOut, 443)},
			want: "10.71.2.20:50000 > 10.243.1.50:443 proto 17 ttl 63 len 28 valid true",
		},
		{
			name: "from the peer's external CIDR",
			in:   dataplanetest.Packet{Src: port(netip.MustParseAddr("10.70.0.7"), 443), Dst: port(localPod, 1000)},
			want: "10.73.0.7:443 > 10.243.1.10:1000 proto 17 ttl 63 len 28 valid true",
		},
		{
			name: "an ICMP error of a stock gateway comes from its tunnel address",
			in: dataplanetest.Packet{
				Proto: packet.ProtoICMP, ICMPType: 11, Src: port(peerTunnelIP, 0), Dst: port(localPod, 0),
				Payload: udp(localPod, 1000, remoteOutside, 33434, "probe"),
			},
			want: "10.73.0.0:0 > 10.243.1.10:0 proto 1 ttl 63 len 61 valid true",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.ingress(dataplanetest.Build(tt.in))
			got := h.atNode(tt.node)
			if len(got) != 1 || describe(got[0].ip()) != tt.want {
				var ips [][]byte
				for _, g := range got {
					ips = append(ips, g.ip())
				}
				t.Fatalf("node %d got %d packets\n got %s\nwant %s\nverdicts %v", tt.node, len(got), describeAll(ips), tt.want, h.ingressVerdicts())
			}
			f, _ := neighbor.DecodeFrame(got[0].payload)
			if f.Dst != h.nodeMACs[tt.node] {
				t.Errorf("frame is addressed to %s, want %s", f.Dst, h.nodeMACs[tt.node])
			}
		})
	}
}

func TestPodWithoutRouteGoesToAStableNode(t *testing.T) {
	h := newHarness(t, nil)
	newPod := netip.MustParseAddr("10.243.200.1")
	for range 3 {
		h.ingress(udp(remoteOutside, 53, newPod, 1000, "hello"))
	}
	a, b := len(h.atNode(0)), len(h.atNode(1))
	if a+b != 3 || a != 0 && b != 0 {
		t.Errorf("nodes got %d and %d packets, want all 3 at one of them", a, b)
	}
	if got := h.forwarder.Status().Ingress.Fallback; got != 3 {
		t.Errorf("counted %d packets without a route, want 3", got)
	}
}

func TestDropsFromNodes(t *testing.T) {
	good := dataplanetest.Packet{Src: port(localPod, 1000), Dst: port(remoteInside, 53)}
	with := func(change func(*dataplanetest.Packet)) []byte {
		p := good
		change(&p)
		return dataplanetest.Build(p)
	}
	tests := []struct {
		name   string
		config func(*dataplane.Config)
		send   func(h *harness)
		want   dataplane.Verdict
	}{
		{
			name: "no Geneve header",
			send: func(h *harness) { h.datagram(h.nodes[0], []byte("\xffnonsense")) },
			want: dataplane.DropEncapsulation,
		},
		{
			name: "known address, another node's VNI",
			send: func(h *harness) {
				h.datagram(h.nodes[0], inGeneve(8, nil))
			},
			want: dataplane.DropUnknownNode,
		},
		{
			name: "known VNI, a stranger's address",
			send: func(h *harness) {
				h.datagram(h.network.Listen(strangerUDP), inGeneve(7, nil))
			},
			want: dataplane.DropUnknownNode,
		},
		{
			name: "control packet",
			send: func(h *harness) {
				h.datagram(h.nodes[0], controlPacket())
			},
			want: dataplane.DropControl,
		},
		{
			name: "frame for another station",
			send: func(h *harness) {
				h.fromNode(0, frame(neighbor.MAC{2, 9, 9, 9, 9, 9}, h.nodeMACs[0], neighbor.EtherTypeIPv4, dataplanetest.Build(good)))
			},
			want: dataplane.DropFrame,
		},
		{
			name: "broadcast frame",
			send: func(h *harness) {
				h.fromNode(0, frame(neighbor.Broadcast, h.nodeMACs[0], neighbor.EtherTypeIPv4, dataplanetest.Build(good)))
			},
			want: dataplane.DropFrame,
		},
		{
			name: "ARP for an address that is not ours",
			send: func(h *harness) {
				h.fromNode(0, frame(neighbor.Broadcast, h.nodeMACs[0], neighbor.EtherTypeARP, packettest.ARP{
					Op: neighbor.ARPRequest, SenderMAC: h.nodeMACs[0], SenderIP: nodeIPs[0], TargetIP: netip.MustParseAddr("10.80.0.77"),
				}.Bytes()))
			},
			want: dataplane.DropFrame,
		},
		{
			name: "truncated IP packet",
			send: func(h *harness) { h.ipFromNode(0, dataplanetest.Build(good)[:24]) },
			want: dataplane.DropMalformed,
		},
		{
			name: "damaged IPv4 header",
			send: func(h *harness) { h.ipFromNode(0, damaged(dataplanetest.Build(good))) },
			want: dataplane.DropMalformed,
		},
		{
			name: "multicast",
			send: func(h *harness) {
				h.ipFromNode(0, with(func(p *dataplanetest.Packet) { p.Dst = port(netip.MustParseAddr("224.0.0.251"), 5353) }))
			},
			want: dataplane.DropMulticast,
		},
		{
			name: "a source that is not local",
			send: func(h *harness) {
				h.ipFromNode(0, with(func(p *dataplanetest.Packet) { p.Src = port(netip.MustParseAddr("8.8.8.8"), 53) }))
			},
			want: dataplane.DropSpoofedSource,
		},
		{
			name: "another node's address as source",
			send: func(h *harness) {
				h.ipFromNode(0, with(func(p *dataplanetest.Packet) { p.Src = port(nodeIPs[1], 53) }))
			},
			want: dataplane.DropSpoofedSource,
		},
		{
			name: "the peer's own addresses as source",
			send: func(h *harness) {
				h.ipFromNode(0, with(func(p *dataplanetest.Packet) { p.Src = port(remoteInside, 53) }))
			},
			want: dataplane.DropSpoofedSource,
		},
		{
			name: "a pod from a node where it does not live",
			send: func(h *harness) { h.ipFromNode(1, dataplanetest.Build(good)) },
			want: dataplane.DropWrongNode,
		},
		{
			name:   "a pod without a route, strictly",
			config: func(c *dataplane.Config) { c.Sources = dataplane.SourceStrict },
			send: func(h *harness) {
				h.ipFromNode(0, with(func(p *dataplanetest.Packet) { p.Src = port(netip.MustParseAddr("10.243.200.1"), 53) }))
			},
			want: dataplane.DropWrongNode,
		},
		{
			name: "a destination of no mapping",
			send: func(h *harness) {
				h.ipFromNode(0, with(func(p *dataplanetest.Packet) { p.Dst = port(netip.MustParseAddr("1.1.1.1"), 53) }))
			},
			want: dataplane.DropNoMapping,
		},
		{
			name: "the peer's address as the peer writes it",
			send: func(h *harness) {
				h.ipFromNode(0, with(func(p *dataplanetest.Packet) { p.Dst = port(remoteOutside, 53) }))
			},
			want: dataplane.DropNoMapping,
		},
		{
			name: "the peer's tunnel address, from a pod",
			send: func(h *harness) {
				h.ipFromNode(0, with(func(p *dataplanetest.Packet) { p.Dst = port(peerTunnelIP, 12345) }))
			},
			want: dataplane.DropNoMapping,
		},
		{
			name: "hop limit used up",
			send: func(h *harness) { h.ipFromNode(0, with(func(p *dataplanetest.Packet) { p.HopLimit = 1 })) },
			want: dataplane.DropHopLimit,
		},
		{
			name: "too big for the tunnel",
			send: func(h *harness) {
				h.ipFromNode(0, with(func(p *dataplanetest.Packet) { p.DontFragment, p.Payload = true, make([]byte, 1313) }))
			},
			want: dataplane.DropTooBig,
		},
		{
			name: "two nodes with one 5-tuple behind the unknown source",
			send: func(h *harness) {
				h.ipFromNode(0, udp(unknownIP, 1000, remoteInside, 53, ""))
				h.ipFromNode(1, udp(unknownIP, 1000, remoteInside, 53, ""))
				if got := h.egress(); len(got) != 1 {
					h.Errorf("tunnel got %d packets, want the first one's", len(got))
				}
			},
			want: dataplane.DropFlowConflict,
		},
		{
			name:   "the unknown source without an external CIDR",
			config: func(c *dataplane.Config) { c.LocalExternal, c.Addresses = nil, nil },
			send:   func(h *harness) { h.ipFromNode(0, udp(nodeIPs[0], 1000, remoteInside, 53, "")) },
			want:   dataplane.DropSpoofedSource,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, tt.config)
			tt.send(h)
			if got := h.egress(); len(got) != 0 {
				t.Errorf("tunnel got %s", describeAll(got))
			}
			if h.egressVerdicts()[tt.want.String()] != 1 {
				t.Errorf("verdicts %v, want one %s", h.egressVerdicts(), tt.want)
			}
		})
	}
}

// damaged changes the type of service of an IPv4 packet, which only its header
// checksum tells.
func damaged(b []byte) []byte {
	b[1] ^= 4
	return b
}

func TestDropsFromPeer(t *testing.T) {
	tests := []struct {
		name   string
		config func(*dataplane.Config)
		in     []byte
		want   dataplane.Verdict
	}{
		{name: "not an IP packet", in: []byte{0x12, 0x34}, want: dataplane.DropMalformed},
		{name: "damaged IPv4 header", in: damaged(udp(remoteOutside, 53, localPod, 1000, "")), want: dataplane.DropMalformed},
		{name: "a source that is not the peer's", in: udp(netip.MustParseAddr("8.8.8.8"), 53, localPod, 1000, ""), want: dataplane.DropSpoofedSource},
		{name: "the tunnel address as source", in: udp(peerTunnelIP, 53, localPod, 1000, ""), want: dataplane.DropSpoofedSource},
		{name: "our tunnel address, from a pod of the peer", in: udp(remoteOutside, 53, tunnelIP, 12345, ""), want: dataplane.DropSpoofedSource},
		{name: "a destination that is not local", in: udp(remoteOutside, 53, netip.MustParseAddr("1.1.1.1"), 53, ""), want: dataplane.DropNoMapping},
		{name: "a node's address", in: udp(remoteOutside, 53, nodeIPs[0], 53, ""), want: dataplane.DropNoMapping},
		{name: "the gateway's internal address", in: udp(remoteOutside, 53, gatewayIP, 53, ""), want: dataplane.DropNoMapping},
		{name: "loopback", in: udp(remoteOutside, 53, netip.MustParseAddr("127.0.0.1"), 53, ""), want: dataplane.DropNoMapping},
		{name: "an external address without an IP object", in: udp(remoteOutside, 53, netip.MustParseAddr("10.70.0.99"), 53, ""), want: dataplane.DropNoAddress},
		{name: "the unknown source without a flow", in: udp(remoteOutside, 53, unknownIP, 53, ""), want: dataplane.DropNoAddress},
		{
			name: "hop limit used up", want: dataplane.DropHopLimit,
			in: dataplanetest.Build(dataplanetest.Packet{Src: port(remoteOutside, 53), Dst: port(localPod, 1000), HopLimit: 1}),
		},
		{
			name: "too big for the node's link", want: dataplane.DropTooBig,
			in: dataplanetest.Build(dataplanetest.Packet{Src: port(remoteOutside, 53), Dst: port(localPod, 1000), DontFragment: true, Payload: make([]byte, 1400)}),
		},
		{
			name: "no node at all", want: dataplane.DropNoNode,
			config: func(c *dataplane.Config) {
				c.Routes = nil
				c.Nodes = c.Nodes[:0]
			},
			in: udp(remoteOutside, 53, localPod, 1000, ""),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, nil)
			if tt.config != nil {
				tt.config(&h.config)
				if err := h.forwarder.Apply(h.config); err != nil {
					t.Fatal(err)
				}
			}
			h.ingress(tt.in)
			if got := append(h.atNode(0), h.atNode(1)...); len(got) != 0 {
				t.Errorf("a node got %x", got[0].ip())
			}
			if diff := cmp.Diff(map[string]uint64{tt.want.String(): 1}, h.ingressVerdicts()); diff != "" {
				t.Errorf("verdicts (-want +got)\n%s", diff)
			}
		})
	}
}

func TestNodeWithoutMACGetsNothing(t *testing.T) {
	h := newHarness(t, nil)
	h.config.Nodes[0].VNI = 70 // a new tunnel: nothing is known about it
	if err := h.forwarder.Apply(h.config); err != nil {
		t.Fatal(err)
	}
	h.ingress(udp(remoteOutside, 53, localPod, 1000, ""))
	if got := h.ingressVerdicts()["DropNoNeighbor"]; got != 1 {
		t.Errorf("verdicts %v, want one DropNoNeighbor", h.ingressVerdicts())
	}
}

func TestErrorsAreAnsweredInTheSendersWords(t *testing.T) {
	h := newHarness(t, nil)
	offending := dataplanetest.Build(dataplanetest.Packet{Src: port(localPod, 1000), Dst: port(remoteInside, 53), DontFragment: true, Payload: make([]byte, 1400)})
	h.ipFromNode(0, offending)
	h.egress()
	got := h.atNode(0)
	if len(got) != 1 {
		t.Fatalf("node got %d packets, want Fragmentation Needed", len(got))
	}
	p, _ := packet.Parse(got[0].ip())
	icmp := p.Transport()
	if p.Src() != gatewayIP || p.Dst() != localPod || icmp[0] != 3 || icmp[1] != 4 || binary.BigEndian.Uint16(icmp[6:]) != 1340 {
		t.Errorf("got %s type %d code %d MTU %d, want Fragmentation Needed from %s with MTU 1340", describe(got[0].ip()), icmp[0], icmp[1], binary.BigEndian.Uint16(icmp[6:]), gatewayIP)
	}
	if !bytes.HasPrefix(offending, icmp[8:36]) {
		t.Errorf("quotes %x, want what the sender sent, %x", icmp[8:36], offending[:28])
	}
}

func TestErrorsToThePeerComeFromTheExternalCIDR(t *testing.T) {
	h := newHarness(t, nil)
	h.ingress(dataplanetest.Build(dataplanetest.Packet{Src: port(remoteOutside, 53), Dst: port(localPod, 1000), HopLimit: 1}))
	got := h.egress()
	if len(got) != 1 {
		t.Fatalf("tunnel got %d packets, want Time Exceeded", len(got))
	}
	p, _ := packet.Parse(got[0])
	if p.Src() != unknownIP || p.Dst() != remoteOutside || p.Transport()[0] != 11 {
		t.Errorf("got %s, want Time Exceeded from %s to %s", describe(got[0]), unknownIP, remoteOutside)
	}
}

func TestUnknownSourceFindsItsNode(t *testing.T) {
	h := newHarness(t, nil)
	h.ipFromNode(1, udp(unknownIP, 1000, remoteInside, 53, "from node 1"))
	h.ipFromNode(0, udp(nodeIPs[0], 2000, remoteInside, 53, "from node 0 itself"))
	if got := h.egress(); len(got) != 2 {
		t.Fatalf("tunnel got %d packets, want 2", len(got))
	}
	h.ingress(udp(remoteOutside, 53, unknownIP, 1000, "answer"), udp(remoteOutside, 53, unknownIP, 2000, "answer"))
	for node, want := range []string{
		"10.71.2.20:53 > 10.80.0.11:2000 proto 17 ttl 63 len 34 valid true",
		"10.71.2.20:53 > 10.70.0.0:1000 proto 17 ttl 63 len 34 valid true",
	} {
		got := h.atNode(node)
		if len(got) != 1 || describe(got[0].ip()) != want {
			t.Errorf("node %d got %v, want %s", node, got, want)
		}
	}
	// Port unreachable about the second one.
	h.ingress(dataplanetest.Build(dataplanetest.Packet{
		Proto: packet.ProtoICMP, ICMPType: 3, Src: port(remoteOutside, 0), Dst: port(unknownIP, 0),
		Payload: udp(unknownIP, 2000, remoteOutside, 53, "from node 0 itself"),
	}))
	got := h.atNode(0)
	if len(got) != 1 {
		t.Fatalf("node 0 got %d errors, want 1: %v", len(got), h.ingressVerdicts())
	}
	p, _ := packet.Parse(got[0].ip())
	e, ok := p.Embedded()
	if !ok || p.Dst() != nodeIPs[0] || e.Src() != nodeIPs[0] || e.Dst() != remoteInside || !dataplanetest.ChecksumsValid(got[0].ip()) {
		t.Errorf("got %s quoting %s > %s, want an error to %s that quotes its packet", describe(got[0].ip()), e.Src(), e.Dst(), nodeIPs[0])
	}
}

func TestPodAnswersUnderTheAddressThatWasAsked(t *testing.T) {
	h := newHarness(t, nil)
	h.ingress(udp(remoteOutside, 50000, mappedPodOut, 443, "to the IP object"))
	h.ingress(udp(remoteOutside, 50001, mappedPod, 443, "to the pod"))
	h.ipFromNode(0, udp(mappedPod, 443, remoteInside, 50000, "answer"))
	h.ipFromNode(0, udp(mappedPod, 443, remoteInside, 50001, "answer"))
	got := h.egress()
	want := []string{
		"10.70.0.50:443 > 10.243.2.20:50000 proto 17 ttl 63 len 34 valid true",
		"10.243.1.50:443 > 10.243.2.20:50001 proto 17 ttl 63 len 34 valid true",
	}
	if len(got) != 2 || describe(got[0]) != want[0] || describe(got[1]) != want[1] {
		t.Errorf("tunnel got\n     %s\nwant %v", describeAll(got), want)
	}
}

// controlPacket has the O bit of Geneve set.
func controlPacket() []byte {
	b := inGeneve(7, nil)
	b[1] = 0x80
	return b
}

func TestEachNodeIsAnsweredInItsEncapsulation(t *testing.T) {
	for _, e := range []geneve.Encapsulation{geneve.Geneve, geneve.VXLAN, geneve.GeneveIP} {
		t.Run(e.String(), func(t *testing.T) {
			h := newHarness(t, nil)
			ip := udp(localPod, 1000, remoteInside, 53, "hello")
			f := frame(h.gatewayID, h.nodeMACs[0], neighbor.EtherTypeIPv4, ip)
			b := inGeneve(7, f)
			switch e {
			case geneve.VXLAN:
				b = packettest.VXLAN(7, f)
			case geneve.GeneveIP:
				b = packettest.Geneve(7, neighbor.EtherTypeIPv4, ip)
			}
			h.datagram(h.nodes[0], b)
			if got := h.egress(); len(got) != 1 {
				t.Fatalf("tunnel got %d packets, want 1: %v", len(got), h.egressVerdicts())
			}
			h.datagram(h.nodes[0], b) // the marker of egress spoke Geneve in between
			h.forwarder.ReadPackets(h.bufs, h.sizes, offset)
			h.ingress(udp(remoteOutside, 53, localPod, 1000, "answer"))
			got := h.atNode(0)
			if len(got) != 1 || got[0].header.Encapsulation != e || got[0].header.VNI != 7 {
				t.Errorf("node got %+v, want one packet in %s with VNI 7", got, e)
			}
		})
	}
}
