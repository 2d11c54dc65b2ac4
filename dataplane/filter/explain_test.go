package filter_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// TestExplain: the rules that a packet meets are told in the order of their hooks, and not
// counted.
func TestExplain(t *testing.T) {
	to := func(a string) []filter.Match {
		return []filter.Match{{Dst: filter.Addrs{First: netip.MustParseAddr(a), Last: netip.MustParseAddr(a)}}}
	}
	f, err := filter.Compile(filter.Config{Chains: []filter.Chain{
		{Table: "t", Name: "late", Hook: filter.Forward, Policy: filter.Drop, Rules: []filter.Rule{
			{Name: "translated", Matches: to("10.0.0.2"), Action: filter.Accept, Counter: true},
		}},
		{Table: "t", Name: "early", Hook: filter.Prerouting, Priority: filter.PriorityDestination - 1, Rules: []filter.Rule{
			{Name: "other", Matches: to("10.9.9.9"), Action: filter.Drop},
			{Name: "as it comes", Matches: to("10.1.0.2"), Action: filter.Accept},
		}},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	early := filter.Step{Table: "t", Chain: "early", Rule: "as it comes", Action: "accept"}
	for _, tt := range []struct {
		name, dst, then string
		want            filter.Action
		steps           []filter.Step
	}{
		{"a rule of each", "10.1.0.2", "10.0.0.2", filter.Accept, []filter.Step{early, {"t", "late", "translated", "accept"}}},
		{"the policy", "10.1.0.2", "10.0.0.3", filter.Drop, []filter.Step{early, {"t", "late", "", "drop"}}},
		{"the first that drops", "10.9.9.9", "10.0.0.2", filter.Drop, []filter.Step{{"t", "early", "other", "drop"}}},
	} {
		s := packettest.Spec{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr(tt.dst), Proto: packettest.TCP, Transport: make([]byte, 20)}
		s.Transport[12] = 5 << 4
		p, ok := packet.Parse(s.Bytes())
		if !ok {
			t.Fatal("refused")
		}
		got, steps, err := f.Explain(&p, &filter.Way{Egress: true, Node: "a", Dst: netip.MustParseAddr(tt.then), Src: s.Src})
		if err != nil || got != tt.want {
			t.Errorf("%s: %s, %v", tt.name, got, err)
		}
		if diff := cmp.Diff(tt.steps, steps); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
	}
	for _, c := range f.Status() {
		for _, r := range c.Rules {
			if r.Packets != nil && *r.Packets != (filter.Packets{}) {
				t.Errorf("rule %s has counted %+v", r.Rule, *r.Packets)
			}
		}
		if c.Dropped != (filter.Packets{}) {
			t.Errorf("chain %s has counted %+v", c.Chain, c.Dropped)
		}
	}
	var none *filter.Filter
	if got, steps, err := none.Explain(nil, nil); got != filter.Accept || steps != nil || err != nil {
		t.Errorf("without chains: %s, %v, %v", got, steps, err)
	}
}
