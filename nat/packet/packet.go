package packet

import (
	"encoding/binary"
	"net/netip"
)

// IP protocol numbers that the data plane knows by name (IANA "Assigned
// Internet Protocol Numbers").
const (
	ProtoICMP     = 1
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoFragment = 44
	ProtoICMPv6   = 58
	ProtoSCTP     = 132
)

// Header lengths without options or extension headers, in bytes.
const (
	IPv4HeaderLen = 20 // RFC 791 section 3.1
	IPv6HeaderLen = 40 // RFC 8200 section 3
	TCPHeaderLen  = 20 // RFC 9293 section 3.1
	UDPHeaderLen  = 8  // RFC 768
	ICMPHeaderLen = 8  // RFC 792, RFC 4443: type, code, checksum, four more bytes
)

// Fragment says which part of a datagram a packet carries.
type Fragment uint8

const (
	Whole         Fragment = iota // not fragmented
	FirstFragment                 // offset 0, more to come: carries the transport header
	LaterFragment                 // offset above 0: carries no transport header
)

// Packet is a view over one IPv4 or IPv6 packet. It owns nothing: Bytes is the
// caller's buffer, cut to the length that the IP header states, and setters
// write into it. The zero Packet is not valid; Parse makes one.
type Packet struct {
	// Bytes is the whole packet, from the IP header to the end that its
	// length field states; link-layer padding is cut off.
	Bytes []byte
	// Version is 4 or 6.
	Version uint8
	// Proto is the upper-layer protocol: behind extension headers in IPv6.
	Proto uint8
	// Fragment tells whether Transport is present.
	Fragment Fragment
	// TransportOffset is where the transport header starts, in bytes from the
	// start of Bytes. For LaterFragment it is where the payload starts.
	TransportOffset int
}

// Src returns the source address.
func (p *Packet) Src() netip.Addr {
	if p.Version == 4 {
		return netip.AddrFrom4([4]byte(p.Bytes[12:16]))
	}
	return netip.AddrFrom16([16]byte(p.Bytes[8:24]))
}

// Dst returns the destination address.
func (p *Packet) Dst() netip.Addr {
	if p.Version == 4 {
		return netip.AddrFrom4([4]byte(p.Bytes[16:20]))
	}
	return netip.AddrFrom16([16]byte(p.Bytes[24:40]))
}

// Transport returns the bytes from the transport header on.
func (p *Packet) Transport() []byte { return p.Bytes[p.TransportOffset:] }

// Ports returns source and destination port of TCP, UDP and SCTP, the
// identifier twice for an ICMP echo, and zeros for everything else and for
// later fragments.
func (p *Packet) Ports() (src, dst uint16) {
	t := p.Transport()
	if p.Fragment == LaterFragment || len(t) < 4 {
		return 0, 0
	}
	switch p.Proto {
	case ProtoTCP, ProtoUDP, ProtoSCTP:
		return binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])
	case ProtoICMP, ProtoICMPv6:
		if p.IsEcho() {
			id := binary.BigEndian.Uint16(t[4:])
			return id, id
		}
	}
	return 0, 0
}
