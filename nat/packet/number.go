package packet

import (
	"encoding/binary"
	"net/netip"
)

// Number is an IP address as a number of 128 bits, to calculate with. IPv4 occupies
// the low 32 bits, so that a Number alone does not tell the family.
type Number struct{ Hi, Lo uint64 }

// NumberOf returns an address as a number; that of the zero Addr is zero.
func NumberOf(a netip.Addr) Number {
	if a.Is4() {
		v := a.As4()
		return Number{Lo: uint64(binary.BigEndian.Uint32(v[:]))}
	}
	v := a.As16()
	return Number{binary.BigEndian.Uint64(v[:]), binary.BigEndian.Uint64(v[8:])}
}

// Addr returns the address of a family that the number stands for.
func (n Number) Addr(is4 bool) netip.Addr {
	if is4 {
		return netip.AddrFrom4([4]byte{byte(n.Lo >> 24), byte(n.Lo >> 16), byte(n.Lo >> 8), byte(n.Lo)})
	}
	var v [16]byte
	binary.BigEndian.PutUint64(v[:], n.Hi)
	binary.BigEndian.PutUint64(v[8:], n.Lo)
	return netip.AddrFrom16(v)
}
