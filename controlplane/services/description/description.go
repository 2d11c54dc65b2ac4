package description

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/reserved"
)

// AnnotationDerived, on a ServiceImport, names the Service that has its address: as other implementations of the API.
const AnnotationDerived = "multicluster.kubernetes.io/derived-service"

// maxProblems is of how many endpoints is told why they are left out.
const maxProblems = 3

// Key is the namespace and the name of the Service that an ExportedService or ImportedService of that name is about.
func Key(objectName string) (namespace, name string) {
	namespace, name, _ = strings.Cut(objectName, ".")
	return namespace, name
}

// Reserved says why no Service of that namespace and name is exported or imported; empty: it may be. Labels are those of
// the namespace, nil if they are not known.
func Reserved(namespace, name, liqoNamespace string, labels map[string]string) string {
	switch {
	case reserved.SystemNamespace(namespace):
		return fmt.Sprintf("%s is a namespace of Kubernetes itself", namespace)
	case reserved.Installation(namespace, liqoNamespace) || labels[networkingv1beta1.LabelTenantNamespace] == networkingv1beta1.LabelTrue:
		return fmt.Sprintf("%s is a namespace of the connections between clusters", namespace)
	case namespace == metav1.NamespaceDefault && name == "kubernetes":
		return "default/kubernetes is the API server of each cluster"
	}
	return ""
}

// Allows tells whether an annotation of a Configuration allows the Service of that namespace, name and labels to pass.
// Without the annotation all may; a pattern that is none allows nothing.
func Allows(c *networkingv1beta1.Configuration, annotation, namespace, name string, labels map[string]string) bool {
	list, limited := c.Annotations[annotation]
	if !limited {
		return true
	}
	for pattern := range strings.SplitSeq(list, ",") {
		pattern = strings.TrimSpace(pattern)
		if key, value, ok := strings.Cut(pattern, "="); ok { // no name has one
			if have, labelled := labels[key]; labelled && have == value {
				return true
			}
			continue
		}
		if !strings.Contains(pattern, "/") {
			pattern += "/*"
		}
		if ok, err := path.Match(pattern, namespace+"/"+name); ok && err == nil {
			return true
		}
	}
	return false
}

// PassesOn tells whether a Configuration lets the Service of its peer be offered to others.
func PassesOn(c *networkingv1beta1.Configuration, namespace, name string) bool {
	_, asked := c.Annotations[networkingv1beta1.AnnotationPassOnServices]
	return asked && Allows(c, networkingv1beta1.AnnotationPassOnServices, namespace, name, nil)
}

// CreatesNamespace tells whether a Configuration lets a namespace be created for Services of its peer. Names that are
// reserved, or that this project may need later, are never created, or a peer would have them first.
func CreatesNamespace(c *networkingv1beta1.Configuration, namespace, liqoNamespace string) bool {
	if strings.HasPrefix(namespace, "liqo-") || reserved.FromPeers(namespace, liqoNamespace) {
		return false
	}
	for pattern := range strings.SplitSeq(c.Annotations[networkingv1beta1.AnnotationCreateNamespaces], ",") {
		if ok, err := path.Match(strings.TrimSpace(pattern), namespace); ok && err == nil {
			return true
		}
	}
	return false
}

// Of describes a Service and its endpoints. An endpoint of which keep is an error for an address is left out, and problems
// says of the first few of them why.
func Of(s *corev1.Service, of []discoveryv1.EndpointSlice, exportedAt metav1.Time, keep func(netip.Addr) error) (d networkingv1beta1.ServiceDescription, problems []string) {
	d = networkingv1beta1.ServiceDescription{
		Namespace: s.Namespace, Name: s.Name, Type: networkingv1beta1.ServiceClusterSetIP, ExportedAt: exportedAt,
		SessionAffinity: cmp.Or(s.Spec.SessionAffinity, corev1.ServiceAffinityNone),
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		d.Type = networkingv1beta1.ServiceHeadless
	} else { // both are about the way from an address to endpoints
		if p := s.Spec.InternalTrafficPolicy; p != nil && *p != corev1.ServiceInternalTrafficPolicyCluster {
			d.InternalTrafficPolicy = *p
		}
		if t := s.Spec.TrafficDistribution; t != nil {
			d.TrafficDistribution = *t
		}
	}
	if c := s.Spec.SessionAffinityConfig; d.SessionAffinity == corev1.ServiceAffinityClientIP && c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		d.SessionAffinityTimeoutSeconds = new(*c.ClientIP.TimeoutSeconds)
	}
	for _, p := range s.Spec.Ports {
		d.Ports = append(d.Ports, networkingv1beta1.ServicePort{Name: p.Name, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), AppProtocol: p.AppProtocol, Port: p.Port})
	}
	// In the order of their names, so that the same endpoints are the same description.
	of = slices.SortedFunc(slices.Values(of), func(a, b discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	kept, left, where := 0, 0, map[string]int{}
	for i := range of {
		in := &of[i]
		if in.AddressType != discoveryv1.AddressTypeIPv4 && in.AddressType != discoveryv1.AddressTypeIPv6 {
			continue // names of hosts: nothing that a peer reaches by the tunnel
		}
		ports := portsOf(in.Ports)
		// Endpoints with the same ports share a slice: Kubernetes spreads them as they come.
		key := fmt.Sprint(in.AddressType, len(ports))
		for _, p := range ports {
			key += fmt.Sprintf(" %q %s %d", p.Name, p.Protocol, p.Port)
			if p.AppProtocol != nil {
				key += *p.AppProtocol
			}
		}
		for j := range in.Endpoints {
			e, err := endpointOf(&in.Endpoints[j], keep)
			at, known := where[key]
			switch {
			case err != nil:
			case kept == networkingv1beta1.MaxServiceEndpoints:
				err = fmt.Errorf("a Service has %d endpoints for other clusters, and this one has more", networkingv1beta1.MaxServiceEndpoints)
			case !known && len(d.Slices) == networkingv1beta1.MaxServiceSlices:
				err = fmt.Errorf("a Service has endpoints with %d different lists of ports for other clusters, and this one has more", networkingv1beta1.MaxServiceSlices)
			}
			if err != nil {
				if left++; left <= maxProblems && !slices.Contains(problems, err.Error()) {
					problems = append(problems, err.Error())
				}
				continue
			}
			if !known {
				at = len(d.Slices)
				where[key] = at
				d.Slices = append(d.Slices, networkingv1beta1.ServiceSlice{AddressType: in.AddressType, Ports: ports})
			}
			d.Slices[at].Endpoints = append(d.Slices[at].Endpoints, e)
			kept++
		}
	}
	if left > 0 {
		problems = append([]string{fmt.Sprintf("%d endpoints are left out", left)}, problems...)
	}
	return d, problems
}

// portsOf are the ports of a slice that have a number.
func portsOf(in []discoveryv1.EndpointPort) (out []networkingv1beta1.ServicePort) {
	for _, p := range in {
		if p.Port == nil || len(out) == networkingv1beta1.MaxServicePorts {
			continue
		}
		port := networkingv1beta1.ServicePort{Protocol: corev1.ProtocolTCP, AppProtocol: p.AppProtocol, Port: *p.Port}
		if p.Name != nil {
			port.Name = *p.Name
		}
		if p.Protocol != nil {
			port.Protocol = cmp.Or(*p.Protocol, port.Protocol)
		}
		out = append(out, port)
	}
	return out
}

func endpointOf(in *discoveryv1.Endpoint, keep func(netip.Addr) error) (e networkingv1beta1.ServiceEndpoint, err error) {
	for _, a := range in.Addresses[:min(len(in.Addresses), networkingv1beta1.MaxServiceAddresses)] {
		addr, err := netip.ParseAddr(a)
		if err != nil {
			return e, fmt.Errorf("%q is not an address", text.Quoted(a))
		}
		if keep != nil {
			err = keep(addr)
		}
		if err != nil {
			return e, err
		}
		e.Addresses = append(e.Addresses, addr.String())
	}
	if len(e.Addresses) == 0 {
		return e, fmt.Errorf("an endpoint has no address")
	}
	// What is not said is true of Ready, and of Serving what is true of Ready: so the API has it.
	c := in.Conditions
	e.Ready = c.Ready == nil || *c.Ready
	e.Serving = c.Serving == nil && e.Ready || c.Serving != nil && *c.Serving
	e.Terminating = c.Terminating != nil && *c.Terminating
	e.Hostname = in.Hostname
	return e, nil
}

// ByService is the index of EndpointSlices by the Service that they belong to.
const ByService = "service"
