package internalnetwork

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// tunnelInterface is the gateway's link to its peer, by which the packets come
// in that are for pods.
const tunnelInterface = "liqo-tunnel"

// routesFacts is what decides about the routes to one node.
type routesFacts struct {
	LiqoNamespace string
	// InternalNode is nil if there is none.
	InternalNode *networkingv1beta1.InternalNode
	// Pods are those of the node that have a route.
	Pods []corev1.Pod
}

// planRoutes returns the RouteConfiguration of a node, or nil if there is
// nothing to route. The same pods, in whatever order, give the same bytes.
//
// The table has two rules: the way to the node itself, and the ways to its pods
// for what comes from the peer.
func planRoutes(f routesFacts) *networkingv1beta1.RouteConfiguration {
	n := f.InternalNode
	if n == nil || !n.DeletionTimestamp.IsZero() {
		return nil // garbage collection takes what is there
	}
	node, err := n.Spec.Interface.Node.IP.Addr()
	if err != nil {
		return nil // the InternalNode is about to be corrected
	}
	table := networkingv1beta1.RouteTable{Name: n.Name}
	self := hostCIDR(node)
	table.Rules = append(table.Rules, networkingv1beta1.RoutingRule{
		Dst:    self,
		Routes: []networkingv1beta1.Route{{Dst: self, Dev: n.Spec.Interface.Gateway.Name, Scope: networkingv1beta1.RouteScopeLink}},
	})
	if routes := podRoutes(n, node, f.Pods); len(routes) > 0 {
		table.Rules = append(table.Rules, networkingv1beta1.RoutingRule{IIF: tunnelInterface, Routes: routes})
	}
	labels := managedLabels("")
	labels[networkingv1beta1.LabelRouteCategory] = networkingv1beta1.CategoryGateway
	labels[networkingv1beta1.LabelRouteSubcategory] = networkingv1beta1.SubcategoryFabric
	return &networkingv1beta1.RouteConfiguration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.LiqoNamespace, Name: routesName(n.Name), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{ownerReference(kindInternalNode, n.Name, n.UID)},
		},
		Spec: networkingv1beta1.RouteConfigurationSpec{Table: table},
	}
}

// podRoutes returns a route for each address of the pods, in the order of the
// addresses.
func podRoutes(n *networkingv1beta1.InternalNode, node netip.Addr, pods []corev1.Pod) []networkingv1beta1.Route {
	type destination struct {
		addr netip.Addr
		pod  *corev1.Pod
	}
	all := make([]destination, 0, len(pods))
	for i := range pods {
		for _, a := range podAddresses(&pods[i]) {
			all = append(all, destination{a, &pods[i]})
		}
	}
	slices.SortFunc(all, func(x, y destination) int {
		if c := x.addr.Compare(y.addr); c != 0 {
			return c
		}
		// Two pods with one address: one of them is on its way out, and the route
		// is the same.
		return strings.Compare(x.pod.Namespace+"/"+x.pod.Name, y.pod.Namespace+"/"+y.pod.Name)
	})
	all = slices.CompactFunc(all, func(x, y destination) bool { return x.addr == y.addr })
	routes := make([]networkingv1beta1.Route, len(all))
	for i, d := range all {
		// Without the UID: a pod that comes back with the same name and address has
		// the same route.
		r := networkingv1beta1.Route{
			Dst: hostCIDR(d.addr), TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: d.pod.Namespace, Name: d.pod.Name},
		}
		if d.addr.Is4() == node.Is4() {
			r.Gw = networkingv1beta1.Address(node.String())
		} else {
			r.Dev = n.Spec.Interface.Gateway.Name // a next hop is of the destination's family
		}
		routes[i] = r
	}
	return routes
}

// podAddresses returns the addresses by which a pod is reached through its node,
// or none if it needs no route: if it has the node's network, or has ended and
// its addresses may be another's by now.
func podAddresses(p *corev1.Pod) (addrs []netip.Addr) {
	if !hasRoute(p) {
		return nil
	}
	add := func(s string) {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			addrs = append(addrs, a.Unmap())
		}
	}
	if len(p.Status.PodIPs) == 0 {
		add(p.Status.PodIP)
	}
	for _, ip := range p.Status.PodIPs {
		add(ip.IP)
	}
	return addrs
}

// hasRoute tells whether a pod has a route to its node.
func hasRoute(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && !p.Spec.HostNetwork && p.Status.PodIP != "" &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// routeChanged tells whether two states of a pod differ in its routes.
func routeChanged(x, y *corev1.Pod) bool {
	if x, y := hasRoute(x), hasRoute(y); !x || !y {
		return x != y
	}
	return x.Spec.NodeName != y.Spec.NodeName || x.Status.PodIP != y.Status.PodIP || !slices.Equal(x.Status.PodIPs, y.Status.PodIPs)
}

func hostCIDR(a netip.Addr) networkingv1beta1.CIDR {
	return networkingv1beta1.CIDR(netip.PrefixFrom(a, a.BitLen()).String())
}
