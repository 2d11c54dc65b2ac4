package cidr_test

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/controlplane/cidr"
)

// slowAllocator is the obvious allocator: a list that is searched from end to
// end. It is what Allocator is compared with.
type slowAllocator struct {
	pools  []netip.Prefix
	grants []cidr.Grant
}

func (s *slowAllocator) get(owner string) (cidr.Grant, bool) {
	i := slices.IndexFunc(s.grants, func(g cidr.Grant) bool { return g.Owner == owner })
	if i < 0 {
		return cidr.Grant{}, false
	}
	return s.grants[i], true
}

func (s *slowAllocator) overlaps(p netip.Prefix, counts func(cidr.Grant) bool) bool {
	return slices.ContainsFunc(s.grants, func(g cidr.Grant) bool { return counts(g) && g.Prefix.Overlaps(p) })
}

func (s *slowAllocator) used(p netip.Prefix) bool {
	return s.overlaps(p, func(cidr.Grant) bool { return true })
}

func (s *slowAllocator) acquire(owner string, r cidr.Request) (netip.Prefix, bool) {
	if g, ok := s.get(owner); ok {
		return g.Prefix, true
	}
	p, ok := r.Prefix, true
	if !r.Shared && s.used(p) {
		if r.NotRemapped {
			return netip.Prefix{}, false
		}
		ok = false
		for _, pool := range s.pools {
			if pool.Addr().Is4() == r.Prefix.Addr().Is4() && !ok {
				p, ok = s.first(pool, r.Prefix.Bits())
			}
		}
	}
	if ok {
		s.grants = append(s.grants, cidr.Grant{Owner: owner, Prefix: p, Shared: r.Shared})
	}
	return p, ok
}

// first goes through a block half by half, the half in use first.
func (s *slowAllocator) first(block netip.Prefix, bits int) (netip.Prefix, bool) {
	switch {
	case block.Bits() > bits:
		return netip.Prefix{}, false
	case !s.used(block):
		return netip.PrefixFrom(block.Addr(), bits), true
	case block.Bits() == bits:
		return netip.Prefix{}, false
	}
	one, two := halves(block)
	if !s.used(one) && s.used(two) {
		one, two = two, one
	}
	if p, ok := s.first(one, bits); ok {
		return p, true
	}
	return s.first(two, bits)
}

func halves(p netip.Prefix) (left, right netip.Prefix) {
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	second, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), p.Bits()+1), netip.PrefixFrom(second, p.Bits()+1)
}

func (s *slowAllocator) restore(owner string, p netip.Prefix, shared bool) bool {
	if g, ok := s.get(owner); ok {
		return g.Prefix == p && g.Shared == shared
	}
	if !shared && s.overlaps(p, func(g cidr.Grant) bool { return !g.Shared }) {
		return false
	}
	s.grants = append(s.grants, cidr.Grant{Owner: owner, Prefix: p, Shared: shared})
	return true
}

func (s *slowAllocator) release(owner string) {
	s.grants = slices.DeleteFunc(s.grants, func(g cidr.Grant) bool { return g.Owner == owner })
}
