package hostnet

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// milan is a link as most tests want it.
func milan() Link {
	return Link{
		Name: "liqo.milan", Owner: "InternalFabric t/milan", Kind: KindGeneve, VNI: 7, Port: 6091, MTU: 1340,
		Gateway: addr("10.0.0.1"), Address: addr("10.80.0.5"), GatewayAddress: addr("10.80.0.1"),
		Routes: []netip.Prefix{prefix("10.1.0.0/16")},
	}
}

func desired(links ...Link) Desired { return Desired{Links: links} }

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// with returns milan, changed.
func with(change func(*Link)) Link {
	l := milan()
	change(&l)
	return l
}

// holding is what is there when exactly that has been applied.
func holding(links ...Link) Actual {
	m := &model{}
	m.apply(Diff(Desired{Links: links}, m.Actual))
	return m.Actual
}

// tampered is what holding returns, changed.
func tampered(change func(*Actual), links ...Link) Actual {
	a := holding(links...)
	change(&a)
	return a
}

func TestDiff(t *testing.T) {
	berlin := with(func(l *Link) {
		l.Name, l.Owner, l.VNI = "liqo.berlin", "InternalFabric t/berlin", 8
		l.Gateway, l.GatewayAddress = addr("10.0.0.2"), addr("10.80.0.2")
		l.Routes = []netip.Prefix{prefix("10.2.0.0/16")}
	})
	for _, tt := range []struct {
		name string
		want Desired
		have Actual
		plan []string
	}{
		{
			name: "nothing wanted, nothing there",
		},
		{
			name: "a new tunnel is made whole before routes lead into it",
			want: desired(milan()),
			plan: []string{
				"add rule 600: not from all fwmark 0x5c lookup 6091",
				"add link liqo.milan: geneve, VNI 7, remote 10.0.0.1:6091, MTU 1340",
				"add address 10.80.0.5/32 to link liqo.milan",
				"set link liqo.milan up",
				"add route 10.80.0.1/32 dev liqo.milan src 10.80.0.5",
				"add route 10.1.0.0/16 via 10.80.0.1 dev liqo.milan onlink",
			},
		},
		{
			name: "IPv6 over an IPv4 gateway goes via its link-local address",
			want: desired(with(func(l *Link) { l.Routes = []netip.Prefix{prefix("fd00:1::/32")} })),
			plan: []string{
				"add rule 600: not from all fwmark 0x5c lookup 6091",
				"add rule 600: not from all fwmark 0x5c lookup 6091 (IPv6)",
				"add link liqo.milan: geneve, VNI 7, remote 10.0.0.1:6091, MTU 1340",
				"add address 10.80.0.5/32 to link liqo.milan",
				"add address fe80::3c5b:8dff:fe1d:a008/64 to link liqo.milan",
				"set link liqo.milan up",
				"add route 10.80.0.1/32 dev liqo.milan src 10.80.0.5",
				"add route fd00:1::/32 via fe80::1 dev liqo.milan",
			},
		},
		{
			name: "IPv6 all the way",
			want: desired(with(func(l *Link) {
				l.Gateway, l.Address, l.GatewayAddress = addr("2001:db8::1"), addr("fd80::5"), addr("fd80::1")
				l.Routes = []netip.Prefix{prefix("fd00:1::/32")}
			})),
			plan: []string{
				"add rule 600: not from all fwmark 0x5c lookup 6091 (IPv6)",
				"add link liqo.milan: geneve, VNI 7, remote [2001:db8::1]:6091, MTU 1340",
				"add address fd80::5/128 to link liqo.milan",
				"add address fe80::3c5b:8dff:fe1d:a008/64 to link liqo.milan",
				"set link liqo.milan up",
				"add route fd80::1/128 dev liqo.milan src fd80::5",
				"add route fd00:1::/32 via fd80::1 dev liqo.milan onlink",
			},
		},
		{
			name: "a TUN device has no neighbors",
			want: desired(with(func(l *Link) {
				l.Kind, l.Routes = KindTUN, []netip.Prefix{prefix("10.1.0.0/16"), prefix("fd00:1::/32")}
			})),
			plan: []string{
				"add rule 600: not from all fwmark 0x5c lookup 6091",
				"add rule 600: not from all fwmark 0x5c lookup 6091 (IPv6)",
				"add link liqo.milan: tun, VNI 7, remote 10.0.0.1:6091, MTU 1340",
				"add address 10.80.0.5/32 to link liqo.milan",
				"set link liqo.milan up",
				"add route 10.80.0.1/32 dev liqo.milan src 10.80.0.5",
				"add route 10.1.0.0/16 dev liqo.milan",
				"add route fd00:1::/32 dev liqo.milan",
			},
		},
		{
			name: "all is well",
			want: desired(milan(), berlin),
			have: holding(milan(), berlin),
		},
		{
			name: "the gateway moves",
			want: desired(with(func(l *Link) { l.Gateway = addr("10.0.0.9") })),
			have: holding(milan()),
			plan: []string{"change link liqo.milan: remote 10.0.0.9 (was 10.0.0.1)"},
		},
		{
			name: "the gateway of a TUN device is in its alias",
			want: desired(with(func(l *Link) { l.Kind, l.Gateway, l.VNI, l.Port = KindTUN, addr("10.0.0.9"), 9, 7000 })),
			have: holding(with(func(l *Link) { l.Kind = KindTUN })),
			plan: []string{`change link liqo.milan: alias "sluice: InternalFabric t/milan (VNI 9, gateway 10.0.0.9:7000)" (was "sluice: InternalFabric t/milan (VNI 7, gateway 10.0.0.1:6091)")`},
		},
		{
			name: "a TUN device whose alias does not say where it leads to",
			want: desired(with(func(l *Link) { l.Kind = KindTUN })),
			have: tampered(func(a *Actual) { a.Links[0].Alias = "sluice: InternalFabric t/milan" }, with(func(l *Link) { l.Kind = KindTUN })),
			plan: []string{`change link liqo.milan: alias "sluice: InternalFabric t/milan (VNI 7, gateway 10.0.0.1:6091)" (was "sluice: InternalFabric t/milan")`},
		},
		{
			name: "MTU and owner change",
			want: desired(with(func(l *Link) { l.MTU, l.Owner = 1280, "InternalFabric t/milano" })),
			have: holding(milan()),
			plan: []string{`change link liqo.milan: MTU 1280 (was 1340), alias "sluice: InternalFabric t/milano" (was "sluice: InternalFabric t/milan")`},
		},
		{
			name: "somebody set the link down",
			want: desired(milan()),
			have: tampered(func(a *Actual) { a.Links[0].Up, a.Routes = false, nil }, milan()),
			plan: []string{
				"set link liqo.milan up",
				"add route 10.80.0.1/32 dev liqo.milan src 10.80.0.5",
				"add route 10.1.0.0/16 via 10.80.0.1 dev liqo.milan onlink",
			},
		},
		{
			name: "somebody changed the MAC address",
			want: desired(milan()),
			have: tampered(func(a *Actual) { a.Links[0].MAC = MAC{2, 1} }, milan()),
			plan: []string{"change link liqo.milan: MAC address 3e:5b:8d:1d:a0:08 (was 02:01:00:00:00:00)"},
		},
		{
			name: "another address: the old one goes when nothing needs it any more",
			want: desired(with(func(l *Link) { l.Address = addr("10.80.0.6") })),
			have: holding(milan()),
			plan: []string{
				"add address 10.80.0.6/32 to link liqo.milan",
				"change route 10.80.0.1/32 dev liqo.milan src 10.80.0.6: it was 10.80.0.1/32 dev liqo.milan src 10.80.0.5",
				"remove address 10.80.0.5/32 from link liqo.milan",
			},
		},
		{
			name: "an address too many, and link-local ones that do no harm",
			want: desired(milan()),
			have: tampered(func(a *Actual) {
				a.Links[0].Addresses = append(a.Links[0].Addresses, prefix("192.0.2.1/24"), prefix("fe80::99/64"))
			}, milan()),
			plan: []string{"remove address 192.0.2.1/24 from link liqo.milan"},
		},
		{
			name: "another gateway address and other routes: new ones first",
			want: desired(with(func(l *Link) {
				l.GatewayAddress, l.Routes = addr("10.80.0.9"), []netip.Prefix{prefix("10.1.0.0/16"), prefix("10.3.0.0/16")}
			})),
			have: holding(with(func(l *Link) { l.Routes = append(l.Routes, prefix("10.2.0.0/16")) })),
			plan: []string{
				"add route 10.80.0.9/32 dev liqo.milan src 10.80.0.5",
				"change route 10.1.0.0/16 via 10.80.0.9 dev liqo.milan onlink: it was 10.1.0.0/16 via 10.80.0.1 dev liqo.milan onlink",
				"add route 10.3.0.0/16 via 10.80.0.9 dev liqo.milan onlink",
				"remove route 10.80.0.1/32 dev liqo.milan src 10.80.0.5",
				"remove route 10.2.0.0/16 via 10.80.0.1 dev liqo.milan onlink",
			},
		},
		{
			name: "a route of ours to elsewhere is put right",
			want: desired(milan()),
			have: tampered(func(a *Actual) { a.Routes[1].Via, a.Routes[1].Device, a.Routes[1].OnLink = netip.Addr{}, "#3", false }, milan()),
			plan: []string{"change route 10.1.0.0/16 via 10.80.0.1 dev liqo.milan onlink: it was 10.1.0.0/16 dev #3"},
		},
		{
			name: "a second route to a prefix goes, wherever it stands",
			want: desired(milan()),
			have: tampered(func(a *Actual) {
				r := a.Routes[1]
				r.Via = addr("10.80.0.77")
				a.Routes = slices.Insert(a.Routes, 1, r)
			}, milan()),
			plan: []string{"remove route 10.1.0.0/16 via 10.80.0.77 dev liqo.milan onlink"},
		},
		{
			name: "routes with another metric or for some packets only are not ours to keep",
			want: desired(milan()),
			have: tampered(func(a *Actual) {
				r, s := a.Routes[1], a.Routes[1]
				r.Metric, s.TOS = 5, 8
				a.Routes = append(a.Routes, r, s)
			}, milan()),
			plan: []string{
				"remove route 10.1.0.0/16 via 10.80.0.1 dev liqo.milan metric 5 onlink",
				"remove route 10.1.0.0/16 via 10.80.0.1 dev liqo.milan tos 0x8 onlink",
			},
		},
		{
			name: "a route with several next hops is replaced",
			want: desired(milan()),
			have: tampered(func(a *Actual) { a.Routes[1].Odd = true }, milan()),
			plan: []string{"change route 10.1.0.0/16 via 10.80.0.1 dev liqo.milan onlink: it was 10.1.0.0/16 via 10.80.0.1 dev liqo.milan onlink (and more)"},
		},
		{
			name: "another kind: made anew",
			want: desired(with(func(l *Link) { l.Kind = KindVXLAN })),
			have: holding(milan()),
			plan: []string{
				"remove link liqo.milan: its kind is geneve, not vxlan",
				"add link liqo.milan: vxlan, VNI 7, remote 10.0.0.1:6091, MTU 1340",
				"add address 10.80.0.5/32 to link liqo.milan",
				"set link liqo.milan up",
				"add route 10.80.0.1/32 dev liqo.milan src 10.80.0.5",
				"add route 10.1.0.0/16 via 10.80.0.1 dev liqo.milan onlink",
			},
		},
		{
			name: "another VNI, another port, another family, wrong flags: made anew",
			want: desired(
				with(func(l *Link) { l.VNI = 9 }),
				with(func(l *Link) { berlinize(l, 1); l.Port = 7000 }),
				with(func(l *Link) { berlinize(l, 2); l.Gateway = addr("2001:db8::1") }),
				with(func(l *Link) { berlinize(l, 3) }),
			),
			have: tampered(func(a *Actual) { a.Links[3].Misfit = "it is crooked" },
				milan(),
				with(func(l *Link) { berlinize(l, 1) }),
				with(func(l *Link) { berlinize(l, 2) }),
				with(func(l *Link) { berlinize(l, 3) }),
			),
			plan: []string{
				"remove link liqo.milan: its VNI is 7, not 9",
				"remove link liqo.berlin1: its port is 6091, not 7000",
				"remove link liqo.berlin2: its remote is 10.0.0.12, of another family than 2001:db8::1",
				"remove link liqo.berlin3: it is crooked",
				"...",
			},
		},
		{
			name: "a link that nobody wants goes last, with its routes",
			want: desired(milan()),
			have: holding(berlin),
			plan: []string{
				"add link liqo.milan: geneve, VNI 7, remote 10.0.0.1:6091, MTU 1340",
				"add address 10.80.0.5/32 to link liqo.milan",
				"set link liqo.milan up",
				"add route 10.80.0.1/32 dev liqo.milan src 10.80.0.5",
				"add route 10.1.0.0/16 via 10.80.0.1 dev liqo.milan onlink",
				"remove link liqo.berlin: nothing asks for it",
			},
		},
		{
			name: "routes move to another link before the old one goes",
			want: desired(with(func(l *Link) { l.Name, l.VNI = "liqo.rome", 8 })),
			have: holding(milan()),
			plan: []string{
				"add link liqo.rome: geneve, VNI 8, remote 10.0.0.1:6091, MTU 1340",
				"add address 10.80.0.5/32 to link liqo.rome",
				"set link liqo.rome up",
				"change route 10.80.0.1/32 dev liqo.rome src 10.80.0.5: it was 10.80.0.1/32 dev liqo.milan src 10.80.0.5",
				"change route 10.1.0.0/16 via 10.80.0.1 dev liqo.rome onlink: it was 10.1.0.0/16 via 10.80.0.1 dev liqo.milan onlink",
				"remove link liqo.milan: nothing asks for it",
			},
		},
		{
			name: "a link that has a wanted VNI goes first",
			want: desired(with(func(l *Link) { l.Name = "liqo.rome" })),
			have: holding(milan()),
			plan: []string{
				"remove link liqo.milan: nothing asks for it",
				"add link liqo.rome: geneve, VNI 7, remote 10.0.0.1:6091, MTU 1340",
				"add address 10.80.0.5/32 to link liqo.rome",
				"set link liqo.rome up",
				"add route 10.80.0.1/32 dev liqo.rome src 10.80.0.5",
				"add route 10.1.0.0/16 via 10.80.0.1 dev liqo.rome onlink",
			},
		},
		{
			name: "a link of another kind on a wanted port goes first",
			want: desired(with(func(l *Link) { l.Name, l.Kind, l.VNI = "liqo.rome", KindVXLAN, 8 })),
			have: holding(milan()),
			plan: []string{
				"remove link liqo.milan: nothing asks for it",
				"add link liqo.rome: vxlan, VNI 8, remote 10.0.0.1:6091, MTU 1340",
				"...",
			},
		},
		{
			name: "kept links stay, whatever they are",
			want: Desired{Keep: []string{"liqo.milan", "liqo.nowhere"}},
			have: tampered(func(a *Actual) { a.Links[0].MTU, a.Routes[1].Metric = 99, 5 }, milan()),
		},
		{
			name: "a kept link holds a prefix that another one wants",
			want: Desired{Keep: []string{"liqo.milan"}, Links: []Link{with(func(l *Link) { berlinize(l, 1); l.Routes = milan().Routes })}},
			have: holding(milan()),
			plan: []string{
				"add link liqo.berlin1: geneve, VNI 8, remote 10.0.0.11:6091, MTU 1340",
				"add address 10.80.0.5/32 to link liqo.berlin1",
				"set link liqo.berlin1 up",
				"add route 10.80.0.11/32 dev liqo.berlin1 src 10.80.0.5",
				"link liqo.berlin1: 10.1.0.0/16 is still behind link liqo.milan, which stays as it is",
			},
		},
		{
			name: "a kept link has a VNI that another one wants, and so on",
			want: Desired{Keep: []string{"liqo.milan"}, Links: []Link{
				with(func(l *Link) { berlinize(l, 1); l.Kind, l.VNI = KindVXLAN, 7 }),
				with(func(l *Link) { berlinize(l, 2); l.Kind, l.VNI = KindVXLAN, 8 }),
			}},
			have: holding(
				with(func(l *Link) { l.Kind = KindVXLAN }),
				with(func(l *Link) { berlinize(l, 1); l.Kind = KindVXLAN }),
			),
			plan: []string{
				"link liqo.berlin1: VNI 7 is still that of link liqo.milan, which stays as it is",
				"link liqo.berlin2: VNI 8 is still that of link liqo.berlin1, which stays as it is",
			},
		},
		{
			name: "two links want one VNI",
			want: desired(with(func(l *Link) { l.Kind = KindVXLAN }), with(func(l *Link) { berlinize(l, 1); l.Kind, l.VNI = KindVXLAN, 7 })),
			have: holding(with(func(l *Link) { l.Kind = KindVXLAN })),
			plan: []string{"link liqo.berlin1: link liqo.milan has VNI 7, too: VNIs must differ"},
		},
		{
			name: "the kernel's geneve tells links with one VNI apart by their remote",
			want: desired(milan(), with(func(l *Link) { berlinize(l, 1); l.VNI = 7 })),
			have: holding(milan(), with(func(l *Link) { berlinize(l, 1); l.VNI = 7 })),
		},
		{
			name: "somebody else's link has a wanted name",
			want: desired(milan()),
			have: Actual{Foreign: []ForeignLink{{Name: "liqo.milan", Kind: "geneve", Alias: "mine"}}},
			plan: []string{`link liqo.milan: the name belongs to somebody else (kind "geneve", alias "mine"): remove that link (ip link del liqo.milan) or choose another name`},
		},
		{
			name: "somebody else's route holds a wanted prefix",
			want: desired(milan()),
			have: tampered(func(a *Actual) {
				a.ForeignRoutes = []Route{{Dst: prefix("10.1.0.0/16"), Device: "#2", Protocol: 4}}
				a.Routes = a.Routes[:1]
			}, milan()),
			plan: []string{"link liqo.milan: route 10.1.0.0/16 cannot be set: in table 6091 somebody else has 10.1.0.0/16 dev #2 (protocol 4): remove it (ip route del 10.1.0.0/16 table 6091)"},
		},
		{
			name: "a route of ours beside somebody else's is not replaced: the kernel might take the other",
			want: desired(milan()),
			have: tampered(func(a *Actual) {
				a.ForeignRoutes = []Route{{Dst: prefix("10.1.0.0/16"), Device: "#2", Protocol: 4}}
				a.Routes[1].Via = addr("10.80.0.77")
			}, milan()),
			plan: []string{"link liqo.milan: route 10.1.0.0/16 cannot be set: in table 6091 somebody else has 10.1.0.0/16 dev #2 (protocol 4): remove it (ip route del 10.1.0.0/16 table 6091)"},
		},
		{
			name: "two links want one prefix",
			want: desired(milan(), with(func(l *Link) { berlinize(l, 1); l.Routes = milan().Routes })),
			have: holding(milan(), with(func(l *Link) { berlinize(l, 1); l.Routes = nil })),
			plan: []string{"link liqo.berlin1: 10.1.0.0/16 is already behind link liqo.milan: two gateways must not have the same prefix"},
		},
		{
			name: "two links want one name",
			want: desired(milan(), milan()),
			have: holding(milan()),
			plan: []string{`link liqo.milan: "InternalFabric t/milan" and "InternalFabric t/milan" both want this name: names of links must differ`},
		},
		{
			name: "what is impossible changes nothing",
			want: desired(with(func(l *Link) { l.MTU = 70000 })),
			have: holding(milan()),
			plan: []string{"link liqo.milan: MTU 70000 is outside of 576 to 65535"},
		},
		{
			name: "rules: missing, at another place, twice, with conditions",
			want: Desired{Links: []Link{milan()}, RulePriority: 700},
			have: tampered(func(a *Actual) {
				a.Rules = []Rule{{Priority: 600}, {Priority: 700, Odd: true}, {IPv6: true, Priority: 700}}
			}, milan()),
			plan: []string{
				"add rule 700: not from all fwmark 0x5c lookup 6091",
				"remove rule 600: not from all fwmark 0x5c lookup 6091",
				"remove rule 700: lookup 6091 (other conditions)",
				"remove rule 700: not from all fwmark 0x5c lookup 6091 (IPv6)",
			},
		},
		{
			name: "a rule that is there twice",
			want: desired(milan()),
			have: tampered(func(a *Actual) { a.Rules = append(a.Rules, a.Rules[0]) }, milan()),
			plan: []string{"remove rule 600: not from all fwmark 0x5c lookup 6091"},
		},
		{
			name: "cleanup",
			have: tampered(func(a *Actual) {
				a.Routes = append(a.Routes, Route{Dst: prefix("10.9.0.0/16"), Device: "#4", Protocol: Protocol})
			}, milan(), berlin),
			plan: []string{
				"remove route 10.9.0.0/16 dev #4",
				"remove link liqo.milan: nothing asks for it",
				"remove link liqo.berlin: nothing asks for it",
				"remove rule 600: not from all fwmark 0x5c lookup 6091",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Diff(tt.want, tt.have).Lines()
			want := tt.plan
			if n := len(want); n > 0 && want[n-1] == "..." {
				want, got = want[:n-1], got[:min(n-1, len(got))]
			}
			if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
		})
	}
}

// berlinize makes of milan another link, number n of several.
func berlinize(l *Link, n int) {
	l.Name, l.VNI = "liqo.berlin"+string(rune('0'+n)), 7+uint32(n)
	l.Gateway = netip.AddrFrom4([4]byte{10, 0, 0, 10 + byte(n)})
	l.GatewayAddress = netip.AddrFrom4([4]byte{10, 80, 0, 10 + byte(n)})
	l.Routes = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 20 + byte(n), 0, 0}), 16)}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Link)
		want   string // part of the error; empty: none
	}{
		{"as it should be", func(*Link) {}, ""},
		{"smallest MTU", func(l *Link) { l.MTU = 576 }, ""},
		{"VNI 0 is one like others", func(l *Link) { l.VNI = 0 }, ""},
		{"name without our prefix", func(l *Link) { l.Name = "milan" }, "name"},
		{"name of the prefix alone", func(l *Link) { l.Name = "liqo." }, "name"},
		{"name too long", func(l *Link) { l.Name = "liqo.abcdefghijk" }, "name"},
		{"name that the kernel refuses", func(l *Link) { l.Name = "liqo.a/b" }, "name"},
		{"unknown kind", func(l *Link) { l.Kind = "gre" }, "kind"},
		{"VNI of 25 bits", func(l *Link) { l.VNI = 1 << 24 }, "24 bits"},
		{"no port", func(l *Link) { l.Port = 0 }, "port"},
		{"no gateway", func(l *Link) { l.Gateway = netip.Addr{} }, "gateway"},
		{"mapped gateway", func(l *Link) { l.Gateway = addr("::ffff:10.0.0.1") }, "gateway"},
		{"multicast gateway", func(l *Link) { l.Gateway = addr("239.1.1.1") }, "gateway"},
		{"no address", func(l *Link) { l.Address = netip.Addr{} }, "one family"},
		{"two families inside", func(l *Link) { l.Address = addr("fd80::5") }, "one family"},
		{"node is its own gateway", func(l *Link) { l.Address = l.GatewayAddress }, "same address"},
		{"no MTU", func(l *Link) { l.MTU = 0 }, "MTU 0"},
		{"MTU too small for IPv6", func(l *Link) { l.MTU, l.Routes = 1279, []netip.Prefix{prefix("fd00::/64")} }, "1280"},
		{"route with host bits", func(l *Link) { l.Routes = []netip.Prefix{prefix("10.1.0.1/16")} }, "masked"},
		{"no route at all", func(l *Link) { l.Routes = []netip.Prefix{{}} }, "masked"},
		{"IPv4 behind an IPv6 gateway", func(l *Link) { l.Address, l.GatewayAddress = addr("fd80::5"), addr("fd80::1") }, "IPv4 gateway"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := with(tt.change)
			err := l.check()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestLinkMAC(t *testing.T) {
	seen := make(map[MAC]bool)
	for vni := range uint32(1000) {
		m := linkMAC("liqo.milan", vni)
		if m[0]&3 != 2 {
			t.Fatalf("%v is not a locally administered unicast address", m)
		}
		seen[m] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d addresses of 1000 links", len(seen))
	}
	if got, want := linkLocal(MAC{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}), addr("fe80::11:22ff:fe33:4455"); got != want {
		t.Errorf("link-local address %v, want %v", got, want)
	}
}
