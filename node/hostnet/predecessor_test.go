package hostnet

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// milanTable is the number that Liqo gives the routing table of InternalFabric milan.
const milanTable = 978431797

// liqos is what Liqo's agent makes for milan.
func liqos(change func(*theirs)) theirs {
	is := theirs{
		rules: []theirRule{
			{table: milanTable, dst: prefix("10.80.0.1/32"), text: "32765: from all to 10.80.0.1/32 lookup 978431797"},
			{table: milanTable, dst: prefix("10.1.0.0/16"), text: "32764: from all to 10.1.0.0/16 lookup 978431797"},
		},
		routes: []theirRoute{
			{Route: Route{Dst: prefix("10.80.0.1/32"), Device: "liqo.milan", Protocol: protocolBoot}, table: milanTable},
			{Route: Route{Dst: prefix("10.1.0.0/16"), Via: addr("10.80.0.1"), Device: "liqo.milan", Protocol: protocolBoot}, table: milanTable},
		},
		tables: []theirTable{{"ip", "milan-masquerade-bypass"}},
	}
	if change != nil {
		change(&is)
	}
	return is
}

func TestLeft(t *testing.T) {
	p := Predecessor{
		Fabrics: []PredecessorFabric{{Name: "milan", Prefixes: []netip.Prefix{prefix("10.80.0.1/32"), prefix("10.1.0.0/16")}}},
		Tables:  []string{"milan-masquerade-bypass", TranslationTable},
	}
	rule := func(change func(*theirRule)) func(*theirs) {
		return func(is *theirs) { is.routes, is.tables = nil, nil; is.rules = is.rules[1:]; change(&is.rules[0]) }
	}
	route := func(change func(*theirRoute)) func(*theirs) {
		return func(is *theirs) { is.tables = nil; change(&is.routes[1]) }
	}
	const everything = "2 rules, 2 routes, table ip milan-masquerade-bypass"
	for _, tt := range []struct {
		name   string
		is     theirs
		left   string
		others []string
	}{
		{"nothing", theirs{}, "", nil},
		{"as Liqo makes it", liqos(nil), everything, nil},
		{"a prefix that the InternalFabric no longer has", liqos(func(is *theirs) {
			is.rules[1].dst, is.routes[1].Dst = prefix("10.9.0.0/16"), prefix("10.9.0.0/16")
		}), everything, nil},
		{"rules whose routes went with their link", liqos(func(is *theirs) { is.routes = nil }), "2 rules, table ip milan-masquerade-bypass", nil},
		{"routes whose rules are removed", liqos(func(is *theirs) { is.rules, is.tables = nil, nil; is.routes = is.routes[:1] }), "1 route", nil},
		{"rule to another table", liqos(rule(func(r *theirRule) { r.table++ })), "", nil},
		{"rule to another prefix", liqos(rule(func(r *theirRule) { r.dst, r.text = prefix("0.0.0.0/0"), "7: all" })), "", []string{"rule 7: all"}},
		{"rule with another condition", liqos(rule(func(r *theirRule) { r.dst, r.text = netip.Prefix{}, "7: iif" })), "", []string{"rule 7: iif"}},
		{"route into another device", liqos(route(func(r *theirRoute) { r.Device = "eth0" })), "",
			[]string{"routing table 978431797: it has the route 10.1.0.0/16 via 10.80.0.1 dev eth0 (protocol 3)"}},
		{"route of a routing daemon", liqos(route(func(r *theirRoute) { r.Protocol = 186 })), "",
			[]string{"routing table 978431797: it has the route 10.1.0.0/16 via 10.80.0.1 dev liqo.milan (protocol 186)"}},
		{"route that drops", liqos(route(func(r *theirRoute) { r.Odd, r.Device = true, "" })), "",
			[]string{"routing table 978431797: it has the route 10.1.0.0/16 via 10.80.0.1 (and more) (protocol 3)"}},
		{"route with a type of service", liqos(route(func(r *theirRoute) { r.TOS = 4 })), "",
			[]string{"routing table 978431797: it has the route 10.1.0.0/16 via 10.80.0.1 dev liqo.milan tos 0x4 (protocol 3)"}},
		{"routes of two tables", liqos(func(is *theirs) { is.routes[1].table = 77 }), "2 rules, 1 route, table ip milan-masquerade-bypass", nil},
		{"tables of others, and ours", liqos(func(is *theirs) {
			*is = theirs{tables: []theirTable{{"ip", "cni"}, {"inet", TranslationTable}, {"ip6", "milan-masquerade-bypass"}}}
		}), "table ip6 milan-masquerade-bypass", nil},
	} {
		got := p.left(tt.is)
		if got.String() != tt.left || len(got.Plan.Steps) != got.Rules+got.Routes+len(got.Tables) {
			t.Errorf("%s: left is %q, want %q; the plan is %q", tt.name, got, tt.left, got.Plan.Lines())
		}
		if d := cmp.Diff(tt.others, got.Others); d != "" {
			t.Errorf("%s: others (-want +got):\n%s", tt.name, d)
		}
	}
}

// A peer may choose a name by its hash, but no table of the system has such a number.
func TestRoutingTable(t *testing.T) {
	if got := (PredecessorFabric{Name: "milan"}).routingTable(); got != milanTable {
		t.Errorf("table %d, want %d", got, milanTable)
	}
	for n := range 1 << 12 {
		f := PredecessorFabric{Name: strings.Repeat("a", n)}
		if got := f.routingTable(); got < 256 || got >= 1<<31 {
			t.Errorf("%d letters: table %d", n, got)
		}
	}
}

func TestTakeOver(t *testing.T) {
	liqo := func(change func(*ActualLink)) Actual {
		a := holding(milan())
		l := a.Links[0]
		l.Alias, l.MAC = "", MAC{0x4a, 0x1b, 0, 0x5e, 0x10, 7}
		change(&l)
		return Actual{Foreign: []ForeignLink{{Name: l.Name, Kind: string(l.Kind), Alias: l.Alias, Tunnel: l}}}
	}
	const kept = `take over link liqo.milan of Liqo: alias "sluice: InternalFabric t/milan (MAC 4a:1b:00:5e:10:07)"`
	const replaced = `take over link liqo.milan of Liqo: alias "sluice: InternalFabric t/milan"`
	for _, tt := range []struct {
		name string
		have Actual
		want Link
		plan []string
	}{
		{"as it should be", liqo(func(*ActualLink) {}), milan(), []string{kept}},
		{"down, another MTU, no address", liqo(func(l *ActualLink) { l.Up, l.MTU, l.Addresses = false, 1400, nil }), milan(), []string{kept}},
		{"another remote", liqo(func(l *ActualLink) { l.Gateway = addr("10.0.0.9") }), milan(), []string{replaced}},
		{"another VNI", liqo(func(l *ActualLink) { l.VNI = 9 }), milan(), []string{replaced}},
		{"another port", liqo(func(l *ActualLink) { l.Port = 6081 }), milan(), []string{replaced}},
		{"another kind is wanted", liqo(func(*ActualLink) {}), with(func(l *Link) { l.Kind = KindVXLAN }), []string{replaced}},
		{"another name, and its number", liqo(func(l *ActualLink) { l.Name = "liqo.old" }), milan(),
			[]string{`take over link liqo.old of Liqo: alias "sluice: InternalFabric t/milan"`}},
		{"another name and number", liqo(func(l *ActualLink) { l.Name, l.VNI = "liqo.old", 9 }), milan(), nil},
		{"its number, but not a name of Liqo's", liqo(func(l *ActualLink) { l.Name = "geneve0" }), milan(), nil},
		{"another kind", liqo(func(l *ActualLink) { l.Kind = KindVXLAN }), milan(), nil},
		{"an alias of somebody's", liqo(func(l *ActualLink) { l.Alias = "mine" }), milan(), nil},
		{"without a remote", liqo(func(l *ActualLink) { l.Misfit = "it takes its remote from metadata" }), milan(), nil},
		{"what is wanted cannot be had", liqo(func(*ActualLink) {}), with(func(l *Link) { l.MTU = 1 }), nil},
	} {
		if d := cmp.Diff(tt.plan, TakeOver(desired(tt.want), tt.have).Lines(), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: plan (-want +got):\n%s", tt.name, d)
		}
	}
}

// taken is milan's link as it is after a takeover.
func taken(change func(*ActualLink)) Actual {
	return tampered(func(a *Actual) {
		l := &a.Links[0]
		l.MAC = MAC{0x4a, 0x1b, 0, 0x5e, 0x10, 7}
		l.Alias = "sluice: InternalFabric t/milan (MAC 4a:1b:00:5e:10:07)"
		change(l)
		l.decodeAlias()
	}, milan())
}

// A link that was Liqo's keeps its MAC address until it has to be made anew.
func TestDiffOfTakenLinks(t *testing.T) {
	for _, tt := range []struct {
		name string
		have Actual
		plan []string
	}{
		{"as it should be", taken(func(*ActualLink) {}), nil},
		{"another MAC address", taken(func(l *ActualLink) { l.MAC[5]++ }),
			[]string{"change link liqo.milan: MAC address 4a:1b:00:5e:10:07 (was 4a:1b:00:5e:10:08)"}},
		{"another MTU", taken(func(l *ActualLink) { l.MTU = 1400 }), []string{"change link liqo.milan: MTU 1340 (was 1400)"}},
		{"another remote", taken(func(l *ActualLink) { l.Gateway = addr("10.0.0.9") }), []string{"change link liqo.milan: remote 10.0.0.1 (was 10.0.0.9)"}},
		{"another VNI", taken(func(l *ActualLink) { l.VNI = 9 }), []string{
			"remove link liqo.milan: its VNI is 9, not 7", "add link liqo.milan: geneve, VNI 7, remote 10.0.0.1:6091, MTU 1340", "..."}},
	} {
		got := Diff(desired(milan()), tt.have).Lines()
		if n := len(tt.plan); n > 0 && tt.plan[n-1] == "..." {
			tt.plan, got = tt.plan[:n-1], got[:min(n-1, len(got))]
		}
		if d := cmp.Diff(tt.plan, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: plan (-want +got):\n%s", tt.name, d)
		}
	}
}

func TestGiveBack(t *testing.T) {
	rules := []string{
		"remove route 10.80.0.1/32 dev liqo.milan src 10.80.0.5", "remove route 10.1.0.0/16 via 10.80.0.1 dev liqo.milan onlink",
		"remove rule 600: not from all fwmark 0x5c lookup 6091",
	}
	leave := "leave link liqo.milan to Liqo: without alias"
	for _, tt := range []struct {
		name string
		have Actual
		plan []string
	}{
		{"nothing there", Actual{}, nil},
		{"a link that was Liqo's", taken(func(*ActualLink) {}), append(rules, leave)},
		{"one that is ours", holding(milan()), append(rules, leave)},
		{"gone on with", tampered(func(a *Actual) { a.Routes, a.Rules = nil, nil }, milan()), []string{leave}},
		{"again", tampered(func(a *Actual) { a.Routes, a.Rules, a.Links[0].Alias = nil, nil, "" }, milan()), nil},
		{"another kind", holding(with(func(l *Link) { l.Kind = KindVXLAN })),
			[]string{"remove link liqo.milan: nothing asks for it", rules[2]}},
	} {
		if d := cmp.Diff(tt.plan, GiveBack(tt.have).Lines(), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: plan (-want +got):\n%s", tt.name, d)
		}
	}
}
