package doctor

import "slices"

// checks are all checks, in the order in which one depends on another.
var checks = []check{
	{name: "api-access", title: "API access", ofCluster: apiAccess},
	{name: "permissions", title: "permissions", needs: []string{"api-access"}, ofCluster: permissions},
	{name: "kubernetes", title: "Kubernetes", needs: []string{"api-access"}, ofCluster: kubernetesVersion},
	{name: "crds", title: "CRDs", needs: []string{"api-access"}, ofCluster: customResources},
	{name: "installation", title: "installation", needs: []string{"crds"}, ofCluster: installation},
	{name: "identity", title: "cluster identity", needs: []string{"api-access"}, ofClient: identity},
	{name: "versions", title: "versions", needs: []string{"api-access"}, ofClient: versions},
	{name: "clocks", title: "clocks", needs: []string{"api-access"}, ofClient: clocks},
	{name: "networks", title: "networks of the cluster", needs: []string{"installation"}, ofCluster: networks},
	{name: "pod-security", title: "PodSecurity", needs: []string{"api-access"}, ofCluster: podSecurity},

	{name: "tenant-namespace", title: "tenant namespace", needs: []string{"crds", "identity"}, ofEnd: tenantNamespace},
	{name: "configuration", title: "Configuration", needs: []string{"tenant-namespace"}, ofPeering: configurations},
	{name: "cidrs", title: "CIDR clashes", needs: []string{"configuration"}, ofEnd: cidrClashes},
	{name: "gateways", title: "gateways", needs: []string{"tenant-namespace"}, ofPeering: gateways},
	{name: "template", title: "gateway template", needs: []string{"gateways"}, ofEnd: template},
	{name: "gateway-pods", title: "gateway pods", needs: []string{"template"}, ofEnd: gatewayPods},
	{name: "gateway-rights", title: "rights of the gateways", needs: []string{"gateways"}, ofEnd: gatewayRights},
	{name: "objects-applied", title: "objects in force", needs: []string{"gateway-pods"}, ofEnd: objectsApplied},

	{name: "service", title: "Service of the server", needs: []string{"gateway-pods"}, ofEnd: service},
	{name: "endpoint", title: "endpoint", needs: []string{"service"}, ofPeering: endpoints},
	{name: "keys", title: "keys", needs: []string{"gateways"}, ofPeering: keys},
	{name: "mtu", title: "MTU of both ends", needs: []string{"gateways"}, ofPeering: mtus},
	{name: "network-policies", title: "NetworkPolicies", needs: []string{"gateways"}, ofEnd: networkPolicies},

	{name: "reachability", title: "UDP between the gateways", needs: []string{"gateway-pods", "endpoint", "keys", "network-policies"}, ofPeering: reachability},
	{name: "handshake", title: "handshake", needs: []string{"reachability"}, ofPeering: handshake},
	{name: "ping", title: "ping through the tunnel", needs: []string{"handshake", "objects-applied"}, ofPeering: pings},
	{name: "path-mtu", title: "MTU end to end", needs: []string{"ping"}, ofPeering: pathMTU},
	{name: "mss", title: "MSS clamp", needs: []string{"path-mtu"}, ofPeering: mss},

	{name: "nodes", title: "node tunnels", needs: []string{"gateway-pods", "configuration", "network-policies"}, ofEnd: nodeTunnels},
	{name: "firewall", title: "filters", needs: []string{"gateways"}, ofEnd: firewall},
	{name: "drops", title: "dropped packets", needs: []string{"gateway-pods"}, ofEnd: dropsRising},

	{name: "services-exchange", title: "exchange of Services", needs: []string{"gateway-pods"}, ofEnd: exchange},
	{name: "authentication", title: "authentication", needs: []string{"tenant-namespace"}, ofEnd: authentication},
	{name: "virtual-nodes", title: "virtual nodes", needs: []string{"tenant-namespace"}, ofEnd: virtualNodes},
	{name: "offloaded-namespaces", title: "offloaded namespaces", needs: []string{"crds"}, ofCluster: offloadedNamespaces},
	{name: "offloaded-pods", title: "offloaded pods", needs: []string{"crds"}, ofCluster: offloadedPods},
	{name: "services", title: "shared Services", needs: []string{"crds"}, ofCluster: sharedServices},
}

// Checks are the names of all checks, in their order.
func Checks() (names []string) {
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// Title is what people call a check.
func Title(name string) string {
	if i := slices.IndexFunc(checks, func(c check) bool { return c.name == name }); i >= 0 {
		return checks[i].title
	}
	return name
}
