package nat

import (
	"cmp"
	"encoding/binary"
	"net/netip"
)

// maxLinear is up to how many prefixes a scan is used: below about this many it
// is faster than a binary search, whose branches cannot be predicted.
const maxLinear = 8

// address is an IP address as a number. IPv4 occupies the low 32 bits.
type address struct{ hi, lo uint64 }

func newAddress(a netip.Addr) address {
	if a.Is4() {
		v := a.As4()
		return address{lo: uint64(binary.BigEndian.Uint32(v[:]))}
	}
	v := a.As16()
	return address{binary.BigEndian.Uint64(v[:]), binary.BigEndian.Uint64(v[8:])}
}

func (a address) netip(is4 bool) netip.Addr {
	if is4 {
		return netip.AddrFrom4([4]byte{byte(a.lo >> 24), byte(a.lo >> 16), byte(a.lo >> 8), byte(a.lo)})
	}
	var v [16]byte
	binary.BigEndian.PutUint64(v[:], a.hi)
	binary.BigEndian.PutUint64(v[8:], a.lo)
	return netip.AddrFrom16(v)
}

// prefix is one direction of a Mapping, prepared so that both the match and the
// translation are two operations in either family.
type prefix struct {
	base, mask address
	// flip is base XOR the other side's base: XOR with it exchanges the
	// network bits and keeps the host bits.
	flip address
	is4  bool
}

func newPrefix(from, to netip.Prefix) prefix {
	base, other := newAddress(from.Addr()), newAddress(to.Addr())
	return prefix{
		base: base,
		mask: mask(from.Bits(), from.Addr().BitLen()),
		flip: address{base.hi ^ other.hi, base.lo ^ other.lo},
		is4:  from.Addr().Is4(),
	}
}

// mask returns the netmask of a prefix length in a family of 32 or 128 bits.
func mask(bits, family int) address {
	host := family - bits
	// A shift by 64 or more gives zero: no case for the halves is needed.
	m := address{hi: ^uint64(0), lo: ^uint64(0) << host}
	if host > 64 {
		m.hi <<= host - 64
	}
	return m
}

func (p prefix) contains(a address) bool {
	return a.hi&p.mask.hi == p.base.hi && a.lo&p.mask.lo == p.base.lo
}

// compare orders prefixes that do not overlap by address, IPv4 first.
func (p prefix) compare(q prefix) int {
	if p.is4 != q.is4 {
		if p.is4 {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(p.base.hi, q.base.hi), cmp.Compare(p.base.lo, q.base.lo))
}

// prefixes is a set of prefixes that do not overlap, sorted by compare.
type prefixes []prefix

// translate maps an address from the side it is looked up on to the other one,
// and reports whether a prefix contains it.
func (s prefixes) translate(a netip.Addr) (netip.Addr, bool) {
	is4, n := a.Is4(), newAddress(a)
	if len(s) > maxLinear {
		s = s.narrow(is4, n)
	}
	for i := range s {
		if p := &s[i]; p.is4 == is4 && p.contains(n) {
			return address{n.hi ^ p.flip.hi, n.lo ^ p.flip.lo}.netip(is4), true
		}
	}
	return netip.Addr{}, false
}

// narrow returns the one prefix that can contain the address: as none overlap,
// it is the last one that does not start behind it.
func (s prefixes) narrow(is4 bool, n address) prefixes {
	lo, hi := 0, len(s)
	key := prefix{base: n, is4: is4}
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if s[mid].compare(key) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return nil
	}
	return s[lo-1 : lo]
}
