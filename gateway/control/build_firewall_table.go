package control

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/objects/manifests"
)

// Interfaces of a gateway as rules name them. Those towards the nodes are named by
// the InternalNodes.
const (
	tunnelLink = "liqo-tunnel"
	nodeLinks  = "liqo." // begins the names of all of them
	anyNode    = nodeLinks + "*"
)

// tableBuilder turns one table into chains of the data plane.
type tableBuilder struct {
	ref    manifests.Ref
	source manifests.Source
	name   string            // that the data plane shows
	nodes  map[string]string // by the name of the gateway's interface
	table  *networkingv1beta1.FirewallTable

	chains   []filter.Chain
	problems manifests.Problems
	// notes are what the author should know of a table that is applied.
	notes manifests.Problems
}

func (t *tableBuilder) fail(path *field.Path, format string, args ...any) {
	t.problems = append(t.problems, t.ref.Problem(path, format, args...))
}

func (t *tableBuilder) build() {
	path := field.NewPath("spec", "table")
	family := filter.Both
	switch t.table.Family {
	case networkingv1beta1.FamilyINET:
	case networkingv1beta1.FamilyIPv4:
		family = filter.IPv4
	case networkingv1beta1.FamilyIPv6:
		family = filter.IPv6
	default:
		t.fail(path.Child("family"), "%q cannot be filtered here: write IPV4, IPV6 or INET", t.table.Family)
	}
	for i := range t.table.Chains {
		c := &t.table.Chains[i]
		out := filter.Chain{Table: t.name, Name: c.Name, Family: family, Priority: int32(c.Priority)}
		t.chain(path.Child("chains").Index(i), c, &out)
		t.chains = append(t.chains, out)
	}
	if len(t.problems) > 0 {
		return
	}
	// It would be a mistake of ours; it must not refuse the whole state.
	if err := (filter.Config{Chains: t.chains}).Validate(); err != nil {
		t.fail(path, "%s", err)
	}
}

func (t *tableBuilder) chain(path *field.Path, c *networkingv1beta1.FirewallChain, out *filter.Chain) {
	switch c.Type {
	case networkingv1beta1.ChainFilter:
	case networkingv1beta1.ChainNAT:
		t.fail(path.Child("type"), `"nat": addresses are translated as the Configuration and the IP objects say: write an IP object for a host that the peer should reach, and remove the chain`)
		return
	case networkingv1beta1.ChainRoute:
		t.fail(path.Child("type"), `"route": packets go where RouteConfigurations say: remove the chain`)
		return
	default:
		t.fail(path.Child("type"), "%q is not filter", c.Type)
		return
	}
	if len(c.Rules.NATRules)+len(c.Rules.RouteRules) > 0 {
		t.fail(path.Child("rules"), "a chain of type filter has filterRules only: remove the others")
	}
	switch c.Hook {
	case networkingv1beta1.HookPrerouting:
		out.Hook = filter.Prerouting
	case networkingv1beta1.HookForward:
		out.Hook = filter.Forward
	case networkingv1beta1.HookPostrouting:
		out.Hook = filter.Postrouting
	case networkingv1beta1.HookInput, networkingv1beta1.HookOutput:
		t.fail(path.Child("hook"), "%q: the gateway's own packets pass no chain here: write forward for what passes between the clusters, or a NetworkPolicy for the gateway's pod", c.Hook)
	case networkingv1beta1.HookIngress:
		t.fail(path.Child("hook"), `"ingress": there is no such hook here: write prerouting, with a priority below %d to see packets before translation`, filter.PriorityDestination)
	default:
		t.fail(path.Child("hook"), "%q is none of prerouting, forward, postrouting", c.Hook)
	}
	switch c.Policy {
	case networkingv1beta1.PolicyAccept:
	case networkingv1beta1.PolicyDrop:
		out.Policy = filter.Drop
	default:
		t.fail(path.Child("policy"), "%q is neither accept nor drop", c.Policy)
	}
	for i := range c.Rules.FilterRules {
		r := &c.Rules.FilterRules[i]
		// A rule without a name gets one to be counted under.
		rule := filter.Rule{Name: cmp.Or(r.Name, fmt.Sprintf("#%d", i+1))}
		t.rule(path.Child("rules", "filterRules").Index(i), out, r, &rule)
		out.Rules = append(out.Rules, rule)
	}
}

func (t *tableBuilder) rule(path *field.Path, c *filter.Chain, r *networkingv1beta1.FilterRule, out *filter.Rule) {
	// An API server fills in the default, true; in a file it may be missing.
	out.Counter = r.Counter || !t.source.Has(path.Child("counter"))
	switch r.Action {
	case networkingv1beta1.ActionAccept:
		out.Action = filter.Accept
	case networkingv1beta1.ActionDrop:
		out.Action = filter.Drop
	case networkingv1beta1.ActionReject:
		out.Action = filter.Reject
		if c.Hook == filter.Postrouting {
			t.fail(path.Child("action"), `"reject": the sender cannot be told at postrouting: write hook forward, or drop`)
		}
	case networkingv1beta1.ActionTCPMSSClamp:
		out.Action = filter.ClampMSS
		var err error
		if out.MSS, err = strconv.Atoi(cmp.Or(r.Value, "0")); err != nil || out.MSS != 0 && (out.MSS < filter.MinMSS || out.MSS > filter.MaxMSS) {
			t.fail(path.Child("value"), "%q is no segment size: 0 for what fits the MTU, or %d to %d", r.Value, filter.MinMSS, filter.MaxMSS)
		}
	case networkingv1beta1.ActionCtMark, networkingv1beta1.ActionMetaMarkFromCtMark:
		t.fail(path.Child("action"), "%q: there are no marks here, and answers find the node of their connection without: remove the rule", r.Action)
	case networkingv1beta1.ActionNoTrack:
		t.fail(path.Child("action"), `"notrack": no connections are tracked here: remove the rule`)
	default:
		t.fail(path.Child("action"), "%q is none of accept, drop, reject, tcpmssclamp", r.Action)
	}
	for i := range r.Match {
		var m filter.Match
		t.match(path.Child("match").Index(i), c, &r.Match[i], &m)
		out.Matches = append(out.Matches, m)
	}
}

func (t *tableBuilder) match(path *field.Path, c *filter.Chain, m *networkingv1beta1.Match, out *filter.Match) {
	switch m.Op {
	case networkingv1beta1.MatchEqual:
	case networkingv1beta1.MatchNotEqual:
		out.Not = true
	default:
		t.fail(path.Child("op"), "%q is neither eq nor neq", m.Op)
	}
	if m.Proto != nil {
		switch m.Proto.Value {
		case networkingv1beta1.MatchTCP:
			out.Proto = packet.ProtoTCP
		case networkingv1beta1.MatchUDP:
			out.Proto = packet.ProtoUDP
		default:
			t.fail(path.Child("proto", "value"), "%q is neither tcp nor udp", m.Proto.Value)
		}
	}
	if m.IP != nil {
		at := path.Child("ip")
		put(t, at.Child("position"), m.IP.Position, &out.Src, &out.Dst, t.addrs(at.Child("value"), c, m.IP.Value))
	}
	if m.Port != nil {
		at := path.Child("port")
		put(t, at.Child("position"), m.Port.Position, &out.SrcPort, &out.DstPort, t.ports(at.Child("value"), m.Port.Value))
	}
	if m.Dev != nil {
		at := path.Child("dev")
		link := t.link(at.Child("value"), m.Dev.Value)
		switch m.Dev.Position {
		case networkingv1beta1.DevIn:
			out.In = link
		case networkingv1beta1.DevOut:
			out.Out = link
			if c.Hook == filter.Prerouting {
				t.fail(at.Child("position"), `"out": the way out is not known at prerouting: write hook forward`)
			}
		default:
			t.fail(at.Child("position"), "%q is neither in nor out", m.Dev.Position)
		}
	}
}

// put writes value where the position says.
func put[T any](t *tableBuilder, path *field.Path, at networkingv1beta1.MatchPosition, src, dst *T, value T) {
	switch at {
	case networkingv1beta1.MatchSrc:
		*src = value
	case networkingv1beta1.MatchDst:
		*dst = value
	default:
		t.fail(path, "%q is neither src nor dst", at)
	}
}

// addrs reads an address, a prefix or a range.
func (t *tableBuilder) addrs(path *field.Path, c *filter.Chain, s string) (a filter.Addrs) {
	first, last, ok := parseAddrs(s)
	if !ok {
		t.fail(path, "%q is no address, prefix or range a-b of one family", s)
		return a
	}
	if c.Family == filter.IPv4 && first.Is6() || c.Family == filter.IPv6 && first.Is4() {
		t.fail(path, "%q is not of the table's family, %s", s, t.table.Family)
		return a
	}
	return filter.Addrs{First: first, Last: last}
}

func parseAddrs(s string) (first, last netip.Addr, ok bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		p = p.Masked()
		first, last = p.Addr(), lastAddr(p)
		return first, last, !first.Is4In6()
	}
	from, to, isRange := strings.Cut(s, "-")
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	if last = first; err == nil && isRange {
		last, err = netip.ParseAddr(strings.TrimSpace(to))
	}
	ok = err == nil && first.Zone() == "" && last.Zone() == "" && !first.Is4In6() && !last.Is4In6() &&
		first.BitLen() == last.BitLen() && !last.Less(first)
	return first, last, ok
}

// lastAddr returns the last address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// ports reads a port or a range.
func (t *tableBuilder) ports(path *field.Path, s string) filter.Ports {
	from, to, isRange := strings.Cut(s, "-")
	first, err := strconv.ParseUint(strings.TrimSpace(from), 10, 16)
	last := first
	if err == nil && isRange {
		last, err = strconv.ParseUint(strings.TrimSpace(to), 10, 16)
	}
	if err != nil || last < first || last == 0 {
		t.fail(path, "%q is no port, 1 to 65535, nor a range a-b of them", s)
	}
	return filter.Ports{First: uint16(first), Last: uint16(last)}
}

// link finds what an interface of a kernel gateway stands for.
func (t *tableBuilder) link(path *field.Path, name string) filter.Link {
	switch node := t.nodes[name]; {
	case name == tunnelLink:
		return filter.Link{Side: filter.PeerSide}
	case name == anyNode:
		return filter.Link{Side: filter.NodeSide}
	case node != "":
		return filter.Link{Side: filter.NodeSide, Node: node}
	case strings.HasPrefix(name, nodeLinks):
		// Nodes come and go. To refuse the table over one that went would
		// take the other rules out of force.
		t.notes = append(t.notes, t.ref.Problem(path, "%q is the interface of no InternalNode: until it is, no packet passes it", name))
		return filter.Link{Side: filter.NoSide}
	}
	t.fail(path, "%q is no interface here: write %s for the peer's side, %s for all nodes, or spec.interface.gateway.name of an InternalNode", name, tunnelLink, anyNode)
	return filter.Link{}
}
