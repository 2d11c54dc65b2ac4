package dataplanetest

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
)

// slowSum is the Internet checksum as RFC 1071 section 4.1 writes it.
func slowSum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// slowValid recomputes the checksums of a packet without options, with nothing
// of package packet.
func slowValid(b []byte) bool {
	var pseudo, transport []byte
	proto := b[9]
	if b[0]>>4 == 4 {
		if slowSum(b[:20]) != 0xffff {
			return false
		}
		pseudo, transport = append(pseudo, b[12:20]...), b[20:]
	} else {
		proto = b[6]
		pseudo, transport = append(pseudo, b[8:40]...), b[40:]
	}
	if proto == packet.ProtoICMP {
		return slowSum(transport) == 0xffff
	}
	pseudo = append(pseudo, 0, proto, byte(len(transport)>>8), byte(len(transport)))
	return slowSum(append(pseudo, transport...)) == 0xffff
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
			if !slowValid(b) || !ChecksumsValid(b) {
				t.Errorf("checksums: %v by hand, %v by ChecksumsValid, want both right", slowValid(b), ChecksumsValid(b))
			}
			// Whatever a single damaged byte does, ChecksumsValid sees it, or
			// it makes another packet whose checksums really are right.
			for i := range b {
				b[i] ^= 0x10
				if q, ok := packet.Parse(b); ok && len(q.Bytes) == len(b) && q.Proto == p.Proto && q.TransportOffset == p.TransportOffset {
					if got, want := ChecksumsValid(b), slowValid(b); got != want {
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
	b := Build(Packet{Src: src, Dst: dst, ID: 7, Offset: 1480, More: true, Payload: make([]byte, 8)})
	p, ok := packet.Parse(b)
	if !ok || p.Fragment != packet.LaterFragment || p.ID() != 7 || len(b) != 28 || binary.BigEndian.Uint16(b[6:]) != 0x2000|1480/8 {
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
