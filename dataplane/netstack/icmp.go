package netstack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// ICMPError is what a router or the destination answered instead of delivering
// a packet. Type and Code are those of the family of From (RFC 792, RFC 4443).
type ICMPError struct {
	From netip.Addr
	Type uint8
	Code uint8
	MTU  int // of Fragmentation Needed and Packet Too Big, else 0
}

// Error implements error.
func (e *ICMPError) Error() string {
	switch {
	case e.TimeExceeded():
		return fmt.Sprintf("time exceeded (from %v)", e.From)
	case e.TooBig():
		return fmt.Sprintf("packet too big, mtu %d (from %v)", e.MTU, e.From)
	case e.PortUnreachable():
		return fmt.Sprintf("port unreachable (from %v)", e.From)
	default:
		return fmt.Sprintf("ICMP type %d code %d (from %v)", e.Type, e.Code, e.From)
	}
}

// TimeExceeded reports whether a packet ran out of hops on its way.
func (e *ICMPError) TimeExceeded() bool {
	if e.From.Is4() {
		return e.Type == uint8(header.ICMPv4TimeExceeded) && e.Code == 0
	}
	return e.Type == uint8(header.ICMPv6TimeExceeded) && e.Code == 0
}

// TooBig reports whether a packet was larger than MTU.
func (e *ICMPError) TooBig() bool {
	if e.From.Is4() {
		return e.Type == uint8(header.ICMPv4DstUnreachable) && e.Code == uint8(header.ICMPv4FragmentationNeeded)
	}
	return e.Type == uint8(header.ICMPv6PacketTooBig)
}

// PortUnreachable reports whether nobody listens at a UDP port.
func (e *ICMPError) PortUnreachable() bool {
	if e.From.Is4() {
		return e.Type == uint8(header.ICMPv4DstUnreachable) && e.Code == uint8(header.ICMPv4PortUnreachable)
	}
	return e.Type == uint8(header.ICMPv6DstUnreachable) && e.Code == uint8(header.ICMPv6PortUnreachable)
}

// observer is a function with an identity, so that it can be removed.
type observer struct{ f func(pkt []byte) }

// ObserveICMP calls f with every injected IP packet that carries ICMP or
// ICMPv6, whatever its content, before the stack looks at it, until stop is
// called. f runs on a goroutine of Run: it must not block or keep the slice,
// and a call may still be under way when stop returns.
func (s *Stack) ObserveICMP(f func(pkt []byte)) (stop func()) {
	o := &observer{f}
	s.updateObservers(func(obs []*observer) []*observer { return append(obs, o) })
	return func() {
		s.updateObservers(func(obs []*observer) []*observer {
			return slices.DeleteFunc(obs, func(p *observer) bool { return p == o })
		})
	}
}

// updateObservers replaces the list, which is never changed in place because
// the packet path reads it without a lock.
func (s *Stack) updateObservers(change func([]*observer) []*observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obs := change(slices.Clone(*s.observers.Load()))
	s.observers.Store(&obs)
}

// isICMP is a cheap look at an IP packet; ICMPv6 behind extension headers is
// not found, and nobody sends errors that way.
func isICMP(pkt []byte) bool {
	switch header.IPVersion(pkt) {
	case header.IPv4Version:
		return len(pkt) >= header.IPv4MinimumSize && header.IPv4(pkt).TransportProtocol() == header.ICMPv4ProtocolNumber
	case header.IPv6Version:
		return len(pkt) >= header.IPv6MinimumSize && header.IPv6(pkt).NextHeader() == uint8(header.ICMPv6ProtocolNumber)
	}
	return false
}

// quote is what an ICMP error says about the packet that it is about.
type quote struct {
	src, dst  netip.Addr
	transport tcpip.TransportProtocolNumber
	head      [8]byte // first bytes of the transport header (RFC 792)
}

// parseICMPError reads an ICMP error and the packet quoted in it. Everything is
// checked, checksums included: a translator on the way that leaves a wrong one
// must not go unnoticed.
func parseICMPError(pkt []byte) (e ICMPError, q quote, ok bool) {
	switch header.IPVersion(pkt) {
	case header.IPv4Version:
		return parseICMPv4Error(pkt)
	case header.IPv6Version:
		return parseICMPv6Error(pkt)
	}
	return e, q, false
}

func parseICMPv4Error(pkt []byte) (e ICMPError, q quote, ok bool) {
	ip := header.IPv4(pkt)
	if !ip.IsValid(len(pkt)) || !ip.IsChecksumValid() || ip.More() || ip.FragmentOffset() != 0 ||
		ip.TransportProtocol() != header.ICMPv4ProtocolNumber {
		return e, q, false
	}
	icmp := header.ICMPv4(pkt[ip.HeaderLength():ip.TotalLength()])
	if len(icmp) < header.ICMPv4MinimumSize || checksum.Checksum(icmp, 0) != 0xffff {
		return e, q, false
	}
	switch icmp.Type() {
	case header.ICMPv4DstUnreachable, header.ICMPv4TimeExceeded, header.ICMPv4ParamProblem:
	default:
		return e, q, false
	}
	e = ICMPError{From: fromAddress(ip.SourceAddress()), Type: uint8(icmp.Type()), Code: uint8(icmp.Code())}
	if e.TooBig() {
		e.MTU = int(icmp.MTU())
	}
	inner := header.IPv4(icmp[header.ICMPv4MinimumSize:])
	// Not IsValid: the quoted packet is cut short.
	if len(inner) < header.IPv4MinimumSize || header.IPVersion(inner) != header.IPv4Version {
		return e, q, false
	}
	h := int(inner.HeaderLength())
	if h < header.IPv4MinimumSize || len(inner) < h+len(q.head) || inner.FragmentOffset() != 0 || !header.IPv4(inner[:h]).IsChecksumValid() {
		return e, q, false
	}
	q = quote{
		src:       fromAddress(inner.SourceAddress()),
		dst:       fromAddress(inner.DestinationAddress()),
		transport: inner.TransportProtocol(),
		head:      [8]byte(inner[h:]),
	}
	return e, q, true
}

func parseICMPv6Error(pkt []byte) (e ICMPError, q quote, ok bool) {
	ip := header.IPv6(pkt)
	if !ip.IsValid(len(pkt)) || ip.NextHeader() != uint8(header.ICMPv6ProtocolNumber) {
		return e, q, false
	}
	icmp := header.ICMPv6(pkt[header.IPv6MinimumSize:][:ip.PayloadLength()])
	pseudo := header.PseudoHeaderChecksum(header.ICMPv6ProtocolNumber, ip.SourceAddress(), ip.DestinationAddress(), ip.PayloadLength())
	if len(icmp) < header.ICMPv6MinimumSize || checksum.Checksum(icmp, pseudo) != 0xffff {
		return e, q, false
	}
	if icmp.Type() >= header.ICMPv6EchoRequest { // errors are 0 to 127 (RFC 4443 section 2.1)
		return e, q, false
	}
	e = ICMPError{From: fromAddress(ip.SourceAddress()), Type: uint8(icmp.Type()), Code: uint8(icmp.Code())}
	if e.TooBig() {
		e.MTU = int(icmp.MTU())
	}
	inner := header.IPv6(icmp[header.ICMPv6MinimumSize:])
	if len(inner) < header.IPv6MinimumSize || header.IPVersion(inner) != header.IPv6Version {
		return e, q, false
	}
	transport, rest := tcpip.TransportProtocolNumber(inner.NextHeader()), inner[header.IPv6MinimumSize:]
	if transport == header.IPv6FragmentHeader && len(rest) >= header.IPv6FragmentHeaderSize {
		// A fragmented echo request is quoted with its fragment header.
		if binary.BigEndian.Uint16(rest[2:])&^7 != 0 {
			return e, q, false
		}
		transport, rest = tcpip.TransportProtocolNumber(rest[0]), rest[header.IPv6FragmentHeaderSize:]
	}
	if len(rest) < len(q.head) {
		return e, q, false
	}
	q = quote{
		src:       fromAddress(inner.SourceAddress()),
		dst:       fromAddress(inner.DestinationAddress()),
		transport: transport,
		head:      [8]byte(rest),
	}
	return e, q, true
}
