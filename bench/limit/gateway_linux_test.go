package limit

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/test/packettest"
)

const testMTU = 1340

var (
	loopback = netip.MustParseAddr("127.0.0.1")
	nodeMAC  = neighbor.MAC{2, 0, 0, 0, 0, 1}

	inside  = netip.MustParsePrefix("10.71.0.0/16")
	outside = netip.MustParsePrefix("10.243.0.0/16")
	podA    = netip.MustParseAddr("10.243.1.10")
	podB    = netip.MustParseAddr("10.243.2.20")
	podBAsA = netip.MustParseAddr("10.71.2.20") // podB, as A knows it
	podAAsB = netip.MustParseAddr("10.71.1.10") // podA, as B knows it
)

// node is the other end of a node's tunnel.
type node struct {
	t testing.TB
	*net.UDPConn
	gateway netip.AddrPort
	e       geneve.Encapsulation
}

func newNode(t testing.TB, e geneve.Encapsulation) *node {
	t.Helper()
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &node{t: t, UDPConn: c, e: e}
}

func (n *node) addr() netip.AddrPort { return n.LocalAddr().(*net.UDPAddr).AddrPort() }

// send encapsulates and sends.
func (n *node) send(etherType uint16, payload []byte) {
	n.t.Helper()
	b := n.frame(etherType, payload)
	if _, err := n.WriteToUDPAddrPort(b, n.gateway); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) frame(etherType uint16, payload []byte) []byte {
	frame := packettest.Ethernet(neighbor.Broadcast, nodeMAC, etherType, payload)
	if n.e == geneve.VXLAN {
		return packettest.VXLAN(7, frame)
	}
	return packettest.Geneve(7, packettest.TransparentEthernet, frame)
}

// receive returns the next frame of a kind.
func (n *node) receive(etherType uint16) neighbor.Frame {
	n.t.Helper()
	_ = n.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 65536)
	for {
		size, err := n.Read(b)
		if err != nil {
			n.t.Fatal(err)
		}
		h, payload, err := geneve.Decode(b[:size])
		if err != nil || h.VNI != 7 {
			n.t.Fatalf("header %+v, %v", h, err)
		}
		frame, ok := neighbor.DecodeFrame(payload)
		if !ok {
			n.t.Fatal("no frame")
		}
		if a, ok := neighbor.DecodeARP(frame.Payload); ok && a.Op == neighbor.ARPRequest {
			continue // it asks for our address, in both encapsulations
		}
		if frame.EtherType != etherType || h.Encapsulation != n.e {
			n.t.Fatalf("%#x in %v, want %#x in %v", frame.EtherType, h.Encapsulation, etherType, n.e)
		}
		return frame
	}
}

// pair starts two gateways between two nodes.
func pair(t *testing.T) (a, b *node) {
	t.Helper()
	one, two := Key{1}, Key{2}
	a, b = newNode(t, geneve.VXLAN), newNode(t, geneve.Geneve)
	ga, gb := testGateway(t, a, one, two), testGateway(t, b, two, one)
	ga.cfg.Peer, gb.cfg.Peer = gb.tunnel.localAddr(), ga.tunnel.localAddr()
	for _, g := range []*Gateway{ga, gb} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	// A packet has to find the MAC address of the node known.
	for _, n := range []*node{a, b} {
		n.send(neighbor.EtherTypeARP, packettest.ARP{
			Op: neighbor.ARPRequest, SenderMAC: nodeMAC, SenderIP: netip.MustParseAddr("10.80.0.1"), TargetIP: netip.MustParseAddr("10.80.0.254"),
		}.Bytes())
		reply, ok := neighbor.DecodeARP(n.receive(neighbor.EtherTypeARP).Payload)
		if !ok || reply.SenderIP != netip.MustParseAddr("10.80.0.254") || reply.TargetMAC != nodeMAC {
			t.Fatalf("ARP: %+v, %v", reply, ok)
		}
	}
	return a, b
}

func testGateway(t testing.TB, n *node, send, receive Key) *Gateway {
	t.Helper()
	free := netip.AddrPortFrom(loopback, 0)
	g, err := New(Config{
		NodeListen: free, TunnelListen: free, Node: n.addr(), Peer: free, VNI: 7,
		Internal: netip.MustParseAddr("10.80.0.254"), NodeInternal: netip.MustParseAddr("10.80.0.1"),
		Translation: nat.Config{Remote: []nat.Mapping{{Inside: inside, Outside: outside}}},
		MTU:         testMTU, SendKey: send, ReceiveKey: receive,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.gateway = g.node.localAddr()
	return g
}

// tcp describes a TCP packet with n bytes of payload.
func tcp(src, dst netip.Addr, n int) packettest.Spec {
	payload := make([]byte, n)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	const ack, push = 0x10, 8
	return packettest.Spec{Src: src, Dst: dst, Proto: packettest.TCP, ID: 77, Transport: packettest.Segment{
		SrcPort: 4000, DstPort: 5000, Flags: ack | push, Payload: payload,
		Seq: 1<<32 - 2000, // overflows within the super-segment
	}.Bytes()}
}

// udp describes a UDP packet with n bytes of payload.
func udp(src, dst netip.Addr, n int) packettest.Spec {
	payload := make([]byte, n)
	for i := range payload {
		payload[i] = byte(i * 5)
	}
	return packettest.Spec{Src: src, Dst: dst, Proto: packettest.UDP, ID: 77, Transport: packettest.Datagram(4000, 5000, payload)}
}

// unfinished is a packet as a node's kernel hands it over.
func unfinished(s packettest.Spec) []byte { return packettest.Unfinish(s.Bytes()) }

// after is what a packet is to the other side: translated, some hops further, checksums
// complete, and cut if it is a super-segment. cut is the payload of UDP packets.
func after(s packettest.Spec, src, dst netip.Addr, hops uint8, cut int) [][]byte {
	s.Src, s.Dst, s.HopLimit = src, dst, 64-hops
	if cut == 0 {
		cut = testMTU - 40
	}
	return packettest.Cut(s.Bytes(), cut)
}

func TestPacketsPassBothWays(t *testing.T) {
	a, b := pair(t)
	for _, size := range []int{12, 13, 100, 1300, 1301, 9000, 20000, 60000} {
		for _, way := range []struct {
			from, to           *node
			src, dst, asS, asD netip.Addr
		}{
			{a, b, podA, podBAsA, podAAsB, podB},
			{b, a, podB, podAAsB, podBAsA, podA},
		} {
			sent := tcp(way.src, way.dst, size)
			way.from.send(neighbor.EtherTypeIPv4, unfinished(sent))
			for i, want := range after(sent, way.asS, way.asD, 2, 0) {
				if diff := cmp.Diff(want, way.to.receive(neighbor.EtherTypeIPv4).Payload); diff != "" {
					t.Fatalf("%d bytes, packet %d (-want +got):\n%s", size, i, diff)
				}
			}
		}
	}
}

// TestMessagesAreTakenApart feeds what the kernel delivers with GRO: runs of datagrams, and
// super-segments of UDP, which look alike.
func TestMessagesAreTakenApart(t *testing.T) {
	n := newNode(t, geneve.VXLAN)
	g := testGateway(t, n, Key{1}, Key{2})
	defer g.node.close()
	defer g.tunnel.close()
	peer := newNode(t, geneve.VXLAN)
	g.cfg.Peer = peer.addr()
	small, last := tcp(podA, podBAsA, 100), tcp(podA, podBAsA, 30)
	large, many, tiny := udp(podA, podBAsA, 5000), udp(podA, podBAsA, 40*maxRun), udp(podA, podBAsA, 1600)
	frame := func(s packettest.Spec) []byte { return n.frame(neighbor.EtherTypeIPv4, unfinished(s)) }
	sealed := func(s packettest.Spec, cut int) [][]byte { return after(s, podA, podB, 1, cut) }
	one := len(frame(small))
	for _, tt := range []struct {
		name    string
		message []byte
		segment int
		want    [][]byte
	}{
		{"one", frame(small), one, sealed(small, 0)},
		{"run", slices.Concat(frame(small), frame(small), frame(last)), one, slices.Concat(sealed(small, 0), sealed(small, 0), sealed(last, 0))},
		{"super-segment", frame(large), 1200, sealed(large, 1200)},
		{"many small ones", frame(many), 40, sealed(many, 40)},
		{"payloads smaller than their headers", frame(tiny), 20, sealed(tiny, 20)},
	} {
		e := newEgress(g)
		buf := make([]byte, headroom+messageLen+slack)
		copy(buf[headroom:], tt.message)
		e.message(buf, len(tt.message), tt.segment)
		e.flush()
		opener := newReceiveKey(g.cfg.SendKey)
		for i, want := range tt.want {
			b := make([]byte, 2000)
			_ = peer.SetReadDeadline(time.Now().Add(10 * time.Second))
			size, err := peer.Read(b)
			if err != nil {
				t.Fatalf("%s: packet %d: %v", tt.name, i, err)
			}
			got, ok := opener.open(b[:size])
			if !ok {
				t.Fatalf("%s: packet %d is not sealed", tt.name, i)
			}
			want = append(want, make([]byte, paddedLen(len(want), testMTU)-len(want))...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s: packet %d (-want +got):\n%s", tt.name, i, diff)
			}
		}
	}
}

func TestPacketsDoNotAllocate(t *testing.T) {
	n := newNode(t, geneve.VXLAN)
	g := testGateway(t, n, Key{1}, Key{1}) // it talks to itself
	defer g.node.close()
	defer g.tunnel.close()
	g.cfg.Peer = g.tunnel.localAddr()
	e, r := newEgress(g), newIngress(g)
	r.ready = true
	message := n.frame(neighbor.EtherTypeIPv4, unfinished(tcp(podA, podBAsA, 9000)))
	buf := make([]byte, headroom+messageLen+slack)
	copy(buf[headroom:], message)
	packet := tcp(podB, podA, 1000).Bytes()
	for name, f := range map[string]func(){
		"egress": func() {
			copy(buf[headroom:], message)
			e.message(buf, len(message), len(message))
			e.flush()
		},
		"ingress": func() {
			b := buf[:headroom+len(packet)+overhead]
			e.key.seal(b[headroom:], packet)
			r.datagram(b)
			r.out.flush()
		},
	} {
		if got := testing.AllocsPerRun(50, f); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
	if n := g.Stats.DroppedEgress.Load() + g.Stats.DroppedIngress.Load(); n != 0 {
		t.Errorf("%d packets were dropped", n)
	}
}
