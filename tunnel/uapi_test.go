package tunnel

import (
	"encoding/hex"
	"fmt"
	"maps"
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
	tgt := func(c Config) *target { return &target{Config: c} }
	// The peer has another key, and keeps the one it had until it uses the new one.
	awaited := target{Config: with(func(c *Config) { c.PeerKey = PublicKey(testKey(3)) }), Former: base.PeerKey}
	moved := awaited
	moved.Moved = true
	another := awaited
	another.PeerKey, another.Found = PublicKey(testKey(4)), netip.MustParseAddrPort("198.51.100.7:9")
	for _, tt := range []struct {
		name string
		old  *target
		next target
		want []string
	}{
		{"another key of the peer", tgt(base), awaited, []string{
			"public_key=" + hexKey(3), "protocol_version=1", "endpoint=192.0.2.1:51820",
		}},
		{"it is used", &awaited, moved, []string{
			"public_key=" + hexKey(3), "update_only=true", "allowed_ip=10.1.0.0/16", "allowed_ip=10.2.0.0/16",
			"public_key=" + hexKey(2), "update_only=true", "allowed_ip=-10.1.0.0/16", "allowed_ip=-10.2.0.0/16",
		}},
		{"the former one is removed", &moved, target{Config: moved.Config}, []string{"public_key=" + hexKey(2), "remove=true"}},
		{"back to the former key", &awaited, *tgt(base), []string{"public_key=" + hexKey(3), "remove=true"}},
		{"yet another key of the peer, which is elsewhere by now", &awaited, another, []string{
			"public_key=" + hexKey(3), "remove=true",
			"public_key=" + hexKey(4), "protocol_version=1", "endpoint=198.51.100.7:9",
		}},
		{"first configuration", nil, *tgt(base), []string{
			"private_key=" + hexKey(1), "replace_peers=true",
			"public_key=" + hexKey(2), "protocol_version=1", "endpoint=192.0.2.1:51820",
			"allowed_ip=10.1.0.0/16", "allowed_ip=10.2.0.0/16",
		}},
		{"first configuration without a peer", nil, *tgt(with(func(c *Config) { c.PeerKey = PublicKey{} })), []string{
			"private_key=" + hexKey(1), "replace_peers=true",
		}},
		{"first configuration with a name", nil, *tgt(with(func(c *Config) { c.Endpoint = "gw.example:1"; c.AllowedIPs = nil })), []string{
			"private_key=" + hexKey(1), "replace_peers=true", "public_key=" + hexKey(2), "protocol_version=1",
		}},
		{"no change", tgt(base), *tgt(base), nil},
		{"another port and MTU are not for here", tgt(base), *tgt(with(func(c *Config) { c.ListenPort = 2; c.MTU = 1280 })), nil},
		{"the peer's key becomes known", tgt(with(func(c *Config) { c.PeerKey = PublicKey{} })), *tgt(base), []string{
			"public_key=" + hexKey(2), "protocol_version=1", "endpoint=192.0.2.1:51820",
			"allowed_ip=10.1.0.0/16", "allowed_ip=10.2.0.0/16",
		}},
		{"the peer goes away", tgt(base), *tgt(with(func(c *Config) { c.PeerKey = PublicKey{} })), []string{
			"public_key=" + hexKey(2), "remove=true",
		}},
		{"another peer", tgt(base), *tgt(with(func(c *Config) { c.PeerKey = PublicKey(testKey(3)) })), []string{
			"public_key=" + hexKey(2), "remove=true",
			"public_key=" + hexKey(3), "protocol_version=1", "endpoint=192.0.2.1:51820",
			"allowed_ip=10.1.0.0/16", "allowed_ip=10.2.0.0/16",
		}},
		{"another private key", tgt(base), *tgt(with(func(c *Config) { c.PrivateKey = PrivateKey(testKey(9)) })), []string{
			"private_key=" + hexKey(9),
		}},
		{"another endpoint", tgt(base), *tgt(with(func(c *Config) { c.Endpoint = "[2001:db8::1]:2" })), []string{
			"public_key=" + hexKey(2), "update_only=true", "endpoint=[2001:db8::1]:2",
		}},
		{"an endpoint becomes a name", tgt(base), *tgt(with(func(c *Config) { c.Endpoint = "gw.example:1" })), nil},
		{"an endpoint goes away", tgt(base), *tgt(with(func(c *Config) { c.Endpoint = "" })), nil},
		{"allowed IPs change, new ones first", tgt(base), *tgt(with(func(c *Config) { c.AllowedIPs = prefixes("10.2.0.0/16", "10.3.0.0/16") })), []string{
			"public_key=" + hexKey(2), "update_only=true", "allowed_ip=10.3.0.0/16", "allowed_ip=-10.1.0.0/16",
		}},
		{"an IPv4-mapped endpoint", tgt(base), *tgt(with(func(c *Config) { c.Endpoint = "[::ffff:192.0.2.9]:2" })), []string{
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
				for _, others := range m.peers {
					delete(others, value)
				}
				m.peers[peer][value] = true
			}
		case "protocol_version", "update_only":
		default:
			return fmt.Errorf("unknown key %q", key)
		}
	}
	return nil
}

func TestUAPIDiffLeadsToTheTarget(t *testing.T) {
	config := rapid.Custom(func(t *rapid.T) target {
		c := target{Config: Config{
			PrivateKey: PrivateKey(testKey(byte(rapid.IntRange(1, 2).Draw(t, "private")))),
			PeerKey:    PublicKey(testKey(byte(rapid.SampledFrom([]int{0, 11, 12}).Draw(t, "peer")))),
			Endpoint:   rapid.SampledFrom([]string{"", "192.0.2.1:1", "192.0.2.2:1", "gw.example:1"}).Draw(t, "endpoint"),
		}}
		for i := range 4 {
			if rapid.Bool().Draw(t, "allowed") {
				c.AllowedIPs = append(c.AllowedIPs, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 16))
			}
		}
		if !c.PeerKey.IsZero() && rapid.Bool().Draw(t, "two keys") {
			c.Former, c.Moved = PublicKey(testKey(byte(rapid.IntRange(13, 14).Draw(t, "former")))), rapid.Bool().Draw(t, "moved")
		}
		return c
	})
	rapid.Check(t, func(t *rapid.T) {
		m := &uapiModel{peers: map[string]map[string]bool{}, endpoint: map[string]string{}}
		var old *target
		for _, next := range rapid.SliceOfN(config, 1, 6).Draw(t, "configs") {
			if rapid.IntRange(0, 5).Draw(t, "trouble") == 0 {
				old = nil
			}
			if err := m.set(uapiDiff(old, next)); err != nil {
				t.Fatal(err)
			}
			m.check(t, next)
			old = &next
		}
	})
}

// check compares the device with what it should be.
func (m *uapiModel) check(t *rapid.T, want target) {
	if m.private != hex.EncodeToString(want.PrivateKey[:]) {
		t.Fatalf("private key %s", m.private)
	}
	peers := make(map[string][]string)
	for _, key := range []PublicKey{want.PeerKey, want.Former} {
		if !key.IsZero() {
			peers[hex.EncodeToString(key[:])] = nil
		}
	}
	if holder := want.holder(); !holder.IsZero() {
		for _, p := range want.AllowedIPs {
			peers[hex.EncodeToString(holder[:])] = append(peers[hex.EncodeToString(holder[:])], p.String())
		}
	}
	got := make(map[string][]string)
	for key, allowed := range m.peers {
		got[key] = slices.Sorted(maps.Keys(allowed))
	}
	if diff := cmp.Diff(peers, got); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	for key := range got {
		if addr, ok := literalEndpoint(want.Endpoint); ok && m.endpoint[key] != addr.String() {
			t.Fatalf("endpoint of %s is %q, want %v", key, m.endpoint[key], addr)
		}
	}
}
