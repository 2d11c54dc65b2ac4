package packet_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	gchecksum "gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// randomAddr returns an address of a family, one in eight of them of only zeros
// or only ones.
func randomAddr(r *rand.Rand, is4 bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], r.Uint64())
	binary.BigEndian.PutUint64(b[8:], r.Uint64())
	switch r.IntN(16) {
	case 0:
		b = [16]byte{}
	case 1:
		b = [16]byte(bytes.Repeat([]byte{0xff}, 16))
	}
	if is4 {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}

// TestSetAddress changes the addresses of random packets, and compares with the
// packet that is made with these addresses from the start.
func TestSetAddress(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for i := range packettest.Rounds(50_000) {
		is4 := i%2 == 0
		s := packettest.Random(r, randomAddr(r, is4), randomAddr(r, is4))
		b := s.Bytes()
		p, ok := packet.Parse(b)
		if !ok {
			t.Fatalf("refused: %x", b)
		}
		s.Src = randomAddr(r, is4)
		p.SetSrc(s.Src)
		if want := s.Bytes(); !bytes.Equal(b, want) {
			t.Fatalf("%+v\nSetSrc %x\nwant   %x", s, b, want)
		}
		s.Dst = randomAddr(r, is4)
		p.SetDst(s.Dst)
		if want := s.Bytes(); !bytes.Equal(b, want) {
			t.Fatalf("%+v\nSetDst %x\nwant   %x", s, b, want)
		}
		if p.Src() != s.Src || p.Dst() != s.Dst {
			t.Fatalf("addresses %s, %s; want %s, %s", p.Src(), p.Dst(), s.Src, s.Dst)
		}
		if !validByGvisor(&p) && !s.NoChecksum {
			t.Fatalf("gVisor finds the checksum wrong: %x", b)
		}
	}
}

// validByGvisor verifies the transport checksum of whole TCP, UDP and ICMPv6
// packets, and the IPv4 header checksum, with gVisor's functions.
func validByGvisor(p *packet.Packet) bool {
	if p.Version == 4 && !header.IPv4(p.Bytes).IsChecksumValid() {
		return false
	}
	if p.Fragment != packet.Whole {
		return true
	}
	switch {
	case p.Proto == packet.ProtoTCP, p.Proto == packet.ProtoUDP, p.Proto == packet.ProtoICMPv6 && p.Version == 6:
		sum := header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(p.Proto),
			tcpip.AddrFromSlice(p.Src().AsSlice()), tcpip.AddrFromSlice(p.Dst().AsSlice()), uint16(len(p.Transport())))
		return gchecksum.Checksum(p.Transport(), sum) == 0xffff
	case p.Proto == packet.ProtoICMP && p.Version == 4:
		return gchecksum.Checksum(p.Transport(), 0) == 0xffff
	}
	return true
}

// TestSetAddressKeepsWrongChecksumsWrong: a setter must not hide that a packet
// was corrupted before it came here.
func TestSetAddressKeepsWrongChecksumsWrong(t *testing.T) {
	for _, s := range []packettest.Spec{spec4(packet.ProtoTCP, syn), spec6(packet.ProtoTCP, syn), spec4(packet.ProtoUDP, udp)} {
		b := s.Bytes()
		b[len(b)-1] ^= 0x10
		p, _ := packet.Parse(b)
		p.SetSrc(p.Dst().Next())
		p.SetDst(p.Src().Next())
		if validByGvisor(&p) {
			t.Errorf("%+v: the checksum became valid", s)
		}
	}
}

func TestSetAddressIgnoresTheOtherFamily(t *testing.T) {
	mapped := netip.AddrFrom16(a4.As16())
	for _, tt := range []struct {
		spec packettest.Spec
		addr netip.Addr
	}{
		{spec4(packet.ProtoUDP, udp), b6},
		{spec4(packet.ProtoUDP, udp), mapped},
		{spec4(packet.ProtoUDP, udp), netip.Addr{}},
		{spec6(packet.ProtoUDP, udp), b4},
		{spec6(packet.ProtoUDP, udp), netip.Addr{}},
	} {
		b := tt.spec.Bytes()
		p, _ := packet.Parse(b)
		p.SetSrc(tt.addr)
		p.SetDst(tt.addr)
		if want := tt.spec.Bytes(); !bytes.Equal(b, want) {
			t.Errorf("%v into IPv%d: %x, want %x", tt.addr, p.Version, b, want)
		}
	}
}

// TestUDPZeroChecksum covers the two zeros of RFC 768.
func TestUDPZeroChecksum(t *testing.T) {
	for _, s := range []packettest.Spec{spec4(packet.ProtoUDP, udp), spec6(packet.ProtoUDP, udp)} {
		s.NoChecksum = true
		b := s.Bytes()
		p, _ := packet.Parse(b)
		p.SetSrc(p.Src().Next())
		if check := binary.BigEndian.Uint16(p.Transport()[6:]); check != 0 {
			t.Errorf("IPv%d: an absent checksum became %#04x", p.Version, check)
		}
	}
	// Look for the source address with which the checksum computes to zero.
	s := spec4(packet.ProtoUDP, udp)
	for i := range 1 << 16 {
		s.Src = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		b := s.Bytes()
		if binary.BigEndian.Uint16(b[26:]) != 0xffff {
			continue
		}
		p, _ := packet.Parse(spec4(packet.ProtoUDP, udp).Bytes())
		p.SetSrc(s.Src)
		if !bytes.Equal(p.Bytes, b) {
			t.Errorf("got %x, want %x", p.Bytes, b)
		}
		p.SetSrc(a4) // and away from it again
		if want := spec4(packet.ProtoUDP, udp).Bytes(); !bytes.Equal(p.Bytes, want) {
			t.Errorf("and back %x, want %x", p.Bytes, want)
		}
		return
	}
	t.Error("no address gives a zero checksum")
}

func TestCompleteChecksum(t *testing.T) {
	surplus := append(append([]byte(nil), udp...), 1, 2, 3) // RFC 9868: not part of the datagram
	for _, tt := range []struct {
		name string
		spec packettest.Spec
		at   int // of the checksum field
		want bool
	}{
		{"TCP in IPv4", spec4(packet.ProtoTCP, syn), 20 + 16, true},
		{"TCP in IPv6", spec6(packet.ProtoTCP, syn), 40 + 16, true},
		{"UDP in IPv4", spec4(packet.ProtoUDP, udp), 20 + 6, true},
		{"UDP in IPv6", spec6(packet.ProtoUDP, udp), 40 + 6, true},
		{"odd length", spec4(packet.ProtoUDP, packettest.Datagram(1, 2, []byte("odd"))), 20 + 6, true},
		{"ICMP", spec4(packet.ProtoICMP, echo4), 20 + 2, false},
		{"SCTP", spec4(packet.ProtoSCTP, make([]byte, 16)), 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.spec.Bytes()
			p, _ := packet.Parse(append([]byte(nil), want...))
			if p.CompleteChecksum() || !bytes.Equal(p.Bytes, want) {
				t.Error("a finished checksum was taken for an unfinished one")
			}
			if !tt.want {
				return
			}
			pseudo := packet.PseudoHeader(p.Src(), p.Dst(), p.Proto, len(p.Transport()))
			p, _ = packet.Parse(with(want, tt.at, byte(pseudo>>8), byte(pseudo)))
			if !p.CompleteChecksum() || !bytes.Equal(p.Bytes, want) {
				t.Errorf("completed %x, want %x", p.Bytes, want)
			}
		})
	}
	t.Run("UDP that is shorter than its packet", func(t *testing.T) {
		s := spec4(packet.ProtoUDP, surplus)
		b := s.Bytes()
		pseudo := packet.PseudoHeader(a4, b4, packet.ProtoUDP, len(udp))
		p, _ := packet.Parse(with(b, 26, byte(pseudo>>8), byte(pseudo)))
		want := spec4(packet.ProtoUDP, udp).Bytes()[26:28]
		if !p.CompleteChecksum() || !bytes.Equal(p.Bytes[26:28], want) {
			t.Errorf("checksum %x, want %x", p.Bytes[26:28], want)
		}
	})
	t.Run("no checksum stays none", func(t *testing.T) {
		s := spec4(packet.ProtoUDP, udp)
		s.NoChecksum = true
		p, _ := packet.Parse(s.Bytes())
		if p.CompleteChecksum() {
			t.Error("completed")
		}
	})
	t.Run("UDP that computes to zero", func(t *testing.T) {
		for i := range 1 << 16 {
			s := spec4(packet.ProtoUDP, packettest.Datagram(uint16(i), 53, []byte("four")))
			b := s.Bytes()
			if binary.BigEndian.Uint16(b[26:]) != 0xffff {
				continue
			}
			pseudo := packet.PseudoHeader(a4, b4, packet.ProtoUDP, len(s.Transport))
			p, _ := packet.Parse(with(b, 26, byte(pseudo>>8), byte(pseudo)))
			if !p.CompleteChecksum() || !bytes.Equal(p.Bytes, b) {
				t.Errorf("completed %x, want %x", p.Bytes, b)
			}
			return
		}
		t.Error("no port gives a zero checksum")
	})
	t.Run("fragment", func(t *testing.T) {
		s := spec4(packet.ProtoUDP, long)
		s.Part = packettest.Part{Offset: 0, Length: 48}
		pseudo := packet.PseudoHeader(a4, b4, packet.ProtoUDP, 48)
		p, _ := packet.Parse(with(s.Bytes(), 26, byte(pseudo>>8), byte(pseudo)))
		if p.CompleteChecksum() {
			t.Error("completed")
		}
	})
}

// TestCompleteChecksumByChance: among many finished packets some look
// unfinished; completing them changes nothing.
func TestCompleteChecksumByChance(t *testing.T) {
	chances := 0
	for i := range 1 << 16 {
		s := spec4(packet.ProtoUDP, packettest.Datagram(uint16(i), 53, []byte{1, 2, 3}))
		p, _ := packet.Parse(s.Bytes())
		if p.CompleteChecksum() {
			chances++
		}
		if want := s.Bytes(); !bytes.Equal(p.Bytes, want) {
			t.Fatalf("completed %x, want %x", p.Bytes, want)
		}
	}
	if chances == 0 {
		t.Error("no packet looked unfinished: the test tests nothing")
	}
}
