package control

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/objects/manifests"
)

// routes takes what says behind which node an address lives. Rules that a kernel
// gateway needs for other purposes - its own links, marks of the unknown source,
// the way into the tunnel - are built into the data plane and skipped.
func (b *builder) routes() {
	c := &b.desired.DataPlane
	local := slices.Concat(c.LocalPods, c.LocalExternal)
	count := b.countRoutes()
	seen := make(map[netip.Prefix]string, count)
	c.Routes = make([]dataplane.Route, 0, count)
	for _, rc := range b.objects.RouteConfigurations {
		r := manifests.RefTo("RouteConfiguration", rc, &rc.Object.ObjectMeta)
		if c := rc.Object.Labels[networkingv1beta1.LabelRouteCategory]; c != "" && c != networkingv1beta1.CategoryGateway {
			continue // applied by the nodes
		}
		lost, foreign := lostRoutes{}, lostRoutes{}
		rules := field.NewPath("spec", "table", "rules")
		for i, rule := range rc.Object.Spec.Table.Rules {
			if rule.FwMark != nil {
				continue
			}
			for j := range rule.Routes {
				// Of a hundred thousand routes hardly one needs its path.
				path := func() *field.Path { return rules.Index(i).Child("routes").Index(j) }
				dst, node, ok := b.route(r, path, &rule.Routes[j], &lost)
				if !ok {
					continue
				}
				if other, dup := seen[dst]; dup {
					if other != node {
						b.warn(r, path().Child("dst"), "%s is already routed to node %s, which stays", dst, other)
					}
					continue
				}
				seen[dst] = node
				if len(c.LocalPods) > 0 && !b.isLocal(local, dst) { // without CIDRs it waits with them
					foreign.add(path().Child("dst"))
				}
				c.Routes = append(c.Routes, dataplane.Route{Dst: dst, Node: node})
			}
		}
		if lost.count > 0 {
			b.warn(r, lost.first, "leads to no InternalNode that is known yet; %s of this object wait", plural(lost.count, "route"))
		}
		if foreign.count > 0 {
			b.warn(r, foreign.first, "lies in no local CIDR and is the address of no IP object: %s of this object without effect", plural(foreign.count, "route"))
		}
	}
}

// countRoutes returns how many routes there can be.
func (b *builder) countRoutes() (n int) {
	for _, rc := range b.objects.RouteConfigurations {
		for _, rule := range rc.Object.Spec.Table.Rules {
			n += len(rule.Routes)
		}
	}
	return n
}

// isLocal tells whether the peer can send to an address behind a route.
func (b *builder) isLocal(local []netip.Prefix, dst netip.Prefix) bool {
	return slices.ContainsFunc(local, dst.Overlaps) ||
		slices.ContainsFunc(b.desired.DataPlane.Addresses, func(a dataplane.AddressMapping) bool { return dst.Contains(a.Inside) })
}

// lostRoutes counts the routes of one object that have no effect for one reason:
// one warning for all, as a node may have hundreds of pods.
type lostRoutes struct {
	count int
	first *field.Path
}

func (l *lostRoutes) add(path *field.Path) {
	if l.count++; l.first == nil {
		l.first = path
	}
}

// route reads one route. It reports false for routes that have no effect.
func (b *builder) route(r manifests.Ref, path func() *field.Path, rt *networkingv1beta1.Route, lost *lostRoutes) (dst netip.Prefix, node string, ok bool) {
	dst, why := parseDestination(string(rt.Dst))
	if why != "" {
		b.exclude(r.Problem(path().Child("dst"), "%q %s", rt.Dst, why))
		return dst, "", false
	}
	by := "gw"
	switch {
	case rt.Gw != "":
		gw, why := manifests.ParseAddr(string(rt.Gw))
		if why != "" {
			b.exclude(r.Problem(path().Child("gw"), "%q %s", rt.Gw, why))
			return dst, "", false
		}
		if tunnelPrefix.Contains(gw) {
			return dst, "", false // towards the peer: the way of every packet
		}
		node = b.byInternal[gw]
	case rt.Dev != "":
		node, by = b.byLink[rt.Dev], "dev"
	default:
		b.exclude(r.Problem(path(), "needs gw, the internal address of a node"))
		return dst, "", false
	}
	if dst.IsSingleIP() && b.byInternal[dst.Addr()] != "" {
		return dst, "", false // the node's own address, known from its InternalNode
	}
	if node == "" {
		lost.add(path().Child(by))
		return dst, "", false
	}
	return dst, node, b.ready[node]
}

// parseDestination reads the destination of a route: a prefix or an address.
func parseDestination(s string) (netip.Prefix, string) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), ""
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, "is not a prefix"
	case p.Masked() != p:
		return p, "has bits set behind its length"
	}
	return p, ""
}
