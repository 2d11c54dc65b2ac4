package packet

import (
	"encoding/binary"
	"net/netip"
)

// How much of the offending packet an error quotes: as much as fits into a
// packet of this length (RFC 1812 section 4.3.2.3; RFC 4443 section 2.4 (c)).
const (
	maxICMPError4 = 576
	maxICMPError6 = 1280
)

// minQuote4 is the least to quote of an IPv4 payload (RFC 792).
const minQuote4 = 8

// icmpHopLimit is the hop limit of what the gateway itself sends (RFC 1700).
const icmpHopLimit = 64

// internetControl is the IPv4 type of service of an ICMP error: precedence 6,
// so that the message gets through the congestion it may be about (RFC 1812
// section 4.3.2.5).
const internetControl = 6 << 5

// Types and codes of ICMP errors (RFC 792, RFC 1191, RFC 1812; RFC 4443).
const (
	icmp4Unreachable  = 3
	icmp4FragNeeded   = 4 // code of icmp4Unreachable
	icmp4TimeExceeded = 11

	icmp6Unreachable  = 1
	icmp6PacketTooBig = 2
	icmp6TimeExceeded = 3
	icmp6Redirect     = 137
)

// Unreachable is why a packet was not delivered, in words that both versions
// of ICMP have.
type Unreachable uint8

// Reasons, with the meaning that both versions of ICMP give them.
const (
	NoRoute            Unreachable = iota // nothing is known about the destination's network
	AddressUnreachable                    // the network is known, the address does not answer
	Prohibited                            // a rule forbids it
	PortUnreachable                       // nobody listens there
)

// codes are the codes of Destination Unreachable: ICMP (RFC 792, RFC 1812
// section 5.2.7.1), ICMPv6 (RFC 4443 section 3.1).
var codes = [...][2]uint8{
	NoRoute:            {0, 0},
	AddressUnreachable: {1, 3},
	Prohibited:         {13, 1},
	PortUnreachable:    {3, 4},
}

// TimeExceeded writes the ICMP error for a packet whose hop limit ran out.
//
// Like all builders of errors here it writes a complete IP packet from src to
// the source of offending into dst and returns its length. It returns 0, and
// nothing is to be sent, if an error about offending must not be sent or if
// src is not of its family. dst needs room for 1280 bytes; with less, less is
// quoted. The quotation is what stands in offending, so call it before
// translating addresses: the sender must recognise its packet. Limiting the
// rate of errors (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)) is up to
// the caller.
func TimeExceeded(dst []byte, src netip.Addr, offending Packet) int {
	if offending.Version == 4 {
		return putError(dst, src, &offending, icmp4TimeExceeded<<8, 0)
	}
	return putError(dst, src, &offending, icmp6TimeExceeded<<8, 0)
}

// PacketTooBig writes the ICMP error for a packet that is longer than the mtu
// of the next hop and must not be fragmented: Fragmentation Needed in IPv4
// (RFC 1191 section 4), Packet Too Big in IPv6 (RFC 4443 section 3.2).
// See TimeExceeded.
func PacketTooBig(dst []byte, src netip.Addr, offending Packet, mtu int) int {
	if offending.Version == 4 {
		return putError(dst, src, &offending, icmp4Unreachable<<8|icmp4FragNeeded, uint32(min(mtu, 0xffff)))
	}
	return putError(dst, src, &offending, icmp6PacketTooBig<<8, uint32(mtu))
}

// DestinationUnreachable writes the ICMP error for a packet that cannot be
// delivered. See TimeExceeded.
func DestinationUnreachable(dst []byte, src netip.Addr, offending Packet, why Unreachable) int {
	if int(why) >= len(codes) {
		return 0
	}
	if offending.Version == 4 {
		return putError(dst, src, &offending, icmp4Unreachable<<8|uint16(codes[why][0]), 0)
	}
	return putError(dst, src, &offending, icmp6Unreachable<<8|uint16(codes[why][1]), 0)
}

// putError writes an ICMP error:
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|     Type      |     Code      |          Checksum             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|    zero, or the MTU (in IPv4 its low 16 bits: RFC 1191)       |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|       the offending packet from its IP header on, cut         |
func putError(b []byte, src netip.Addr, offending *Packet, typeAndCode uint16, mtu uint32) int {
	to := offending.Src()
	if src.BitLen() != to.BitLen() || !mayReport(offending) {
		return 0
	}
	header, limit, least := IPv4HeaderLen, maxICMPError4, offending.TransportOffset+minQuote4
	if offending.Version == 6 {
		header, limit, least = IPv6HeaderLen, maxICMPError6, IPv6HeaderLen
	}
	// A buffer too short for what a sender needs to recognise its packet is not filled.
	quote := min(len(offending.Bytes), min(limit, len(b))-header-ICMPHeaderLen)
	if quote < min(least, len(offending.Bytes)) {
		return 0
	}
	b = b[:header+ICMPHeaderLen+quote]
	icmp := b[header:]
	binary.BigEndian.PutUint16(icmp, typeAndCode)
	binary.BigEndian.PutUint16(icmp[2:], 0)
	binary.BigEndian.PutUint32(icmp[4:], mtu)
	copy(icmp[ICMPHeaderLen:], offending.Bytes)

	pseudo := uint16(0) // ICMP in IPv4 has none
	if offending.Version == 4 {
		putHeader4(b, src, to)
	} else {
		putHeader6(b, src, to)
		pseudo = PseudoHeader(src, to, ProtoICMPv6, len(icmp))
	}
	binary.BigEndian.PutUint16(icmp[2:], ^Sum(icmp, pseudo))
	return len(b)
}

// mayReport tells whether an ICMP error about p may be sent at all (RFC 1812
// section 4.3.2.7, RFC 4443 section 2.4 (e)): never about an ICMP error, a
// later fragment, or a packet whose source or destination is not one host.
// The exception of RFC 4443 for too big multicast packets is of no use to a
// router that forwards no multicast.
func mayReport(p *Packet) bool {
	if p.Fragment == LaterFragment || p.IsICMPError() {
		return false
	}
	if t, ok := p.icmpType(); ok && p.Version == 6 && (t < 128 || t == icmp6Redirect) {
		return false // unknown error types, too
	}
	return isHost(p.Src()) && isHost(p.Dst())
}

// isHost tells whether an address can be that of one host on a network:
// unspecified, loopback, multicast, broadcast and, in IPv4, networks 0 and 240/4
// cannot (RFC 1122 section 3.2.1.3).
func isHost(a netip.Addr) bool {
	if a.IsMulticast() || a.IsUnspecified() || a.IsLoopback() || a.Is4In6() {
		return false
	}
	if !a.Is4() {
		return true
	}
	first := a.As4()[0]
	return first != 0 && first < 240
}

// putHeader4 writes the IPv4 header of an ICMP error of len(b) bytes.
func putHeader4(b []byte, src, dst netip.Addr) {
	b[0] = 4<<4 | IPv4HeaderLen/4
	b[1] = internetControl
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	// With DF set, and it fits every link, the identification has no meaning (RFC 6864 section 4.1).
	binary.BigEndian.PutUint32(b[4:], 0x4000)
	b[8] = icmpHopLimit
	b[9] = ProtoICMP
	binary.BigEndian.PutUint16(b[10:], 0)
	s, d := src.As4(), dst.As4()
	copy(b[12:], s[:])
	copy(b[16:], d[:])
	binary.BigEndian.PutUint16(b[10:], ^Sum(b[:IPv4HeaderLen], 0))
}

// putHeader6 writes the IPv6 header of an ICMPv6 error of len(b) bytes.
func putHeader6(b []byte, src, dst netip.Addr) {
	binary.BigEndian.PutUint32(b, 6<<28)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-IPv6HeaderLen))
	b[6] = ProtoICMPv6
	b[7] = icmpHopLimit
	s, d := src.As16(), dst.As16()
	copy(b[8:], s[:])
	copy(b[24:], d[:])
}
