package packet_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
)

// unreachable returns an ICMP error that quotes a packet, cut to a length.
func unreachable(quote packettest.Spec, length int) packettest.Spec {
	s := packettest.Spec{Src: quote.Dst, Dst: quote.Src, Quote: &quote, QuoteLen: length}
	s.Proto, s.Transport = packet.ProtoICMP, packettest.Message(3, 4, 1400, nil)
	if quote.Src.Is6() {
		s.Proto, s.Transport = packet.ProtoICMPv6, packettest.Message(2, 0, 1400, nil)
	}
	return s
}

func TestEmbedded(t *testing.T) {
	first, later := spec4(packet.ProtoUDP, long), spec6(packet.ProtoUDP, long)
	first.Part = packettest.Part{Offset: 0, Length: 48}
	later.Part = packettest.Part{Offset: 48, Length: 60}
	extended := spec6(packet.ProtoUDP, udp)
	extended.Extensions = []packettest.Extension{hopByHop, destOpts}
	options := spec4(packet.ProtoUDP, udp)
	options.Options = []byte{148, 4, 0, 0}
	nested := unreachable(spec4(packet.ProtoUDP, udp), 28)

	tests := []struct {
		name     string
		quote    packettest.Spec
		length   int
		proto    uint8
		src, dst uint16
	}{
		{"whole UDP", spec4(packet.ProtoUDP, udp), 1000, packet.ProtoUDP, 1000, 53},
		{"UDP and eight bytes", spec4(packet.ProtoUDP, udp), 28, packet.ProtoUDP, 1000, 53},
		{"UDP without its checksum", spec4(packet.ProtoUDP, udp), 26, packet.ProtoUDP, 1000, 53},
		{"half a port", spec4(packet.ProtoUDP, udp), 23, packet.ProtoUDP, 0, 0},
		{"IP header alone", spec4(packet.ProtoUDP, udp), 20, packet.ProtoUDP, 0, 0},
		{"TCP and eight bytes", spec4(packet.ProtoTCP, syn), 28, packet.ProtoTCP, 1000, 80},
		{"TCP with its checksum", spec4(packet.ProtoTCP, syn), 38, packet.ProtoTCP, 1000, 80},
		{"echo", spec4(packet.ProtoICMP, echo4), 28, packet.ProtoICMP, 0xbeef, 0xbeef},
		{"echo without its identifier", spec4(packet.ProtoICMP, echo4), 25, packet.ProtoICMP, 0, 0},
		{"options", options, 32, packet.ProtoUDP, 1000, 53},
		{"first fragment", first, 28, packet.ProtoUDP, 1000, 53},
		{"IPv6 UDP", spec6(packet.ProtoUDP, udp), 48, packet.ProtoUDP, 1000, 53},
		{"IPv6 header alone", spec6(packet.ProtoTCP, syn), 40, packet.ProtoTCP, 0, 0},
		{"IPv6 echo", spec6(packet.ProtoICMPv6, echo6), 1000, packet.ProtoICMPv6, 0xbeef, 0xbeef},
		{"IPv6 later fragment", later, 1000, packet.ProtoUDP, 0, 0},
		{"IPv6 extension headers", extended, 64, packet.ProtoUDP, 1000, 53},
		{"IPv6 extension header cut", extended, 55, packet.ProtoDestination, 0, 0},
		{"an error about an error", nested, 1000, packet.ProtoICMP, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := unreachable(tt.quote, tt.length)
			p, ok := packet.Parse(s.Bytes())
			if !ok {
				t.Fatal("refused")
			}
			e, ok := p.Embedded()
			if !ok {
				t.Fatal("no embedded packet")
			}
			if src, dst := e.Ports(); e.Proto() != tt.proto || src != tt.src || dst != tt.dst {
				t.Errorf("protocol %d, ports %d, %d; want %d, %d, %d", e.Proto(), src, dst, tt.proto, tt.src, tt.dst)
			}
			if e.Src() != tt.quote.Src || e.Dst() != tt.quote.Dst {
				t.Errorf("addresses %s, %s; want %s, %s", e.Src(), e.Dst(), tt.quote.Src, tt.quote.Dst)
			}
			s.Quote.Src, s.Quote.Dst = e.Dst().Next(), e.Src().Next()
			e.SetSrc(s.Quote.Src)
			e.SetDst(s.Quote.Dst)
			if want := s.Bytes(); !bytes.Equal(p.Bytes, want) {
				t.Errorf("got  %x\nwant %x", p.Bytes, want)
			}
		})
	}
}

func TestNoEmbedded(t *testing.T) {
	quote4, quote6 := spec4(packet.ProtoUDP, udp), spec6(packet.ProtoUDP, udp)
	error4 := unreachable(quote4, 28).Bytes()
	error6 := unreachable(quote6, 48).Bytes()
	laterFragment := unreachable(quote4, 28)
	laterFragment.Part = packettest.Part{Offset: 16, Length: 20}
	tests := []struct {
		name string
		b    []byte
	}{
		{"not ICMP", quote4.Bytes()},
		{"echo", spec4(packet.ProtoICMP, echo4).Bytes()},
		{"echo in IPv6", spec6(packet.ProtoICMPv6, echo6).Bytes()},
		{"later fragment of an error", laterFragment.Bytes()},
		{"nothing quoted", unreachable(quote4, 0).Bytes()},
		{"quoted header cut", unreachable(quote4, 19).Bytes()},
		{"quoted IPv6 header cut", unreachable(quote6, 39).Bytes()},
		{"quoted options cut", with(unreachable(quote4, 24).Bytes(), 28, 0x47)},
		{"quoted IHL below five", with(error4, 28, 0x44)},
		{"IPv6 quoted in ICMP", with(error4, 28, 0x60)},
		{"IPv4 quoted in ICMPv6", with(error6, 48, 0x45)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, ok := packet.Parse(tt.b)
			if !ok {
				t.Fatal("refused")
			}
			if e, ok := p.Embedded(); ok {
				t.Errorf("embedded: %+v", e)
			}
		})
	}
}

// TestEmbeddedHalfChecksum: of a checksum that is cut in two nothing can be
// repaired, so that its first byte stays. The error's own checksum is right.
func TestEmbeddedHalfChecksum(t *testing.T) {
	s := unreachable(spec4(packet.ProtoTCP, syn), 37)
	p, _ := packet.Parse(s.Bytes())
	before := p.Bytes[28+36]
	e, ok := p.Embedded()
	if !ok {
		t.Fatal("no embedded packet")
	}
	e.SetSrc(b4)
	if e.Src() != b4 || p.Bytes[28+36] != before || !validByGvisor(&p) {
		t.Errorf("got %x", p.Bytes)
	}
}

// TestEmbeddedKeepsItsDistance: what follows the quoted packet is not taken for
// its transport header, and a senseless length is no reason to give up.
func TestEmbeddedKeepsItsDistance(t *testing.T) {
	short := spec4(packet.ProtoUDP, udp[:4]) // total length 24, then an extension of RFC 4884
	s := unreachable(short, 24)
	b := s.Bytes()
	b = append(b, bytes.Repeat([]byte{0xaa}, 104)...)
	b = with(b, 2, byte(len(b)>>8), byte(len(b)))
	p, ok := packet.Parse(b)
	if !ok {
		t.Fatal("refused")
	}
	e, _ := p.Embedded()
	e.SetSrc(b4)
	if !bytes.Equal(b[52:], bytes.Repeat([]byte{0xaa}, 104)) {
		t.Errorf("changed behind the quoted packet: %x", b[52:])
	}
	// The same in IPv6.
	b = unreachable(spec6(packet.ProtoUDP, udp[:4]), 44).Bytes()
	b = append(b, bytes.Repeat([]byte{0xaa}, 104)...)
	b = with(b, 4, 0, byte(len(b)-40))
	p, _ = packet.Parse(b)
	e, _ = p.Embedded()
	e.SetSrc(b6)
	if e.Src() != b6 || !bytes.Equal(b[92:], bytes.Repeat([]byte{0xaa}, 104)) {
		t.Errorf("changed behind the quoted packet: %x", b[92:])
	}
	// The quoted length in host byte order, as old systems send it.
	b = unreachable(spec4(packet.ProtoUDP, udp), 28).Bytes()
	b = with(b, 30, b[31], b[30])
	p, _ = packet.Parse(b)
	if e, ok := p.Embedded(); !ok || e.Src() != a4 {
		t.Error("a quoted length in the wrong byte order hides the packet")
	}
	b = with(b, 30, 0, 1)
	p, _ = packet.Parse(b)
	if _, ok := p.Embedded(); !ok {
		t.Error("a quoted length below the header hides the packet")
	}
}

// TestEmbeddedRandom changes all four addresses of random errors, in random
// order, and compares with the error that is made with them from the start.
func TestEmbeddedRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for i := range packettest.Rounds(50_000) {
		is4 := i%2 == 0
		quote := packettest.Random(r, randomAddr(r, is4), randomAddr(r, is4))
		s := packettest.RandomError(r, randomAddr(r, is4), randomAddr(r, is4), quote)
		b := s.Bytes()
		p, ok := packet.Parse(b)
		if !ok {
			t.Fatalf("refused: %x", b)
		}
		e, ok := p.Embedded()
		if !ok {
			t.Fatalf("no embedded packet: %x", b)
		}
		s.Src, s.Dst, s.Quote.Src, s.Quote.Dst = randomAddr(r, is4), randomAddr(r, is4), randomAddr(r, is4), randomAddr(r, is4)
		set := []func(){
			func() { p.SetSrc(s.Src) }, func() { p.SetDst(s.Dst) },
			func() { e.SetSrc(s.Quote.Src) }, func() { e.SetDst(s.Quote.Dst) },
		}
		r.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
		for _, f := range set {
			f()
		}
		if want := s.Bytes(); !bytes.Equal(b, want) {
			t.Fatalf("%+v\nquote %+v\ngot  %x\nwant %x", s, quote, b, want)
		}
		if !validByGvisor(&p) {
			t.Fatalf("gVisor finds a checksum wrong: %x", b)
		}
	}
}

// FuzzEmbedded sets addresses in the quotation of any ICMP error: a valid
// checksum of the error stays valid, and nothing outside the message changes.
func FuzzEmbedded(t *testing.F) {
	f := mutate.New(t)
	r := rand.New(rand.NewPCG(15, 16))
	for range 20 {
		f.Add(packettest.RandomError(r, a4, b4, packettest.Random(r, b4, a4)).Bytes())
		f.Add(packettest.RandomError(r, a6, b6, packettest.Random(r, b6, a6)).Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := packet.Parse(b)
		if !ok {
			return
		}
		e, ok := p.Embedded()
		if !ok {
			return
		}
		before := bytes.Clone(b)
		valid := validByGvisor(&p)
		src, dst := e.Src(), e.Dst()
		e.SetSrc(dst)
		e.SetDst(src)
		if e.Src() != dst || e.Dst() != src {
			t.Fatalf("addresses %s, %s; want %s, %s", e.Src(), e.Dst(), dst, src)
		}
		if validByGvisor(&p) != valid {
			t.Fatalf("valid %t before, %t after\n%x\n%x", valid, !valid, before, b)
		}
		e.SetSrc(src)
		e.SetDst(dst)
		differ := 0
		for i := range b {
			if b[i] != before[i] {
				differ++
			}
			if b[i] != before[i] && (i < p.TransportOffset || i >= len(p.Bytes)) {
				t.Fatalf("byte %d outside the message changed", i)
			}
		}
		if differ > 6 { // three checksums that were written as the other zero
			t.Fatalf("there and back differ in %d bytes\n%x\n%x", differ, before, b)
		}
	})
}

func TestEmbeddedTCPSequence(t *testing.T) {
	segment := packettest.Segment{SrcPort: 1, DstPort: 2, Seq: 0xfedcba98, Payload: make([]byte, 100)}.Bytes()
	later := spec4(packet.ProtoTCP, segment)
	later.Part = packettest.Part{Offset: 48, Length: 60}
	for _, tt := range []struct {
		name   string
		quote  packettest.Spec
		length int
		want   bool
	}{
		{"eight bytes", spec4(packet.ProtoTCP, segment), 28, true},
		{"seven bytes", spec4(packet.ProtoTCP, segment), 27, false},
		{"all of IPv6", spec6(packet.ProtoTCP, segment), 1000, true},
		{"IPv6 header alone", spec6(packet.ProtoTCP, segment), 40, false},
		{"UDP", spec4(packet.ProtoUDP, udp), 28, false},
		{"a later fragment", later, 1000, false},
	} {
		s := unreachable(tt.quote, tt.length)
		p, _ := packet.Parse(s.Bytes())
		e, ok := p.Embedded()
		if !ok {
			t.Fatalf("%s: no embedded packet", tt.name)
		}
		if got, ok := e.TCPSequence(); ok != tt.want || ok && got != 0xfedcba98 {
			t.Errorf("%s: %#x, %v, want it: %v", tt.name, got, ok, tt.want)
		}
	}
}
