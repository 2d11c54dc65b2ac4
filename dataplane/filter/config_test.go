package filter_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
)

func TestValidate(t *testing.T) {
	rule := func(r filter.Rule) filter.Chain {
		r.Name = "r"
		return filter.Chain{Hook: filter.Forward, Rules: []filter.Rule{r}}
	}
	match := func(m filter.Match) filter.Chain { return rule(filter.Rule{Matches: []filter.Match{m}}) }
	in := func(h filter.Hook, c filter.Chain) filter.Chain {
		c.Hook = h
		return c
	}
	tests := []struct {
		name  string
		chain filter.Chain
		want  string // part of the error; empty: valid
	}{
		{"the zero chain", filter.Chain{}, ""},
		{"hook", filter.Chain{Hook: 3}, "hook 3"},
		{"family", filter.Chain{Family: 3}, "family 3"},
		{"policy", filter.Chain{Policy: filter.Reject}, "policy"},
		{"action", rule(filter.Rule{Action: 4}), "rule r: action 4"},
		{"reject at postrouting", in(filter.Postrouting, rule(filter.Rule{Action: filter.Reject})), "reject at postrouting"},
		{"reject at prerouting", in(filter.Prerouting, rule(filter.Rule{Action: filter.Reject})), ""},
		{"MSS of the MTU", rule(filter.Rule{Action: filter.ClampMSS}), ""},
		{"MSS too small", rule(filter.Rule{Action: filter.ClampMSS, MSS: 47}), "mss 47"},
		{"MSS too large", rule(filter.Rule{Action: filter.ClampMSS, MSS: 65496}), "mss 65496"},
		{"one address", match(filter.Match{Src: host(pod)}), ""},
		{"a range backwards", match(filter.Match{Dst: addrs("10.0.0.2", "10.0.0.1")}), "no range"},
		{"a range of two families", match(filter.Match{Dst: addrs("10.0.0.2", "fd00::1")}), "no range"},
		{"half a range", match(filter.Match{Src: filter.Addrs{First: pod}}), "no range"},
		{"IPv4 written as IPv6", match(filter.Match{Src: addrs("::ffff:10.0.0.1", "::ffff:10.0.0.2")}), "no range"},
		{"a zone", match(filter.Match{Src: addrs("fe80::1", "fe80::1%eth0")}), "no range"},
		{"IPv6 in a chain of IPv4", filter.Chain{Family: filter.IPv4, Rules: match(filter.Match{Src: host(pod6)}).Rules}, "family"},
		{"IPv4 in a chain of both", match(filter.Match{Src: host(pod)}), ""},
		{"ports backwards", match(filter.Match{SrcPort: ports(2, 1)}), "ports 2 to 1"},
		{"side", match(filter.Match{In: filter.Link{Side: 4}}), "side"},
		{"the way out at prerouting", in(filter.Prerouting, match(filter.Match{Out: filter.Link{Side: filter.PeerSide}})), "not known yet"},
		{"the way in at postrouting", in(filter.Postrouting, match(filter.Match{In: filter.Link{Side: filter.PeerSide}})), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.chain.Table, tt.chain.Name = "mine", "c"
			c := filter.Config{Chains: []filter.Chain{tt.chain}}
			err := c.Validate()
			if _, compileErr := filter.Compile(c, nil); (compileErr == nil) != (err == nil) {
				t.Errorf("Compile says %v, Validate says %v", compileErr, err)
			}
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want none", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "chain c of table mine")):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Counters go on over a change of something else and start anew when their own
// rule is another.
func TestCountersAreCarriedOver(t *testing.T) {
	rule := func(name string, port uint16) filter.Rule {
		return filter.Rule{Name: name, Action: filter.Accept, Counter: true, Matches: []filter.Match{{DstPort: ports(port, port)}}}
	}
	chain := func(name string, rules ...filter.Rule) filter.Chain {
		return filter.Chain{Table: "t", Name: name, Hook: filter.Forward, Rules: rules}
	}
	dropping := chain("last")
	dropping.Policy = filter.Drop
	old, err := filter.Compile(filter.Config{Chains: []filter.Chain{
		chain("a", rule("x", 1), rule("x", 1), rule("y", 53)), dropping,
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(f *filter.Filter) {
		t.Helper()
		p, ok := packet.Parse(udp(53).Bytes())
		if !ok {
			t.Fatal("not a packet")
		}
		f.Check(&p, &egress)
		f.Check(&p, &ingress)
	}
	check(old)
	quiet := rule("z", 53)
	quiet.Counter = false
	next, err := filter.Compile(filter.Config{Chains: []filter.Chain{
		dropping, chain("a", rule("new", 9), rule("y", 53), rule("x", 2)), chain("b", quiet),
	}}, old)
	if err != nil {
		t.Fatal(err)
	}
	check(old) // a packet that is still on its way by the snapshot before
	check(next)
	want := []filter.ChainStatus{
		{Table: "t", Chain: "last", Hook: "forward", Policy: "drop", Dropped: filter.Packets{Egress: 3, Ingress: 3}},
		{Table: "t", Chain: "a", Hook: "forward", Policy: "accept", Rules: []filter.RuleStatus{
			{Rule: "new", Action: "accept", Packets: &filter.Packets{}},
			{Rule: "y", Action: "accept", Packets: &filter.Packets{Egress: 2, Ingress: 2}},
			{Rule: "x", Action: "accept", Packets: &filter.Packets{}},
		}},
		{Table: "t", Chain: "b", Hook: "forward", Policy: "accept", Rules: []filter.RuleStatus{{Rule: "z", Action: "accept"}}},
	}
	if diff := cmp.Diff(want, next.Status()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}
