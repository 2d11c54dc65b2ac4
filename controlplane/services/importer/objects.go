package importer

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/objectname"
	"github.com/sluice-net/sluice/controlplane/services/description"
)

// DerivedName is the name of the Service that has the address of an imported one. A user's Service of the imported name
// is another one.
func DerivedName(name string) string { return "derived-" + objectname.Digest(name, 5) }

// serviceImport is the ServiceImport without its status.
func (f *Facts) serviceImport(m networkingv1beta1.ServiceDescription) *mcsv1beta1.ServiceImport {
	s := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: f.Name,
			Labels:      labels.Merge(m.Labels, labels.Set{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}),
			Annotations: labels.Merge(m.Annotations, labels.Set{description.AnnotationDerived: DerivedName(f.Name)}),
		},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ServiceImportType(m.Type), Ports: []mcsv1beta1.ServicePort{}, SessionAffinity: m.SessionAffinity, SessionAffinityConfig: affinity(m),
		},
	}
	if m.Type == networkingv1beta1.ServiceClusterSetIP {
		s.Spec.IPs, s.Spec.InternalTrafficPolicy = f.IPs, &m.InternalTrafficPolicy
		if m.TrafficDistribution != "" {
			s.Spec.TrafficDistribution = &m.TrafficDistribution
		}
	}
	for _, p := range m.Ports {
		s.Spec.Ports = append(s.Spec.Ports, mcsv1beta1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port})
	}
	return s
}

// service is a Service whose endpoints are those that are imported. If they are of one family, it has an address of that
// family alone, unless its first address, which never changes, is of the other one.
func (f *Facts) service(name string, m networkingv1beta1.ServiceDescription, endpoints []*discoveryv1.EndpointSlice) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: name, Labels: map[string]string{
			networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, mcsv1beta1.LabelServiceName: f.Name,
		}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			SessionAffinity: m.SessionAffinity, SessionAffinityConfig: affinity(m),
		},
	}
	if of := families(endpoints); len(of) == 1 && m.Type != networkingv1beta1.ServiceHeadless && (len(f.IPs) == 0 || family(f.IPs[0]) == of[0]) {
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = new(corev1.IPFamilyPolicySingleStack), of
	}
	switch {
	case m.Type == networkingv1beta1.ServiceHeadless:
		s.Spec.ClusterIP = corev1.ClusterIPNone
	case m.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal:
		s.Spec.InternalTrafficPolicy = &m.InternalTrafficPolicy
	}
	// Not its traffic distribution: the endpoints have no zones, and not every API server knows every distribution.
	for _, p := range m.Ports {
		// Its target is what an API server would make of none, or it would differ from what is there for ever.
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: intstr.FromInt32(p.Port),
		})
	}
	return s
}

func affinity(m networkingv1beta1.ServiceDescription) *corev1.SessionAffinityConfig {
	if m.SessionAffinity != corev1.ServiceAffinityClientIP {
		return nil
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if m.SessionAffinityTimeoutSeconds != nil {
		seconds = *m.SessionAffinityTimeoutSeconds
	}
	return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
}

// served are the addresses of the families in which there are endpoints: in a cluster of two families the address of the other
// one would lead nowhere. While there are none at all, they are all addresses.
func served(ips []string, by []*discoveryv1.EndpointSlice) []string {
	has := slices.DeleteFunc(slices.Clone(ips), func(ip string) bool { return !slices.Contains(families(by), family(ip)) })
	if len(has) == 0 {
		return ips
	}
	return has
}

// importFamilies are those of the addresses, in their order; a headless Service has those of its endpoints.
func importFamilies(s mcsv1beta1.ServiceImportSpec, by []*discoveryv1.EndpointSlice) (all []corev1.IPFamily) {
	if s.Type == mcsv1beta1.Headless {
		return slices.Sorted(slices.Values(families(by)))
	}
	for _, ip := range s.IPs {
		all = append(all, family(ip))
	}
	return all
}

// families are those in which there are endpoints.
func families(by []*discoveryv1.EndpointSlice) (all []corev1.IPFamily) {
	for _, s := range by {
		if f := corev1.IPFamily(s.AddressType); !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return all
}

// family is that of an address of a Service.
func family(ip string) corev1.IPFamily {
	if strings.Contains(ip, ":") {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
