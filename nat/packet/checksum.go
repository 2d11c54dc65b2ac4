package packet

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Sum returns the folded one's complement sum (RFC 1071) of b and initial, not
// complemented: the Internet checksum of b is ^Sum(b, 0). A sum over several
// slices is chained through initial; every slice but the last must then have
// an even length, or the parity of what follows is lost.
//
// The result is zero only when initial and every byte of b are zero.
func Sum(b []byte, initial uint16) uint16 {
	// The sum does not depend on the byte order in which it is taken (RFC 1071
	// section 2 (B)), so it is taken in the machine's usual order, eight bytes
	// at a time, and swapped once at the end. The carries are counted apart,
	// and two chains run side by side, so that neither waits for the other.
	acc, carries := uint64(bits.ReverseBytes16(initial)), uint64(0)
	var second, c, d uint64
	for len(b) >= 64 {
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(b), 0)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(b[8:]), c)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(b[16:]), c)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(b[24:]), c)
		carries += c
		second, d = bits.Add64(second, binary.LittleEndian.Uint64(b[32:]), 0)
		second, d = bits.Add64(second, binary.LittleEndian.Uint64(b[40:]), d)
		second, d = bits.Add64(second, binary.LittleEndian.Uint64(b[48:]), d)
		second, d = bits.Add64(second, binary.LittleEndian.Uint64(b[56:]), d)
		carries += d
		b = b[64:]
	}
	for len(b) >= 8 {
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(b), 0)
		carries += c
		b = b[8:]
	}
	if len(b) >= 4 {
		carries += uint64(binary.LittleEndian.Uint32(b)) // room enough: no carry
		b = b[4:]
	}
	if len(b) >= 2 {
		carries += uint64(binary.LittleEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) > 0 {
		carries += uint64(b[0])
	}
	acc, c = bits.Add64(acc, second, 0)
	carries += c
	acc, c = bits.Add64(acc, carries, 0)
	return bits.ReverseBytes16(Fold(acc + c)) // carries is small: no second carry
}

// Fold reduces a sum of 16-bit, 32-bit or 64-bit big-endian words to 16 bits with the
// carries added back (RFC 1071 section 2 (A)). Only zero folds to zero.
func Fold(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff // at most 33 bits before, 18 after
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return uint16(sum)
}

// PseudoHeader returns the folded sum of the pseudo-header that TCP, UDP,
// ICMPv6, DCCP and UDP-Lite put before their own bytes when they compute a
// checksum (RFC 9293 section 3.1, RFC 768, RFC 8200 section 8.1), not
// complemented. The length is that of the transport header and its payload.
// It is also exactly what a packet with an unfinished checksum holds in its
// checksum field.
func PseudoHeader(src, dst netip.Addr, proto uint8, length int) uint16 {
	sum := uint64(proto) + uint64(uint32(length))
	if src.Is4() {
		s, d := src.As4(), dst.As4()
		return Fold(sum + uint64(binary.BigEndian.Uint32(s[:])) + uint64(binary.BigEndian.Uint32(d[:])))
	}
	s, d := src.As16(), dst.As16()
	return Sum(s[:], Sum(d[:], Fold(sum)))
}

// Update returns the checksum that results from check when one 16-bit word
// under it changes from before to after (RFC 1624 section 3, equation 3). A
// value that starts at an odd offset of the summed bytes is passed with its
// two bytes swapped, before and after alike.
func Update(check, before, after uint16) uint16 {
	return adjust(check, uint64(^before)+uint64(after))
}

// adjust applies a change to a checksum field. The change is the sum, over the
// words that changed, of the complement of the old and of the new value, in
// any width from 16 to 64 bits: all are congruent modulo 0xffff.
func adjust(check uint16, change uint64) uint16 {
	return ^Fold(uint64(^check) + uint64(Fold(change)))
}
