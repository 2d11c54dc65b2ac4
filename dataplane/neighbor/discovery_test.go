package neighbor

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
)

var (
	node6    = netip.MustParseAddr("fe80::1")
	gateway6 = netip.MustParseAddr("fd00:80::12:3456")
	group6   = netip.MustParseAddr("ff02::1:ff12:3456")
)

const (
	solicitationWire = `60 00 00 00 00 20 3a ff                          # 32 bytes of ICMPv6, hop limit 255
		fe 80 00 00 00 00 00 00 00 00 00 00 00 00 00 01
		ff 02 00 00 00 00 00 00 00 00 00 01 ff 12 34 56  # the group of the target
		87 00 12 cb 00 00 00 00
		fd 00 00 80 00 00 00 00 00 00 00 00 00 12 34 56
		01 01 02 00 00 00 00 01                          # source link-layer address`
	advertisementWire = `60 00 00 00 00 20 3a ff
		fd 00 00 80 00 00 00 00 00 00 00 00 00 12 34 56
		fe 80 00 00 00 00 00 00 00 00 00 00 00 00 00 01
		88 00 31 4d e0 00 00 00                          # router, solicited, override
		fd 00 00 80 00 00 00 00 00 00 00 00 00 12 34 56
		02 01 02 00 00 00 00 02                          # target link-layer address`
)

var (
	solicitation  = Solicitation{Src: node6, Dst: group6, Target: gateway6, SourceMAC: nodeMAC}
	advertisement = Advertisement{Src: gateway6, Dst: node6, Target: gateway6, TargetMAC: gatewayMAC,
		Router: true, Solicited: true, Override: true}
)

func parse(t testing.TB, b []byte) packet.Packet {
	t.Helper()
	p, ok := packet.Parse(b)
	if !ok {
		t.Fatalf("packet.Parse refuses %x", b)
	}
	return p
}

// finish writes the lengths and the ICMPv6 checksum of a packet that a test
// has changed.
func finish(b []byte) []byte {
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-packet.IPv6HeaderLen))
	icmp := header.ICMPv6(b[packet.IPv6HeaderLen:])
	icmp.SetChecksum(0)
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
		Header: icmp,
		Src:    tcpip.AddrFrom16([16]byte(b[8:24])),
		Dst:    tcpip.AddrFrom16([16]byte(b[24:40])),
	}))
	return b
}

func TestDiscoveryWire(t *testing.T) {
	wire := unhex(t, solicitationWire)
	if got := AppendSolicitation([]byte{1}, solicitation); !bytes.Equal(got[1:], wire) {
		t.Errorf("AppendSolicitation =\n%x, want\n%x", got[1:], wire)
	}
	if len(wire) != SolicitationLen {
		t.Errorf("length %d, want %d", len(wire), SolicitationLen)
	}
	s, ok := DecodeSolicitation(parse(t, wire))
	if diff := cmp.Diff(solicitation, s, compareAddr); diff != "" || !ok {
		t.Errorf("DecodeSolicitation: %v (-want +got):\n%s", ok, diff)
	}
	if _, ok := DecodeAdvertisement(parse(t, wire)); ok {
		t.Error("a solicitation was taken for an advertisement")
	}

	wire = unhex(t, advertisementWire)
	if got := AppendAdvertisement([]byte{1}, advertisement); !bytes.Equal(got[1:], wire) {
		t.Errorf("AppendAdvertisement =\n%x, want\n%x", got[1:], wire)
	}
	if len(wire) != AdvertisementLen {
		t.Errorf("length %d, want %d", len(wire), AdvertisementLen)
	}
	a, ok := DecodeAdvertisement(parse(t, wire))
	if diff := cmp.Diff(advertisement, a, compareAddr); diff != "" || !ok {
		t.Errorf("DecodeAdvertisement: %v (-want +got):\n%s", ok, diff)
	}
	if _, ok := DecodeSolicitation(parse(t, wire)); ok {
		t.Error("an advertisement was taken for a solicitation")
	}
}

// TestDiscoveryRules changes one thing in a valid packet and, but where it
// says raw, makes lengths and checksum right again.
func TestDiscoveryRules(t *testing.T) {
	const icmp, target, option = 40, 48, 64
	unspecified := func(b []byte) []byte { clear(b[8:24]); return b }
	for _, tt := range []struct {
		name   string
		change func(b []byte) []byte
		raw    bool
		// whether each message is still valid with the change
		solicitation, advertisement bool
	}{
		{name: "nothing", change: func(b []byte) []byte { return b }, solicitation: true, advertisement: true},
		{name: "hop limit 254", change: func(b []byte) []byte { b[7] = 254; return b }},
		{name: "wrong checksum", change: func(b []byte) []byte { b[icmp+3]++; return b }, raw: true},
		{name: "code 1", change: func(b []byte) []byte { b[icmp+1] = 1; return b }},
		{name: "reserved bits", change: func(b []byte) []byte { b[icmp+7] = 0xff; return b }, solicitation: true, advertisement: true},
		{name: "no options", change: func(b []byte) []byte { return b[:option] }, solicitation: true, advertisement: true},
		{name: "target cut off", change: func(b []byte) []byte { return b[:option-1] }},
		{name: "multicast target", change: func(b []byte) []byte { b[target], b[target+1] = 0xff, 2; return b }},
		{name: "unspecified target", change: func(b []byte) []byte { clear(b[target:option]); return b }},
		{name: "multicast source", change: func(b []byte) []byte { b[8], b[9] = 0xff, 2; return b }},
		{name: "option without length", change: func(b []byte) []byte { b[option+1] = 0; return b }},
		{name: "option over the end", change: func(b []byte) []byte { b[option+1] = 2; return b }},
		{name: "half an option", change: func(b []byte) []byte { return append(b, 14) }},
		{name: "unknown option", change: func(b []byte) []byte {
			return append(b, 14, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
		}, solicitation: true, advertisement: true},
		{name: "second address", change: func(b []byte) []byte {
			return append(b, b[option], 1, 2, 9, 9, 9, 9, 9)
		}, solicitation: true, advertisement: true},
		{name: "long address", change: func(b []byte) []byte {
			b[option+1] = 2
			return append(b, make([]byte, 8)...)
		}},
		{name: "group as address", change: func(b []byte) []byte { b[option+2] |= 1; return b }},
		{name: "zero as address", change: func(b []byte) []byte { clear(b[option+2 : option+8]); return b }},
		{name: "unspecified source and an address", change: unspecified},
		{name: "unspecified source without an address", change: func(b []byte) []byte {
			return unspecified(b)[:option]
		}, solicitation: true},
		{name: "unspecified source to one host", change: func(b []byte) []byte {
			b[24] = 0xfd
			return unspecified(b)[:option]
		}},
		{name: "to all nodes", change: func(b []byte) []byte {
			copy(b[24:40], netip.IPv6LinkLocalAllNodes().AsSlice())
			return b
		}, solicitation: true}, // the advertisement has its S flag set
		{name: "to all nodes, flags clear", change: func(b []byte) []byte {
			copy(b[24:40], netip.IPv6LinkLocalAllNodes().AsSlice())
			b[icmp+4] = 0
			return b
		}, solicitation: true, advertisement: true},
		{name: "atomic fragment", change: func(b []byte) []byte {
			b = append(b[:40:40], append([]byte{packet.ProtoICMPv6, 0, 0, 0, 0, 0, 0, 1}, b[40:]...)...)
			b[6] = packet.ProtoFragment
			binary.BigEndian.PutUint16(b[4:], uint16(len(b)-packet.IPv6HeaderLen))
			return b
		}, raw: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, side := range []struct {
				wire   string
				decode func(packet.Packet) bool
				want   bool
			}{
				{solicitationWire, func(p packet.Packet) bool { _, ok := DecodeSolicitation(p); return ok }, tt.solicitation},
				{advertisementWire, func(p packet.Packet) bool { _, ok := DecodeAdvertisement(p); return ok }, tt.advertisement},
			} {
				b := tt.change(unhex(t, side.wire))
				if !tt.raw {
					b = finish(b)
				}
				if got := side.decode(parse(t, b)); got != side.want {
					t.Errorf("type %d: decoded %v, want %v", b[icmp], got, side.want)
				}
			}
		})
	}
}

func TestDiscoveryOverIPv4(t *testing.T) {
	b := make([]byte, 20+32)
	b[0], b[3], b[8], b[9], b[20] = 0x45, byte(len(b)), 255, packet.ProtoICMPv6, typeSolicitation
	if _, ok := DecodeSolicitation(parse(t, b)); ok {
		t.Error("decoded from an IPv4 packet")
	}
}

func TestMulticastAddresses(t *testing.T) {
	if got := SolicitedNode(gateway6); got != group6 {
		t.Errorf("SolicitedNode = %v, want %v", got, group6)
	}
	if got, want := MulticastMAC(group6), (MAC{0x33, 0x33, 0xff, 0x12, 0x34, 0x56}); got != want {
		t.Errorf("MulticastMAC = %v, want %v", got, want)
	}
	g := tcpip.AddrFrom16(gateway6.As16())
	if got, want := SolicitedNode(gateway6).As16(), header.SolicitedNodeAddr(g).As16(); got != want {
		t.Errorf("SolicitedNode = %x, gVisor %x", got, want)
	}
}

// firstAddress finds the address option of options known to be well-formed.
func firstAddress(options []byte, kind byte) MAC {
	for at := 0; at < len(options); at += 8 * int(options[at+1]) {
		if options[at] == kind {
			return MAC(options[at+2 : at+8])
		}
	}
	return MAC{}
}

func FuzzDecodeDiscovery(t *testing.F) {
	f := mutate.New(t)
	for _, wire := range []string{solicitationWire, advertisementWire} {
		b := unhex(f, wire)
		f.Add(b)
		f.Add(b[:64])
		f.Add(append(b, 14, 1, 0, 0, 0, 0, 0, 0))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := packet.Parse(b)
		if !ok {
			return
		}
		if p.Version == 6 && p.Proto == packet.ProtoICMPv6 && p.TransportOffset == 40 {
			finish(p.Bytes) // random bytes never get past the checksum
		}
		if s, ok := DecodeSolicitation(p); ok {
			g := header.NDPNeighborSolicit(p.Transport()[header.ICMPv6NeighborSolicitMinimumSize-header.NDPNSMinimumSize:])
			if g.TargetAddress().As16() != s.Target.As16() {
				t.Fatalf("target %v, gVisor %v", s.Target, g.TargetAddress())
			}
			if want := firstAddress(g.Options(), 1); want != s.SourceMAC {
				t.Fatalf("source %v, reference %v", s.SourceMAC, want)
			}
			again, ok := DecodeSolicitation(parse(t, AppendSolicitation(nil, s)))
			if s != again || !ok {
				t.Fatalf("second round: %v\n%s", ok, cmp.Diff(s, again, compareAddr))
			}
		}
		if a, ok := DecodeAdvertisement(p); ok {
			g := header.NDPNeighborAdvert(p.Transport()[header.ICMPv6NeighborAdvertMinimumSize-header.NDPNAMinimumSize:])
			if g.TargetAddress().As16() != a.Target.As16() || g.RouterFlag() != a.Router ||
				g.SolicitedFlag() != a.Solicited || g.OverrideFlag() != a.Override {
				t.Fatalf("%v differs from what gVisor reads", a)
			}
			if want := firstAddress(g.Options(), 2); want != a.TargetMAC {
				t.Fatalf("target %v, reference %v", a.TargetMAC, want)
			}
			again, ok := DecodeAdvertisement(parse(t, AppendAdvertisement(nil, a)))
			if a != again || !ok {
				t.Fatalf("second round: %v\n%s", ok, cmp.Diff(a, again, compareAddr))
			}
		}
	})
}

func TestZeroAllocations(t *testing.T) {
	if packettest.Race {
		t.Skip("NOT CHECKED under the race detector, which allocates itself; the run without it checks")
	}
	ns, na := parse(t, unhex(t, solicitationWire)), parse(t, unhex(t, advertisementWire))
	arp, frame := unhex(t, arpTests[0].wire), make([]byte, EthernetHeaderLen)
	buf := make([]byte, 0, SolicitationLen)
	if n := testing.AllocsPerRun(100, func() {
		PutEthernet(frame, Broadcast, nodeMAC, EtherTypeARP)
		if _, ok := DecodeFrame(frame); !ok {
			t.Fatal("frame")
		}
		a, ok := DecodeARP(arp)
		if !ok {
			t.Fatal("ARP")
		}
		buf = AppendARP(buf[:0], a)
		s, ok := DecodeSolicitation(ns)
		if !ok {
			t.Fatal("solicitation")
		}
		buf = AppendSolicitation(buf[:0], s)
		v, ok := DecodeAdvertisement(na)
		if !ok {
			t.Fatal("advertisement")
		}
		buf = AppendAdvertisement(buf[:0], v)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
