package hostnet

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// model is a kernel that takes steps as the real one does, and panics where that
// would refuse them.
type model struct {
	Actual
	lastIndex int
}

func (m *model) apply(p Plan) {
	for _, s := range p.Steps {
		if s, ok := s.(networkStep); ok {
			m.step(s)
		}
	}
}

func (m *model) link(name string) *ActualLink {
	for i := range m.Links {
		if m.Links[i].Name == name {
			return &m.Links[i]
		}
	}
	panic(fmt.Sprintf("no link %s", name))
}

func (m *model) step(s networkStep) {
	switch s := s.(type) {
	case addLink:
		m.addLink(s.want)
	case removeLink:
		m.link(s.name)
		m.Links = slices.DeleteFunc(m.Links, func(l ActualLink) bool { return l.Name == s.name })
		m.Routes = slices.DeleteFunc(m.Routes, func(r Route) bool { return r.Device == s.name })
	case setLink:
		l := m.link(s.want.Name)
		l.MTU, l.Alias = s.want.MTU, s.want.alias()
		l.decodeAlias()
		if s.want.ethernet() {
			l.Gateway, l.MAC = s.want.Gateway, linkMAC(s.want.Name, s.want.VNI)
		}
	case setUp:
		m.link(s.want.Name).Up = true
	case addAddress:
		l := m.link(s.want.Name)
		if slices.Contains(l.Addresses, s.address) {
			panic("address is there")
		}
		l.Addresses = append(l.Addresses, s.address)
	case removeAddress:
		m.removeAddress(s)
	case putRoute:
		m.putRoute(s)
	case removeRoute:
		i := slices.IndexFunc(m.Routes, s.route.same)
		if i < 0 {
			panic(fmt.Sprintf("no route %v", s.route))
		}
		m.Routes = slices.Delete(m.Routes, i, i+1)
	case addRule:
		m.Rules = append(m.Rules, s.rule)
	case removeRule:
		i := slices.Index(m.Rules, s.rule)
		m.Rules = slices.Delete(m.Rules, i, i+1)
	default:
		panic(fmt.Sprintf("unknown step %T", s))
	}
}

func (m *model) addLink(l Link) {
	for _, h := range m.Links {
		if h.Name == l.Name || l.ethernet() && h.number() == l.number() {
			panic(fmt.Sprintf("%s: name or VNI %d are taken by %s", l.Name, l.VNI, h.Name))
		}
	}
	m.lastIndex++
	h := ActualLink{Name: l.Name, Index: m.lastIndex, Kind: l.Kind, MTU: l.MTU, Alias: l.alias()}
	if l.ethernet() {
		h.VNI, h.Gateway, h.Port, h.MAC = l.VNI, l.Gateway, l.Port, linkMAC(l.Name, l.VNI)
	}
	h.decodeAlias()
	m.Links = append(m.Links, h)
}

func (m *model) removeAddress(s removeAddress) {
	l := m.link(s.name)
	l.Addresses = slices.DeleteFunc(l.Addresses, func(p netip.Prefix) bool { return p == s.address })
	m.Routes = slices.DeleteFunc(m.Routes, func(r Route) bool {
		if r.Device != s.name || r.Src != s.address.Addr() {
			return false
		}
		if !m.foreign(r.key()) { // Otherwise there is a problem with the route anyway.
			panic(fmt.Sprintf("the kernel removes route %v with address %v", r, s.address))
		}
		return true
	})
}

func (m *model) foreign(key routeKey) bool {
	return slices.ContainsFunc(m.ForeignRoutes, func(r Route) bool { return r.key() == key })
}

func (m *model) putRoute(s putRoute) {
	l := m.link(s.route.Device)
	if !l.Up {
		panic(fmt.Sprintf("route %v into a link that is down", s.route))
	}
	if s.route.Src.IsValid() && !slices.Contains(l.Addresses, host(s.route.Src)) {
		panic(fmt.Sprintf("route %v from an address that is not there", s.route))
	}
	key := s.route.key()
	if m.foreign(key) {
		panic(fmt.Sprintf("route %v might hit another's", s.route))
	}
	i := slices.IndexFunc(m.Routes, func(r Route) bool { return r.key() == key })
	if (i >= 0) != (s.old != nil) {
		panic(fmt.Sprintf("%v: there is one at %d", s, i))
	}
	if i < 0 {
		m.Routes = append(m.Routes, s.route)
		return
	}
	m.Routes[i] = s.route
}

// drawLinks draws links of a few names, VNIs and prefixes, so that they meet.
func drawLinks(t *rapid.T) []Link {
	n := rapid.IntRange(0, 4).Draw(t, "links")
	var links []Link
	for range n {
		l := Link{
			Name:  LinkPrefix + rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name"),
			Owner: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "owner"),
			Kind:  rapid.SampledFrom(Kinds).Draw(t, "kind"),
			VNI:   rapid.Uint32Range(1, 4).Draw(t, "VNI"), Port: rapid.SampledFrom([]uint16{6091, 7000}).Draw(t, "port"),
			MTU:     rapid.SampledFrom([]int{1300, 1400, 100}).Draw(t, "mtu"),
			Gateway: rapid.SampledFrom([]netip.Addr{addr("10.0.0.1"), addr("10.0.0.2"), addr("2001:db8::1")}).Draw(t, "gateway"),
		}
		l.Address, l.GatewayAddress = addr("10.80.0.5"), rapid.SampledFrom([]netip.Addr{addr("10.80.0.1"), addr("10.80.0.2")}).Draw(t, "gateway address")
		prefixes := []netip.Prefix{prefix("10.1.0.0/16"), prefix("10.2.0.0/16"), prefix("10.80.0.1/32"), prefix("fd00:1::/32"), prefix("fd00:2::/32")}
		if rapid.Bool().Draw(t, "IPv6") {
			l.Address, l.GatewayAddress = addr("fd80::5"), addr("fd80::1")
			prefixes = prefixes[3:]
		}
		l.Routes = rapid.SliceOfNDistinct(rapid.SampledFrom(prefixes), 0, 3, rapid.ID[netip.Prefix]).Draw(t, "routes")
		links = append(links, l)
	}
	return links
}

// tamper draws what others may have done to ours.
func (m *model) tamper(t *rapid.T) {
	for range rapid.IntRange(0, 5).Draw(t, "tampering") {
		if len(m.Links) > 0 {
			m.tamperLink(t, &m.Links[rapid.IntRange(0, len(m.Links)-1).Draw(t, "which link")])
		}
		if len(m.Routes) > 0 {
			m.tamperRoute(t, rapid.IntRange(0, len(m.Routes)-1).Draw(t, "which route"))
		}
		if len(m.Rules) > 0 {
			switch rapid.IntRange(0, 3).Draw(t, "rule") {
			case 0:
				m.Rules = append(m.Rules, m.Rules[0])
			case 1:
				m.Rules[0].Odd = true
			case 2:
				m.Rules = m.Rules[1:]
			}
		}
	}
}

func (m *model) tamperLink(t *rapid.T, l *ActualLink) {
	switch rapid.IntRange(0, 7).Draw(t, "link") {
	case 0:
		l.Up = false
		m.Routes = slices.DeleteFunc(m.Routes, func(r Route) bool { return r.Device == l.Name })
	case 1:
		l.MTU = 999
	case 2:
		l.Misfit = "crooked"
	case 3:
		l.MAC = MAC{2}
	case 4:
		if !slices.Contains(l.Addresses, prefix("192.0.2.1/24")) {
			l.Addresses = append(l.Addresses, prefix("192.0.2.1/24"))
		}
	case 5:
		if len(l.Addresses) > 0 {
			gone := l.Addresses[0].Addr()
			l.Addresses = l.Addresses[1:]
			m.Routes = slices.DeleteFunc(m.Routes, func(r Route) bool { return r.Device == l.Name && r.Src == gone })
		}
	}
}

func (m *model) tamperRoute(t *rapid.T, i int) {
	r := m.Routes[i]
	switch rapid.IntRange(0, 7).Draw(t, "route") {
	case 0:
		m.Routes = slices.Delete(m.Routes, i, i+1)
	case 1:
		m.Routes[i].Device, m.Routes[i].Src = "#9", netip.Addr{}
	case 2:
		m.Routes[i].Odd = true
	case 3:
		r.Metric = 77
		m.Routes = slices.Insert(m.Routes, i, r)
	case 4:
		r.Via = addr("10.80.0.99")
		m.Routes = slices.Insert(m.Routes, i, r)
	case 5:
		m.ForeignRoutes = append(m.ForeignRoutes, Route{Dst: r.Dst, Metric: r.Metric, Device: "#9", Protocol: 4})
	}
}

// Whatever is there, one plan leads to what is wanted; every step is one that the
// kernel takes; what is kept and what is not ours stays.
func TestDiffLeadsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{}
		m.apply(Diff(Desired{Links: drawLinks(t)}, m.Actual))
		m.tamper(t)
		want := Desired{Links: drawLinks(t)}
		if rapid.Bool().Draw(t, "keep") {
			want.Keep = []string{"liqo.a"}
		}
		if rapid.Bool().Draw(t, "foreign") && !slices.ContainsFunc(m.Links, func(l ActualLink) bool { return l.Name == "liqo.b" }) {
			m.Foreign = []ForeignLink{{Name: "liqo.b", Kind: "geneve"}}
		}
		kept := m.of(want.Keep)

		plan := Diff(want, m.Actual)
		m.apply(plan)

		again := Diff(want, m.Actual)
		if d := cmp.Diff([]string(nil), texts(again.Steps), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("plan after plan (-want +got):\n%s", d)
		}
		if d := cmp.Diff(kept, m.of(want.Keep), cmp.AllowUnexported(Route{}, netip.Addr{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("kept links (-before +after):\n%s", d)
		}
		m.apply(Diff(Desired{}, m.Actual))
		if len(m.Links)+len(m.Routes)+len(m.Rules) > 0 {
			t.Fatalf("after cleanup: %+v", m.Actual)
		}
	})
}

// of is everything about some links.
func (m *model) of(names []string) (a Actual) {
	for _, l := range m.Links {
		if slices.Contains(names, l.Name) {
			a.Links = append(a.Links, l)
		}
	}
	for _, r := range m.Routes {
		if slices.Contains(names, r.Device) {
			a.Routes = append(a.Routes, r)
		}
	}
	return a
}

func texts(steps []Step) []string {
	var lines []string
	for _, s := range steps {
		lines = append(lines, s.String())
	}
	return lines
}
