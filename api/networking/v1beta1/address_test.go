package v1beta1_test

import (
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestAddress(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   v1beta1.Address
		want netip.Addr // invalid: an error is wanted
	}{
		{"IPv4", "10.243.0.7", netip.MustParseAddr("10.243.0.7")},
		{"IPv6", "fd00:1::7", netip.MustParseAddr("fd00:1::7")},
		{"IPv6 with the last 32 bits as IPv4", "64:ff9b::192.0.2.1", netip.MustParseAddr("64:ff9b::c000:201")},
		{"nothing", "", netip.Addr{}},
		{"a prefix", "10.0.0.0/8", netip.Addr{}},
		{"a zone", "fe80::1%eth0", netip.Addr{}},
		{"IPv4 in IPv6 form", "::ffff:10.0.0.1", netip.Addr{}},
		{"leading zeros", "010.0.0.1", netip.Addr{}},
		{"a name", "gateway.example.org", netip.Addr{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.in.Addr()
			if got != tt.want || (err == nil) != tt.want.IsValid() {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

func TestCIDR(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   v1beta1.CIDR
		want netip.Prefix // invalid: an error is wanted
	}{
		{"IPv4", "10.243.0.0/16", netip.MustParsePrefix("10.243.0.0/16")},
		{"IPv6", "fd00:1::/48", netip.MustParsePrefix("fd00:1::/48")},
		{"host bits are kept", "10.243.0.7/16", netip.MustParsePrefix("10.243.0.7/16")},
		{"nothing", "", netip.Prefix{}},
		{"an address", "10.0.0.0", netip.Prefix{}},
		{"too long", "10.0.0.0/33", netip.Prefix{}},
		{"IPv4 in IPv6 form", "::ffff:10.0.0.0/104", netip.Prefix{}},
		{"leading zeros", "010.0.0.0/8", netip.Prefix{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.in.Prefix()
			if got != tt.want || (err == nil) != tt.want.IsValid() {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// TestAddressPattern compares the pattern in the CRD with netip, over addresses and over what mistyping makes of them.
func TestAddressPattern(t *testing.T) {
	pattern := schemaAt(t, readCRD(t, "InternalFabric"), "spec", "gatewayIP").Pattern
	re, err := regexp.Compile(pattern)
	if err != nil || pattern == "" {
		t.Fatalf("pattern %q: %v", pattern, err)
	}
	const alphabet = "0123456789abcdefABCDEF::::....%/ g"
	rnd := rand.New(rand.NewPCG(1, 2))
	seeds := []string{
		"10.243.0.7", "255.255.255.255", "256.1.1.1", "::", "::1", "1::", "fd00:1::7", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::",
		"::2:3:4:5:6:7:8", "1::3:4:5:6:7:8", "1:2:3:4:5:6::8", "1:2:3:4:5:6:7:8:9", "1::2::3", ":::", "1:2:3:4:5:6:1.2.3.4",
		"::1.2.3.4", "64:ff9b::192.0.2.1", "1:2:3:4:5:6:7:1.2.3.4", "::ffff:1.2.3.4", "", "fe80::1%eth0",
	}
	valid := 0
	check := func(s string) {
		addr, err := netip.ParseAddr(s)
		want := err == nil && addr.Zone() == ""
		if re.MatchString(s) != want {
			t.Errorf("pattern matches %q: %v, netip accepts it: %v", s, !want, want)
		}
		if want {
			valid++
		}
	}
	for _, s := range seeds {
		check(s)
	}
	for range 50_000 {
		s := []byte(seeds[rnd.IntN(len(seeds))])
		for range 1 + rnd.IntN(3) {
			at := rnd.IntN(len(s) + 1)
			switch c := alphabet[rnd.IntN(len(alphabet))]; {
			case rnd.IntN(2) == 0:
				s = append(s[:at], append([]byte{c}, s[at:]...)...)
			case at < len(s):
				s[at] = c
			}
		}
		check(string(s))
	}
	if valid < 1000 {
		t.Errorf("only %d of the strings were addresses: the comparison says little", valid)
	}
	if !strings.HasPrefix(pattern, "^") || !strings.HasSuffix(pattern, "$") {
		t.Errorf("pattern %q is not anchored", pattern)
	}
}
