package cidr

import (
	"fmt"
	"net/netip"
	"slices"
)

// DefaultPools is where prefixes come from that stand for others: the space that
// RFC 1918 sets apart for private networks, and for IPv6 a part of what RFC 4193
// does. The latter is chosen at random, as the RFC asks: nobody's networks are
// likely there, while the beginning of fd00::/8 is where people put theirs. It is
// larger than the /48 of the RFC, as a single cluster may use one whole.
func DefaultPools() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("fd50:52ea::/32"),
	}
}

// Allocator grants prefixes to owners.
//
// What it grants depends on nothing but what is held, so the same requests in the
// same order get the same answers.
type Allocator struct {
	pools  []netip.Prefix
	v4, v6 space
	grants map[string]Grant
}

// Grant is a prefix and who holds it.
type Grant struct {
	Owner  string
	Prefix netip.Prefix
	// Shared tells that it may overlap what others hold.
	Shared bool
}

// Request is what an owner asks for.
type Request struct {
	Prefix netip.Prefix
	// NotRemapped asks for exactly this prefix or none.
	NotRemapped bool
	// Shared asks for the prefix even if others hold space of it. Others get none
	// of it any more: it reserves what is left.
	Shared bool
	// Pooled asks for another prefix if this one is in no pool: see
	// [Allocator.Pooled].
	Pooled bool
	// OverShared asks for the prefix even if it holds space that is shared.
	OverShared bool
}

// private is space that no public network has: RFC 1918 and RFC 6598.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
}

// uniqueLocal is the private space of IPv6 (RFC 4193). Prefixes of it are chosen at
// random, so nobody else means one of them.
var uniqueLocal = netip.MustParsePrefix("fc00::/7")

// NewAllocator returns an allocator with these pools, in the order in which they
// are used up. They may overlap.
func NewAllocator(pools []netip.Prefix) (*Allocator, error) {
	for _, p := range pools {
		if err := Routable(p); err != nil {
			return nil, fmt.Errorf("pool %w", err)
		}
	}
	return &Allocator{pools: slices.Clone(pools), grants: make(map[string]Grant)}, nil
}

// Pools are the pools, in order.
func (a *Allocator) Pools() []netip.Prefix { return slices.Clone(a.pools) }

// Len is how many owners hold a prefix.
func (a *Allocator) Len() int { return len(a.grants) }

// Get returns what the owner holds.
func (a *Allocator) Get(owner string) (Grant, bool) {
	g, ok := a.grants[owner]
	return g, ok
}

// Pooled tells whether a prefix is in a pool, so that nobody outside of the cluster
// is meant by it. IPv6 prefixes of unique local addresses count, too; and where a
// family has no pool, all private ones do.
func (a *Allocator) Pooled(p netip.Prefix) bool {
	pools := a.poolsLike(p)
	if len(pools) == 0 {
		pools = private
	}
	return slices.ContainsFunc(append(pools, uniqueLocal), func(pool netip.Prefix) bool {
		return pool.Overlaps(p) && pool.Bits() <= p.Bits()
	})
}

// Acquire gives the owner a prefix, or the one that it holds already. That is the
// prefix asked for if it is free, whether in a pool or not; otherwise the first
// free one of the same length in the pools. The error is an [*UnusableError], an
// [*OverlapError] for a prefix that must not be remapped, or an [*ExhaustedError].
func (a *Allocator) Acquire(owner string, r Request) (netip.Prefix, error) {
	if g, ok := a.grants[owner]; ok {
		return g.Prefix, nil
	}
	if err := usable(r.Prefix, r.Shared); err != nil {
		return netip.Prefix{}, err
	}
	p := r.Prefix
	free := r.Shared || a.space(p).isFree(pathTo(p))
	var overlap *OverlapError
	if !free {
		overlap = a.overlap(p, func(h holder) bool { return !h.shared || !r.OverShared })
		free = overlap == nil
	}
	if !free || r.Pooled && !r.NotRemapped && !r.Shared && !a.Pooled(p) {
		if r.NotRemapped {
			return netip.Prefix{}, overlap
		}
		var ok bool
		if p, ok = a.firstFree(p); !ok {
			return netip.Prefix{}, &ExhaustedError{Prefix: r.Prefix, Overlap: overlap, Pools: a.poolsLike(r.Prefix)}
		}
	}
	a.hold(Grant{Owner: owner, Prefix: p, Shared: r.Shared})
	return p, nil
}

// Restore gives the owner exactly this prefix, which it was granted before. It
// fails with an [*OverlapError] if that overlaps what others hold and neither
// side is shared, with an [*UnusableError], or if the owner holds another one.
func (a *Allocator) Restore(owner string, p netip.Prefix, shared bool) error {
	if g, ok := a.grants[owner]; ok {
		if g.Prefix != p || g.Shared != shared {
			return fmt.Errorf("%s holds %s already", owner, g.Prefix)
		}
		return nil
	}
	if err := usable(p, shared); err != nil {
		return err
	}
	// What is shared may have been granted later, on top of this one.
	if !shared {
		if err := a.overlap(p, func(h holder) bool { return !h.shared }); err != nil {
			return err
		}
	}
	a.hold(Grant{Owner: owner, Prefix: p, Shared: shared})
	return nil
}

// Release takes the prefix from its owner, who need not hold one.
func (a *Allocator) Release(owner string) {
	g, ok := a.grants[owner]
	if !ok {
		return
	}
	a.space(g.Prefix).drop(pathTo(g.Prefix), owner)
	delete(a.grants, owner)
}

// LargestFree returns the length of the largest prefix that is free in a pool.
func (a *Allocator) LargestFree(pool netip.Prefix) (bits int, ok bool) {
	n, open := a.space(pool).find(pathTo(pool))
	bits = int(n.free(pool.Bits()))
	return bits, open && bits <= pool.Addr().BitLen()
}

// usable is Routable, but for what is wholly unroutable and shared: to reserve
// what is never granted anyway is no mistake.
func usable(p netip.Prefix, shared bool) error {
	if shared && p == p.Masked() && insideUnroutable(p) {
		return nil
	}
	return Routable(p)
}

func (a *Allocator) space(p netip.Prefix) *space {
	if p.Addr().Is4() {
		return &a.v4
	}
	return &a.v6
}

func (a *Allocator) hold(g Grant) {
	a.space(g.Prefix).hold(pathTo(g.Prefix), holder{owner: g.Owner, shared: g.Shared})
	a.grants[g.Owner] = g
}

// poolsLike returns the pools of the family of p.
func (a *Allocator) poolsLike(p netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(a.pools), func(pool netip.Prefix) bool { return pool.Addr().Is4() != p.Addr().Is4() })
}

// firstFree returns the first free prefix of the family and length of p.
func (a *Allocator) firstFree(p netip.Prefix) (netip.Prefix, bool) {
	s := a.space(p)
	for _, pool := range a.poolsLike(p) {
		if w, ok := s.firstFree(pathTo(pool), p.Bits()); ok {
			addr, _ := netip.AddrFromSlice(w.addr[:p.Addr().BitLen()/8]) // 4 or 16 bytes
			return netip.PrefixFrom(addr, w.bits), true
		}
	}
	return netip.Prefix{}, false
}

// maxNamed is how many grants an error names: the reader needs one to begin with.
const maxNamed = 4

// overlap returns what is in the way of p, of the holders that count, or nil.
func (a *Allocator) overlap(p netip.Prefix, counts func(holder) bool) *OverlapError {
	e := &OverlapError{Prefix: p}
	a.space(p).visit(pathTo(p), func(h holder) bool {
		if !counts(h) {
			return true
		}
		if e.More = len(e.With) == maxNamed; !e.More {
			e.With = append(e.With, a.grants[h.owner])
		}
		return !e.More
	})
	if len(e.With) == 0 {
		return nil
	}
	return e
}
