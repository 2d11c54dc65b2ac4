package packet_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
)

var (
	router4 = netip.MustParseAddr("10.80.0.1")
	router6 = netip.MustParseAddr("fd00:80::1")
)

// builder calls one of the functions under test.
type builder func(dst []byte, src netip.Addr, p packet.Packet) int

var errorTests = []struct {
	name  string
	build builder
	// type, code and the word behind the checksum, in each version
	type4, code4, type6, code6 uint8
	rest4, rest6               uint32
}{
	{"time exceeded", packet.TimeExceeded, 11, 0, 3, 0, 0, 0},
	{"too big", func(b []byte, src netip.Addr, p packet.Packet) int { return packet.PacketTooBig(b, src, p, 1340) },
		3, 4, 2, 0, 1340, 1340},
	{"too big for a large MTU", func(b []byte, src netip.Addr, p packet.Packet) int { return packet.PacketTooBig(b, src, p, 70000) },
		3, 4, 2, 0, 0xffff, 70000},
	{"no route", because(packet.NoRoute), 3, 0, 1, 0, 0, 0},
	{"address unreachable", because(packet.AddressUnreachable), 3, 1, 1, 3, 0, 0},
	{"prohibited", because(packet.Prohibited), 3, 13, 1, 1, 0, 0},
	{"port unreachable", because(packet.PortUnreachable), 3, 3, 1, 4, 0, 0},
}

func because(why packet.Unreachable) builder {
	return func(b []byte, src netip.Addr, p packet.Packet) int {
		return packet.DestinationUnreachable(b, src, p, why)
	}
}

// TestErrorRandom compares every byte with the error that its description gives.
func TestErrorRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 13))
	for _, tt := range errorTests {
		t.Run(tt.name, func(t *testing.T) {
			for range 300 {
				for _, v := range []struct {
					src, dst, router netip.Addr
					proto            uint8
					message          []byte
					quote            int
				}{
					{pod4, service4, router4, packet.ProtoICMP, packettest.Message(tt.type4, tt.code4, tt.rest4, nil), 576 - 28},
					{pod6, service6, router6, packet.ProtoICMPv6, packettest.Message(tt.type6, tt.code6, tt.rest6, nil), 1280 - 48},
				} {
					spec := packettest.Random(r, v.src, v.dst)
					if spec.Proto == packet.ProtoUDP && spec.Part.Length == 0 {
						spec.Transport = packettest.Datagram(1, 2, randomBytes(r, r.IntN(2000)))
					}
					p := mustParse(t, spec.Bytes())
					b := bytes.Repeat([]byte{0xa5}, 1300)
					n := tt.build(b, v.router, p)
					if p.Fragment == packet.LaterFragment {
						if n != 0 {
							t.Fatal("an error about a later fragment")
						}
						continue
					}
					want := packettest.Spec{Src: v.router, Dst: v.src, DontFragment: true, Proto: v.proto,
						Transport: v.message, Quote: &spec, QuoteLen: v.quote}.Bytes()
					if v.router.Is4() { // the description knows no type of service
						want[1] = 0xc0
						binary.BigEndian.PutUint16(want[10:], 0)
						binary.BigEndian.PutUint16(want[10:], packettest.Checksum(want[:20]))
					}
					if !bytes.Equal(want, b[:n]) {
						t.Fatalf("about %x:\n%x, want\n%x", p.Bytes, b[:n], want)
					}
					if !bytes.Equal(b[n:], bytes.Repeat([]byte{0xa5}, len(b)-n)) {
						t.Fatal("wrote behind the end")
					}
				}
			}
		})
	}
}

// TestErrorWire is laid out by hand after RFC 792 and RFC 4443.
func TestErrorWire(t *testing.T) {
	for _, tt := range []struct {
		name            string
		src             netip.Addr
		offending, want string
	}{
		{
			name: "time exceeded in IPv4",
			src:  router4,
			offending: `45 00 00 1c 12 34 00 00 01 11 00 00 0a f3 01 02 0a 46 03 04  # UDP, TTL 1
				80 00 82 9b 00 08 00 00`,
			want: `45 c0 00 38 00 00 40 00 40 01 23 c0 0a 50 00 01 0a f3 01 02
				0b 00 80 bb 00 00 00 00
				45 00 00 1c 12 34 00 00 01 11 00 00 0a f3 01 02 0a 46 03 04
				80 00 82 9b 00 08 00 00`,
		},
		{
			name: "time exceeded in IPv6",
			src:  router6,
			offending: `60 00 00 00 00 08 11 01 fd 00 02 43 00 00 00 00 00 00 00 00 00 01 00 02
				fd 00 00 70 00 00 00 00 00 00 00 00 00 03 00 04
				80 00 82 9b 00 08 00 00`,
			want: `60 00 00 00 00 38 3a 40 fd 00 00 80 00 00 00 00 00 00 00 00 00 00 00 01
				fd 00 02 43 00 00 00 00 00 00 00 00 00 01 00 02
				03 00 8f 58 00 00 00 00
				60 00 00 00 00 08 11 01 fd 00 02 43 00 00 00 00 00 00 00 00 00 01 00 02
				fd 00 00 70 00 00 00 00 00 00 00 00 00 03 00 04
				80 00 82 9b 00 08 00 00`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := make([]byte, 1280)
			n := packet.TimeExceeded(b, tt.src, mustParse(t, wireBytes(t, tt.offending)))
			if want := wireBytes(t, tt.want); !bytes.Equal(want, b[:n]) {
				t.Errorf("got\n%x, want\n%x", b[:n], want)
			}
		})
	}
}

// TestErrorSuppressed holds what no error may be sent about.
func TestErrorSuppressed(t *testing.T) {
	message := func(src, dst netip.Addr, kind uint8) packettest.Spec {
		s := packettest.Spec{Src: src, Dst: dst, Proto: packet.ProtoICMP, Transport: packettest.Message(kind, 0, 0, make([]byte, 64))}
		if src.Is6() {
			s.Proto = packet.ProtoICMPv6
		}
		return s
	}
	udp := func(src, dst string) packettest.Spec {
		return packettest.Spec{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Proto: packet.ProtoUDP,
			Transport: packettest.Datagram(1, 2, make([]byte, 64))}
	}
	first, later := udp("10.243.1.2", "10.70.3.4"), udp("10.243.1.2", "10.70.3.4")
	first.Part, later.Part = packettest.Part{Length: 32}, packettest.Part{Offset: 32, Length: 40}
	for _, tt := range []struct {
		name string
		spec packettest.Spec
		sent bool
	}{
		{"UDP in IPv4", udp("10.243.1.2", "10.70.3.4"), true},
		{"UDP in IPv6", udp("fd00::1", "fd00::2"), true},
		{"first fragment", first, true},
		{"later fragment", later, false},
		{"echo request", message(pod4, service4, 8), true},
		{"echo reply", message(pod4, service4, 0), true},
		{"destination unreachable", message(pod4, service4, 3), false},
		{"source quench", message(pod4, service4, 4), false},
		{"redirect", message(pod4, service4, 5), false},
		{"time exceeded", message(pod4, service4, 11), false},
		{"parameter problem", message(pod4, service4, 12), false},
		{"ICMPv6 echo request", message(pod6, service6, 128), true},
		{"ICMPv6 unreachable", message(pod6, service6, 1), false},
		{"ICMPv6 too big", message(pod6, service6, 2), false},
		{"ICMPv6 error of unknown type", message(pod6, service6, 127), false},
		{"ICMPv6 redirect", message(pod6, service6, 137), false},
		{"unspecified source", udp("0.0.0.0", "10.70.3.4"), false},
		{"source in network zero", udp("0.1.2.3", "10.70.3.4"), false},
		{"loopback source", udp("127.0.0.1", "10.70.3.4"), false},
		{"multicast source", udp("224.0.0.1", "10.70.3.4"), false},
		{"class E source", udp("240.0.0.1", "10.70.3.4"), false},
		{"broadcast source", udp("255.255.255.255", "10.70.3.4"), false},
		{"multicast destination", udp("10.243.1.2", "239.1.1.1"), false},
		{"broadcast destination", udp("10.243.1.2", "255.255.255.255"), false},
		{"unspecified IPv6 source", udp("::", "fd00::2"), false},
		{"loopback IPv6 source", udp("::1", "fd00::2"), false},
		{"multicast IPv6 source", udp("ff02::1", "fd00::2"), false},
		{"mapped IPv6 source", udp("::ffff:10.0.0.1", "fd00::2"), false},
		{"multicast IPv6 destination", udp("fd00::1", "ff0e::2"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, router := mustParse(t, tt.spec.Bytes()), router4
			if p.Version == 6 {
				router = router6
			}
			for _, e := range errorTests {
				if n := e.build(make([]byte, 1280), router, p); n > 0 != tt.sent {
					t.Errorf("%s: %d bytes, want some: %v", e.name, n, tt.sent)
				}
			}
		})
	}
}

func TestErrorArguments(t *testing.T) {
	p4 := mustParse(t, packettest.Spec{Src: pod4, Dst: service4, Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, make([]byte, 64))}.Bytes())
	p6 := mustParse(t, packettest.Spec{Src: pod6, Dst: service6, Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, make([]byte, 64))}.Bytes())
	for _, tt := range []struct {
		name string
		room int
		src  netip.Addr
		p    packet.Packet
		want int
	}{
		{"all of IPv4", 120, router4, p4, 120},
		{"less room, less quoted", 100, router4, p4, 100},
		{"room for the least in IPv4", 56, router4, p4, 56},
		{"no room in IPv4", 55, router4, p4, 0},
		{"no room at all", 0, router4, p4, 0},
		{"all of IPv6", 160, router6, p6, 160},
		{"room for the least in IPv6", 88, router6, p6, 88},
		{"no room in IPv6", 87, router6, p6, 0},
		{"IPv6 router of an IPv4 packet", 1280, router6, p4, 0},
		{"IPv4 router of an IPv6 packet", 1280, router4, p6, 0},
		{"no router", 1280, netip.Addr{}, p4, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if n := packet.TimeExceeded(make([]byte, tt.room), tt.src, tt.p); n != tt.want {
				t.Errorf("%d bytes, want %d", n, tt.want)
			}
		})
	}
	if n := packet.DestinationUnreachable(make([]byte, 1280), router4, p4, packet.PortUnreachable+1); n != 0 {
		t.Errorf("unknown reason: %d bytes, want 0", n)
	}
}

func FuzzError(t *testing.F) {
	f := mutate.New(t)
	r := rand.New(rand.NewPCG(14, 15))
	for range 8 {
		f.Add(packettest.Random(r, pod4, service4).Bytes(), uint16(576))
		f.Add(packettest.Random(r, pod6, service6).Bytes(), uint16(1280))
	}
	f.Fuzz(func(t *testing.T, b []byte, room uint16) {
		p, ok := packet.Parse(b)
		if !ok {
			return
		}
		before, router := bytes.Clone(p.Bytes), router4
		if p.Version == 6 {
			router = router6
		}
		buf, another := make([]byte, int(room)%1500), make([]byte, 1500)
		for _, e := range errorTests {
			n := e.build(buf, router, p)
			if n == 0 {
				continue
			}
			reply := mustParse(t, buf[:n])
			quote, ok := reply.Embedded()
			if !reply.IsICMPError() || !ok || quote.Src() != p.Src() || quote.Dst() != p.Dst() || reply.Dst() != p.Src() {
				t.Fatalf("%s: %x is not an error about %x", e.name, buf[:n], p.Bytes)
			}
			if !reply.HeaderChecksumValid() || !bytes.HasPrefix(before, reply.Transport()[8:]) {
				t.Fatalf("%s: %x does not quote %x", e.name, buf[:n], p.Bytes)
			}
			if e.build(another, router, reply) != 0 {
				t.Fatalf("%s: an error about an error", e.name)
			}
			if p.Version == 6 {
				icmp := header.ICMPv6(reply.Transport())
				if got, want := icmp.Checksum(), header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp,
					Src: tcpip.AddrFrom16(router.As16()), Dst: tcpip.AddrFrom16(p.Src().As16())}); !same16(got, want) {
					t.Fatalf("%s: checksum %#x, gVisor %#x", e.name, got, want)
				}
			} else if packettest.Sum(reply.Transport()) != 0xffff {
				t.Fatalf("%s: checksum", e.name)
			}
		}
		if !bytes.Equal(before, p.Bytes) {
			t.Fatal("the packet was changed")
		}
	})
}

func TestErrorZeroAllocations(t *testing.T) {
	if packettest.Race {
		t.Skip("the race detector allocates")
	}
	p4, p6, dst := superSegment(t, pod4, service4, packet.ProtoTCP), superSegment(t, pod6, service6, packet.ProtoTCP), make([]byte, 1280)
	if n := testing.AllocsPerRun(100, func() {
		if packet.TimeExceeded(dst, router4, p4) != 576 || packet.PacketTooBig(dst, router6, p6, 1340) != 1280 ||
			packet.DestinationUnreachable(dst, router6, p6, packet.NoRoute) != 1280 {
			t.Fatal("not sent")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkError(b *testing.B) {
	p, dst := superSegment(b, pod4, service4, packet.ProtoTCP), make([]byte, 1280)
	b.ReportAllocs()
	for b.Loop() {
		if packet.PacketTooBig(dst, router4, p, 1340) == 0 {
			b.Fatal("not sent")
		}
	}
}

// wireBytes reads hex with blanks; # starts a comment up to the end of the line.
func wireBytes(t testing.TB, s string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(s) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("bad hex in test: %v", err)
	}
	return b
}
