package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

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

// plainFlagError says what a flag takes instead of how parsing failed.
func plainFlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	name, value := invalid.GetFlag().Name, invalid.GetValue()
	switch invalid.GetFlag().Value.Type() {
	case "CIDR", "CIDRs":
		return fmt.Errorf("--%s: %w", name, errors.Unwrap(invalid))
	case "bool":
		return fmt.Errorf("--%s: %q is neither true nor false", name, value)
	case "duration":
		return fmt.Errorf("--%s: %q is not a time, such as 15s or 1m", name, value)
	case "int", "float32":
		return fmt.Errorf("--%s: %q is not a number", name, value)
	}
	return err
}

// checkAddresses brings the addresses of the servers into the form of
// [controllers.Options], where empty is off.
func (o *options) checkAddresses() error {
	metrics, err := listenAddress(&o.MetricsAddress)
	if err != nil {
		return usagef("--metrics-address: %w", err)
	}
	health, err := listenAddress(&o.HealthProbeAddress)
	if err != nil {
		return usagef("--health-probe-address: %w", err)
	}
	if overlap(metrics, health) {
		return usagef("--metrics-address and --health-probe-address ask for the same TCP port %d", metrics.Port())
	}
	return nil
}

// listenAddress reads "IP:port", ":port" for all addresses, or one of the words
// that mean off, for which s becomes empty.
func listenAddress(s *string) (netip.AddrPort, error) {
	switch *s {
	case "", "0", "off":
		*s = ""
		return netip.AddrPort{}, nil
	}
	text := *s
	if port, ok := strings.CutPrefix(text, ":"); ok {
		text = "[::]:" + port
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return a, fmt.Errorf("%q is not IP:port, such as 127.0.0.1:8080", *s)
	}
	return a, nil
}

// overlap tells whether two servers cannot listen both.
func overlap(a, b netip.AddrPort) bool {
	return a.IsValid() && b.IsValid() && a.Port() == b.Port() && a.Port() != 0 &&
		(a.Addr() == b.Addr() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}
