package control

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/objects/manifests"
)

// Whatever an object says, the data plane takes what comes of it: one object must
// not be able to refuse the whole state.
func TestFirewallIsAlwaysValid(t *testing.T) {
	text := func(values ...string) *rapid.Generator[string] { return rapid.SampledFrom(values) }
	hooks := text("prerouting", "forward", "postrouting", "forward", "input", "")
	actions := text("accept", "drop", "reject", "tcpmssclamp", "accept", "notrack", "")
	addresses := text("10.0.0.1", "10.0.0.0/8", "0.0.0.0/0", "10.0.0.1-10.0.0.2", "fd00::1", "::/0", "fd00::-fd00::9", "fe80::1%a", "::ffff:1.2.3.4", "1-2", "-", "")
	numbers := text("0", "48", "1200", "65495", "65535", "80-90", "0-65535", "9-1", "-", "x", "")
	links := text("liqo-tunnel", "liqo.*", "liqo.one", "liqo.three", "eth0", "")
	ends, ways := text("src", "dst", "dst", ""), text("in", "in", "out", "")
	applied := 0
	rapid.Check(t, func(r *rapid.T) {
		f := &networkingv1beta1.FirewallConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{
			networkingv1beta1.LabelFirewallCategory: "gateway", networkingv1beta1.LabelFirewallUnique: "milan",
		}}}
		f.Spec.Table.Family = networkingv1beta1.FirewallFamily(text("INET", "IPV4", "IPV6", "INET").Draw(r, "family"))
		for range rapid.IntRange(0, 2).Draw(r, "chains") {
			c := networkingv1beta1.FirewallChain{Type: "filter", Policy: "drop", Hook: networkingv1beta1.ChainHook(hooks.Draw(r, "hook"))}
			for range rapid.IntRange(0, 2).Draw(r, "rules") {
				rule := networkingv1beta1.FilterRule{Action: networkingv1beta1.FilterAction(actions.Draw(r, "action")), Value: numbers.Draw(r, "value")}
				m := networkingv1beta1.Match{Op: networkingv1beta1.MatchOp(text("eq", "neq", "eq").Draw(r, "op"))}
				if rapid.Bool().Draw(r, "ip") {
					m.IP = &networkingv1beta1.MatchIP{Value: addresses.Draw(r, "address"), Position: networkingv1beta1.MatchPosition(ends.Draw(r, "position"))}
				}
				if rapid.Bool().Draw(r, "port") {
					m.Port = &networkingv1beta1.MatchPort{Value: numbers.Draw(r, "number"), Position: networkingv1beta1.MatchPosition(ends.Draw(r, "position"))}
				}
				if rapid.Bool().Draw(r, "dev") {
					m.Dev = &networkingv1beta1.MatchDev{Value: links.Draw(r, "link"), Position: networkingv1beta1.DevPosition(ways.Draw(r, "way"))}
				}
				rule.Match = append(rule.Match, m)
				c.Rules.FilterRules = append(c.Rules.FilterRules, rule)
			}
			f.Spec.Table.Chains = append(f.Spec.Table.Chains, c)
		}
		d := firewall(dataplane.Config{}, []manifests.Sourced[networkingv1beta1.FirewallConfiguration]{{Object: f}})
		if err := d.DataPlane.Filter.Validate(); err != nil {
			r.Fatal(err)
		}
		if d.Firewall[0].Applied {
			applied++
		}
		if strings.Contains(d.Firewall[0].Message, "spec.table filter chain") {
			r.Fatalf("found by the data plane only: %s", d.Firewall[0].Message)
		}
	})
	if applied == 0 {
		t.Error("no table was applied: the test tests too little")
	}
}

func TestParseAddrs(t *testing.T) {
	for s, want := range map[string][2]string{
		"10.0.0.1":            {"10.0.0.1", "10.0.0.1"},
		"10.0.0.77/24":        {"10.0.0.0", "10.0.0.255"},
		"10.0.0.0/7":          {"10.0.0.0", "11.255.255.255"},
		"0.0.0.0/0":           {"0.0.0.0", "255.255.255.255"},
		"10.0.0.1 - 10.0.1.0": {"10.0.0.1", "10.0.1.0"},
		"fd00::1":             {"fd00::1", "fd00::1"},
		"fd00::/9":            {"fd00::", "fd7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		"::/0":                {"::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	} {
		first, last, ok := parseAddrs(s)
		if !ok || first != netip.MustParseAddr(want[0]) || last != netip.MustParseAddr(want[1]) {
			t.Errorf("%s: got %s to %s, %v, want %s to %s", s, first, last, ok, want[0], want[1])
		}
	}
}
