package addresses

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/allow"
	"github.com/sluice-net/sluice/controlplane/cidr"
)

// managedBy tells the controllers of Kubernetes to keep their hands off an
// EndpointSlice.
const managedBy = "liqo-controller"

// service returns the Service of an IP's template and the EndpointSlice behind
// it, which leads to spec.ip: both are for the clients of this cluster, and for
// whoever reflects them into another one. It has no selector, or Kubernetes would
// make EndpointSlices of its own.
func service(ip *ipamv1alpha1.IP) (*corev1.Service, *discoveryv1.EndpointSlice, error) {
	local, err := ip.Spec.IP.Addr()
	if err != nil {
		return nil, nil, fmt.Errorf("spec.ip: %w", err)
	}
	family, addressType := corev1.IPv6Protocol, discoveryv1.AddressTypeIPv6
	if local.Is4() {
		family, addressType = corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4
	}
	template := ip.Spec.ServiceTemplate
	s := &corev1.Service{ObjectMeta: child(ip, template.Metadata.Labels), Spec: *template.Spec.DeepCopy()}
	s.Annotations = maps.Clone(template.Metadata.Annotations)
	s.Spec.Selector = nil
	if len(s.Spec.IPFamilies) == 0 && s.Spec.IPFamilyPolicy == nil {
		s.Spec.IPFamilies = []corev1.IPFamily{family} // the default may be the other one, to which the address is no end
	}
	e := &discoveryv1.EndpointSlice{
		ObjectMeta:  child(ip, map[string]string{discoveryv1.LabelServiceName: ip.Name, discoveryv1.LabelManagedBy: managedBy}),
		AddressType: addressType,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{local.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.TargetPort.Type == intstr.String {
			return nil, nil, fmt.Errorf("spec.serviceTemplate.spec.ports[%d].targetPort: %q names a port of a pod, and there is no pod: give its number", i, p.TargetPort.StrVal)
		}
		// Defaults as an API server sets them, so that a second look finds no
		// difference.
		p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		p.TargetPort = intstr.FromInt32(cmp.Or(p.TargetPort.IntVal, p.Port))
		e.Ports = append(e.Ports, discoveryv1.EndpointPort{
			Name: new(p.Name), Port: new(p.TargetPort.IntVal), Protocol: new(p.Protocol), AppProtocol: p.AppProtocol,
		})
	}
	return s, e, nil
}

// forbidden says why no Service may be made as the template of an IP says; nil: it may.
// Taken are the addresses to which none may lead, and whose they are: traffic that
// comes through a Service passes the rules that keep senders away from them
// (CVE-2021-25740).
func forbidden(ip *ipamv1alpha1.IP, taken map[netip.Addr]string) error {
	if err := allow.Service(&ip.Spec.ServiceTemplate.Spec, "spec.serviceTemplate.spec"); err != nil {
		return err
	}
	local, err := ip.Spec.IP.Addr()
	if err != nil {
		return fmt.Errorf("spec.ip: %w", err)
	}
	if err := cidr.Routable(netip.PrefixFrom(local, local.BitLen())); err != nil {
		return fmt.Errorf("spec.ip: %w: no Service leads there; drop spec.serviceTemplate", err)
	}
	if who, is := taken[local]; is {
		return fmt.Errorf("spec.ip: %s is an address of %s: no Service leads there; drop spec.serviceTemplate", local, who)
	}
	return nil
}

// child is the metadata of an object that goes with its IP.
func child(ip *ipamv1alpha1.IP, labels map[string]string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace: ip.Namespace, Name: ip.Name, Labels: maps.Clone(labels),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ip, ipamv1alpha1.GroupVersion.WithKind("IP"))},
	}
	if m.Labels == nil {
		m.Labels = make(map[string]string, 1)
	}
	m.Labels[networkingv1beta1.LabelManaged] = networkingv1beta1.LabelTrue
	return m
}
