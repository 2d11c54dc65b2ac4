package cidr

import "net/netip"

// unroutable is space that means something else in every host or cluster, so
// that none may be handed to another (RFC 6890): "this network", loopback,
// link-local - the ends of the tunnel, 169.254.18.0/30, among it -, multicast
// with what is reserved behind it, the unspecified address, and IPv4 in the
// clothes of IPv6.
var unroutable = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/127"),
	netip.MustParsePrefix("::ffff:0:0/96"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// Routable returns a [*UnusableError] for a prefix that cannot be routed between
// clusters, wholly or in part, or is none.
func Routable(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return &UnusableError{Prefix: p, Why: "is not a prefix"}
	case p != p.Masked():
		return &UnusableError{Prefix: p, Why: "has bits set behind its length: write " + p.Masked().String()}
	}
	for _, u := range unroutable {
		if p.Overlaps(u) {
			return &UnusableError{Prefix: p, Why: "overlaps " + u.String() + ", which cannot be routed between clusters"}
		}
	}
	return nil
}

// insideUnroutable tells whether nothing of p can be granted to anybody.
func insideUnroutable(p netip.Prefix) bool {
	for _, u := range unroutable {
		if p.IsValid() && p.Overlaps(u) && p.Bits() >= u.Bits() {
			return true
		}
	}
	return false
}

// NetworkOf is how large the network of a host usually is that has an address.
func NetworkOf(a netip.Addr) netip.Prefix {
	bits := 24
	if a.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(a, bits).Masked()
}
