package cidr

import (
	"fmt"
	"net/netip"
)

// Parse reads a prefix that a user wrote. The error says what to write instead, as
// "10.243.0.0/15 has host bits: use 10.242.0.0/15".
func Parse(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR, such as 10.243.0.0/16", text)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("%s has host bits: use %s", text, p.Masked())
	}
	return p, nil
}
