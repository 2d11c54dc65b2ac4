package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/controlplane/cidr"
)

// prefixFlag takes one prefix.
type prefixFlag struct{ to *netip.Prefix }

// Set implements pflag.Value.
func (f prefixFlag) Set(s string) (err error) {
	*f.to, err = parsePrefix(s)
	return err
}

// String implements pflag.Value.
func (f prefixFlag) String() string { return f.to.String() }

// Type implements pflag.Value.
func (f prefixFlag) Type() string { return "CIDR" }

// prefixesFlag takes several prefixes, with commas or by repetition. They
// replace the default.
type prefixesFlag struct {
	to  *[]netip.Prefix
	set bool
}

// Set implements pflag.Value.
func (f *prefixesFlag) Set(s string) error {
	if !f.set {
		*f.to, f.set = nil, true
	}
	for text := range strings.SplitSeq(s, ",") {
		p, err := parsePrefix(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		*f.to = append(*f.to, p)
	}
	return nil
}

// String implements pflag.Value.
func (f *prefixesFlag) String() string {
	var texts []string
	for _, p := range *f.to {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ",")
}

// Type implements pflag.Value.
func (f *prefixesFlag) Type() string { return "CIDRs" }

// parsePrefix reads a prefix that a cluster can use.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q is not a CIDR, such as 10.244.0.0/16 or fd00:10:244::/56", s)
	}
	return p, cidr.Routable(p)
}
