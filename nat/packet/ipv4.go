package packet

import "encoding/binary"

// parse4 is Parse for version 4 (RFC 791 section 3.1).
func parse4(b []byte) (Packet, bool) {
	if len(b) < IPv4HeaderLen {
		return Packet{}, false
	}
	header := int(b[0]&0x0f) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	if header < IPv4HeaderLen || total < header || total > len(b) {
		return Packet{}, false
	}
	p := Packet{Bytes: b[:total], Version: 4, Proto: b[9], TransportOffset: header}
	if f := binary.BigEndian.Uint16(b[6:]); f&0x3fff != 0 { // more fragments, or an offset
		var ok bool
		p.Fragment, ok = classify(p.Proto, int(f&0x1fff)*8, total-header, f&0x2000 != 0)
		if !ok {
			return Packet{}, false
		}
	}
	if !p.checkTransport() {
		return Packet{}, false
	}
	return p, true
}

// HeaderChecksumValid verifies the IPv4 header checksum, as a router must (RFC
// 1812 section 5.2.2). IPv6 has none: true.
func (p *Packet) HeaderChecksumValid() bool {
	return p.Version == 6 || Sum(p.Bytes[:int(p.Bytes[0]&0x0f)*4], 0) == 0xffff
}
