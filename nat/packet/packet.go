package packet

import (
	"encoding/binary"
	"net/netip"
)

// IP protocol numbers that the data plane knows by name (IANA "Assigned
// Internet Protocol Numbers"). The IPv6 extension headers share the number
// space.
const (
	ProtoHopByHop    = 0
	ProtoICMP        = 1
	ProtoTCP         = 6
	ProtoUDP         = 17
	ProtoDCCP        = 33
	ProtoRouting     = 43
	ProtoFragment    = 44
	ProtoESP         = 50
	ProtoAH          = 51
	ProtoICMPv6      = 58
	ProtoNoNext      = 59
	ProtoDestination = 60
	ProtoSCTP        = 132
	ProtoUDPLite     = 136
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

// The parts of a datagram.
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
	// In a later fragment of IPv6 it is what the fragment header names,
	// which may be one more extension header.
	Proto uint8
	// Fragment tells whether Transport is present.
	Fragment Fragment
	// check is where the checksum over the pseudo-header lies, from the
	// start of the transport header; 0 where there is none, or where it is
	// not in these bytes.
	check uint8
	// fragment6 is where the IPv6 fragment header starts, 0 when there is none.
	fragment6 uint16
	// TransportOffset is where the transport header starts, in bytes from the
	// start of Bytes. For LaterFragment it is where the payload starts.
	TransportOffset int
}

// Parse checks the headers of the IP packet at the start of b and returns a
// view over it. It refuses what a strict receiver would refuse: lengths that
// contradict each other, extension headers that do not end, jumbograms,
// fragments that hide the transport header (RFC 1858) or cannot be put
// together, and TCP, UDP, ICMP, SCTP, DCCP and UDP-Lite whose fixed header is
// not complete. Addresses and checksums are not judged.
//
// An accepted packet needs no further length check up to the end of the fixed
// transport header, unless it is a LaterFragment. The view of a refused one is
// not to be used.
func Parse(b []byte) (p Packet, ok bool) {
	// The view is filled in where it is returned: copies of it, made of narrow
	// fields as it is, took longer than the checks.
	if len(b) > 0 && b[0]>>4 == 4 {
		ok = p.parse4(b)
	} else if len(b) > 0 && b[0]>>4 == 6 {
		ok = p.parse6(b)
	}
	return p, ok
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

// Ports returns source and destination port of TCP, UDP, UDP-Lite, DCCP and
// SCTP, the identifier twice for an ICMP echo, and zeros for everything else
// and for later fragments.
func (p *Packet) Ports() (src, dst uint16) {
	t := p.Transport()
	if p.Fragment == LaterFragment || len(t) < 4 {
		return 0, 0
	}
	switch p.Proto {
	case ProtoTCP, ProtoUDP, ProtoUDPLite, ProtoDCCP, ProtoSCTP:
		return binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])
	case ProtoICMP, ProtoICMPv6:
		if p.IsEcho() && len(t) >= 6 {
			id := binary.BigEndian.Uint16(t[4:])
			return id, id
		}
	}
	return 0, 0
}

// IsEcho reports whether the packet is an ICMP echo request or reply of its
// own IP version.
func (p *Packet) IsEcho() bool {
	t, ok := p.icmpType()
	if p.Version == 4 {
		return ok && (t == 8 || t == 0) // RFC 792
	}
	return ok && (t == 128 || t == 129) // RFC 4443 section 4
}

// IsICMPError reports whether the packet is an ICMP message about another
// packet, which it quotes: unreachable, source quench, redirect, time
// exceeded, parameter problem (RFC 792), or an ICMPv6 error of RFC 4443
// section 3. See Embedded.
func (p *Packet) IsICMPError() bool {
	t, ok := p.icmpType()
	if !ok {
		return false
	}
	if p.Version == 4 {
		return t == 3 || t == 4 || t == 5 || t == 11 || t == 12
	}
	return t >= 1 && t <= 4
}

// icmpType returns the type of an ICMP message, and whether the packet is one.
func (p *Packet) icmpType() (uint8, bool) {
	if p.Fragment == LaterFragment || len(p.Bytes) <= p.TransportOffset {
		return 0, false
	}
	// ICMP in IPv6 and ICMPv6 in IPv4 mean nothing: no host reads them.
	if p.Version == 4 && p.Proto != ProtoICMP || p.Version == 6 && p.Proto != ProtoICMPv6 {
		return 0, false
	}
	return p.Bytes[p.TransportOffset], true
}

// TCP flags, in the byte at offset 13 of the header (RFC 9293 section 3.1).
const (
	TCPFin = 1 << iota
	TCPSyn
	TCPRst
	TCPPsh
	TCPAck
	TCPUrg
	TCPEce
	TCPCwr
)

// TCPFlags returns the flag bits of a TCP packet, and 0 for everything else
// and for later fragments.
func (p *Packet) TCPFlags() uint8 {
	if p.Proto != ProtoTCP || p.Fragment == LaterFragment || len(p.Bytes) < p.TransportOffset+14 {
		return 0
	}
	return p.Bytes[p.TransportOffset+13]
}

// IsTCPSYN reports whether the packet is a TCP SYN or SYN-ACK.
func (p *Packet) IsTCPSYN() bool { return p.TCPFlags()&TCPSyn != 0 }

// HopLimit returns the time to live (IPv4) or hop limit (IPv6).
func (p *Packet) HopLimit() uint8 {
	if p.Version == 4 {
		return p.Bytes[8]
	}
	return p.Bytes[7]
}

// DecrementHopLimit takes one from the hop limit and repairs the IPv4 header
// checksum. At zero it does nothing: such a packet is not to be forwarded.
func (p *Packet) DecrementHopLimit() {
	if p.HopLimit() == 0 {
		return
	}
	if p.Version == 6 {
		p.Bytes[7]--
		return
	}
	b := p.Bytes
	before := binary.BigEndian.Uint16(b[8:]) // TTL and protocol share a word
	b[8]--
	check := Update(binary.BigEndian.Uint16(b[10:]), before, before-0x100)
	binary.BigEndian.PutUint16(b[10:], check)
}

// DontFragment reports whether a router must not fragment the packet: the DF
// bit in IPv4, always in IPv6.
func (p *Packet) DontFragment() bool {
	return p.Version == 6 || p.Bytes[6]&0x40 != 0
}

// ID returns the identification that the fragments of one datagram share: 16
// bits in IPv4, 32 bits or none (0) in IPv6.
func (p *Packet) ID() uint32 {
	switch {
	case p.Version == 4:
		return uint32(binary.BigEndian.Uint16(p.Bytes[4:]))
	case p.fragment6 != 0:
		return binary.BigEndian.Uint32(p.Bytes[p.fragment6+4:])
	}
	return 0
}

// classify tells which part of a datagram a fragment is, and refuses those
// that no receiver can or should put together. Offset and length are in bytes
// and describe the fragment's payload; more is the more-fragments flag.
func classify(proto uint8, offset, length int, more bool) (Fragment, bool) {
	switch {
	case length == 0:
		return Whole, false
	case more && length%8 != 0: // the next offset could not be expressed (RFC 8200 section 4.5)
		return Whole, false
	case offset+length > 0xffff: // reassembles to more than a datagram can be
		return Whole, false
	case offset == 8 && proto == ProtoTCP: // would overwrite the flags (RFC 1858 section 4)
		return Whole, false
	case offset > 0:
		return LaterFragment, true
	case more:
		return FirstFragment, true
	}
	return Whole, true // the atomic fragment of RFC 6946
}

// checkTransport checks the fixed transport header and notes where its
// address-dependent checksum is.
func (p *Packet) checkTransport() bool {
	if p.Fragment == LaterFragment {
		return true
	}
	length, check := transportHeader(p.Version, p.Proto)
	t := p.Bytes[p.TransportOffset:]
	if len(t) < length {
		return false
	}
	p.check = check
	switch p.Proto {
	case ProtoTCP:
		n := int(t[12]>>4) * 4
		// The options of a first fragment may be cut: only the fixed header
		// decides whether a filter can be deceived.
		return n >= TCPHeaderLen && (n <= len(t) || p.Fragment == FirstFragment)
	case ProtoUDP:
		// A length below what is there leaves room behind the datagram (RFC
		// 9868); zero would be a jumbogram (RFC 2675 section 4).
		n := int(binary.BigEndian.Uint16(t[4:]))
		return n >= UDPHeaderLen && (n <= len(t) || p.Fragment == FirstFragment)
	}
	return true
}

// transportHeader returns the length of a protocol's fixed header and where in
// it the checksum is that covers the pseudo-header; zeros for what is not known.
// ICMP and SCTP checksums do not cover the addresses.
func transportHeader(version, proto uint8) (length int, check uint8) {
	switch proto {
	case ProtoTCP:
		return TCPHeaderLen, 16
	case ProtoUDP, ProtoUDPLite:
		return UDPHeaderLen, 6
	case ProtoDCCP:
		return 12, 6 // RFC 4340 section 5.1, the short form
	case ProtoSCTP:
		return 12, 0 // RFC 9260 section 3.1
	case ProtoICMP:
		if version == 4 {
			return ICMPHeaderLen, 0
		}
	case ProtoICMPv6:
		if version == 6 {
			return ICMPHeaderLen, 2
		}
	}
	return 0, 0
}
