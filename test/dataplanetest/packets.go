package dataplanetest

import (
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/nat/packet"
)

// Packet describes an IP packet for Build. Zero fields get what a host would
// send: hop limit 64, the length of the payload, right checksums.
type Packet struct {
	Src, Dst netip.AddrPort
	Proto    uint8 // packet.ProtoUDP by default
	HopLimit uint8
	// DontFragment and ID are for IPv4 only. Offset (in bytes) and More make a
	// fragment whose Payload is taken as it is.
	DontFragment bool
	ID           uint16
	Offset       int
	More         bool
	// TCPFlags and TCPOptions are for TCP.
	TCPFlags   uint8
	TCPOptions []byte
	// ICMPType of an ICMP message; Src's port is its identifier.
	ICMPType uint8
	Payload  []byte
}

// Build returns the bytes of p.
func Build(p Packet) []byte {
	if p.Proto == 0 {
		p.Proto = packet.ProtoUDP
	}
	if p.HopLimit == 0 {
		p.HopLimit = 64
	}
	transport := p.Payload
	if p.Offset == 0 {
		transport = buildTransport(p)
	}
	if p.Src.Addr().Is6() {
		return append(buildIPv6(p, len(transport)), transport...)
	}
	return append(buildIPv4(p, len(transport)), transport...)
}

func buildIPv4(p Packet, payload int) []byte {
	b := make([]byte, packet.IPv4HeaderLen, packet.IPv4HeaderLen+payload)
	b[0] = 0x45
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+payload))
	binary.BigEndian.PutUint16(b[4:], p.ID)
	flags := uint16(p.Offset / 8)
	if p.DontFragment {
		flags |= 0x4000
	}
	if p.More {
		flags |= 0x2000
	}
	binary.BigEndian.PutUint16(b[6:], flags)
	b[8], b[9] = p.HopLimit, p.Proto
	copy(b[12:], p.Src.Addr().AsSlice())
	copy(b[16:], p.Dst.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[10:], ^packet.Sum(b, 0))
	return b
}

func buildIPv6(p Packet, payload int) []byte {
	b := make([]byte, packet.IPv6HeaderLen, packet.IPv6HeaderLen+payload)
	b[0] = 0x60
	binary.BigEndian.PutUint16(b[4:], uint16(payload))
	b[6], b[7] = p.Proto, p.HopLimit
	copy(b[8:], p.Src.Addr().AsSlice())
	copy(b[24:], p.Dst.Addr().AsSlice())
	return b
}

func buildTransport(p Packet) []byte {
	var t []byte
	checksum := 0
	switch p.Proto {
	case packet.ProtoTCP:
		t = make([]byte, packet.TCPHeaderLen, packet.TCPHeaderLen+len(p.TCPOptions)+len(p.Payload))
		t = append(t, p.TCPOptions...)
		t[12], t[13], checksum = uint8(len(t)/4)<<4, p.TCPFlags, 16
		putPorts(t, p)
	case packet.ProtoUDP:
		t = make([]byte, packet.UDPHeaderLen, packet.UDPHeaderLen+len(p.Payload))
		binary.BigEndian.PutUint16(t[4:], uint16(packet.UDPHeaderLen+len(p.Payload)))
		checksum = 6
		putPorts(t, p)
	case packet.ProtoICMP, packet.ProtoICMPv6:
		t = make([]byte, packet.ICMPHeaderLen, packet.ICMPHeaderLen+len(p.Payload))
		t[0], checksum = p.ICMPType, 2
		binary.BigEndian.PutUint16(t[4:], p.Src.Port())
	default:
		return p.Payload
	}
	t = append(t, p.Payload...)
	var initial uint16
	if p.Proto != packet.ProtoICMP {
		initial = packet.PseudoHeader(p.Src.Addr(), p.Dst.Addr(), p.Proto, len(t))
	}
	binary.BigEndian.PutUint16(t[checksum:], ^packet.Sum(t, initial))
	return t
}

func putPorts(t []byte, p Packet) {
	binary.BigEndian.PutUint16(t, p.Src.Port())
	binary.BigEndian.PutUint16(t[2:], p.Dst.Port())
}

// ChecksumsValid recomputes every checksum of an unfragmented packet.
func ChecksumsValid(b []byte) bool {
	p, ok := packet.Parse(b)
	if !ok || p.Version == 4 && packet.Sum(b[:int(b[0]&15)*4], 0) != 0xffff {
		return false
	}
	t := p.Transport()
	switch p.Proto {
	case packet.ProtoICMP:
		return packet.Sum(t, 0) == 0xffff
	case packet.ProtoUDP:
		if binary.BigEndian.Uint16(t[6:]) == 0 {
			return p.Version == 4 // none; in IPv6 that is an error (RFC 8200 section 8.1)
		}
	case packet.ProtoTCP, packet.ProtoICMPv6:
	default:
		return true
	}
	return packet.Sum(t, packet.PseudoHeader(p.Src(), p.Dst(), p.Proto, len(t))) == 0xffff
}
