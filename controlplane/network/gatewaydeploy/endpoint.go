package gatewaydeploy

import (
	"cmp"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// addressTypes is the order in which the addresses of a node are preferred: the
// peer is outside.
var addressTypes = []corev1.NodeAddressType{
	corev1.NodeExternalDNS, corev1.NodeExternalIP, corev1.NodeInternalDNS, corev1.NodeInternalIP, corev1.NodeHostName,
}

// shortfall is why an endpoint is not complete.
type shortfall struct {
	reason  networkingv1beta1.ConditionReason
	message string
}

// endpoints says where the gateway is found. active is the pod that leads, or nil.
func (f *Facts) endpoints(p *Plan, active *corev1.Pod) {
	inside, missing := f.inside(active)
	p.InternalEndpoint = inside
	if f.Gateway.service != nil {
		outside, short := f.outside(active)
		p.Endpoint = outside
		if short != nil && (missing == nil || short.reason == networkingv1beta1.ReasonServiceTypeUnsupported) {
			missing = short
		}
	}
	if missing != nil {
		f.say(p, networkingv1beta1.ConditionEndpointReady, false, missing.reason, "%s", missing.message)
		return
	}
	f.say(p, networkingv1beta1.ConditionEndpointReady, true, networkingv1beta1.ReasonEndpointReady, "%spod %s leads", f.reach(p.Endpoint), active.Name)
}

// reach says where peers reach the gateway, and who does not. It is empty for a client.
func (f *Facts) reach(e *networkingv1beta1.Endpoint) string {
	if e == nil {
		return ""
	}
	s := "peers reach it at " + where(e)
	if f.Service != nil && typeOf(f.Service) == corev1.ServiceTypeClusterIP {
		s += ", but only those that can reach the cluster's Service addresses, as Service " + f.Service.Name + " is of type ClusterIP"
	}
	return s + "; "
}

// where is an endpoint as text.
func where(e *networkingv1beta1.Endpoint) string {
	texts := make([]string, len(e.Addresses))
	for i, a := range e.Addresses {
		texts[i] = net.JoinHostPort(a, networkingv1beta1.PortsText(e.AllPorts()))
	}
	return strings.Join(texts, ", ") + " (UDP)"
}

// inside is where the nodes find the gateway. While no pod leads it stays, unless
// none is wanted: the address then soon is somebody else's.
func (f *Facts) inside(active *corev1.Pod) (*networkingv1beta1.InternalEndpoint, *shortfall) {
	if active != nil {
		return &networkingv1beta1.InternalEndpoint{IP: networkingv1beta1.Address(active.Status.PodIP), Node: active.Spec.NodeName}, nil
	}
	s := &shortfall{reason: networkingv1beta1.ReasonWaitingForGatewayPod}
	running := slices.ContainsFunc(f.Pods, func(p corev1.Pod) bool { return runs(&p) })
	switch {
	case f.replicas() == 0:
		s.message = "no gateway pod is wanted: set spec.deployment.spec.replicas to 1 or more"
		return nil, s
	case running && f.elects() && !f.hasElectionFlag():
		s.message = "no running pod holds Lease " + f.leaseName() + ": the pods need the flag " + electionFlag
	case running && f.elects():
		s.message = "no running pod holds Lease " + f.leaseName() + " yet (one takes it within seconds, or its log says why it cannot)"
	default:
		s.message = "no gateway pod is running"
	}
	last := *f.Gateway.internalEndpoint
	if last != nil {
		s.message += ", the endpoints in the status are the last ones"
	}
	return last, s
}

// outside is where the peer finds a server.
func (f *Facts) outside(active *corev1.Pod) (*networkingv1beta1.Endpoint, *shortfall) {
	name := serviceName(f.Gateway.GetName())
	if f.Gateway.service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, &shortfall{networkingv1beta1.ReasonServiceTypeUnsupported,
			"a Service of type ExternalName leads away from this cluster: use ClusterIP, NodePort or LoadBalancer"}
	}
	last := *f.Gateway.endpoint
	if f.Service == nil { // it comes back at the last endpoint if that can be had
		return last, &shortfall{networkingv1beta1.ReasonObjectRefused, "Service " + name + " does not exist yet: see the condition Deployed"}
	}
	tunnels := f.Gateway.tunnels(f.Service)
	if len(tunnels) == 0 {
		return nil, &shortfall{networkingv1beta1.ReasonServiceTypeUnsupported, "Service " + name + " has no port of protocol UDP, which WireGuard needs"}
	}
	e, ports := &networkingv1beta1.Endpoint{Protocol: corev1.ProtocolUDP}, portsAt(f.Service, tunnels)
	var short *shortfall
	switch f.Service.Spec.Type {
	case corev1.ServiceTypeNodePort:
		for n, i := range tunnels {
			ports[n] = f.Service.Spec.Ports[i].NodePort
		}
		e.Addresses, short = f.nodeAddress(active)
	case corev1.ServiceTypeLoadBalancer:
		e.Addresses, short = ingress(f.Service)
	default:
		e.Addresses, short = clusterIPs(f.Service)
	}
	e.SetPorts(ports)
	if last != nil && !slices.Equal(last.AllPorts(), ports) && typeOf(f.Service) != cmp.Or(f.Gateway.service.Spec.Type, corev1.ServiceTypeClusterIP) {
		return last, nil // somebody changed the type by hand: it is being changed back
	}
	if short == nil {
		return e, nil
	}
	// The last one stays while what it was made from is away for a time, as when a
	// pod restarts, but not when it was of other ports: then it led elsewhere.
	if last != nil && len(last.Addresses) > 0 && slices.ContainsFunc(last.AllPorts(), func(p int32) bool { return slices.Contains(ports, p) }) {
		short.message += ", the endpoint in the status is the last one"
		e.Addresses = last.Addresses
		return e, short
	}
	return nil, short
}

// nodeAddress is the address of the node on which the active pod is. Any node would
// do, but this one saves a hop.
func (f *Facts) nodeAddress(active *corev1.Pod) ([]string, *shortfall) {
	if active == nil {
		return nil, &shortfall{networkingv1beta1.ReasonWaitingForGatewayPod, "no gateway pod is running"}
	}
	i := slices.IndexFunc(f.Nodes, func(n corev1.Node) bool { return n.Name == active.Spec.NodeName })
	if i < 0 || !nodeReady(&f.Nodes[i]) {
		return nil, &shortfall{networkingv1beta1.ReasonNodeNotReady, "node " + active.Spec.NodeName + ", on which the active pod is, is not Ready"}
	}
	if a := NodeAddress(&f.Nodes[i]); a != "" {
		return []string{a}, nil
	}
	return nil, &shortfall{networkingv1beta1.ReasonNodeNotReady, "node " + active.Spec.NodeName + ", on which the active pod is, has no address"}
}

// NodeAddress is the address of a node that peers dial where a gateway is exposed by a
// node port; "": it has none.
func NodeAddress(n *corev1.Node) string {
	for _, t := range addressTypes {
		for _, a := range n.Status.Addresses {
			if a.Type == t && a.Address != "" {
				return a.Address
			}
		}
	}
	return ""
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// ingress is what the load balancer was given.
func ingress(s *corev1.Service) ([]string, *shortfall) {
	var addresses []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		a := cmp.Or(in.IP, in.Hostname)
		if a != "" && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	if len(addresses) == 0 {
		return nil, &shortfall{networkingv1beta1.ReasonWaitingForLoadBalancer,
			"Service " + s.Name + " has no address: the cloud's controller, or one like MetalLB, must assign it"}
	}
	return addresses, nil
}

// clusterIPs are the addresses inside the cluster.
func clusterIPs(s *corev1.Service) ([]string, *shortfall) {
	if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil, &shortfall{networkingv1beta1.ReasonServiceTypeUnsupported, "Service " + s.Name + " has no cluster IP: drop clusterIP: None"}
	}
	if len(s.Spec.ClusterIPs) == 0 {
		return []string{s.Spec.ClusterIP}, nil
	}
	return s.Spec.ClusterIPs, nil
}
