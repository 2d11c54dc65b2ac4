package cluster

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/gatewaysync"
)

// selectObjects sets up the watches. Selectors say as much as selectors can;
// the rest is left to what each store keeps.
func (l *Link) selectObjects() {
	o, api := l.options, l.clients.networking
	peer := networkingv1beta1.LabelRemoteClusterID + "=" + o.ClusterID
	named := func(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }

	ours := func(uid types.UID) bool { return o.UID == "" || string(uid) == o.UID }

	switch o.Type {
	case networkingv1beta1.ConnectionServer:
		l.servers = newStore[networkingv1beta1.GatewayServer](l.bump)
		l.servers.keep = func(g *networkingv1beta1.GatewayServer) bool { return ours(g.UID) }
		l.servers.trim = func(g *networkingv1beta1.GatewayServer) { g.Status = networkingv1beta1.GatewayServerStatus{} }
		add(l, watched{client: api, resource: "gatewayservers", namespace: o.Namespace, fields: named(o.Name)}, l.servers)
	case networkingv1beta1.ConnectionClient:
		l.gwClients = newStore[networkingv1beta1.GatewayClient](l.bump)
		l.gwClients.keep = func(g *networkingv1beta1.GatewayClient) bool { return ours(g.UID) }
		l.gwClients.trim = func(g *networkingv1beta1.GatewayClient) { g.Status = networkingv1beta1.GatewayClientStatus{} }
		add(l, watched{client: api, resource: "gatewayclients", namespace: o.Namespace, fields: named(o.Name)}, l.gwClients)
	}
	l.configs = newStore[networkingv1beta1.Configuration](l.bump)
	add(l, watched{client: api, resource: "configurations", namespace: o.Namespace, labels: peer}, l.configs)
	l.publicKeys = newStore[networkingv1beta1.PublicKey](l.bump)
	add(l, watched{client: api, resource: "publickeies", namespace: o.Namespace, labels: peer}, l.publicKeys)

	// The fabric of a peer is named as the peer.
	l.fabrics = newStore[networkingv1beta1.InternalFabric](l.bump)
	add(l, watched{client: api, resource: "internalfabrics", namespace: o.Namespace, fields: named(o.ClusterID)}, l.fabrics)
	l.tunnels = newStore[networkingv1beta1.GeneveTunnel](l.bump)
	l.tunnels.keep = func(t *networkingv1beta1.GeneveTunnel) bool { return t.Spec.InternalFabricRef.Name == o.ClusterID }
	add(l, watched{client: api, resource: "genevetunnels", namespace: o.Namespace}, l.tunnels)
	l.nodes = newStore[networkingv1beta1.InternalNode](l.bump)
	add(l, watched{client: api, resource: "internalnodes"}, l.nodes)

	l.routes = newStore[networkingv1beta1.RouteConfiguration](l.bump)
	l.routes.keep = func(r *networkingv1beta1.RouteConfiguration) bool { return routesForUs(r, o.ClusterID) }
	l.routes.trim = trimRoutes
	add(l, watched{
		client: api, resource: "routeconfigurations", namespace: o.LiqoNamespace,
		labels: networkingv1beta1.LabelRouteCategory + "=" + networkingv1beta1.CategoryGateway,
	}, l.routes)

	l.ips = newStore[ipamv1alpha1.IP](l.bump)
	l.ips.trim = func(ip *ipamv1alpha1.IP) { ip.Spec.ServiceTemplate, ip.Status.Conditions = nil, nil }
	add(l, watched{client: l.clients.ipam, resource: "ips"}, l.ips)

	// In its own namespace a gateway also sees the tables whose labels say too
	// little, to tell their authors.
	l.selectFirewalls(o.Namespace, networkingv1beta1.LabelFirewallCategory+"!="+networkingv1beta1.CategoryFabric)
	if o.LiqoNamespace != o.Namespace {
		l.selectFirewalls(o.LiqoNamespace, networkingv1beta1.LabelFirewallCategory+"="+networkingv1beta1.CategoryGateway)
	}
}

func (l *Link) selectFirewalls(namespace, labels string) {
	s := newStore[networkingv1beta1.FirewallConfiguration](l.bump)
	s.keep = func(f *networkingv1beta1.FirewallConfiguration) bool {
		return firewallForUs(f, l.options.ClusterID) || len(f.Status.Conditions) > 0
	}
	// What other gateways report is theirs, and must not wake this one.
	s.trim = func(f *networkingv1beta1.FirewallConfiguration) {
		f.Status.Conditions = slices.DeleteFunc(f.Status.Conditions, func(c networkingv1beta1.HostCondition) bool {
			return c.Host != l.options.Name || c.Type != networkingv1beta1.HostConditionApplied
		})
	}
	l.firewalls = append(l.firewalls, s)
	add(l, watched{client: l.clients.networking, resource: "firewallconfigurations", namespace: namespace, labels: labels}, s)
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
func (l *Link) objects() gatewaysync.Objects {
	o := gatewaysync.Objects{
		Cluster:             &gatewaysync.Cluster{ClusterID: l.options.ClusterID, NodeName: l.options.NodeName},
		PublicKeys:          sourced(l.publicKeys),
		Configurations:      sourced(l.configs),
		InternalFabrics:     sourced(l.fabrics),
		InternalNodes:       sourced(l.nodes),
		GeneveTunnels:       sourced(l.tunnels),
		RouteConfigurations: sourced(l.routes),
		IPs:                 sourced(l.ips),
	}
	if l.servers != nil {
		o.GatewayServers = sourced(l.servers)
	}
	if l.gwClients != nil {
		o.GatewayClients = sourced(l.gwClients)
	}
	for _, s := range l.firewalls {
		o.FirewallConfigurations = append(o.FirewallConfigurations, sourced(s)...)
	}
	return o
}

func sortWatches(ws []WatchState) {
	slices.SortFunc(ws, func(a, b WatchState) int { return strings.Compare(a.Name, b.Name) })
}
