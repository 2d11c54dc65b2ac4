package v1alpha1

import (
	"fmt"
	"net/netip"
)

// Address is one IPv4 or IPv6 address in its usual text form, without a zone.
//
// The check is a pattern, that of the type of the same name in networking.liqo.io (the grammar of RFC 3986, section
// 3.2.2), where a cheap one matters: the formats of OpenAPI know either family but not both.
//
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:Pattern=`^(((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])|(([0-9a-fA-F]{1,4}:){6}|::([0-9a-fA-F]{1,4}:){5}|([0-9a-fA-F]{1,4})?::([0-9a-fA-F]{1,4}:){4}|(([0-9a-fA-F]{1,4}:){0,1}[0-9a-fA-F]{1,4})?::([0-9a-fA-F]{1,4}:){3}|(([0-9a-fA-F]{1,4}:){0,2}[0-9a-fA-F]{1,4})?::([0-9a-fA-F]{1,4}:){2}|(([0-9a-fA-F]{1,4}:){0,3}[0-9a-fA-F]{1,4})?::([0-9a-fA-F]{1,4}:){1}|(([0-9a-fA-F]{1,4}:){0,4}[0-9a-fA-F]{1,4})?::)([0-9a-fA-F]{1,4}:[0-9a-fA-F]{1,4}|((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9]))|(([0-9a-fA-F]{1,4}:){0,5}[0-9a-fA-F]{1,4})?::[0-9a-fA-F]{1,4}|(([0-9a-fA-F]{1,4}:){0,6}[0-9a-fA-F]{1,4})?::)$`
type Address string

// Addr parses the address. It refuses what an API server's check lets through and what nothing in the data plane
// could match: an IPv4 address written in IPv6 form.
func (a Address) Addr() (netip.Addr, error) {
	addr, err := netip.ParseAddr(string(a))
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("address %q: not an IPv4 or IPv6 address", string(a))
	case addr.Zone() != "":
		return netip.Addr{}, fmt.Errorf("address %q: a zone has no meaning outside its host", string(a))
	case addr.Is4In6():
		return netip.Addr{}, fmt.Errorf("address %q: write the IPv4 address as %s", string(a), addr.Unmap())
	}
	return addr, nil
}

// CIDR is one IPv4 or IPv6 prefix in CIDR notation.
//
// +kubebuilder:validation:Format=cidr
type CIDR string

// Prefix parses the prefix as it is written, without masking: whether set host bits are an error is for the reader to
// decide, who knows which field it is. It is stricter than an API server, which reads 010.0.0.0/8 as 10.0.0.0/8.
func (c CIDR) Prefix() (netip.Prefix, error) {
	p, err := netip.ParsePrefix(string(c))
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("CIDR %q: not an IPv4 or IPv6 prefix", string(c))
	case p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("CIDR %q: write the IPv4 prefix in IPv4 form", string(c))
	}
	return p, nil
}
