package nat

import (
	"encoding/binary"
	"math/bits"

	"github.com/sluice-net/sluice/nat/packet"
)

// TCP option kinds (RFC 9293 section 3.2).
const (
	optionEnd = 0
	optionNop = 1
	optionMSS = 2 // length 4: kind, length, 16-bit value
)

// ClampMSS lowers the maximum segment size that a SYN or SYN-ACK announces to
// what fits into mtu bytes with an IP and a TCP header without options (RFC
// 6691), and reports whether it changed the packet. It never raises the value,
// and adds none where there is none: the peer then keeps to the defaults of RFC
// 9293 section 3.7.1 (536 and 1220), which every sensible MTU has room for. An
// mtu with no room for data changes nothing.
func ClampMSS(p *packet.Packet, mtu int) bool {
	if !p.IsTCPSYN() {
		return false
	}
	limit := mtu - packet.TCPHeaderLen - packet.IPv4HeaderLen
	if p.Version == 6 {
		limit = mtu - packet.TCPHeaderLen - packet.IPv6HeaderLen
	}
	t := p.Transport()
	changed := false
	for at, ok := nextMSS(t, packet.TCPHeaderLen); ok; at, ok = nextMSS(t, at+2) {
		// Not only the first: a receiver may take the last of several.
		changed = lowerMSS(t, at, limit) || changed
	}
	return changed
}

// MSS returns the lowest maximum segment size that a SYN or SYN-ACK announces,
// and false if p is neither or announces none.
func MSS(p *packet.Packet) (mss int, found bool) {
	if !p.IsTCPSYN() {
		return 0, false
	}
	t := p.Transport()
	for at, ok := nextMSS(t, packet.TCPHeaderLen); ok; at, ok = nextMSS(t, at+2) {
		if v := int(binary.BigEndian.Uint16(t[at:])); !found || v < mss {
			mss, found = v, true
		}
	}
	return mss, found
}

// nextMSS walks the options of the TCP header t from offset at, where one
// starts, and returns the offset of the value of the next MSS option. Another
// option starts, or the options end, two bytes behind it.
func nextMSS(t []byte, at int) (value int, ok bool) {
	// The options of a first fragment can be cut off by its end.
	end := min(int(t[12]>>4)*4, len(t))
	for at < end {
		switch t[at] {
		case optionEnd:
			return 0, false
		case optionNop:
			at++
			continue
		}
		if at+2 > end {
			return 0, false
		}
		length := int(t[at+1])
		if length < 2 || at+length > end {
			return 0, false // what follows cannot be found
		}
		if t[at] == optionMSS && length == 4 {
			return at + 2, true
		}
		at += length
	}
	return 0, false
}

// lowerMSS lowers the value at offset at of the TCP header t to limit, if it is
// higher, and repairs the TCP checksum.
func lowerMSS(t []byte, at, limit int) bool {
	before := binary.BigEndian.Uint16(t[at:])
	if limit <= 0 || int(before) <= limit {
		return false
	}
	after := uint16(limit)
	binary.BigEndian.PutUint16(t[at:], after)
	if at%2 != 0 { // a sender may put one NOP before the option
		before, after = bits.ReverseBytes16(before), bits.ReverseBytes16(after)
	}
	check := t[16:18]
	binary.BigEndian.PutUint16(check, packet.Update(binary.BigEndian.Uint16(check), before, after))
	return true
}
