package dataplanetest

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
)

// validByPacket recomputes the checksums by package packet, which the packets here are to
// test: both must agree.
func validByPacket(b []byte) bool {
	p, ok := packet.Parse(b)
	if !ok || p.Version == 4 && packet.Sum(b[:p.TransportOffset], 0) != 0xffff {
		return false
	}
	t, initial := p.Transport(), uint16(0)
	if p.Proto != packet.ProtoICMP {
		initial = packet.PseudoHeader(p.Src(), p.Dst(), p.Proto, len(t))
	}
	return packet.Sum(t, initial) == 0xffff
}

func TestBuild(t *testing.T) {
	a4, b4 := netip.MustParseAddrPort("10.0.0.1:1000"), netip.MustParseAddrPort("10.0.0.2:80")
	a6, b6 := netip.MustParseAddrPort("[fd00::1]:1000"), netip.MustParseAddrPort("[fd00::2]:80")
	tests := []struct {
		name string
		in   Packet
		len  int
	}{
		{name: "UDP by default", in: Packet{Src: a4, Dst: b4, Payload: []byte("odd")}, len: 31},
		{name: "TCP", in: Packet{Proto: packet.ProtoTCP, Src: a4, Dst: b4, TCPFlags: packet.TCPSyn, TCPOptions: []byte{2, 4, 5, 180}}, len: 44},
		{name: "ICMP", in: Packet{Proto: packet.ProtoICMP, ICMPType: 8, Src: a4, Dst: b4, Payload: []byte("ping")}, len: 32},
		{name: "UDP in IPv6", in: Packet{Src: a6, Dst: b6, Payload: []byte("odd")}, len: 51},
		{name: "TCP in IPv6", in: Packet{Proto: packet.ProtoTCP, Src: a6, Dst: b6, Payload: []byte("even")}, len: 64},
		{name: "ICMPv6", in: Packet{Proto: packet.ProtoICMPv6, ICMPType: 128, Src: a6, Dst: b6}, len: 48},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := Build(tt.in)
			p, ok := packet.Parse(b)
			if !ok || len(b) != tt.len || p.Src() != tt.in.Src.Addr() || p.Dst() != tt.in.Dst.Addr() || p.HopLimit() != 64 {
				t.Fatalf("built %x, want %d bytes of %+v", b, tt.len, tt.in)
			}
			if !validByPacket(b) || !ChecksumsValid(b) {
				t.Errorf("checksums: %v by package packet, %v by ChecksumsValid, want both right", validByPacket(b), ChecksumsValid(b))
			}
			// Whatever a single damaged byte does, both see it, or it makes another packet
			// whose checksums really are right.
			for i := range b {
				b[i] ^= 0x10
				if q, ok := packet.Parse(b); ok && len(q.Bytes) == len(b) && q.Proto == p.Proto && q.TransportOffset == p.TransportOffset {
					if got, want := ChecksumsValid(b), validByPacket(b); got != want {
						t.Errorf("byte %d damaged: valid %v, want %v", i, got, want)
					}
				}
				b[i] ^= 0x10
			}
		})
	}
}

func TestBuildFragment(t *testing.T) {
	src, dst := netip.MustParseAddrPort("10.0.0.1:1000"), netip.MustParseAddrPort("10.0.0.2:80")
	b := Build(Packet{Src: src, Dst: dst, ID: 7, Offset: 1480, Payload: make([]byte, 8)})
	p, ok := packet.Parse(b)
	if !ok || p.Fragment != packet.LaterFragment || p.ID() != 7 || len(b) != 28 || binary.BigEndian.Uint16(b[6:]) != 1480/8 {
		t.Errorf("built %x", b)
	}
}

func TestUDPWithoutChecksum(t *testing.T) {
	for addr, want := range map[string]bool{"10.0.0.1": true, "fd00::1": false} { // RFC 768, RFC 8200 section 8.1
		a := netip.AddrPortFrom(netip.MustParseAddr(addr), 1)
		b := Build(Packet{Src: a, Dst: a})
		clear(b[len(b)-2:])
		if got := ChecksumsValid(b); got != want {
			t.Errorf("%s: valid %v, want %v", addr, got, want)
		}
	}
}
