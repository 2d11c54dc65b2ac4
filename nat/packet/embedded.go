package packet

import (
	"encoding/binary"
	"net/netip"
)

// Embedded is a view over the packet that an ICMP error quotes: the one that
// could not be delivered. The quotation may end anywhere behind the addresses
// (RFC 792 promises eight bytes of transport header, RFC 4443 as much as
// fits). Setters change the quotation and repair every checksum that lies over
// a changed byte: the quoted IPv4 header's, the quoted transport's if the
// quotation reaches that far, and the ICMP error's own.
type Embedded struct {
	outer []byte // the ICMP message
	quote Packet
}

// Embedded returns the view over the packet that an ICMP error quotes. It is
// false for everything but ICMP errors, and when the quotation does not hold a
// whole IP header of the error's own version.
func (p *Packet) Embedded() (e Embedded, ok bool) {
	if !p.IsICMPError() {
		return e, false
	}
	e.outer = p.Transport()
	ok = e.quote.parseQuote(e.outer[ICMPHeaderLen:], p.Version)
	return e, ok
}

// Src returns the source address of the quoted packet.
func (e *Embedded) Src() netip.Addr { return e.quote.Src() }

// Dst returns the destination address of the quoted packet.
func (e *Embedded) Dst() netip.Addr { return e.quote.Dst() }

// Proto returns the upper-layer protocol of the quoted packet.
func (e *Embedded) Proto() uint8 { return e.quote.Proto }

// Ports returns the ports of the quoted packet as Packet.Ports does, zeros
// when they are not quoted.
func (e *Embedded) Ports() (src, dst uint16) { return e.quote.Ports() }

// TCPSequence returns the sequence number of the quoted packet, and false where it
// is no TCP or is quoted without it.
func (e *Embedded) TCPSequence() (uint32, bool) {
	t := e.quote.Transport()
	if e.quote.Proto != ProtoTCP || e.quote.Fragment == LaterFragment || len(t) < 8 {
		return 0, false
	}
	return binary.BigEndian.Uint32(t[4:]), true
}

// SetSrc replaces the source address of the quoted packet.
func (e *Embedded) SetSrc(a netip.Addr) { e.adjust(e.quote.setAddr(a, 12, 8)) }

// SetDst replaces the destination address of the quoted packet.
func (e *Embedded) SetDst(a netip.Addr) { e.adjust(e.quote.setAddr(a, 16, 24)) }

// adjust repairs the checksum of the ICMP error. In most cases the address and
// the quoted checksums change by amounts that cancel out, but not when one of
// them is missing.
func (e *Embedded) adjust(change uint64) {
	if change != 0 {
		adjustField(e.outer[2:], change)
	}
}

// parseQuote is Parse for a quotation: it may be cut anywhere behind the IP
// header, and as its sender was a stranger's router, nothing beyond what the
// setters need is checked.
func (p *Packet) parseQuote(b []byte, version uint8) bool {
	if len(b) < IPv4HeaderLen || b[0]>>4 != version {
		return false
	}
	ok := false
	p.Version = version
	if version == 4 {
		ok = p.parseQuote4(b)
	} else {
		ok = p.parseQuote6(b)
	}
	if !ok || p.Fragment == LaterFragment {
		return ok
	}
	if _, check := transportHeader(version, p.Proto); check != 0 && len(p.Transport()) >= int(check)+2 {
		p.check = check
	}
	return true
}

func (p *Packet) parseQuote4(b []byte) bool {
	header := int(b[0]&0x0f) * 4
	if header < IPv4HeaderLen || header > len(b) {
		return false
	}
	// What lies behind the quoted packet's own end is padding or an extension
	// of RFC 4884. Some hosts quote the length in a wrong byte order or
	// without the header, so a senseless one is not held against the packet.
	if total := int(binary.BigEndian.Uint16(b[2:])); total >= header && total < len(b) {
		b = b[:total]
	}
	p.Bytes, p.Proto, p.TransportOffset = b, b[9], header
	if binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
		p.Fragment = LaterFragment
	}
	return true
}

func (p *Packet) parseQuote6(b []byte) bool {
	if len(b) < IPv6HeaderLen {
		return false
	}
	if total := IPv6HeaderLen + int(binary.BigEndian.Uint16(b[4:])); total < len(b) {
		b = b[:total]
	}
	p.Bytes, p.Proto, p.TransportOffset = b, b[6], IPv6HeaderLen
	p.walk(true) // where it stops, the setters stop
	return true
}
