package packet_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
)

var (
	a4, b4 = netip.MustParseAddr("10.243.1.2"), netip.MustParseAddr("10.71.200.3")
	a6, b6 = netip.MustParseAddr("fd00:243::1:2"), netip.MustParseAddr("fd00:71::200:3")
)

// spec4 and spec6 return a plain packet with the given transport.
func spec4(proto uint8, transport []byte) packettest.Spec {
	return packettest.Spec{Src: a4, Dst: b4, Proto: proto, ID: 0x1234, Transport: transport}
}

func spec6(proto uint8, transport []byte) packettest.Spec {
	return packettest.Spec{Src: a6, Dst: b6, Proto: proto, ID: 0x12345678, Transport: transport}
}

// with returns b with the bytes at an offset replaced.
func with(b []byte, at int, v ...byte) []byte {
	b = append([]byte(nil), b...)
	copy(b[at:], v)
	return b
}

var (
	udp      = packettest.Datagram(1000, 53, []byte("question"))
	syn      = packettest.Segment{SrcPort: 1000, DstPort: 80, Flags: packet.TCPSyn, Options: []byte{2, 4, 5, 0xb4}}.Bytes()
	echo4    = packettest.Message(8, 0, 0xbeef0001, []byte("abcdefgh"))
	echo6    = packettest.Message(128, 0, 0xbeef0001, []byte("abcdefgh"))
	long     = packettest.Datagram(1000, 53, make([]byte, 100))
	hopByHop = packettest.Extension{Type: packet.ProtoHopByHop, Body: []byte{0, 1, 4, 0, 0, 0, 0}}
	destOpts = packettest.Extension{Type: packet.ProtoDestination, Body: []byte{0, 1, 4, 0, 0, 0, 0}}
	routing  = packettest.Extension{Type: packet.ProtoRouting, Body: []byte{0, 4, 0, 0, 0, 0, 0}}
	ah       = packettest.Extension{Type: packet.ProtoAH, Body: append([]byte{4}, make([]byte, 22)...)}
)

func TestParse(t *testing.T) {
	extended := spec6(packet.ProtoUDP, udp)
	extended.Extensions = []packettest.Extension{hopByHop, destOpts, routing, ah, destOpts}
	first4, later4 := spec4(packet.ProtoUDP, long), spec4(packet.ProtoUDP, long)
	first4.Part, later4.Part = packettest.Part{Offset: 0, Length: 48}, packettest.Part{Offset: 48, Length: 60}
	first6, later6 := spec6(packet.ProtoUDP, long), spec6(packet.ProtoUDP, long)
	first6.Part, later6.Part = first4.Part, later4.Part
	first6.Extensions = []packettest.Extension{destOpts}
	options := spec4(packet.ProtoTCP, syn)
	options.Options = []byte{1, 148, 4, 0, 0, 131, 7, 8, 10, 0, 0, 1}
	atomic := with(first6.Bytes(), 40+8+2, 0, 0)

	tests := []struct {
		name     string
		b        []byte
		proto    uint8
		fragment packet.Fragment
		offset   int
		src, dst uint16 // ports
		id       uint32
	}{
		{"IPv4 UDP", spec4(packet.ProtoUDP, udp).Bytes(), packet.ProtoUDP, packet.Whole, 20, 1000, 53, 0x1234},
		{"IPv4 TCP", spec4(packet.ProtoTCP, syn).Bytes(), packet.ProtoTCP, packet.Whole, 20, 1000, 80, 0x1234},
		{"IPv4 with options, a source route at its end", options.Bytes(), packet.ProtoTCP, packet.Whole, 32, 1000, 80, 0x1234},
		{"IPv4 echo", spec4(packet.ProtoICMP, echo4).Bytes(), packet.ProtoICMP, packet.Whole, 20, 0xbeef, 0xbeef, 0x1234},
		{"IPv4 with padding behind it", append(spec4(packet.ProtoUDP, udp).Bytes(), 0, 0, 0), packet.ProtoUDP, packet.Whole, 20, 1000, 53, 0x1234},
		{"IPv4 without payload", spec4(253, nil).Bytes(), 253, packet.Whole, 20, 0, 0, 0x1234},
		{"IPv4 first fragment", first4.Bytes(), packet.ProtoUDP, packet.FirstFragment, 20, 1000, 53, 0x1234},
		{"IPv4 later fragment", later4.Bytes(), packet.ProtoUDP, packet.LaterFragment, 20, 0, 0, 0x1234},
		{"ICMPv6 in IPv4 is nothing we know", spec4(packet.ProtoICMPv6, echo6).Bytes(), packet.ProtoICMPv6, packet.Whole, 20, 0, 0, 0x1234},
		{"IPv6 UDP", spec6(packet.ProtoUDP, udp).Bytes(), packet.ProtoUDP, packet.Whole, 40, 1000, 53, 0},
		{"IPv6 echo", spec6(packet.ProtoICMPv6, echo6).Bytes(), packet.ProtoICMPv6, packet.Whole, 40, 0xbeef, 0xbeef, 0},
		{"IPv6 with extension headers", extended.Bytes(), packet.ProtoUDP, packet.Whole, 40 + 8 + 8 + 8 + 24 + 8, 1000, 53, 0},
		{"IPv6 first fragment behind an extension header", first6.Bytes(), packet.ProtoUDP, packet.FirstFragment, 56, 1000, 53, 0x12345678},
		{"IPv6 later fragment", later6.Bytes(), packet.ProtoUDP, packet.LaterFragment, 48, 0, 0, 0x12345678},
		{"IPv6 atomic fragment", with(atomic, 40+16+4, 0, 40), packet.ProtoUDP, packet.Whole, 56, 1000, 53, 0x12345678},
		{"IPv6 no next header", spec6(packet.ProtoNoNext, nil).Bytes(), packet.ProtoNoNext, packet.Whole, 40, 0, 0, 0},
		{"IPv6 ESP is opaque", spec6(packet.ProtoESP, []byte{1, 2, 3}).Bytes(), packet.ProtoESP, packet.Whole, 40, 0, 0, 0},
		{"SCTP", spec4(packet.ProtoSCTP, []byte{3, 232, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0}).Bytes(), packet.ProtoSCTP, packet.Whole, 20, 1000, 80, 0x1234},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, ok := packet.Parse(tt.b)
			if !ok {
				t.Fatalf("refused: %x", tt.b)
			}
			if p.Proto != tt.proto || p.Fragment != tt.fragment || p.TransportOffset != tt.offset {
				t.Errorf("protocol %d, fragment %d, transport at %d; want %d, %d, %d",
					p.Proto, p.Fragment, p.TransportOffset, tt.proto, tt.fragment, tt.offset)
			}
			if src, dst := p.Ports(); src != tt.src || dst != tt.dst {
				t.Errorf("ports %d, %d; want %d, %d", src, dst, tt.src, tt.dst)
			}
			if p.ID() != tt.id {
				t.Errorf("ID %#x, want %#x", p.ID(), tt.id)
			}
			if src, dst := a4, b4; p.Version == 4 && (p.Src() != src || p.Dst() != dst) {
				t.Errorf("addresses %s, %s; want %s, %s", p.Src(), p.Dst(), src, dst)
			}
			if src, dst := a6, b6; p.Version == 6 && (p.Src() != src || p.Dst() != dst) {
				t.Errorf("addresses %s, %s; want %s, %s", p.Src(), p.Dst(), src, dst)
			}
			if !p.HeaderChecksumValid() {
				t.Error("header checksum not valid")
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	u4, t4 := spec4(packet.ProtoUDP, udp).Bytes(), spec4(packet.ProtoTCP, syn).Bytes()
	u6, t6 := spec6(packet.ProtoUDP, udp).Bytes(), spec6(packet.ProtoTCP, syn).Bytes()
	extended := func(es ...packettest.Extension) []byte {
		s := spec6(packet.ProtoUDP, udp)
		s.Extensions = es
		return s.Bytes()
	}
	option4 := func(o ...byte) []byte {
		s := spec4(packet.ProtoUDP, udp)
		s.Options = o
		return s.Bytes()
	}
	part := func(s packettest.Spec, offset, length int) []byte {
		s.Part = packettest.Part{Offset: offset, Length: length}
		return s.Bytes()
	}
	nine := make([]packettest.Extension, 9)
	for i := range nine {
		nine[i] = destOpts
	}
	huge := packettest.Extension{Type: packet.ProtoDestination, Body: []byte{255, 1, 4, 0, 0, 0, 0}}
	later := part(spec4(packet.ProtoUDP, long), 48, 60)
	later6 := part(spec6(packet.ProtoUDP, long), 48, 60)
	segment := packettest.Segment{Payload: make([]byte, 40)}.Bytes()

	tests := []struct {
		name string
		b    []byte
	}{
		{"nothing", nil},
		{"version 0", with(u4, 0, 0x05)},
		{"version 5", with(u4, 0, 0x55)},
		{"version 15", with(u6, 0, 0xf0)},
		{"IPv4, header cut", u4[:19]},
		{"IPv4, IHL below five", with(u4, 0, 0x44)},
		{"IPv4, IHL beyond the end", with(u4[:28], 0, 0x4f)},
		{"IPv4, total length beyond the end", u4[:len(u4)-1]},
		{"IPv4, total length below the header", with(u4, 2, 0, 19)},
		{"IPv4, total length zero as in a super-packet above 64 KiB", with(u4, 2, 0, 0)},
		{"IPv4, option without a length", option4(1, 1, 1, 148)},
		{"IPv4, option of length zero", option4(148, 0, 0, 0)},
		{"IPv4, option of length one", option4(148, 1, 0, 0)},
		{"IPv4, option beyond the header", option4(148, 5, 0, 0)},
		{"IPv4, loose source route on its way", option4(131, 7, 4, 10, 0, 0, 1, 0)},
		{"IPv4, strict source route on its way", option4(1, 137, 7, 4, 10, 0, 0, 1)},
		{"IPv4, source route without a pointer", option4(131, 2, 148, 4, 0, 0, 1, 0)},
		{"IPv4, source route with a pointer within its last address", option4(131, 7, 7, 10, 0, 0, 1, 0)},
		{"UDP header cut", spec4(packet.ProtoUDP, udp[:7]).Bytes()},
		{"UDP length below the header", with(u4, 24, 0, 7)},
		{"UDP length zero", with(u6, 44, 0, 0)},
		{"UDP length beyond the end", with(u4, 25, byte(len(udp)+1))},
		{"TCP header cut", spec4(packet.ProtoTCP, syn[:19]).Bytes()},
		{"TCP data offset below five", with(t4, 32, 0x40)},
		{"TCP data offset beyond the end", with(t6, 52, 0xf0)},
		{"ICMP header cut", spec4(packet.ProtoICMP, echo4[:7]).Bytes()},
		{"ICMPv6 header cut", spec6(packet.ProtoICMPv6, echo6[:7]).Bytes()},
		{"SCTP header cut", spec4(packet.ProtoSCTP, make([]byte, 11)).Bytes()},
		{"DCCP header cut", spec6(packet.ProtoDCCP, make([]byte, 11)).Bytes()},
		{"UDP-Lite header cut", spec6(packet.ProtoUDPLite, make([]byte, 7)).Bytes()},
		{"IPv4, tiny first fragment of TCP", part(spec4(packet.ProtoTCP, segment), 0, 16)},
		{"IPv4, TCP fragment at offset one", part(spec4(packet.ProtoTCP, segment), 8, 16)},
		{"IPv4, fragment without payload", with(later[:20], 2, 0, 20)},
		{"IPv4, fragment not a multiple of eight", with(later, 6, 0x20)},
		{"IPv4, fragment beyond the longest datagram", with(later, 6, 0x1f, 0xff)},
		{"IPv6, header cut", u6[:39]},
		{"IPv6, payload length beyond the end", u6[:len(u6)-1]},
		{"IPv6, jumbogram", with(extended(packettest.Extension{Type: 0, Body: []byte{0, 0xc2, 4, 0, 1, 0, 0}}), 4, 0, 0)},
		{"IPv6, jumbo option with a length", extended(packettest.Extension{Type: 0, Body: []byte{0, 0xc2, 4, 0, 1, 0, 0}})},
		{"IPv6, home address", extended(packettest.Extension{Type: 60, Body: append([]byte{2, 1, 2, 0, 0, 0xc9, 16}, make([]byte, 16)...)})},
		{"IPv6, option beyond its header", extended(packettest.Extension{Type: 60, Body: []byte{0, 1, 5, 0, 0, 0, 0}})},
		{"IPv6, option without a length", extended(packettest.Extension{Type: 60, Body: []byte{0, 1, 3, 0, 0, 0, 1}})},
		{"IPv6, hop-by-hop not first", extended(destOpts, hopByHop)},
		{"IPv6, routing with segments left", extended(packettest.Extension{Type: 43, Body: []byte{0, 0, 1, 0, 0, 0, 0}})},
		{"IPv6, nine extension headers", extended(nine...)},
		{"IPv6, extension header beyond the end", extended(huge)},
		{"IPv6, extension header cut", spec6(packet.ProtoDestination, []byte{17, 0, 1, 4}).Bytes()},
		{"IPv6, AH below its fixed part", extended(packettest.Extension{Type: 51, Body: []byte{0, 0, 0, 0, 0, 0, 0}})},
		{"IPv6, AH not a multiple of eight", extended(packettest.Extension{Type: 51, Body: append([]byte{1}, make([]byte, 10)...)})},
		{"IPv6, AH beyond the end", extended(packettest.Extension{Type: 51, Body: append([]byte{255}, make([]byte, 22)...)})},
		{"IPv6, two fragment headers", part(packettest.Spec{Src: a6, Dst: b6, Proto: packet.ProtoUDP, Transport: long,
			Extensions: []packettest.Extension{{Type: 44, Body: []byte{0, 0, 1, 0, 0, 0, 1}}}}, 0, 48)},
		{"IPv6, tiny first fragment of TCP", part(spec6(packet.ProtoTCP, segment), 0, 16)},
		{"IPv6, TCP fragment at offset one", part(spec6(packet.ProtoTCP, segment), 8, 16)},
		{"IPv6, fragment without payload", with(later6[:48], 4, 0, 8)},
		{"IPv6, fragment not a multiple of eight", with(later6, 43, later6[43]|1)},
		{"IPv6, fragment beyond the longest datagram", with(later6, 42, 0xff, 0xf8)},
		{"IPv6, first fragment that ends within an extension header", with(part(spec6(packet.ProtoDestination, append([]byte{17, 1}, make([]byte, 30)...)), 0, 8), 0, 0x60)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if p, ok := packet.Parse(tt.b); ok {
				t.Errorf("accepted %x as %+v", tt.b, p)
			}
		})
	}
}

func TestParseAcceptsTheLimits(t *testing.T) {
	eight := make([]packettest.Extension, 8)
	for i := range eight {
		eight[i] = destOpts
	}
	s := spec6(packet.ProtoUDP, udp)
	s.Extensions = eight
	if _, ok := packet.Parse(s.Bytes()); !ok {
		t.Error("eight extension headers refused")
	}
	// The options of a first fragment may lie in the next one.
	tcp := packettest.Segment{Options: make([]byte, 40)}.Bytes()
	f := spec4(packet.ProtoTCP, tcp)
	f.Part = packettest.Part{Offset: 0, Length: 24}
	if _, ok := packet.Parse(f.Bytes()); !ok {
		t.Error("first fragment with the fixed TCP header refused")
	}
	longest := spec4(packet.ProtoUDP, packettest.Datagram(1, 2, make([]byte, 65535-28)))
	if p, ok := packet.Parse(longest.Bytes()); !ok || len(p.Bytes) != 65535 {
		t.Error("the longest packet refused")
	}
}

func TestFlags(t *testing.T) {
	parse := func(b []byte) *packet.Packet {
		t.Helper()
		p, ok := packet.Parse(b)
		if !ok {
			t.Fatalf("refused: %x", b)
		}
		return &p
	}
	message := func(typ uint8) []byte { return packettest.Message(typ, 0, 0, nil) }
	for typ := range 256 {
		m := message(uint8(typ))
		p4, p6 := parse(spec4(packet.ProtoICMP, m).Bytes()), parse(spec6(packet.ProtoICMPv6, m).Bytes())
		x4, x6 := parse(spec4(packet.ProtoICMPv6, m).Bytes()), parse(spec6(packet.ProtoICMP, m).Bytes())
		if got, want := p4.IsEcho(), typ == 0 || typ == 8; got != want {
			t.Errorf("ICMP type %d: IsEcho %t", typ, got)
		}
		if got, want := p6.IsEcho(), typ == 128 || typ == 129; got != want {
			t.Errorf("ICMPv6 type %d: IsEcho %t", typ, got)
		}
		if got, want := p4.IsICMPError(), typ == 3 || typ == 4 || typ == 5 || typ == 11 || typ == 12; got != want {
			t.Errorf("ICMP type %d: IsICMPError %t", typ, got)
		}
		if got, want := p6.IsICMPError(), typ >= 1 && typ <= 4; got != want {
			t.Errorf("ICMPv6 type %d: IsICMPError %t", typ, got)
		}
		if x4.IsEcho() || x6.IsEcho() || x4.IsICMPError() || x6.IsICMPError() {
			t.Errorf("type %d in the wrong IP version is taken for ICMP", typ)
		}
	}
	for _, flags := range []uint8{0, packet.TCPSyn, packet.TCPSyn | packet.TCPAck, packet.TCPRst, packet.TCPFin | packet.TCPAck} {
		p := parse(spec6(packet.ProtoTCP, packettest.Segment{Flags: flags}.Bytes()).Bytes())
		if p.TCPFlags() != flags || p.IsTCPSYN() != (flags&packet.TCPSyn != 0) {
			t.Errorf("flags %#x: got %#x, SYN %t", flags, p.TCPFlags(), p.IsTCPSYN())
		}
	}
	s := spec4(packet.ProtoUDP, udp)
	if parse(s.Bytes()).DontFragment() {
		t.Error("DF without the bit")
	}
	s.DontFragment = true
	if !parse(s.Bytes()).DontFragment() || !parse(spec6(packet.ProtoUDP, udp).Bytes()).DontFragment() {
		t.Error("no DF with the bit, or in IPv6")
	}
}

func TestHopLimit(t *testing.T) {
	for _, s := range []packettest.Spec{spec4(packet.ProtoUDP, udp), spec6(packet.ProtoUDP, udp)} {
		for limit := 1; limit < 256; limit++ {
			s.HopLimit, s.ID = uint8(limit), uint32(limit)*257
			p, _ := packet.Parse(s.Bytes())
			if int(p.HopLimit()) != limit {
				t.Fatalf("hop limit %d, want %d", p.HopLimit(), limit)
			}
			p.DecrementHopLimit()
			if int(p.HopLimit()) != limit-1 || !p.HeaderChecksumValid() {
				t.Fatalf("after %d: %d, checksum valid: %t", limit, p.HopLimit(), p.HeaderChecksumValid())
			}
			if limit > 1 {
				s.HopLimit--
				if got, want := string(p.Bytes), string(s.Bytes()); got != want {
					t.Fatalf("decremented %x, want %x", got, want)
				}
			}
		}
		b := with(s.Bytes(), 8-int(s.Src.BitLen()/128), 0)
		p, _ := packet.Parse(b)
		p.DecrementHopLimit()
		if p.HopLimit() != 0 {
			t.Error("a hop limit of zero went round")
		}
	}
}

// TestParseRandom parses what the generator makes, and everything that a cut
// or one flipped byte makes of it.
func TestParseRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range packettest.Rounds(20_000) {
		src, dst := a4, b4
		if i%2 == 0 {
			src, dst = a6, b6
		}
		b := packettest.Random(r, src, dst).Bytes()
		p, ok := packet.Parse(b)
		if !ok || len(p.Bytes) != len(b) {
			t.Fatalf("refused or cut: %x", b)
		}
		if _, ok := packet.Parse(b[:r.IntN(len(b))]); ok {
			t.Fatalf("accepted a cut packet: %x", b)
		}
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		exercise(b)
	}
}

// exercise calls everything on whatever Parse accepts: nothing may panic.
func exercise(b []byte) {
	p, ok := packet.Parse(b)
	if !ok {
		return
	}
	p.Ports()
	p.ID()
	p.IsEcho()
	p.IsTCPSYN()
	p.DontFragment()
	p.HeaderChecksumValid()
	p.DecrementHopLimit()
	p.CompleteChecksum()
	p.SetSrc(p.Dst())
	p.SetDst(b6)
	p.SetDst(b4)
	if e, ok := p.Embedded(); ok {
		e.Ports()
		e.Proto()
		e.SetSrc(e.Dst())
		e.SetDst(b6)
		e.SetDst(b4)
	}
}

func FuzzParse(t *testing.F) {
	f := mutate.New(t)
	r := rand.New(rand.NewPCG(9, 10))
	for range 40 {
		f.Add(packettest.Random(r, a4, b4).Bytes())
		f.Add(packettest.Random(r, a6, b6).Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := string(b)
		p, ok := packet.Parse(b)
		if string(b) != before {
			t.Fatal("Parse changed its input")
		}
		if !ok {
			return
		}
		if len(p.Bytes) > len(b) || p.TransportOffset > len(p.Bytes) || p.TransportOffset < 20 {
			t.Fatalf("packet of %d bytes with transport at %d in %d bytes", len(p.Bytes), p.TransportOffset, len(b))
		}
		length := int(binary.BigEndian.Uint16(b[2:]))
		if p.Version == 6 {
			length = 40 + int(binary.BigEndian.Uint16(b[4:]))
		}
		if len(p.Bytes) != length {
			t.Fatalf("packet of %d bytes, its header says %d", len(p.Bytes), length)
		}
		// Parsing what was parsed gives the same view.
		q, ok := packet.Parse(p.Bytes)
		if !ok || q.Proto != p.Proto || q.Fragment != p.Fragment || q.TransportOffset != p.TransportOffset {
			t.Fatalf("parsed again: %+v, first %+v", q, p)
		}
		exercise(b)
		if string(b[len(p.Bytes):]) != before[len(p.Bytes):] {
			t.Fatal("a setter wrote behind the packet")
		}
	})
}
