package addresses

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
)

// TestForbidden asks for Services that would lead traffic where a sender may not.
func TestForbidden(t *testing.T) {
	taken := map[netip.Addr]string{netip.MustParseAddr("192.0.2.1"): "Node n", netip.MustParseAddr("2001:db8::1"): "the API server"}
	for _, test := range []struct {
		name string
		ip   ipamv1alpha1.Address
		spec corev1.ServiceSpec
		want string // "" if it is allowed
	}{
		{"a host", "192.168.1.5", corev1.ServiceSpec{}, ""},
		{"external addresses", "192.168.1.5", corev1.ServiceSpec{ExternalIPs: []string{"10.96.0.10"}}, "spec.serviceTemplate.spec.externalIPs"},
		{"another name", "192.168.1.5", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "x"}, "spec.serviceTemplate.spec.type"},
		{"loopback", "127.0.0.1", corev1.ServiceSpec{}, "127.0.0.1/32 overlaps 127.0.0.0/8"},
		{"metadata of a cloud", "169.254.169.254", corev1.ServiceSpec{}, "169.254.169.254/32 overlaps 169.254.0.0/16"},
		{"link-local", "fe80::1", corev1.ServiceSpec{}, "fe80::1/128 overlaps fe80::/10"},
		{"loopback, as IPv6", "::1", corev1.ServiceSpec{}, "::1/128 overlaps"},
		{"a node", "192.0.2.1", corev1.ServiceSpec{}, "an address of Node n"},
		{"an API server", "2001:db8::1", corev1.ServiceSpec{}, "an address of the API server"},
		{"no address", "x", corev1.ServiceSpec{}, "spec.ip"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := forbidden(&ipamv1alpha1.IP{Spec: ipamv1alpha1.IPSpec{IP: test.ip, ServiceTemplate: &ipamv1alpha1.ServiceTemplate{Spec: test.spec}}}, taken)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestService(t *testing.T) {
	ip := &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: "db", UID: "u"},
		Spec: ipamv1alpha1.IPSpec{IP: "192.168.1.5", ServiceTemplate: &ipamv1alpha1.ServiceTemplate{
			Metadata: metav1.ObjectMeta{Name: "ignored", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"app": "db"},
				Ports: []corev1.ServicePort{
					{Name: "sql", Port: 5432},
					{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(5353), AppProtocol: new("dns")},
				},
			},
		}},
	}
	kept := ip.DeepCopy()
	s, e, err := service(ip)
	if err != nil {
		t.Fatal(err)
	}
	owner := []metav1.OwnerReference{{APIVersion: "ipam.liqo.io/v1alpha1", Kind: "IP", Name: "db", UID: "u", Controller: new(true), BlockOwnerDeletion: new(true)}}
	wantService := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "rome", Name: "db", OwnerReferences: owner,
			Labels: map[string]string{"a": "b", "liqo.io/managed": "true"}, Annotations: map[string]string{"c": "d"},
		},
		Spec: corev1.ServiceSpec{
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{
				{Name: "sql", Port: 5432, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(5432)},
				{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(5353), AppProtocol: new("dns")},
			},
		},
	}
	if diff := cmp.Diff(wantService, s); diff != "" {
		t.Errorf("Service (-want +got):\n%s", diff)
	}
	wantSlice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "rome", Name: "db", OwnerReferences: owner,
			Labels: map[string]string{"liqo.io/managed": "true", "kubernetes.io/service-name": "db", "endpointslice.kubernetes.io/managed-by": "liqo-controller"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.168.1.5"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports: []discoveryv1.EndpointPort{
			{Name: new("sql"), Port: new(int32(5432)), Protocol: new(corev1.ProtocolTCP)},
			{Name: new("dns"), Port: new(int32(5353)), Protocol: new(corev1.ProtocolUDP), AppProtocol: new("dns")},
		},
	}
	if diff := cmp.Diff(wantSlice, e); diff != "" {
		t.Errorf("EndpointSlice (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(kept, ip); diff != "" {
		t.Errorf("the IP was changed (-want +got):\n%s", diff)
	}

	ip.Spec.IP = "fd00::5"
	if s, e, err := service(ip); err != nil || s.Spec.IPFamilies[0] != corev1.IPv6Protocol || e.AddressType != discoveryv1.AddressTypeIPv6 {
		t.Errorf("IPv6: %v, %v, %v", s, e, err)
	}
	ip.Spec.ServiceTemplate.Spec.Ports[1].TargetPort = intstr.FromString("dns")
	want := `spec.serviceTemplate.spec.ports[1].targetPort: "dns" names a port of a pod, and there is no pod: give its number`
	if _, _, err := service(ip); err == nil || err.Error() != want {
		t.Errorf("a named port: %v", err)
	}
	ip.Spec.IP = "x"
	if _, _, err := service(ip); err == nil {
		t.Error("no address: no error")
	}
}
