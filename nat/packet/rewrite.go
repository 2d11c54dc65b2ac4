package packet

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// SetSrc replaces the source address and repairs the IPv4 header checksum and
// the transport checksum incrementally (RFC 1624): a checksum that was wrong
// stays wrong. An absent UDP checksum stays absent, and one that comes out as
// zero is written as 0xffff (RFC 768). Later fragments carry no transport
// header, so only the address changes. The address must be of the packet's
// family; one that is not is ignored.
func (p *Packet) SetSrc(a netip.Addr) { p.setAddr(a, 12, 8) }

// SetDst replaces the destination address; see SetSrc.
func (p *Packet) SetDst(a netip.Addr) { p.setAddr(a, 16, 24) }

// setAddr writes an address at offset at4 or at6, by version. It returns the
// change that all bytes it wrote make to a checksum over them (see adjust).
func (p *Packet) setAddr(a netip.Addr, at4, at6 int) (change uint64) {
	b := p.Bytes
	if p.Version == 4 {
		if !a.Is4() {
			return 0
		}
		v := a.As4()
		before, after := binary.BigEndian.Uint32(b[at4:]), binary.BigEndian.Uint32(v[:])
		if before == after {
			return 0
		}
		binary.BigEndian.PutUint32(b[at4:], after)
		change = uint64(^before) + uint64(after)
		written := change
		check := b[10:12]
		written += adjustField(check, change)
		return written + p.adjustTransport(change)
	}
	if !a.Is6() {
		return 0
	}
	v := a.As16()
	beforeHi, beforeLo := binary.BigEndian.Uint64(b[at6:]), binary.BigEndian.Uint64(b[at6+8:])
	afterHi, afterLo := binary.BigEndian.Uint64(v[:]), binary.BigEndian.Uint64(v[8:])
	if beforeHi == afterHi && beforeLo == afterLo {
		return 0
	}
	binary.BigEndian.PutUint64(b[at6:], afterHi)
	binary.BigEndian.PutUint64(b[at6+8:], afterLo)
	sum, c := bits.Add64(^beforeHi, ^beforeLo, 0)
	sum, c = bits.Add64(sum, afterHi, c)
	sum, c = bits.Add64(sum, afterLo, c)
	sum, c = bits.Add64(sum, 0, c)
	change = uint64(Fold(sum + c))
	return change + p.adjustTransport(change)
}

// adjustTransport applies a change of the pseudo-header to the transport
// checksum, where the packet has one that covers it.
func (p *Packet) adjustTransport(change uint64) (written uint64) {
	if p.check == 0 {
		return 0
	}
	field := p.Bytes[p.TransportOffset+int(p.check):]
	if p.Proto != ProtoUDP && p.Proto != ProtoUDPLite {
		return adjustField(field, change)
	}
	before := binary.BigEndian.Uint16(field)
	if before == 0 {
		return 0 // no checksum was sent; RFC 6935 allows that in IPv6, too
	}
	after := adjust(before, change)
	if after == 0 {
		after = 0xffff
	}
	binary.BigEndian.PutUint16(field, after)
	return uint64(^before) + uint64(after)
}

// adjustField applies a change to the checksum at the start of b, and returns
// the change that this makes to a checksum over b.
func adjustField(b []byte, change uint64) (written uint64) {
	before := binary.BigEndian.Uint16(b)
	after := adjust(before, change)
	binary.BigEndian.PutUint16(b, after)
	return uint64(^before) + uint64(after)
}

// CompleteChecksum finishes a TCP or UDP checksum that a kernel left to
// hardware that never came: the field then holds the sum of the pseudo-header
// alone, not complemented. It reports whether it did. A finished checksum
// may have that value by chance: the packet then comes out as it was, so
// completing it is never wrong. Fragments have no such checksums.
func (p *Packet) CompleteChecksum() bool {
	if p.Fragment != Whole || p.Proto != ProtoTCP && p.Proto != ProtoUDP {
		return false
	}
	t := p.Transport()
	if p.Proto == ProtoUDP {
		t = t[:binary.BigEndian.Uint16(t[4:])]
	}
	field := t[p.check:]
	if binary.BigEndian.Uint16(field) != p.pseudoHeader(len(t)) {
		return false
	}
	// The field takes part in the sum with exactly what the pseudo-header
	// would have added.
	check := ^Sum(t, 0)
	if check == 0 && p.Proto == ProtoUDP {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(field, check)
	return true
}

// pseudoHeader is PseudoHeader of the packet's own addresses and protocol.
func (p *Packet) pseudoHeader(length int) uint16 {
	sum := Fold(uint64(p.Proto) + uint64(uint32(length)))
	if p.Version == 4 {
		return Sum(p.Bytes[12:20], sum)
	}
	return Sum(p.Bytes[8:40], sum)
}
