package tunlink

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
)

// inner takes a datagram to the gateway out of its frame.
func (h *harness) inner(b []byte) []byte {
	h.Helper()
	head, payload, err := geneve.Decode(b)
	if err != nil || head.VNI != h.tunnel.VNI || head.Encapsulation != geneve.Geneve {
		h.Fatalf("sent %+v, %v", head, err)
	}
	f, ok := neighbor.DecodeFrame(payload)
	if !ok || f.Dst != gatewayMAC || f.Src != h.tunnel.mac {
		h.Fatalf("sent the frame %+v", f)
	}
	if want := h.framed(geneve.Geneve, h.tunnel.mac, gatewayMAC, f.EtherType, f.Payload); !bytes.Equal(b, want) {
		h.Fatalf("sent %x, want %x", b[:headLen], want[:headLen])
	}
	if version := f.Payload[0] >> 4; (f.EtherType == neighbor.EtherTypeIPv6) != (version == 6) {
		h.Fatalf("EtherType %#x for IPv%d", f.EtherType, version)
	}
	return f.Payload
}

// inners takes all datagrams to the gateway out of their frames.
func (h *harness) inners() (all [][]byte) {
	h.Helper()
	for _, to := range h.sent.to {
		if want := netip.AddrPortFrom(gateway, geneve.DefaultPort); to != want {
			h.Errorf("sent to %v, want %v", to, want)
		}
	}
	for _, b := range h.taken() {
		all = append(all, h.inner(b))
	}
	return all
}

func TestFromDevice(t *testing.T) {
	multicast := func(p *packettest.Spec, _ *packettest.Segment) {
		p.Dst = netip.MustParseAddr("224.0.0.22")
		if p.Src.Is6() {
			p.Dst = netip.MustParseAddr("ff02::16")
		}
	}
	long := func(n int, flags uint8) specChange {
		return func(_ *packettest.Spec, s *packettest.Segment) {
			s.Payload, s.Flags = randomBytes(rand.New(rand.NewPCG(1, 2)), n), flags
		}
	}
	const ack = packet.TCPAck
	for _, tt := range []struct {
		name   string
		change specChange
		size   int // of the payloads of a super-segment
		spoil  func(v *vnetHeader, b []byte) []byte
		drop   string
	}{
		{name: "one segment"},
		{name: "acknowledgment", change: long(0, ack)},
		{name: "super-segment", change: long(60000, ack), size: 1300},
		{name: "super-segment with an end", change: long(2601, ack|packet.TCPFin|packet.TCPPsh), size: 1300},
		{name: "super-segment of a whole number", change: long(2600, ack), size: 1300},
		{name: "super-segment of one", change: long(1300, ack), size: 1300},
		{name: "super-segment with a reduced window", change: long(5000, ack|packet.TCPCwr), size: 1300},
		{name: "super-segment of tiny ones", change: long(65000, ack), size: 60},
		{name: "with options", change: func(_ *packettest.Spec, s *packettest.Segment) {
			s.Options, s.Payload = bytes.Repeat([]byte{1}, 40), make([]byte, 9000)
		}, size: 1300},
		{name: "multicast", change: multicast, drop: "DropMulticast"},
		{name: "other IP version", spoil: func(_ *vnetHeader, b []byte) []byte { b[0] = 0x50; return b }, drop: "DropMalformed"},
		{name: "too short", spoil: func(_ *vnetHeader, b []byte) []byte { return b[:19] }, drop: "DropMalformed"},
		{name: "nothing", spoil: func(_ *vnetHeader, b []byte) []byte { return nil }, drop: "DropMalformed"},
		{name: "checksum behind the end", spoil: func(v *vnetHeader, b []byte) []byte { v.checkStart = 0xfff0; return b }, drop: "DropMalformed"},
		{name: "checksum in the IP header", spoil: func(v *vnetHeader, b []byte) []byte { v.checkStart = 1; return b }, drop: "DropMalformed"},
		{name: "super-segment of nothing", size: 1300, spoil: func(v *vnetHeader, b []byte) []byte { v.size = 0; return b }, drop: "DropMalformed"},
		{name: "unknown kind", size: 1300, spoil: func(v *vnetHeader, b []byte) []byte { v.gsoType = 3; return b }, drop: "DropMalformed"},
		{name: "datagrams that are none", size: 1300, spoil: func(v *vnetHeader, b []byte) []byte { v.gsoType = vnetUDP; return b }, drop: "DropMalformed"},
		{name: "super-segment cut off", size: 1300, spoil: func(_ *vnetHeader, b []byte) []byte { return b[:len(b)-1] }, drop: "DropMalformed"},
		{name: "more behind the super-segment", size: 1300, spoil: func(_ *vnetHeader, b []byte) []byte { return append(b, 0) }, drop: "DropMalformed"},
	} {
		for version := 4; version <= 6; version += 2 {
			t.Run(fmt.Sprintf("%s/ipv%d", tt.name, version), func(t *testing.T) {
				h := newHarness(t, true, nil)
				b := tcp(version == 6, tt.change)
				want, v := [][]byte{bytes.Clone(b)}, unfinish(t, b)
				if tt.size > 0 {
					v = super(t, b, tt.size)
					want = packettest.Cut(b, tt.size)
				}
				if tt.spoil != nil {
					b = tt.spoil(&v, b)
				}
				wantDrops := map[string]uint64{}
				if tt.drop != "" {
					want, wantDrops = nil, map[string]uint64{tt.drop: 1}
				}
				h.fromKernel(v, b)
				if diff := cmp.Diff(want, h.inners()); diff != "" {
					t.Errorf("packets (-want +got):\n%.3000s", diff)
				}
				if diff := cmp.Diff(wantDrops, h.drops()); diff != "" {
					t.Errorf("drops (-want +got):\n%s", diff)
				}
				c := h.tunnel.count
				if got := c.txPackets.Load(); got != uint64(len(want)) {
					t.Errorf("%d packets counted, want %d", got, len(want))
				}
			})
		}
	}
}

func TestFromDeviceUDP(t *testing.T) {
	for _, tt := range []struct {
		name          string
		payload, size int
		noChecksum    bool
	}{
		{name: "one datagram", payload: 100},
		{name: "a datagram that sums to zero", payload: 0},
		{name: "run", payload: 5000, size: 1200},
		{name: "run of a whole number", payload: 2400, size: 1200},
		{name: "run of the smallest", payload: 128, size: 1},
	} {
		for version := 4; version <= 6; version += 2 {
			t.Run(fmt.Sprintf("%s/ipv%d", tt.name, version), func(t *testing.T) {
				h := newHarness(t, true, nil)
				b := udp(version == 6, make([]byte, tt.payload), nil)
				want, v := [][]byte{bytes.Clone(b)}, unfinish(t, b)
				if tt.size > 0 {
					v = super(t, b, tt.size)
					want = packettest.Cut(b, tt.size)
				}
				h.fromKernel(v, b)
				if diff := cmp.Diff(want, h.inners()); diff != "" {
					t.Errorf("packets (-want +got):\n%.3000s", diff)
				}
			})
		}
	}
}

// TestFromDeviceFinished: what needs no work is sent as it is.
func TestFromDeviceFinished(t *testing.T) {
	h := newHarness(t, true, nil)
	in := [][]byte{
		udp(false, make([]byte, 10), func(p *packettest.Spec) { p.NoChecksum = true }),
		udp(false, make([]byte, 3000), func(p *packettest.Spec) {
			p.DontFragment, p.Part = false, packettest.Part{Offset: 1352, Length: 1352}
		}),
		tcp(true, nil),
	}
	for _, b := range in {
		h.fromKernel(vnetHeader{}, b)
	}
	if diff := cmp.Diff(in, h.inners()); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
}

// TestHeldPackets: what the node sends before the gateway is known waits, up to a bound.
func TestHeldPackets(t *testing.T) {
	h := newHarness(t, false, nil)
	b := tcp(false, func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = make([]byte, 60000) })
	v := super(t, b, 1300)
	want := packettest.Cut(b, 1300)
	small := tcp(false, nil)
	h.fromKernel(v, b)
	h.fromKernel(vnetHeader{}, small)
	h.fromKernel(v, b) // no room
	if got := h.taken(); len(got) != 0 {
		t.Fatalf("%d datagrams sent to an unknown gateway", len(got))
	}
	h.fromGateway(h.arpReply(), 0)
	if diff := cmp.Diff(append(want, small), h.inners()); diff != "" {
		t.Errorf("packets (-want +got):\n%.3000s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{"DropUnresolved": 1}, h.drops()); diff != "" {
		t.Errorf("drops (-want +got):\n%s", diff)
	}
	h.fromKernel(vnetHeader{}, small)
	if got := h.inners(); len(got) != 1 {
		t.Errorf("%d packets sent to the known gateway, want 1", len(got))
	}
}

// TestHeldPacketsExpire: what waits in vain gives its room back.
func TestHeldPacketsExpire(t *testing.T) {
	h := newHarness(t, false, nil)
	h.fromKernel(vnetHeader{}, tcp(false, nil))
	h.tunnel.expire(h.now - 1)
	if got := h.ep.waiting.Load(); got != vnetLen+1040 {
		t.Errorf("%d bytes wait, want %d", got, vnetLen+1040)
	}
	h.tunnel.expire(h.now + 1)
	if got := h.ep.waiting.Load(); got != 0 || h.drops()["DropUnresolved"] != 1 {
		t.Errorf("%d bytes wait, drops %v", got, h.drops())
	}
	h.ep.waiting.Store(maxWaiting) // of other tunnels
	h.fromKernel(vnetHeader{}, tcp(false, nil))
	if h.drops()["DropUnresolved"] != 2 {
		t.Errorf("drops %v", h.drops())
	}
	h.ep.waiting.Store(0)
	h.fromGateway(h.arpReply(), 0)
	if got := h.taken(); len(got) != 0 {
		t.Errorf("%d datagrams sent that were dropped", len(got))
	}
}

// FuzzFromTUN gives the device any header and packet: nothing but datagrams to the
// gateway with whole packets in them may come of it.
func FuzzFromTUN(t *testing.F) {
	f := mutate.New(t)
	fresh := newHarness(f, true, nil)
	for _, v6 := range []bool{false, true} {
		b := tcp(v6, func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = make([]byte, 3000) })
		for _, v := range []vnetHeader{{}, unfinish(f, b), super(f, b, 1000)} {
			head := make([]byte, vnetLen)
			v.put(head)
			f.Add(append(head, b...))
		}
		b = udp(v6, make([]byte, 3000), nil)
		head := make([]byte, vnetLen)
		super(f, b, 1000).put(head)
		f.Add(append(head, b...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > readLen-(headLen-vnetLen) {
			return
		}
		h := fresh.again(t)
		h.tx.take(h.tunnel, copy(h.tx.space(), b), h.now)
		h.tx.flush()
		sent, dropped := h.inners(), h.drops()
		if len(sent) == 0 && len(dropped) != 1 {
			t.Errorf("nothing sent, drops %v", dropped)
		}
		if len(sent) > 1 {
			for _, ip := range sent {
				p, ok := packet.Parse(ip)
				if !ok || !packettest.HeaderValid(ip) || len(p.Bytes) != len(ip) {
					t.Errorf("a segment is no packet: %x", ip)
				}
			}
		}
		if got := h.tunnel.count.txPackets.Load(); got != uint64(len(sent)) {
			t.Errorf("%d packets counted, %d sent", got, len(sent))
		}
	})
}

// arpReply is the gateway's answer to the node's question.
func (h *harness) arpReply() []byte {
	return h.framed(geneve.Geneve, gatewayMAC, h.tunnel.mac, neighbor.EtherTypeARP, packettest.ARP{
		Op: neighbor.ARPReply, SenderMAC: gatewayMAC, SenderIP: gatewayIP, TargetMAC: h.tunnel.mac, TargetIP: nodeIP,
	}.Bytes())
}

func TestVnetHeader(t *testing.T) {
	want := vnetHeader{flags: 1, gsoType: 0x81, headersLen: 0x0203, size: 0x0405, checkStart: 0x0607, checkOffset: 0x0809}
	b := make([]byte, vnetLen)
	want.put(b)
	if got := decodeVnet(b); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := binary.NativeEndian.Uint16(b[4:]); b[1] != 0x81 || got != 0x0405 {
		t.Errorf("written as %x", b)
	}
}
