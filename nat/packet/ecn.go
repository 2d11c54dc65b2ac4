package packet

import "encoding/binary"

// Codepoints of the ECN field (RFC 3168 section 5).
const (
	NotECT = iota // the transport does not take part
	ECT1
	ECT0
	CE // congestion experienced

	ecnMask = 3
)

// ECN returns the ECN field of the packet in b, which has a whole IP header.
func ECN(b []byte) uint8 {
	if b[0]>>4 == 6 { // version, traffic class, flow label: 4, 8 and 20 bits
		return b[1] >> 4 & ecnMask
	}
	return b[1] & ecnMask
}

// Decapsulate combines the packet's ECN field with that of the tunnel header it came in,
// as RFC 6040 section 4.2 says, figure 4. It reports false for a packet to drop: its
// transport does not understand the mark that the network has set in place of a drop.
func (p *Packet) Decapsulate(outer uint8) bool {
	inner := ECN(p.Bytes)
	switch {
	case outer == NotECT || outer == inner || inner == CE:
	case inner == NotECT:
		return outer != CE
	case outer == CE || outer == ECT1:
		p.setECN(outer)
	}
	return true
}

func (p *Packet) setECN(ecn uint8) {
	b := p.Bytes
	if p.Version == 6 {
		b[1] = b[1]&^(ecnMask<<4) | ecn<<4
		return
	}
	before := binary.BigEndian.Uint16(b)
	b[1] = b[1]&^ecnMask | ecn
	check := binary.BigEndian.Uint16(b[10:])
	binary.BigEndian.PutUint16(b[10:], Update(check, before, binary.BigEndian.Uint16(b)))
}
