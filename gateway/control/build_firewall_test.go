package control

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/objects/manifests"
)

// table is a FirewallConfiguration for all gateways with these chains, in YAML that
// is indented by two.
func table(name, family, chains string) string {
	return labelled(name, "{networking.liqo.io/firewall-category: gateway, networking.liqo.io/firewall-subcategory: all-gateways}", family, chains)
}

func labelled(name, labels, family, chains string) string {
	return fmt.Sprintf(`apiVersion: networking.liqo.io/v1beta1
kind: FirewallConfiguration
metadata: {name: %s, namespace: tenant, generation: 3, labels: %s}
spec:
  table:
    name: %s
    family: %s
    chains:
%s`, name, labels, name, family, chains)
}

// chain is a filter chain with these rules, each on one line.
func chain(hook, policy string, rules ...string) string {
	return fmt.Sprintf("    - {name: %s, type: filter, hook: %s, policy: %s, rules: {filterRules: [%s]}}\n", hook, hook, policy, strings.Join(rules, ", "))
}

// one is a rule with one match.
func one(action, match string) string {
	return fmt.Sprintf("{name: r, action: %s, match: [{op: eq, %s}]}", action, match)
}

// tables reads objects as an API server would give them: without a source.
func tables(t *testing.T, yaml string) (out []manifests.Sourced[networkingv1beta1.FirewallConfiguration]) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), yaml)
	for _, f := range objects(t, dir).FirewallConfigurations {
		f.Source = manifests.Source{}
		out = append(out, f)
	}
	return out
}

// firewall builds the tables of a cluster, where two nodes are known.
func firewall(inForce dataplane.Config, fs []manifests.Sourced[networkingv1beta1.FirewallConfiguration]) Desired {
	b := builder{
		objects: Objects{Cluster: &Cluster{ClusterID: "milan", InForce: inForce}, Objects: manifests.Objects{FirewallConfigurations: fs}},
		byLink:  map[string]string{"liqo.one": "node-1", "liqo.two": "node-2"},
	}
	b.desired.Gateway.ClusterID = "milan"
	b.firewall()
	b.desired.Warnings = b.warnings
	return b.desired
}

// What a user may write, as the data plane gets it.
func TestFirewallChains(t *testing.T) {
	d := firewall(dataplane.Config{}, tables(t, table("mine", "INET", `    - name: early
      type: filter
      hook: prerouting
      priority: -300
      policy: accept
      rules:
        filterRules:
        - name: spoofed
          action: drop
          counter: true
          match:
          - {op: neq, ip: {value: 10.0.0.0/8, position: src}, dev: {value: liqo-tunnel, position: in}}
    - name: main
      type: filter
      hook: forward
      policy: drop
      rules:
        filterRules:
        - action: accept
          match:
          - {op: eq, proto: {value: tcp}, port: {value: "5432", position: dst}}
          - {op: eq, ip: {value: "10.0.0.1-10.0.0.9", position: dst}, dev: {value: liqo.two, position: out}}
        - name: answers
          action: accept
          match:
          - {op: eq, proto: {value: udp}, port: {value: 1000-2000, position: src}, ip: {value: fd00::/32, position: src}, dev: {value: "liqo.*", position: in}}
        - {name: clamp, action: tcpmssclamp, value: "1200", match: []}
        - {name: mtu, action: tcpmssclamp, match: []}
        - {name: rest, action: reject, match: [{op: eq, ip: {value: 10.1.2.3, position: src}}]}
    - {name: late, type: filter, hook: postrouting, priority: 300, policy: accept, rules: {}}
`)))
	want := []filter.Chain{
		{Table: "tenant/mine", Name: "early", Hook: filter.Prerouting, Priority: -300, Rules: []filter.Rule{
			{Name: "spoofed", Action: filter.Drop, Counter: true, Matches: []filter.Match{
				{Not: true, Src: filter.Addrs{First: addr("10.0.0.0"), Last: addr("10.255.255.255")}, In: filter.Link{Side: filter.PeerSide}},
			}},
		}},
		{Table: "tenant/mine", Name: "main", Hook: filter.Forward, Policy: filter.Drop, Rules: []filter.Rule{
			{Name: "#1", Matches: []filter.Match{
				{Proto: packet.ProtoTCP, DstPort: filter.Ports{First: 5432, Last: 5432}},
				{Dst: filter.Addrs{First: addr("10.0.0.1"), Last: addr("10.0.0.9")}, Out: filter.Link{Side: filter.NodeSide, Node: "node-2"}},
			}},
			{Name: "answers", Matches: []filter.Match{{
				Proto: packet.ProtoUDP, SrcPort: filter.Ports{First: 1000, Last: 2000},
				Src: filter.Addrs{First: addr("fd00::"), Last: addr("fd00:0:ffff:ffff:ffff:ffff:ffff:ffff")},
				In:  filter.Link{Side: filter.NodeSide},
			}}},
			{Name: "clamp", Action: filter.ClampMSS, MSS: 1200},
			{Name: "mtu", Action: filter.ClampMSS},
			{Name: "rest", Action: filter.Reject, Matches: []filter.Match{{Src: filter.Addrs{First: addr("10.1.2.3"), Last: addr("10.1.2.3")}}}},
		}},
		{Table: "tenant/mine", Name: "late", Hook: filter.Postrouting, Priority: 300},
	}
	if diff := cmp.Diff(want, d.DataPlane.Filter.Chains, values); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
	report := []FirewallReport{{Namespace: "tenant", Name: "mine", Generation: 3, Applied: true, Reason: FirewallApplied, Message: "every rule is in force"}}
	if diff := cmp.Diff(report, d.Firewall); diff != "" || len(d.Warnings)+len(d.Ignored) > 0 {
		t.Errorf("report (-want +got):\n%s\nwarnings %v, ignored %v", diff, d.Warnings, d.Ignored)
	}
}

// In a directory nobody fills in defaults, and no labels are needed.
func TestFirewallFromFiles(t *testing.T) {
	d, err := decode(t, "fw.yaml: => "+labelled("mine", "{}", "IPV4", chain("forward", "accept",
		"{name: a, action: drop, match: []}", "{name: b, action: drop, counter: false, match: []}",
		one("drop", "dev: {value: liqo.worker1, position: in}"))))
	if err != nil {
		t.Fatal(err)
	}
	c := d.DataPlane.Filter.Chains
	if len(c) != 1 || len(c[0].Rules) != 3 || !c[0].Rules[0].Counter || c[0].Rules[1].Counter || c[0].Family != filter.IPv4 {
		t.Fatalf("got %+v, want a chain of IPv4 with a rule that counts and one that does not", c)
	}
	if got := c[0].Rules[2].Matches[0].In; got != (filter.Link{Side: filter.NodeSide, Node: "worker-1"}) {
		t.Errorf("liqo.worker1 is %+v, want the link of worker-1", got)
	}
	if len(d.Firewall) != 1 || !d.Firewall[0].Applied {
		t.Errorf("report %+v", d.Firewall)
	}
	if w := d.Warnings.Error(); strings.Contains(w, "FirewallConfiguration") {
		t.Errorf("warnings:\n%s", w)
	}

	_, err = decode(t, "fw.yaml: => "+table("mine", "IPV4", "    - name: x\n      type: filter\n      hook: input\n      policy: accept\n      rules: {}\n"))
	if want := `fw.yaml:11: FirewallConfiguration tenant/mine: spec.table.chains[0].hook: "input": the gateway's own packets`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s...", err, want)
	}
	d, err = decode(t, "fw.yaml: => "+labelled("mine", "{networking.liqo.io/firewall-category: gatewey}", "IPV4", chain("forward", "drop")))
	if err != nil || len(d.DataPlane.Filter.Chains) != 0 || !strings.Contains(d.Warnings.Error(), "FirewallConfiguration tenant/mine: metadata.labels: select no gateway: write networking.liqo.io/firewall-category=gateway") {
		t.Errorf("error %v, chains %v, warnings:\n%s", err, d.DataPlane.Filter.Chains, d.Warnings.Error())
	}
}

// What cannot be done, or is wrong, refuses the whole table and says what to
// write instead.
func TestFirewallRefuses(t *testing.T) {
	forward := func(rules ...string) string { return chain("forward", "accept", rules...) }
	raw := func(fields string) string { return "    - {name: c, " + fields + "}\n" }
	tests := []struct{ name, family, chains, want string }{
		{"family", "ARP", forward(), `spec.table.family "ARP" cannot be filtered here: write IPV4, IPV6 or INET`},
		{"no family", `""`, forward(), `spec.table.family "" cannot be filtered here`},
		{"NAT", "IPV4", raw("type: nat, hook: prerouting, policy: accept, rules: {}"), `spec.table.chains[0].type "nat": addresses are translated as the Configuration and the IP objects say: write an IP object`},
		{"route", "IPV4", raw("type: route, hook: output, policy: accept, rules: {}"), `chains[0].type "route": packets go where RouteConfigurations say`},
		{"type", "IPV4", raw("type: filer, hook: forward, policy: accept, rules: {}"), `chains[0].type "filer" is not filter`},
		{"NAT rules in a filter chain", "IPV4", raw("type: filter, hook: forward, policy: accept, rules: {natRules: [{natType: snat, match: []}]}"), "chains[0].rules a chain of type filter has filterRules only"},
		{"input", "IPV4", chain("input", "accept"), `chains[0].hook "input": the gateway's own packets pass no chain here: write forward`},
		{"output", "IPV4", chain("output", "accept"), `chains[0].hook "output"`},
		{"ingress", "INET", chain("ingress", "accept"), `chains[0].hook "ingress": there is no such hook here: write prerouting, with a priority below -100`},
		{"hook", "IPV4", chain("formard", "accept"), `"formard" is none of prerouting, forward, postrouting`},
		{"policy", "IPV4", chain("forward", "reject"), `chains[0].policy "reject" is neither accept nor drop`},
		{"ctmark", "IPV4", forward(`{name: r, action: ctmark, value: "1", match: []}`), `chains[0].rules.filterRules[0].action "ctmark": there are no marks here`},
		{"metamarkfromctmark", "IPV4", forward(`{name: r, action: metamarkfromctmark, match: []}`), `"metamarkfromctmark": there are no marks here`},
		{"notrack", "IPV4", forward(`{name: r, action: notrack, match: []}`), `"notrack": no connections are tracked here: remove the rule`},
		{"action", "IPV4", forward(`{name: r, action: allow, match: []}`), `"allow" is none of accept, drop, reject, tcpmssclamp`},
		{"reject at postrouting", "IPV4", chain("postrouting", "accept", `{name: r, action: reject, match: []}`), `"reject": the sender cannot be told at postrouting: write hook forward, or drop`},
		{"no segment size", "IPV4", forward(`{name: r, action: tcpmssclamp, value: mtu, match: []}`), `filterRules[0].value "mtu" is no segment size: 0 for what fits the MTU, or 48 to 65495`},
		{"segment size", "IPV4", forward(`{name: r, action: tcpmssclamp, value: "40", match: []}`), `"40" is no segment size`},
		{"op", "IPV4", forward(`{name: r, action: drop, match: [{op: lt}]}`), `match[0].op "lt" is neither eq nor neq`},
		{"address", "IPV4", forward(one("drop", "ip: {value: 10.0.0, position: src}")), `match[0].ip.value "10.0.0" is no address, prefix or range a-b of one family`},
		{"range backwards", "IPV4", forward(one("drop", "ip: {value: 10.0.0.2-10.0.0.1, position: src}")), `"10.0.0.2-10.0.0.1" is no address`},
		{"range of two families", "INET", forward(one("drop", `ip: {value: "10.0.0.2-fd00::1", position: src}`)), `"10.0.0.2-fd00::1" is no address`},
		{"IPv4 written as IPv6", "INET", forward(one("drop", `ip: {value: "::ffff:10.0.0.1", position: src}`)), `is no address`},
		{"prefix of IPv4 written as IPv6", "INET", forward(one("drop", `ip: {value: "::ffff:10.0.0.0/120", position: src}`)), `is no address`},
		{"zone", "INET", forward(one("drop", `ip: {value: "fe80::1%eth0", position: src}`)), `is no address`},
		{"IPv6 in a table of IPv4", "IPV4", forward(one("drop", `ip: {value: "fd00::/64", position: src}`)), `"fd00::/64" is not of the table's family, IPV4`},
		{"IPv4 in a table of IPv6", "IPV6", forward(one("drop", "ip: {value: 10.0.0.1, position: src}")), `"10.0.0.1" is not of the table's family, IPV6`},
		{"position of an address", "IPV4", forward(one("drop", "ip: {value: 10.0.0.1, position: source}")), `match[0].ip.position "source" is neither src nor dst`},
		{"port", "IPV4", forward(one("drop", `port: {value: "65536", position: dst}`)), `match[0].port.value "65536" is no port`},
		{"port zero", "IPV4", forward(one("drop", `port: {value: "0", position: dst}`)), `"0" is no port`},
		{"ports backwards", "IPV4", forward(one("drop", `port: {value: 90-80, position: dst}`)), `"90-80" is no port`},
		{"name of a port", "IPV4", forward(one("drop", `port: {value: http, position: dst}`)), `"http" is no port`},
		{"protocol", "IPV4", forward(one("drop", `proto: {value: icmp}`)), `match[0].proto.value "icmp" is neither tcp nor udp`},
		{"unknown interface", "IPV4", forward(one("drop", `dev: {value: eth0, position: in}`)), `match[0].dev.value "eth0" is no interface here: write liqo-tunnel for the peer's side, liqo.* for all nodes`},
		{"second tunnel", "IPV4", forward(one("drop", `dev: {value: liqo-tunnel1, position: in}`)), `"liqo-tunnel1" is no interface here`},
		{"position of an interface", "IPV4", forward(one("drop", `dev: {value: liqo-tunnel, position: src}`)), `match[0].dev.position "src" is neither in nor out`},
		{"the way out at prerouting", "IPV4", chain("prerouting", "accept", one("drop", `dev: {value: liqo-tunnel, position: out}`)), `"out": the way out is not known at prerouting: write hook forward`},
		{"several", "IPV4", chain("input", "reject", `{name: r, action: allow, match: []}`), `"allow" is none of`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// A good table beside it stays; good rules in it do not.
			good := chain("forward", "drop", one("accept", "ip: {value: 10.0.0.0/8, position: src}"))
			if tt.family == "IPV6" {
				good = chain("forward", "drop")
			}
			d := firewall(dataplane.Config{}, tables(t, table("bad", tt.family, tt.chains+good)+"---\n"+table("good", "IPV4", chain("forward", "drop"))))
			if len(d.Firewall) != 2 {
				t.Fatalf("got %+v, want a report for each", d.Firewall)
			}
			bad := d.Firewall[0]
			if bad.Applied || bad.Reason != FirewallRefused || !strings.HasPrefix(bad.Message, "nothing of this table is in force: ") || !strings.Contains(bad.Message, tt.want) {
				t.Errorf("got %+v\nwant %s", bad, tt.want)
			}
			if !d.Firewall[1].Applied {
				t.Errorf("the other table is refused, too: %+v", d.Firewall[1])
			}
			if c := d.DataPlane.Filter.Chains; len(c) != 1 || c[0].Table != "tenant/good" {
				t.Errorf("chains %+v, want that of the good table", c)
			}
			if len(d.Ignored) == 0 || d.Ignored[0].Object != "FirewallConfiguration tenant/bad" {
				t.Errorf("ignored: %v", d.Ignored)
			}
		})
	}
}

// A change that is refused leaves the table as it was.
func TestFirewallKeepsWhatIsInForce(t *testing.T) {
	before := firewall(dataplane.Config{}, tables(t, table("mine", "IPV4", chain("forward", "drop"))+"---\n"+table("other", "IPV4", chain("forward", "accept"))))
	d := firewall(before.DataPlane, tables(t, table("mine", "IPV4", chain("forward", "drop", one("drop", "dev: {value: eth0, position: in}")))))
	if diff := cmp.Diff(before.DataPlane.Filter.Chains[:1], d.DataPlane.Filter.Chains, values); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
	if r := d.Firewall[0]; r.Applied || !strings.HasPrefix(r.Message, "the table as it was before stays in force: ") {
		t.Errorf("report %+v", r)
	}
}

func TestFirewallSelection(t *testing.T) {
	const category, sub, unique = "networking.liqo.io/firewall-category: ", "networking.liqo.io/firewall-subcategory: ", "networking.liqo.io/firewall-unique: "
	tests := []struct {
		labels string
		want   FirewallReason // empty: no report
	}{
		{category + "gateway, " + sub + "all-gateways", FirewallApplied},
		{category + "gateway, " + sub + "fabric", FirewallApplied},
		{category + "gateway, " + unique + "milan", FirewallApplied},
		{category + "gateway, " + sub + "ip-mapping", FirewallApplied},
		{category + "gateway, " + unique + "rome", ""},
		{category + "gateway, " + unique + "rome, " + sub + "all-gateways", ""},
		{category + "fabric, " + sub + "all-nodes", ""},
		{category + "gateway", FirewallNotSelected},
		{category + "gateway, " + sub + "all-nodes", FirewallNotSelected},
		{sub + "all-gateways", FirewallNotSelected},
		{"", FirewallNotSelected},
	}
	for _, tt := range tests {
		d := firewall(dataplane.Config{}, tables(t, labelled("mine", "{"+tt.labels+"}", "IPV4", chain("forward", "drop"))))
		var got FirewallReason
		if len(d.Firewall) > 0 {
			got = d.Firewall[0].Reason
		}
		if got != tt.want || (len(d.DataPlane.Filter.Chains) == 1) != (tt.want == FirewallApplied) {
			t.Errorf("%q: got %q and %d chains, want %q", tt.labels, got, len(d.DataPlane.Filter.Chains), tt.want)
		}
	}
}

// What controllers make for a kernel gateway is built in; what a user adds to it
// is not.
func TestFirewallBuiltIn(t *testing.T) {
	const all = "{networking.liqo.io/firewall-category: gateway, networking.liqo.io/firewall-subcategory: all-gateways}"
	nat := "    - {name: outgoing, type: nat, hook: prerouting, policy: accept, rules: {natRules: [{name: n, natType: dnat, to: 10.1.0.0/16, match: []}]}}\n"
	mark := `{name: n, action: ctmark, value: "1", match: []}`
	tests := []struct {
		name, table, labels, chains string
		builtIn                     bool
	}{
		{"remapped pod CIDR", "remap-podcidr", all, nat, true},
		{"remapped external CIDR", "remap-externalcidr", all, nat, true},
		{"IP object", "printer-remap-ipmapping-gw", "{networking.liqo.io/firewall-category: gateway, networking.liqo.io/firewall-subcategory: ip-mapping}", nat, true},
		{"marks of the unknown source", "service-nodeport-routing", all, chain("forward", "accept", mark) + chain("prerouting", "accept", `{name: n, action: metamarkfromctmark, match: []}`), true},
		{"MSS of the MTU", "mss-clamping", all, chain("forward", "accept", `{name: n, action: tcpmssclamp, value: "0", match: []}`), true},
		{"another MSS", "mss-clamping", all, chain("forward", "accept", `{name: n, action: tcpmssclamp, value: "1200", match: []}`), false},
		{"no tracking of tunnels", "liqo-notrack-geneve", all, chain("prerouting", "accept", `{name: n, action: notrack, match: []}`), true},
		{"a rule of a user's", "remap-podcidr", all, nat + chain("forward", "accept", one("drop", "ip: {value: 10.0.0.1, position: src}")), false},
		{"a policy of a user's", "service-nodeport-routing", all, chain("forward", "drop", mark), false},
		{"translation of a user's", "mine", all, nat, false},
	}
	for _, tt := range tests {
		d := firewall(dataplane.Config{}, tables(t, labelled(tt.table, tt.labels, "IPV4", tt.chains)))
		r := d.Firewall[0]
		if got := r.Reason == FirewallBuiltIn; got != tt.builtIn || got && (!r.Applied || !strings.Contains(r.Message, "does not read this table") || len(d.DataPlane.Filter.Chains) > 0) {
			t.Errorf("%s: got %+v, want built in %v", tt.name, r, tt.builtIn)
		}
	}
}

// A node that is gone takes no other rule out of force.
func TestFirewallOfAnUnknownNode(t *testing.T) {
	d := firewall(dataplane.Config{}, tables(t, table("mine", "IPV4", chain("forward", "drop", one("accept", "dev: {value: liqo.three, position: in}")))))
	r := d.Firewall[0]
	if !r.Applied || !strings.Contains(r.Message, `dev.value "liqo.three" is the interface of no InternalNode: until it is, no packet passes it`) {
		t.Errorf("report %+v", r)
	}
	if c := d.DataPlane.Filter.Chains; len(c) != 1 || c[0].Rules[0].Matches[0].In.Side != filter.NoSide {
		t.Errorf("chains %+v", c)
	}
	if len(d.Warnings) != 1 {
		t.Errorf("warnings %v, want one", d.Warnings)
	}
}
