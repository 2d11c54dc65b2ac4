package fabric

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/objects/manifests"
)

// translation decides which addresses change on their way. Without a tunnel
// there is nothing to translate.
func (b *builder) translation() {
	var remote []netip.Prefix
	var gateways []netip.Addr
	for _, c := range b.all() {
		remote = append(remote, c.link.Routes...)
		if c.link.Gateway.IsValid() { // that of a TUN device may not be known any more
			gateways = append(gateways, c.link.Gateway)
		}
	}
	unknown := b.unknownSource()
	hosts := b.hosts(remote) // also without a tunnel: what is wrong with them is wrong now
	if len(b.accepted)+len(b.kept) == 0 {
		return
	}
	b.plan.Desired.Translation = hostnet.Translation{
		Local: prefixSet(b.local.pods), Remote: prefixSet(remote), UnknownSource: unknown, HideAll: b.facts.HideAll,
		Hosts: hosts, Gateways: addrSet(gateways), Port: b.facts.Port,
	}
	b.lackOfTranslation(remote)
}

// all returns the tunnels with the links that there should be and those that
// stay as they are, in the order of the InternalFabrics.
func (b *builder) all() []*candidate {
	out := slices.Concat(b.kept, b.accepted)
	slices.SortStableFunc(out, func(x, y *candidate) int { return cmp.Compare(x.order, y.order) })
	return out
}

// unknownSource returns the addresses that stand for whatever is not a pod: the
// first ones of the external CIDRs. Where it is not known what a pod is, nothing
// may be hidden: it could be one.
func (b *builder) unknownSource() (out []netip.Addr) {
	for _, is4 := range []bool{true, false} {
		family := func(p netip.Prefix) bool { return p.Addr().Is4() == is4 }
		i := slices.IndexFunc(b.local.external, family)
		if i >= 0 && slices.ContainsFunc(b.local.pods, family) {
			out = append(out, b.local.external[i].Addr())
		}
	}
	return out
}

// lackOfTranslation says what is not translated although it should be.
func (b *builder) lackOfTranslation(remote []netip.Prefix) {
	for _, is4 := range []bool{true, false} {
		family := func(p netip.Prefix) bool { return p.Addr().Is4() == is4 }
		if !slices.ContainsFunc(remote, family) {
			continue
		}
		version := "IPv6"
		if is4 {
			version = "IPv4"
		}
		where := "; it stands in spec.local of the Configurations"
		if b.objects.InCluster {
			where = "; it stands in the Networks of this cluster (kubectl get networks.ipam.liqo.io -A), or in spec.local of the Configurations"
		}
		const kept = "packets of pods and of the node keep the source that they have, or get one from the CNI"
		switch known := slices.ContainsFunc(b.local.pods, family); {
		case !known && len(b.local.pods) > 0:
			// A cluster of one family, and a peer of two.
			p := manifests.Problem{Reason: fmt.Sprintf("the pods of this cluster have no %s: of what is sent by it to the remote clusters, %s", version, kept)}
			b.plan.OtherFamily = append(b.plan.OtherFamily, p)
			b.warn(p)
		case !known:
			b.plan.Untranslated = append(b.plan.Untranslated, manifests.Problem{Reason: "no " + version + " pod CIDR of this cluster is known: " + kept + where})
		case !slices.ContainsFunc(b.local.external, family):
			b.plan.Untranslated = append(b.plan.Untranslated, manifests.Problem{
				Reason: "no " + version + " external CIDR of this cluster is known: node processes and hostNetwork pods cannot reach the remote clusters" + where,
			})
		}
	}
}

// hosts takes the IP objects whose host must not see the peers' addresses.
func (b *builder) hosts(remote []netip.Prefix) (out []hostnet.HostMapping) {
	external, inside := make(map[netip.Addr]string), make(map[netip.Addr]string)
	for _, ip := range b.objects.IPs {
		o := ip.Object
		if o.Spec.Masquerade == nil || !*o.Spec.Masquerade || o.Labels[ipamv1alpha1.LabelHostUnreachable] == "true" {
			continue
		}
		r := manifests.RefTo("IP", ip, &o.ObjectMeta)
		m, ok := b.host(r, string(o.Spec.IP), string(o.Status.IP))
		if !ok || within(remote, m.Host) { // a host of a peer is made known to third clusters: nothing to hide from it
			continue
		}
		if other, dup := external[m.External]; dup {
			b.excludeHost(r.Problem(statusIPPath, "%s is the address of IP %s as well", m.External, other))
			continue
		}
		if other, dup := inside[m.Host]; dup {
			b.excludeHost(r.Problem(specIPPath, "%s is mapped by IP %s already", m.Host, other))
			continue
		}
		external[m.External], inside[m.Host] = key(&o.ObjectMeta), key(&o.ObjectMeta)
		out = append(out, m)
	}
	slices.SortFunc(out, func(x, y hostnet.HostMapping) int { return x.External.Compare(y.External) })
	return out
}

var specIPPath, statusIPPath = field.NewPath("spec", "ip"), field.NewPath("status", "ip")

// host reads one mapping.
func (b *builder) host(r manifests.Ref, spec, status string) (m hostnet.HostMapping, ok bool) {
	var why string
	if m.Host, why = manifests.ParseAddr(spec); why != "" {
		b.excludeHost(r.Problem(specIPPath, "%q %s", spec, why))
		return m, false
	}
	if status == "" {
		b.plan.HostsWaiting = append(b.plan.HostsWaiting, r.Problem(statusIPPath, "is not given yet: the address waits"))
		return m, false
	}
	if m.External, why = manifests.ParseAddr(status); why != "" {
		b.excludeHost(r.Problem(statusIPPath, "%q %s", status, why))
		return m, false
	}
	switch {
	case m.External.Is4() != m.Host.Is4():
		b.excludeHost(r.Problem(statusIPPath, "%s cannot stand for %s: the families differ", m.External, m.Host))
		return m, false
	case !within(b.local.external, m.External):
		// Of a Network that is not the external CIDR, or the external CIDR is not
		// known yet: either way no peer comes by that address.
		b.warn(r.Problem(statusIPPath, "%s lies in no local external CIDR: it is not masqueraded", m.External))
		return m, false
	case slices.ContainsFunc(b.local.external, func(p netip.Prefix) bool { return p.Addr() == m.External }):
		b.excludeHost(r.Problem(statusIPPath, "%s is the first address of the external CIDR, which stands for nodes and hostNetwork pods", m.External))
		return m, false
	}
	return m, true
}

// nodeIP decides which sources the gateways should expect.
//
//	gateway                                         its source is
//	--------------------------------------------------------------------
//	its status says that it is on this node         local
//	its address is this host's own                  local
//	otherwise                                       remote
//	without a route to it                           what was said before
//
// Of gateways that need different sources the first one decides.
func (b *builder) nodeIP() {
	if b.plan.Node != nil {
		b.plan.NodeIP = b.plan.Node.Status.NodeIP
	}
	here := b.gatewaysHere()
	var decided struct{ local, remote manifests.Ref }
	for _, c := range b.all() {
		path, ok := b.facts.Paths[c.link.Gateway]
		if why := b.facts.NoPath[c.link.Gateway]; why != "" {
			p := c.fabric.Problem(gatewayIPPath, "the gateway %s cannot be reached: %s%s", c.link.Gateway, why, b.familyHint(c.link.Gateway))
			b.plan.Unreachable = append(b.plan.Unreachable, p)
			b.concern(c, p.String())
		}
		if !ok || !path.Source.IsValid() {
			continue
		}
		which, by, what := &b.plan.NodeIP.Remote, &decided.remote, "remote"
		if here[c.link.Gateway] {
			which, by, what = &b.plan.NodeIP.Local, &decided.local, "local"
		}
		source := networkingv1beta1.Address(path.Source.String())
		switch {
		case by.Meta == nil:
			*which, *by = source, c.fabric
		case *which != source:
			p := c.fabric.Problem(gatewayIPPath, "this node sends to %s from %s, but to the gateway of %s from %s: an InternalNode has one address for %s gateways, "+
				"and the gateway of this one will not know the node; give both gateways addresses that the node reaches in the same way", c.link.Gateway, source, nameOf(*by), *which, what)
			b.plan.Unreachable = append(b.plan.Unreachable, p)
			b.concern(c, p.String())
		}
	}
}

// familyHint says what to do about a gateway of a family in which this node
// reaches none.
func (b *builder) familyHint(gateway netip.Addr) (hint string) {
	for a := range b.facts.Paths {
		switch {
		case a.Is4() == gateway.Is4():
			return ""
		case gateway.Is4():
			hint = "; this node reaches other gateways by IPv6: give the gateway an IPv6 address, or the node IPv4"
		default:
			hint = "; this node reaches other gateways by IPv4: give the gateway an IPv4 address, or the node IPv6"
		}
	}
	return hint
}

// gatewaysHere returns the addresses of the gateways whose pods run on this node.
func (b *builder) gatewaysHere() map[netip.Addr]bool {
	here := make(map[netip.Addr]bool)
	note := func(e *networkingv1beta1.InternalEndpoint) {
		if e == nil || e.Node != b.facts.NodeName {
			return
		}
		if a, why := manifests.ParseAddr(string(e.IP)); why == "" {
			here[a] = true
		}
	}
	for _, g := range b.objects.GatewayServers {
		note(g.Object.Status.InternalEndpoint)
	}
	for _, g := range b.objects.GatewayClients {
		note(g.Object.Status.InternalEndpoint)
	}
	return here
}
