package limit

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
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
	b := make([]byte, headLen, headLen+len(payload))
	geneve.PutHeader(b, n.e, 7, geneve.ProtocolEthernet)
	neighbor.PutEthernet(b[geneve.HeaderLen:], neighbor.Broadcast, nodeMAC, etherType)
	return append(b, payload...)
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
		n.send(neighbor.EtherTypeARP, neighbor.AppendARP(nil, neighbor.ARP{
			Op: neighbor.ARPRequest, SenderMAC: nodeMAC, SenderIP: netip.MustParseAddr("10.80.0.1"), TargetIP: netip.MustParseAddr("10.80.0.254"),
		}))
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

// tcp returns a TCP packet with n bytes of payload.
func tcp(src, dst netip.Addr, n int) []byte {
	b := make([]byte, 40+n)
	b[0], b[8], b[9] = 0x45, 64, packet.ProtoTCP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint16(b[4:], 77)
	s, d := src.As4(), dst.As4()
	copy(b[12:], s[:])
	copy(b[16:], d[:])
	binary.BigEndian.PutUint16(b[10:], ^packet.Sum(b[:20], 0))
	t := b[20:]
	binary.BigEndian.PutUint16(t, 4000)
	binary.BigEndian.PutUint16(t[2:], 5000)
	binary.BigEndian.PutUint32(t[4:], 1<<32-2000) // overflows within the super-segment
	t[12], t[13] = 5<<4, packet.TCPAck|packet.TCPPsh
	for i := range n {
		t[20+i] = byte(i * 7)
	}
	binary.BigEndian.PutUint16(t[16:], packet.PseudoHeader(src, dst, packet.ProtoTCP, len(t))) // unfinished
	return b
}

// udp returns a UDP packet with n bytes of payload.
func udp(src, dst netip.Addr, n int) []byte {
	b := tcp(src, dst, n-12)
	b[9] = packet.ProtoUDP
	binary.BigEndian.PutUint16(b[10:], 0)
	binary.BigEndian.PutUint16(b[10:], ^packet.Sum(b[:20], 0))
	t := b[20:]
	binary.BigEndian.PutUint16(t[4:], uint16(len(t)))
	binary.BigEndian.PutUint16(t[6:], packet.PseudoHeader(src, dst, packet.ProtoUDP, len(t)))
	for i := range n {
		t[8+i] = byte(i * 5)
	}
	return b
}

// after is what b is to the other side: translated, two hops further, checksums
// complete, and cut if it is a super-segment. cut is the payload of UDP packets.
func after(t *testing.T, b []byte, src, dst netip.Addr, cut int) (want [][]byte) {
	t.Helper()
	p, ok := packet.Parse(bytes.Clone(b))
	if !ok {
		t.Fatal("the test's packet is none")
	}
	if len(b) <= testMTU {
		p.CompleteChecksum()
	}
	p.SetSrc(src)
	p.SetDst(dst)
	p.DecrementHopLimit()
	p.DecrementHopLimit()
	if len(b) <= testMTU {
		return [][]byte{p.Bytes}
	}
	s, ok := packet.NewSegmenter(p, testMTU)
	if cut > 0 {
		s, ok = packet.NewUDPSegmenter(p, cut)
	}
	if !ok {
		t.Fatal("the test's super-segment is none")
	}
	for {
		segment := make([]byte, testMTU)
		n := s.Next(segment)
		if n == 0 {
			return want
		}
		want = append(want, segment[:n])
	}
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
			way.from.send(neighbor.EtherTypeIPv4, sent)
			for i, want := range after(t, sent, way.asS, way.asD, 0) {
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
	for _, tt := range []struct {
		name    string
		message []byte
		segment int
		want    [][]byte
	}{
		{"one", n.frame(neighbor.EtherTypeIPv4, small), headLen + len(small), after(t, small, podA, podB, 0)},
		{"run", bytes.Join([][]byte{n.frame(neighbor.EtherTypeIPv4, small), n.frame(neighbor.EtherTypeIPv4, small), n.frame(neighbor.EtherTypeIPv4, last)}, nil),
			headLen + len(small), append(append(after(t, small, podA, podB, 0), after(t, small, podA, podB, 0)...), after(t, last, podA, podB, 0)...)},
		{"super-segment", n.frame(neighbor.EtherTypeIPv4, large), 1200, after(t, large, podA, podB, 1200)},
		{"many small ones", n.frame(neighbor.EtherTypeIPv4, many), 40, after(t, many, podA, podB, 40)},
		{"payloads smaller than their headers", n.frame(neighbor.EtherTypeIPv4, tiny), 20, after(t, tiny, podA, podB, 20)},
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
			want[8]++ // one hop less than after has
			p, _ := packet.Parse(want)
			binary.BigEndian.PutUint16(p.Bytes[10:], 0)
			binary.BigEndian.PutUint16(p.Bytes[10:], ^packet.Sum(p.Bytes[:20], 0))
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
	message := n.frame(neighbor.EtherTypeIPv4, tcp(podA, podBAsA, 9000))
	buf := make([]byte, headroom+messageLen+slack)
	copy(buf[headroom:], message)
	packets := after(t, tcp(podB, podA, 1000), podB, podA, 0)
	for name, f := range map[string]func(){
		"egress": func() {
			copy(buf[headroom:], message)
			e.message(buf, len(message), len(message))
			e.flush()
		},
		"ingress": func() {
			b := buf[:headroom+len(packets[0])+overhead]
			e.key.seal(b[headroom:], packets[0])
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
