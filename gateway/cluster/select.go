package cluster

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/objects/mirror"
)

// selectObjects sets up the watches. Selectors say as much as selectors can;
// the rest is left to what each store keeps.
func (l *Link) selectObjects() {
	o, m, api := l.options, l.mirror, l.networking
	peer := networkingv1beta1.LabelRemoteClusterID + "=" + o.ClusterID
	named := func(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }

	ours := func(uid types.UID) bool { return o.UID == "" || string(uid) == o.UID }

	switch o.Type {
	case networkingv1beta1.ConnectionServer:
		l.servers = mirror.NewStore[networkingv1beta1.GatewayServer]()
		l.servers.Keep = func(g *networkingv1beta1.GatewayServer) bool { return ours(g.UID) }
		l.servers.Trim = func(g *networkingv1beta1.GatewayServer) { g.Status = networkingv1beta1.GatewayServerStatus{} }
		mirror.Add(m, mirror.Watched{Client: api, Resource: "gatewayservers", Namespace: o.Namespace, Fields: named(o.Name)}, l.servers)
	case networkingv1beta1.ConnectionClient:
		l.gwClients = mirror.NewStore[networkingv1beta1.GatewayClient]()
		l.gwClients.Keep = func(g *networkingv1beta1.GatewayClient) bool { return ours(g.UID) }
		l.gwClients.Trim = func(g *networkingv1beta1.GatewayClient) { g.Status = networkingv1beta1.GatewayClientStatus{} }
		mirror.Add(m, mirror.Watched{Client: api, Resource: "gatewayclients", Namespace: o.Namespace, Fields: named(o.Name)}, l.gwClients)
	}
	l.configs = mirror.NewStore[networkingv1beta1.Configuration]()
	mirror.Add(m, mirror.Watched{Client: api, Resource: "configurations", Namespace: o.Namespace, Labels: peer}, l.configs)
	l.publicKeys = mirror.NewStore[networkingv1beta1.PublicKey]()
	mirror.Add(m, mirror.Watched{Client: api, Resource: "publickeies", Namespace: o.Namespace, Labels: peer}, l.publicKeys)

	// The fabric of a peer is named as the peer.
	l.fabrics = mirror.NewStore[networkingv1beta1.InternalFabric]()
	mirror.Add(m, mirror.Watched{Client: api, Resource: "internalfabrics", Namespace: o.Namespace, Fields: named(o.ClusterID)}, l.fabrics)
	l.tunnels = mirror.NewStore[networkingv1beta1.GeneveTunnel]()
	l.tunnels.Keep = func(t *networkingv1beta1.GeneveTunnel) bool { return t.Spec.InternalFabricRef.Name == o.ClusterID }
	mirror.Add(m, mirror.Watched{Client: api, Resource: "genevetunnels", Namespace: o.Namespace}, l.tunnels)
	l.nodes = mirror.NewStore[networkingv1beta1.InternalNode]()
	mirror.Add(m, mirror.Watched{Client: api, Resource: "internalnodes"}, l.nodes)

	l.routes = mirror.NewStore[networkingv1beta1.RouteConfiguration]()
	l.routes.Keep = func(r *networkingv1beta1.RouteConfiguration) bool { return routesForUs(r, o.ClusterID) }
	l.routes.Trim = trimRoutes
	mirror.Add(m, mirror.Watched{
		Client: api, Resource: "routeconfigurations", Namespace: o.LiqoNamespace,
		Labels: networkingv1beta1.LabelRouteCategory + "=" + networkingv1beta1.CategoryGateway,
	}, l.routes)

	l.ips = mirror.NewStore[ipamv1alpha1.IP]()
	l.ips.Trim = func(ip *ipamv1alpha1.IP) { ip.Spec.ServiceTemplate, ip.Status.Conditions = nil, nil }
	mirror.Add(m, mirror.Watched{Client: l.ipam, Resource: "ips"}, l.ips)

	// In its own namespace a gateway also sees the tables whose labels say too
	// little, to tell their authors.
	l.selectFirewalls(o.Namespace, networkingv1beta1.LabelFirewallCategory+"!="+networkingv1beta1.CategoryFabric)
	if o.LiqoNamespace != o.Namespace {
		l.selectFirewalls(o.LiqoNamespace, networkingv1beta1.LabelFirewallCategory+"="+networkingv1beta1.CategoryGateway)
	}
}

func (l *Link) selectFirewalls(namespace, labels string) {
	s := mirror.NewStore[networkingv1beta1.FirewallConfiguration]()
	s.Keep = func(f *networkingv1beta1.FirewallConfiguration) bool {
		return firewallForUs(f, l.options.ClusterID) || len(f.Status.Conditions) > 0
	}
	// What other gateways report is theirs, and must not wake this one.
	s.Trim = func(f *networkingv1beta1.FirewallConfiguration) {
		f.Status.Conditions = slices.DeleteFunc(f.Status.Conditions, func(c networkingv1beta1.HostCondition) bool {
			return c.Host != l.options.Name || c.Type != networkingv1beta1.HostConditionApplied
		})
	}
	l.firewalls = append(l.firewalls, s)
	mirror.Add(l.mirror, mirror.Watched{Client: l.networking, Resource: "firewallconfigurations", Namespace: namespace, Labels: labels}, s)
}

// routesForUs tells whether a table of gateways is for this one. What is for the
// gateways of one node is the way of a kernel gateway to what lies outside of
// its cluster; here that is built in.
func routesForUs(r *networkingv1beta1.RouteConfiguration, clusterID string) bool {
	if r.Labels[networkingv1beta1.LabelRouteSubcategory] == networkingv1beta1.SubcategoryFabricNode {
		return false
	}
	unique, one := r.Labels[networkingv1beta1.LabelRouteUnique]
	return !one || unique == clusterID
}

// firewallForUs tells whether Build should judge a table. Those of other peers
// are not ours. Those of IP objects, of which there may be thousands, say what
// the IP objects say.
func firewallForUs(f *networkingv1beta1.FirewallConfiguration, clusterID string) bool {
	if f.Labels[networkingv1beta1.LabelFirewallSubcategory] == networkingv1beta1.SubcategoryIPMapping {
		return false
	}
	unique, one := f.Labels[networkingv1beta1.LabelFirewallUnique]
	return !one || unique == clusterID
}

// trimRoutes leaves of a route what leads somewhere. Of the hundreds of routes
// of a node all have the same gateway, whose text is kept once.
func trimRoutes(r *networkingv1beta1.RouteConfiguration) {
	r.Status = networkingv1beta1.RouteConfigurationStatus{}
	table := &r.Spec.Table
	table.TargetRef = nil
	var gw networkingv1beta1.Address
	for i := range table.Rules {
		table.Rules[i].TargetRef = nil
		for j := range table.Rules[i].Routes {
			rt := &table.Rules[i].Routes[j]
			rt.TargetRef, rt.Onlink = nil, nil
			if rt.Gw == gw {
				rt.Gw = gw
			}
			gw = rt.Gw
		}
	}
}

// objects gathers what is at hand.
func (l *Link) objects() manifests.Objects {
	o := manifests.Objects{
		GatewayServers:      mirror.Sourced(l.servers),
		GatewayClients:      mirror.Sourced(l.gwClients),
		PublicKeys:          mirror.Sourced(l.publicKeys),
		Configurations:      mirror.Sourced(l.configs),
		InternalFabrics:     mirror.Sourced(l.fabrics),
		InternalNodes:       mirror.Sourced(l.nodes),
		GeneveTunnels:       mirror.Sourced(l.tunnels),
		RouteConfigurations: mirror.Sourced(l.routes),
		IPs:                 mirror.Sourced(l.ips),
	}
	for _, s := range l.firewalls {
		o.FirewallConfigurations = append(o.FirewallConfigurations, mirror.Sourced(s)...)
	}
	return o
}
