package packet

import "encoding/binary"

// maxExtensions bounds the walk over IPv6 extension headers. RFC 8200 section
// 4.1 knows seven in one packet, destination options counted twice.
const maxExtensions = 8

// parse6 is Parse for version 6 (RFC 8200 section 3).
func (p *Packet) parse6(b []byte) bool {
	if len(b) < IPv6HeaderLen {
		return false
	}
	total := IPv6HeaderLen + int(binary.BigEndian.Uint16(b[4:]))
	if total > len(b) {
		return false
	}
	p.Bytes, p.Version, p.Proto, p.TransportOffset = b[:total], 6, b[6], IPv6HeaderLen
	if isExtension(p.Proto) && !p.walk(false) {
		return false
	}
	return p.checkTransport()
}

// isExtension reports whether walk can step over a header. ESP hides what
// follows, and no next header has nothing after it: both are upper layers here.
func isExtension(proto uint8) bool {
	switch proto {
	case ProtoHopByHop, ProtoRouting, ProtoFragment, ProtoAH, ProtoDestination:
		return true
	}
	return false
}

// walk steps over the extension headers and sets Proto, TransportOffset and
// Fragment. It stops behind a later fragment's header: what follows is payload.
// When it fails, Proto is left at the extension header that it did not get over,
// so that nobody takes what follows for a transport header. In a quotation
// (see Embedded) lengths say nothing about the fragment, as the end is cut off.
func (p *Packet) walk(quoted bool) bool {
	b := p.Bytes
	for range maxExtensions {
		if !isExtension(p.Proto) {
			return true
		}
		at := p.TransportOffset
		if len(b) < at+8 { // every extension header is at least this long
			return false
		}
		length := (int(b[at+1]) + 1) * 8 // RFC 8200 section 4.2
		switch p.Proto {
		case ProtoFragment:
			length = 8 // RFC 8200 section 4.5: its second byte is reserved
		case ProtoAH:
			length = (int(b[at+1]) + 2) * 4 // RFC 4302 section 2.2: in 4-byte units
		}
		if len(b) < at+length {
			return false
		}
		if !p.acceptable(b[at : at+length]) {
			return false
		}
		header := p.Proto
		p.Proto = b[at]
		p.TransportOffset = at + length
		if header != ProtoFragment {
			continue
		}
		p.fragment6 = uint16(at)
		f := binary.BigEndian.Uint16(b[at+2:])
		if quoted {
			if f&^7 != 0 {
				p.Fragment = LaterFragment
				return true
			}
			continue
		}
		var ok bool
		p.Fragment, ok = classify(p.Proto, int(f&^7), len(b)-p.TransportOffset, f&1 != 0)
		if !ok || p.Fragment == LaterFragment {
			return ok
		}
	}
	return !isExtension(p.Proto)
}

// acceptable judges the extension header h of type p.Proto that the walk has
// reached.
func (p *Packet) acceptable(h []byte) bool {
	switch p.Proto {
	case ProtoHopByHop:
		// RFC 8200 section 4.1: directly behind the IPv6 header or nowhere.
		return p.TransportOffset == IPv6HeaderLen && acceptable6(h[2:])
	case ProtoDestination:
		return acceptable6(h[2:])
	case ProtoRouting:
		// With segments left the packet is on its way to somewhere else than
		// its destination field says: that deceives every check of addresses,
		// and the pseudo-header holds an address that no mapping has seen.
		return h[3] == 0
	case ProtoFragment:
		return p.fragment6 == 0 // a fragment of a fragment cannot be classified
	case ProtoAH:
		return len(h) >= 12 && len(h)%8 == 0 // RFC 4302 sections 2 and 3.3.3.2.1
	}
	return true
}

// IPv6 option types (IANA "Destination Options and Hop-by-Hop Options").
const (
	option6Pad1        = 0x00
	option6Jumbo       = 0xc2 // RFC 2675
	option6HomeAddress = 0xc9 // RFC 6275
)

// acceptable6 walks the options of a hop-by-hop or destination header.
// It refuses jumbograms, which the length field and every buffer here exclude,
// and home addresses, which stand for the source in the pseudo-header.
func acceptable6(b []byte) bool {
	for len(b) > 0 {
		if b[0] == option6Pad1 {
			b = b[1:]
			continue
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) || b[0] == option6Jumbo || b[0] == option6HomeAddress {
			return false
		}
		b = b[2+int(b[1]):]
	}
	return true
}
