package manifests

import (
	"fmt"
	"net/netip"
)

// ParsePrefix reads a prefix as the data plane takes it: masked, of its own family
// and routable. why is what is wrong with it, for the end of a sentence; empty:
// nothing.
func ParsePrefix(s string) (p netip.Prefix, why string) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, "is not a prefix such as 10.243.0.0/16 or fd00:10::/64"
	case p.Addr().Is4In6():
		return p, "is an IPv4-mapped IPv6 prefix: write it as IPv4"
	case p.Masked() != p:
		return p, fmt.Sprintf("has bits set behind its length: %s is meant?", p.Masked())
	}
	switch a := p.Addr(); {
	case a.IsUnspecified(), a.IsLoopback(), a.IsMulticast(), a.IsLinkLocalUnicast(), p.Bits() == 0:
		return p, "cannot be routed between clusters"
	}
	return p, ""
}

// ParseAddr reads the address of a host, as ParsePrefix reads a prefix.
func ParseAddr(s string) (a netip.Addr, why string) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return a, "is not an IP address"
	case a.Zone() != "":
		return a, "must have no zone"
	case a.Is4In6():
		return a, "is an IPv4-mapped IPv6 address: write it as " + a.Unmap().String()
	case a.IsUnspecified(), a.IsMulticast():
		return a, "is not the address of a host"
	}
	return a, ""
}
