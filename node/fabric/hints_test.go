package fabric

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
)

func TestHints(t *testing.T) {
	const (
		v4     = "this node: net.ipv4.ip_forward is 0: packets of pods do not get into the tunnels; set it to 1 (sysctl -w net.ipv4.ip_forward=1)"
		v6     = "this node: net.ipv6.conf.all.forwarding is 0: packets of pods do not get into the tunnels; set it to 1 (sysctl -w net.ipv6.conf.all.forwarding=1)"
		answer = "link liqo.a: the gateway 10.0.0.1 (10.80.0.1) does not answer: does it run, and does it have a tunnel with VNI 7 to this node?"
	)
	for _, tt := range []struct {
		name      string
		routes    []netip.Prefix
		closed    bool
		neighbor  string
		wasSilent bool
		want      []string
	}{
		{"all is well", []netip.Prefix{prefix("10.90.0.0/16")}, false, "reachable", false, nil},
		{"no forwarding", []netip.Prefix{prefix("10.90.0.0/16")}, true, "", false, []string{v4}},
		{"no forwarding of either family", []netip.Prefix{prefix("10.90.0.0/16"), prefix("fd90::/64")}, true, "", false, []string{v4, v6}},
		{"nothing to forward", nil, true, "stale", false, nil},
		{"no answer", nil, false, "failed", false, []string{answer}},
		{"asked for the first time", nil, false, "incomplete", false, nil},
		{"asked again", nil, false, "incomplete", true, []string{answer}},
		{"answered at last", nil, false, "reachable", true, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var a hostnet.Actual
			a.NoForwarding.IPv4, a.NoForwarding.IPv6 = tt.closed, tt.closed
			for _, name := range []string{"liqo.a", "liqo.surplus"} {
				a.Links = append(a.Links, hostnet.ActualLink{Name: name, VNI: 7, Gateway: addr("10.0.0.1"), Neighbor: hostnet.Neighbor{Addr: addr("10.80.0.1"), State: tt.neighbor}})
			}
			var got []string
			ps, silent := hints([]hostnet.Link{{Name: "liqo.a", Routes: tt.routes}}, a, map[string]bool{"liqo.a": tt.wasSilent})
			for _, p := range ps {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := len(tt.want) > 0 && tt.want[0] == answer; silent["liqo.a"] != want || silent["liqo.surplus"] {
				t.Errorf("silent: %v", silent)
			}
		})
	}
}

func TestDetourProblems(t *testing.T) {
	p4, p5, p6 := netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("fd00::/64")
	rule := hostnet.Detour{Link: "liqo.milan", Rule: "500: from all lookup 52", Priority: 500, Table: 52, Device: "wg0"}
	on := func(p netip.Prefix, change func(*hostnet.Detour)) hostnet.Detour {
		d := rule
		d.Prefix = p
		if change != nil {
			change(&d)
		}
		return d
	}
	const advice = "; give that rule a priority above ours, or start the agents with a --rule-priority below 500, or except these prefixes there"
	for _, tt := range []struct {
		name  string
		found []hostnet.Detour
		want  []string
	}{
		{"none", nil, nil},
		{"one rule, two prefixes", []hostnet.Detour{on(p4, nil), on(p5, nil)}, []string{
			`link liqo.milan: packets of pods to 10.1.0.0/16, 10.2.0.0/16 do not get into it: the rule "500: from all lookup 52" of another program comes before ours, and table 52 sends them to device wg0` + advice}},
		{"a table that drops, a rule that drops", []hostnet.Detour{
			on(p4, func(d *hostnet.Detour) { d.Device, d.Why = "", "they are dropped there" }),
			on(p6, func(d *hostnet.Detour) {
				d.Device, d.Why, d.Table, d.Rule = "", "they are dropped there", 0, "500: from all prohibit"
			}),
		}, []string{
			`link liqo.milan: packets of pods to 10.1.0.0/16 do not get into it: the rule "500: from all lookup 52" of another program comes before ours, and it leads to table 52: they are dropped there` + advice,
			`link liqo.milan: packets of pods to fd00::/64 do not get into it: the rule "500: from all prohibit" of another program comes before ours, and the rule drops them` + advice,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, p := range detours(tt.found) {
				got = append(got, p.String())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestRunnerDetours(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, nil, Options{})
		x.pass(time.Hour)
		says := func(what, reason, text string) {
			t.Helper()
			r, message := x.condition(networkingv1beta1.ConditionTunnelsReady)
			if r != reason || !strings.Contains(message, text) {
				t.Errorf("%s: %s: %s", what, r, message)
			}
		}
		set := func(found []hostnet.Detour, err error) {
			x.kernel.tamper(hostnet.Event{Paths: true}, func() { x.kernel.detours, x.kernel.noDetours = found, err })
			x.pass(time.Second)
		}
		says("before", "TunnelsReady", "Tunnels in place")
		set([]hostnet.Detour{{Link: "liqo.milan", Prefix: netip.MustParsePrefix("10.1.0.0/16"), Rule: "500: from all lookup 52", Priority: 500, Table: 52, Device: "wg0"}}, nil)
		says("a rule", "TrafficDiverted", "500: from all lookup 52")
		if s := x.State(); len(s.Diverted) != 1 {
			t.Errorf("%v", s.Diverted)
		}
		set(nil, errors.New("no answer"))
		says("not known", "TrafficDiverted", "500: from all lookup 52")
		set(nil, nil)
		says("after", "TunnelsReady", "Tunnels in place")
		x.says("packets go another way", 1)
		x.says("cannot be found", 1)
		x.says("no rule takes packets another way any more", 1)
	})
}

func TestRunnerHints(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, func(x *running) { x.kernel.noForwarding = true }, Options{})
		x.pass(time.Hour)
		reason, message := x.condition(networkingv1beta1.ConditionTunnelsReady)
		if s := x.State(); reason != "TunnelsReady" || !strings.HasPrefix(message, "Tunnels in place: 2; packets do not pass: this node: net.ipv4.ip_forward is 0") || len(s.Warnings) != 1 {
			t.Errorf("%s: %s, %v", reason, message, s.Warnings)
		}
		x.says("packets do not pass", 1)
		x.kernel.mu.Lock()
		x.kernel.noForwarding = false
		x.kernel.mu.Unlock()
		x.pass(time.Minute)
		if s := x.State(); len(s.Warnings) > 0 {
			t.Errorf("%v", s.Warnings)
		}
		x.says("nothing is known any more", 1)
	})
}
