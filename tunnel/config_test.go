package tunnel

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func prefixes(texts ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range texts {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

func TestConfigNormalize(t *testing.T) {
	key := GeneratePrivateKey()
	peer := GeneratePrivateKey().Public()
	for _, tt := range []struct {
		name   string
		change func(*Config)
		err    string
	}{
		{"nothing but a key", func(c *Config) { *c = Config{PrivateKey: key} }, ""},
		{"everything", func(*Config) {}, ""},
		{"no private key", func(c *Config) { c.PrivateKey = PrivateKey{} }, "private key: missing"},
		{"own key as peer key", func(c *Config) { c.PeerKey = key.Public() }, "own public key"},
		{"endpoint before the peer's key", func(c *Config) { c.PeerKey = PublicKey{} }, ""},
		{"endpoint is a name", func(c *Config) { c.Endpoint = "a-b.example.:51820" }, ""},
		{"endpoint is IPv6", func(c *Config) { c.Endpoint = "[2001:db8::1]:51820" }, ""},
		{"endpoint without port", func(c *Config) { c.Endpoint = "192.0.2.1" }, "missing port"},
		{"endpoint with port 0", func(c *Config) { c.Endpoint = "192.0.2.1:0" }, "port"},
		{"endpoint with a big port", func(c *Config) { c.Endpoint = "192.0.2.1:65536" }, "port"},
		{"endpoint with a named port", func(c *Config) { c.Endpoint = "192.0.2.1:wireguard" }, "port"},
		{"endpoint without host", func(c *Config) { c.Endpoint = ":51820" }, "host name"},
		{"endpoint with a mistyped address", func(c *Config) { c.Endpoint = "192.0.2.256:1" }, "host name"},
		{"endpoint with a line break", func(c *Config) { c.Endpoint = "a\nprivate_key=00:1" }, "host name"},
		{"endpoint is the unspecified address", func(c *Config) { c.Endpoint = "0.0.0.0:1" }, "no address of a host"},
		{"endpoint is multicast", func(c *Config) { c.Endpoint = "[ff02::1]:1" }, "no address of a host"},
		{"endpoint with a very long name", func(c *Config) { c.Endpoint = strings.Repeat("a", 254) + ":1" }, "host name"},
		{"smallest MTU", func(c *Config) { c.MTU = 576 }, ""},
		{"largest MTU", func(c *Config) { c.MTU = 65475 }, ""},
		{"MTU too small", func(c *Config) { c.MTU = 575 }, "MTU: 575"},
		{"MTU too large", func(c *Config) { c.MTU = 65476 }, "MTU: 65476"},
		{"negative MTU", func(c *Config) { c.MTU = -1 }, "MTU: -1"},
		{"invalid prefix", func(c *Config) { c.AllowedIPs = []netip.Prefix{{}} }, "allowed IPs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{
				PrivateKey: key, PeerKey: peer, Endpoint: "192.0.2.1:51820", ListenPort: 51820, MTU: 1340,
				AllowedIPs: prefixes("10.0.0.0/8"),
			}
			tt.change(&c)
			err := c.Validate()
			checkError(t, err, tt.err)
		})
	}
}

func TestConfigNormalizeFillsIn(t *testing.T) {
	c := Config{
		PrivateKey: GeneratePrivateKey(),
		AllowedIPs: prefixes("10.2.3.4/16", "2001:db8::1/32", "10.1.0.0/16", "10.2.0.0/16"),
	}
	given := append([]netip.Prefix(nil), c.AllowedIPs...)
	got, err := c.normalize()
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		PrivateKey: c.PrivateKey, MTU: DefaultMTU,
		AllowedIPs: prefixes("10.1.0.0/16", "10.2.0.0/16", "2001:db8::/32"),
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(given, c.AllowedIPs, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("the caller's slice was changed (-want +got)\n%s", diff)
	}
}
