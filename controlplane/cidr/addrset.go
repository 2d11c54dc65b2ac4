package cidr

import (
	"net/netip"
	"slices"
	"sort"
)

// addrSet is a set of addresses of one family: spans in ascending order, which
// neither overlap nor touch. Addresses that are handed out one after the other
// make few spans, whatever their number.
type addrSet []span

// span is all addresses from the first to the last.
type span struct{ first, last netip.Addr }

// search returns the index of the first span that ends at a or behind it.
func (s addrSet) search(a netip.Addr) int {
	return sort.Search(len(s), func(i int) bool { return !s[i].last.Less(a) })
}

// firstAbsent returns the first address from first to last that is not in s.
func (s addrSet) firstAbsent(first, last netip.Addr) (netip.Addr, bool) {
	if i := s.search(first); i < len(s) && !first.Less(s[i].first) {
		// Spans do not touch, so what follows one is absent.
		first = s[i].last.Next()
	}
	// There is nothing behind the last address of a family.
	return first, first.IsValid() && !last.Less(first)
}

// add adds an address that is not in s.
func (s *addrSet) add(a netip.Addr) {
	i := s.search(a) // the span behind a
	left := i > 0 && (*s)[i-1].last.Next() == a
	right := i < len(*s) && a.Next() == (*s)[i].first
	switch {
	case left && right:
		(*s)[i-1].last = (*s)[i].last
		*s = slices.Delete(*s, i, i+1)
	case left:
		(*s)[i-1].last = a
	case right:
		(*s)[i].first = a
	default:
		*s = slices.Insert(*s, i, span{a, a})
	}
}

// remove removes an address that is in s.
func (s *addrSet) remove(a netip.Addr) {
	i := s.search(a)
	whole := (*s)[i]
	switch {
	case whole.first == whole.last:
		*s = slices.Delete(*s, i, i+1)
	case a == whole.first:
		(*s)[i].first = a.Next()
	case a == whole.last:
		(*s)[i].last = a.Prev()
	default:
		(*s)[i].last = a.Prev()
		*s = slices.Insert(*s, i+1, span{a.Next(), whole.last})
	}
}
