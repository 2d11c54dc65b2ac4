package reflection

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// Service returns what stands for a Service at the provider; nil for the one of the API server. Its selector finds the
// offloaded pods there. The class of load balancers is one that the provider offers; empty: its default.
func Service(s *corev1.Service, namespace, loadBalancerClass string, p Peering, f Filter) *corev1.Service {
	if s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes" {
		return nil
	}
	in := s.DeepCopy().Spec
	out := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: p.meta(s.ObjectMeta, namespace, f),
		Spec: corev1.ServiceSpec{
			Type: in.Type, Selector: in.Selector, Ports: in.Ports, ExternalName: in.ExternalName,
			SessionAffinity: in.SessionAffinity, SessionAffinityConfig: in.SessionAffinityConfig,
			PublishNotReadyAddresses: in.PublishNotReadyAddresses, IPFamilyPolicy: in.IPFamilyPolicy,
			AllocateLoadBalancerNodePorts: in.AllocateLoadBalancerNodePorts, LoadBalancerSourceRanges: in.LoadBalancerSourceRanges,
			ExternalTrafficPolicy: in.ExternalTrafficPolicy, InternalTrafficPolicy: in.InternalTrafficPolicy,
			TrafficDistribution: in.TrafficDistribution,
		},
	}
	if in.ClusterIP == corev1.ClusterIPNone {
		out.Spec.ClusterIP = in.ClusterIP
	}
	if s.Annotations[offloadingv1beta1.AnnotationForceRemoteNodePort] != "true" {
		for i := range out.Spec.Ports {
			out.Spec.Ports[i].NodePort = 0
		}
	}
	if in.Type == corev1.ServiceTypeLoadBalancer && loadBalancerClass != "" {
		out.Spec.LoadBalancerClass = &loadBalancerClass
	}
	return out
}

// Endpoints are what stands for the endpoints of a slice at the provider: only those that are ready and do not run
// there, since the reflected Service finds these itself. The address function returns that by which the provider's
// side knows an endpoint; where it is false the endpoint is left out. An empty result is none.
func Endpoints(s *discoveryv1.EndpointSlice, p Peering, runsThere func(node string) bool, address func(netip.Addr) (netip.Addr, bool)) (out []discoveryv1.Endpoint) {
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	for i := range s.Endpoints {
		e := s.Endpoints[i].DeepCopy()
		if e.NodeName != nil && runsThere(*e.NodeName) || e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		var addresses []string
		for _, text := range e.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				if to, ok := address(a); ok {
					addresses = append(addresses, to.String())
				}
			}
		}
		if len(addresses) == 0 {
			continue
		}
		n := discoveryv1.Endpoint{Addresses: addresses, Conditions: e.Conditions, Hostname: e.Hostname, NodeName: new(p.Consumer)}
		if t := e.TargetRef; t != nil {
			n.TargetRef = &corev1.ObjectReference{Kind: "Remote" + t.Kind, Namespace: t.Namespace, Name: t.Name, UID: t.UID}
		}
		out = append(out, n)
	}
	return out
}

// ShadowEndpointSlice returns what asks the provider for a slice with the endpoints that do not run there; see
// [Endpoints].
func ShadowEndpointSlice(s *discoveryv1.EndpointSlice, endpoints []discoveryv1.Endpoint, namespace string, p Peering, f Filter) *offloadingv1beta1.ShadowEndpointSlice {
	m := p.meta(s.ObjectMeta, namespace, f)
	m.Labels[discoveryv1.LabelManagedBy] = offloadingv1beta1.EndpointSliceManager
	return &offloadingv1beta1.ShadowEndpointSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: offloadingv1beta1.GroupVersion.String(), Kind: "ShadowEndpointSlice"},
		ObjectMeta: m,
		Spec: offloadingv1beta1.ShadowEndpointSliceSpec{Template: offloadingv1beta1.EndpointSliceTemplate{
			Endpoints: endpoints, Ports: s.Ports, AddressType: s.AddressType,
		}},
	}
}

// ReflectsSlice tells whether a slice belongs to a Service and is reflected with it.
func ReflectsSlice(s *discoveryv1.EndpointSlice) bool {
	return s.Labels[discoveryv1.LabelServiceName] != "" && slices.Contains([]discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}, s.AddressType)
}
