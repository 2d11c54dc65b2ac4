package packet

import "encoding/binary"

// parse4 is Parse for version 4 (RFC 791 section 3.1).
func (p *Packet) parse4(b []byte) bool {
	if len(b) < IPv4HeaderLen {
		return false
	}
	header := int(b[0]&0x0f) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	if header < IPv4HeaderLen || total < header || total > len(b) {
		return false
	}
	p.Bytes, p.Version, p.Proto, p.TransportOffset = b[:total], 4, b[9], header
	if header > IPv4HeaderLen && !acceptable4(b[IPv4HeaderLen:header]) {
		return false
	}
	if f := binary.BigEndian.Uint16(b[6:]); f&0x3fff != 0 { // more fragments, or an offset
		var ok bool
		p.Fragment, ok = classify(p.Proto, int(f&0x1fff)*8, total-header, f&0x2000 != 0)
		if !ok {
			return false
		}
	}
	return p.checkTransport()
}

// IPv4 source route options (RFC 791 section 3.1).
const (
	option4LooseSourceRoute  = 131
	option4StrictSourceRoute = 137
)

// acceptable4 walks the options of an IPv4 header. It refuses options that do
// not end, and source routes that are not at their end: the destination is then
// not where the packet goes and not what the pseudo-header holds (RFC 7126
// sections 4.3 and 4.4 advise to drop them).
func acceptable4(b []byte) bool {
	for len(b) > 0 && b[0] != option4End {
		if b[0] == option4NoOp {
			b = b[1:]
			continue
		}
		if len(b) < 2 || b[1] < 2 || len(b) < int(b[1]) {
			return false
		}
		if b[0] == option4LooseSourceRoute || b[0] == option4StrictSourceRoute {
			if b[1] < 3 || b[2] <= b[1] { // the pointer is past the length at the end of the route
				return false
			}
		}
		b = b[b[1]:]
	}
	return true
}

// HeaderChecksumValid verifies the IPv4 header checksum, as a router must (RFC
// 1812 section 5.2.2). IPv6 has none: true.
func (p *Packet) HeaderChecksumValid() bool {
	return p.Version == 6 || Sum(p.Bytes[:int(p.Bytes[0]&0x0f)*4], 0) == 0xffff
}
