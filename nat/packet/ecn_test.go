package packet_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// RFC 6040 section 4.2, figure 4.
func TestDecapsulate(t *testing.T) {
	for inner := range uint8(4) {
		for outer := range uint8(4) {
			want, keep := packettest.Decapsulated(inner, outer)
			if !keep {
				want = inner // as it is
			}
			for _, v6 := range []bool{false, true} {
				b := ecnPacket(v6, inner)
				p, ok := packet.Parse(b)
				if !ok {
					t.Fatal("not parsed")
				}
				kept := p.Decapsulate(outer)
				if kept != keep || packet.ECN(b) != want {
					t.Errorf("inner %d, outer %d, IPv6 %v: kept %v with %d, want %v with %d", inner, outer, v6, kept, packet.ECN(b), keep, want)
				}
				if exact := ecnPacket(v6, want); string(b) != string(exact) {
					t.Errorf("inner %d, outer %d: % x, want % x", inner, outer, b, exact)
				}
			}
		}
	}
}

// ecnPacket is a packet with an ECN field, made without what is tested.
func ecnPacket(v6 bool, ecn uint8) []byte {
	s := packettest.Spec{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, []byte("x"))}
	const dscp = 46 << 2
	if v6 {
		s.Src, s.Dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
		b := s.Bytes()
		binary.BigEndian.PutUint32(b, 6<<28|uint32(dscp|ecn)<<20|0x54321)
		return b
	}
	b := s.Bytes()
	b[1], b[10], b[11] = dscp|ecn, 0, 0
	binary.BigEndian.PutUint16(b[10:], packettest.Checksum(b[:20]))
	return b
}
