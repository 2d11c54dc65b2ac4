package nat

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/nat/packet"
)

// maxLinear is up to how many prefixes a scan is used: below about this many it
// is faster than a binary search, whose branches cannot be predicted.
const maxLinear = 8

// prefix is one direction of a Mapping, prepared so that both the match and the
// translation are two operations in either family.
type prefix struct {
	base, mask packet.Number
	// flip is base XOR the other side's base: XOR with it exchanges the
	// network bits and keeps the host bits.
	flip packet.Number
}

func newPrefix(from, to netip.Prefix) prefix {
	base, other := packet.NumberOf(from.Addr()), packet.NumberOf(to.Addr())
	return prefix{
		base: base,
		mask: mask(from.Bits(), from.Addr().BitLen()),
		flip: packet.Number{Hi: base.Hi ^ other.Hi, Lo: base.Lo ^ other.Lo},
	}
}

// mask returns the netmask of a prefix length in a family of 32 or 128 bits.
func mask(bits, family int) packet.Number {
	host := family - bits
	// A shift by 64 or more gives zero: no case for the halves is needed.
	m := packet.Number{Hi: ^uint64(0), Lo: ^uint64(0) << host}
	if host > 64 {
		m.Hi <<= host - 64
	}
	return m
}

// prefixes is a set of prefixes of which no two overlap. Sorted by base, and
// one list per family, because the numbers alone do not tell the family.
type prefixes struct{ v4, v6 []prefix }

func newPrefixes(mappings []Mapping, toOutside bool) (s prefixes) {
	for _, m := range mappings {
		p := newPrefix(m.Outside, m.Inside)
		if toOutside {
			p = newPrefix(m.Inside, m.Outside)
		}
		if m.Inside.Addr().Is4() {
			s.v4 = append(s.v4, p)
		} else {
			s.v6 = append(s.v6, p)
		}
	}
	byBase := func(p, q prefix) int {
		return cmp.Or(cmp.Compare(p.base.Hi, q.base.Hi), cmp.Compare(p.base.Lo, q.base.Lo))
	}
	slices.SortFunc(s.v4, byBase)
	slices.SortFunc(s.v6, byBase)
	return s
}

// translate maps an address from the side it is looked up on to the other one,
// and reports whether a prefix contains it.
func (s *prefixes) translate(a netip.Addr) (netip.Addr, bool) {
	is4, list := a.Is4(), s.v6
	if is4 {
		list = s.v4
	}
	if len(list) == 0 { // among others for the zero Addr, which has no family
		return netip.Addr{}, false
	}
	n := packet.NumberOf(a)
	if len(list) > maxLinear {
		list = narrow(list, n)
	}
	for i := range list {
		p := &list[i]
		if n.Hi&p.mask.Hi == p.base.Hi && n.Lo&p.mask.Lo == p.base.Lo {
			return packet.Number{Hi: n.Hi ^ p.flip.Hi, Lo: n.Lo ^ p.flip.Lo}.Addr(is4), true
		}
	}
	return netip.Addr{}, false
}

// narrow returns the one prefix of the list that can contain the address: as
// none overlap, it is the last one that does not start behind it. It returns
// none if all do.
func narrow(list []prefix, n packet.Number) []prefix {
	lo, hi := 0, len(list)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if base := &list[mid].base; base.Hi < n.Hi || base.Hi == n.Hi && base.Lo <= n.Lo {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return list[max(lo-1, 0):lo]
}

// hosts maps single addresses. The keys are numbers rather than netip.Addr, as
// they hash in a fraction of the time.
type hosts struct {
	v4 map[uint32]netip.Addr
	v6 map[[16]byte]netip.Addr
}

func newHosts(mappings []Mapping, toOutside bool) hosts {
	h := hosts{v4: make(map[uint32]netip.Addr), v6: make(map[[16]byte]netip.Addr)}
	for _, m := range mappings {
		from, to := m.Outside.Addr(), m.Inside.Addr()
		if toOutside {
			from, to = to, from
		}
		if from.Is4() {
			h.v4[uint32(packet.NumberOf(from).Lo)] = to
		} else {
			h.v6[from.As16()] = to
		}
	}
	return h
}

// translate maps an address from the side it is looked up on to the other one.
func (h *hosts) translate(a netip.Addr) (to netip.Addr, ok bool) {
	switch {
	case a.Is4():
		to, ok = h.v4[uint32(packet.NumberOf(a).Lo)]
	case a.Is6():
		to, ok = h.v6[a.As16()]
	}
	return to, ok
}
