package cidr

import (
	"fmt"
	"net/netip"
)

// Addresses hands out addresses of one prefix, each to one owner.
//
// A new owner gets the next free address after the one handed out last, and
// behind the end it starts again at the beginning. The lowest free address would
// often be one that was released a moment ago, and packets of its old owner's
// connections may still be under way to it. After a restart, the highest address
// restored counts as the one handed out last, so that the result depends on what
// is held and not on the order of restoring.
type Addresses struct {
	prefix      netip.Prefix
	first, last netip.Addr // of those that are handed out; invalid if there are none
	previous    netip.Addr // handed out last; invalid if there was none
	held        addrSet
	byOwner     map[string]netip.Addr
	byAddr      map[netip.Addr]string
}

// AddressOption restricts what [Addresses] hands out.
type AddressOption func(*Addresses)

// WithReserved keeps the first n addresses of the prefix.
func WithReserved(n int) AddressOption {
	return func(s *Addresses) {
		first := plus(s.prefix.Addr(), uint64(max(n, 0)))
		switch {
		case !s.prefix.Contains(first):
			s.first = netip.Addr{} // more than there are
		case s.first.Less(first) && s.first.IsValid():
			s.first = first
		}
	}
}

// WithoutEnds keeps the first and the last address of the prefix: the network
// and the broadcast address of IPv4, which some hosts refuse, and the anycast
// address of routers of IPv6 (RFC 4291, section 2.6.1).
func WithoutEnds() AddressOption {
	return func(s *Addresses) {
		if s.first == s.prefix.Addr() {
			s.first = s.first.Next()
		}
		s.last = s.last.Prev()
	}
}

// NewAddresses returns the addresses of a prefix, all free. Host bits of the
// prefix are ignored. It panics if the prefix is not valid.
func NewAddresses(prefix netip.Prefix, o ...AddressOption) *Addresses {
	if !prefix.IsValid() {
		panic("cidr: not a prefix: " + prefix.String())
	}
	prefix = prefix.Masked()
	s := &Addresses{
		prefix: prefix, first: prefix.Addr(), last: lastOf(prefix),
		byOwner: make(map[string]netip.Addr), byAddr: make(map[netip.Addr]string),
	}
	for _, option := range o {
		option(s)
	}
	return s
}

// Prefix is where the addresses come from.
func (s *Addresses) Prefix() netip.Prefix { return s.prefix }

// Len is how many addresses are held.
func (s *Addresses) Len() int { return len(s.byOwner) }

// Get returns what the owner holds.
func (s *Addresses) Get(owner string) (netip.Addr, bool) {
	a, ok := s.byOwner[owner]
	return a, ok
}

// Owner returns who holds an address.
func (s *Addresses) Owner(a netip.Addr) (string, bool) {
	o, ok := s.byAddr[a]
	return o, ok
}

// Acquire gives the owner an address, or the one that it holds already. The
// error is a [*FullError].
func (s *Addresses) Acquire(owner string) (netip.Addr, error) {
	if a, ok := s.byOwner[owner]; ok {
		return a, nil
	}
	a, ok := netip.Addr{}, false
	if s.first.IsValid() && s.last.IsValid() {
		if s.previous.IsValid() {
			a, ok = s.held.firstAbsent(later(s.previous.Next(), s.first), s.last)
		}
		if !ok {
			a, ok = s.held.firstAbsent(s.first, s.last)
		}
	}
	if !ok {
		return netip.Addr{}, &FullError{Prefix: s.prefix, Held: len(s.byOwner)}
	}
	s.hold(owner, a)
	s.previous = a
	return a, nil
}

// Restore gives the owner exactly this address, also one that is never handed
// out: what was given once stays given. It fails with a [*TakenError] if another
// owner holds the address, and otherwise if the address is not of the prefix or
// the owner holds another one.
func (s *Addresses) Restore(owner string, a netip.Addr) error {
	if !s.prefix.Contains(a) {
		return fmt.Errorf("address %s is not in %s", a, s.prefix)
	}
	if other, ok := s.byAddr[a]; ok && other != owner {
		return &TakenError{Addr: a, Owner: other}
	}
	if have, ok := s.byOwner[owner]; ok && have != a {
		return fmt.Errorf("%s holds %s already", owner, have)
	} else if ok {
		return nil
	}
	s.hold(owner, a)
	s.previous = later(s.previous, a)
	return nil
}

// Release takes the address from its owner, who need not hold one.
func (s *Addresses) Release(owner string) {
	a, ok := s.byOwner[owner]
	if !ok {
		return
	}
	s.held.remove(a)
	delete(s.byOwner, owner)
	delete(s.byAddr, a)
}

func (s *Addresses) hold(owner string, a netip.Addr) {
	s.held.add(a)
	s.byOwner[owner], s.byAddr[a] = a, owner
}

// later returns the higher of two addresses. The zero Addr, which follows the
// last address of a family, counts as the lowest.
func later(a, b netip.Addr) netip.Addr {
	if a.Compare(b) > 0 {
		return a
	}
	return b
}

// lastOf is the highest address of a masked prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b) // 4 or 16 bytes, as they came
	return a
}

// plus returns the address n behind a, or the zero Addr if there is none.
func plus(a netip.Addr, n uint64) netip.Addr {
	b := a.AsSlice()
	for i := len(b) - 1; i >= 0 && n != 0; i-- {
		n += uint64(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	if n != 0 {
		return netip.Addr{}
	}
	a, _ = netip.AddrFromSlice(b)
	return a
}
