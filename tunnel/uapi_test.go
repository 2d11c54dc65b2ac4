package tunnel

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func testKey(n byte) (k [keyLen]byte) {
	for i := range k {
		k[i] = n
	}
	return k
}

func hexKey(n byte) string { k := testKey(n); return hex.EncodeToString(k[:]) }

func TestUAPIDiff(t *testing.T) {
	base := Config{
		PrivateKey: PrivateKey(testKey(1)), PeerKey: PublicKey(testKey(2)), Endpoint: "192.0.2.1:51820",
		AllowedIPs: prefixes("10.1.0.0/16", "10.2.0.0/16"), ListenPort: 1, MTU: 1340,
	}
	with := func(change func(*Config)) Config {
		c := base
		change(&c)
		return c
	}
	ptr := func(c Config) *Config { return &c }
	for _, tt := range []struct {
		name string
		old  *Config
		next Config
		want []string
	}{
		{"first configuration", nil, base, []string{
			"private_key=" + hexKey(1), "replace_peers=true",
			"public_key=" + hexKey(2), "protocol_version=1", "endpoint=192.0.2.1:51820",
			"allowed_ip=10.1.0.0/16", "allowed_ip=10.2.0.0/16",
		}},
		{"first configuration without a peer", nil, with(func(c *Config) { c.PeerKey = PublicKey{} }), []string{
			"private_key=" + hexKey(1), "replace_peers=true",
		}},
		{"first configuration with a name", nil, with(func(c *Config) { c.Endpoint = "gw.example:1"; c.AllowedIPs = nil }), []string{
			"private_key=" + hexKey(1), "replace_peers=true", "public_key=" + hexKey(2), "protocol_version=1",
		}},
		{"no change", &base, base, nil},
		{"another port and MTU are not for here", &base, with(func(c *Config) { c.ListenPort = 2; c.MTU = 1280 }), nil},
		{"the peer's key becomes known", ptr(with(func(c *Config) { c.PeerKey = PublicKey{} })), base, []string{
			"public_key=" + hexKey(2), "protocol_version=1", "endpoint=192.0.2.1:51820",
			"allowed_ip=10.1.0.0/16", "allowed_ip=10.2.0.0/16",
		}},
		{"the peer goes away", &base, with(func(c *Config) { c.PeerKey = PublicKey{} }), []string{
			"public_key=" + hexKey(2), "remove=true",
		}},
		{"another peer", &base, with(func(c *Config) { c.PeerKey = PublicKey(testKey(3)) }), []string{
			"public_key=" + hexKey(2), "remove=true",
			"public_key=" + hexKey(3), "protocol_version=1", "endpoint=192.0.2.1:51820",
			"allowed_ip=10.1.0.0/16", "allowed_ip=10.2.0.0/16",
		}},
		{"another private key", &base, with(func(c *Config) { c.PrivateKey = PrivateKey(testKey(9)) }), []string{
			"private_key=" + hexKey(9),
		}},
		{"another endpoint", &base, with(func(c *Config) { c.Endpoint = "[2001:db8::1]:2" }), []string{
			"public_key=" + hexKey(2), "update_only=true", "endpoint=[2001:db8::1]:2",
		}},
		{"an endpoint becomes a name", &base, with(func(c *Config) { c.Endpoint = "gw.example:1" }), nil},
		{"an endpoint goes away", &base, with(func(c *Config) { c.Endpoint = "" }), nil},
		{"allowed IPs change, new ones first", &base, with(func(c *Config) { c.AllowedIPs = prefixes("10.2.0.0/16", "10.3.0.0/16") }), []string{
			"public_key=" + hexKey(2), "update_only=true", "allowed_ip=10.3.0.0/16", "allowed_ip=-10.1.0.0/16",
		}},
		{"an IPv4-mapped endpoint", &base, with(func(c *Config) { c.Endpoint = "[::ffff:192.0.2.9]:2" }), []string{
			"public_key=" + hexKey(2), "update_only=true", "endpoint=192.0.2.9:2",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := uapiDiff(tt.old, tt.next)
			want := ""
			for _, l := range tt.want {
				want += l + "\n"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// uapiModel is a device as far as uapiDiff is concerned, the slow obvious way.
type uapiModel struct {
	private  string
	peers    map[string]map[string]bool // allowed IPs by peer
	endpoint map[string]string
}

func (m *uapiModel) set(text string) error {
	peer := ""
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "private_key":
			m.private = value
		case "replace_peers":
			clear(m.peers)
			clear(m.endpoint)
		case "public_key":
			peer = value
			if m.peers[peer] == nil {
				m.peers[peer] = make(map[string]bool)
			}
		case "remove":
			delete(m.peers, peer)
			delete(m.endpoint, peer)
		case "endpoint":
			m.endpoint[peer] = value
		case "allowed_ip":
			if p, gone := strings.CutPrefix(value, "-"); gone {
				delete(m.peers[peer], p)
			} else {
				m.peers[peer][value] = true
			}
		case "protocol_version", "update_only":
		default:
			return fmt.Errorf("unknown key %q", key)
		}
	}
	return nil
}

func TestUAPIDiffLeadsToTheConfig(t *testing.T) {
	config := rapid.Custom(func(t *rapid.T) Config {
		c := Config{
			PrivateKey: PrivateKey(testKey(byte(rapid.IntRange(1, 2).Draw(t, "private")))),
			PeerKey:    PublicKey(testKey(byte(rapid.SampledFrom([]int{0, 11, 12}).Draw(t, "peer")))),
			Endpoint:   rapid.SampledFrom([]string{"", "192.0.2.1:1", "192.0.2.2:1", "gw.example:1"}).Draw(t, "endpoint"),
		}
		for i := range 4 {
			if rapid.Bool().Draw(t, "allowed") {
				c.AllowedIPs = append(c.AllowedIPs, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 16))
			}
		}
		return c
	})
	rapid.Check(t, func(t *rapid.T) {
		m := &uapiModel{peers: map[string]map[string]bool{}, endpoint: map[string]string{}}
		var old *Config
		for _, next := range rapid.SliceOfN(config, 1, 6).Draw(t, "configs") {
			if rapid.IntRange(0, 5).Draw(t, "trouble") == 0 {
				old = nil
			}
			if err := m.set(uapiDiff(old, next)); err != nil {
				t.Fatal(err)
			}
			if m.private != hex.EncodeToString(next.PrivateKey[:]) {
				t.Fatalf("private key %s", m.private)
			}
			key := hex.EncodeToString(next.PeerKey[:])
			switch {
			case next.PeerKey.IsZero() && len(m.peers) != 0, !next.PeerKey.IsZero() && (len(m.peers) != 1 || m.peers[key] == nil):
				t.Fatalf("peers %v, want %q", m.peers, key)
			}
			var got []string
			for p := range m.peers[key] {
				got = append(got, p)
			}
			var want []string
			if !next.PeerKey.IsZero() {
				for _, p := range next.AllowedIPs {
					want = append(want, p.String())
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("allowed IPs %v, want %v", got, want)
			}
			if addr, ok := literalEndpoint(next.Endpoint); ok && !next.PeerKey.IsZero() && m.endpoint[key] != addr.String() {
				t.Fatalf("endpoint %q, want %v", m.endpoint[key], addr)
			}
			old = &next
		}
	})
}
