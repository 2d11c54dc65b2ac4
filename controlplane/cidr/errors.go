package cidr

import (
	"fmt"
	"net/netip"
	"strings"
)

// UnusableError says that a prefix can be granted to nobody.
type UnusableError struct {
	Prefix netip.Prefix
	// Why is the rest of a sentence that begins with the prefix.
	Why string
}

func (e *UnusableError) Error() string { return e.Prefix.String() + " " + e.Why }

// OverlapError says that others hold space of a prefix.
type OverlapError struct {
	Prefix netip.Prefix
	// With is some of them, at least one: those that contain the prefix, the
	// largest first, then those inside, from left to right.
	With []Grant
	// More tells that there are more.
	More bool
}

func (e *OverlapError) Error() string {
	return fmt.Sprintf("%s overlaps %s", e.Prefix, list(e.With, e.More))
}

// ExhaustedError says that a prefix is in use, or in no pool, and that no pool has
// a free one of its length to stand for it.
type ExhaustedError struct {
	Prefix netip.Prefix
	// Overlap is why the prefix itself was not granted; nil if it is in no pool.
	Overlap *OverlapError
	// Pools are those of the family of the prefix.
	Pools []netip.Prefix
}

func (e *ExhaustedError) Error() string {
	p, why := e.Prefix, e.Prefix.String()+" is in no pool"
	if e.Overlap != nil {
		why = e.Overlap.Error()
	}
	if len(e.Pools) == 0 {
		family := "IPv6"
		if p.Addr().Is4() {
			family = "IPv4"
		}
		return fmt.Sprintf("%s, and there is no pool of %s prefixes to take another from", why, family)
	}
	pools := make([]string, len(e.Pools))
	for i, pool := range e.Pools {
		pools[i] = pool.String()
	}
	return fmt.Sprintf("%s, and no pool (%s) has a free /%d to stand for it", why, strings.Join(pools, ", "), p.Bits())
}

// list names grants: "10.42.0.0/16 of a, 10.43.0.0/16 of b and others".
func list(gs []Grant, more bool) string {
	var b strings.Builder
	for i, g := range gs {
		switch {
		case i == 0:
		case i == len(gs)-1 && !more:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(g.Prefix.String() + " of " + g.Owner)
	}
	if more {
		b.WriteString(" and others")
	}
	return b.String()
}

// FullError says that a prefix has no free address.
type FullError struct {
	Prefix netip.Prefix
	// Held is how many of its addresses are held.
	Held int
}

func (e *FullError) Error() string {
	return fmt.Sprintf("no address of %s is free: %d are held", e.Prefix, e.Held)
}

// TakenError says that another owner holds an address.
type TakenError struct {
	Addr  netip.Addr
	Owner string
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("address %s is held by %s", e.Addr, e.Owner)
}
