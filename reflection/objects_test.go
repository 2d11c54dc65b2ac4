package reflection

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

var romeMilan = Peering{Consumer: "rome-1234", Provider: "milan"}

func TestPolicy(t *testing.T) {
	for _, c := range []struct {
		policy      Policy
		annotations map[string]string
		want        bool
	}{
		{DenyList, nil, true},
		{DenyList, map[string]string{offloadingv1beta1.AnnotationSkipReflection: "true"}, false},
		{DenyList, map[string]string{offloadingv1beta1.AnnotationSkipReflection: ""}, false},
		{DenyList, map[string]string{offloadingv1beta1.AnnotationSkipReflection: "False"}, true},
		{DenyList, map[string]string{offloadingv1beta1.AnnotationAllowReflection: "true"}, true},
		{AllowList, nil, false},
		{AllowList, map[string]string{offloadingv1beta1.AnnotationAllowReflection: "true"}, true},
		{AllowList, map[string]string{offloadingv1beta1.AnnotationAllowReflection: "false"}, false},
		{AllowList, map[string]string{offloadingv1beta1.AnnotationSkipReflection: "false"}, false},
	} {
		if got := c.policy.Reflects(c.annotations); got != c.want {
			t.Errorf("%s with %v: %t", c.policy, c.annotations, got)
		}
	}
}

func TestConfigObjects(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "settings", UID: "1", ResourceVersion: "9", Labels: map[string]string{"app": "web"},
		OwnerReferences: []metav1.OwnerReference{{Name: "x"}}, Finalizers: []string{"x"}}
	golden(t, "testdata/configmap.yaml", ConfigMap(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}, Immutable: new(true)}, "shop-rome", romeMilan, DefaultFilter))
	golden(t, "testdata/secret.yaml", Secret(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"a": []byte("b")}, Type: corev1.SecretTypeTLS}, "shop-rome", romeMilan, DefaultFilter))
	ca := ConfigMap(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: RootCA}}, "shop-rome", romeMilan, DefaultFilter)
	if ca.Name != "kube-root-ca.crt.rome-" {
		t.Errorf("the certificate authority is called %s", ca.Name)
	}
	if Secret(&corev1.Secret{Type: corev1.SecretTypeServiceAccountToken}, "shop-rome", romeMilan, DefaultFilter) != nil {
		t.Error("a token is reflected")
	}
}

func TestService(t *testing.T) {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Annotations: map[string]string{"metallb.io/pool": "a", "team": "shop"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"}, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"},
			ExternalIPs: []string{"192.0.2.1"}, LoadBalancerIP: "192.0.2.2", LoadBalancerClass: new("metallb"), HealthCheckNodePort: 30001,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30000, Protocol: corev1.ProtocolTCP}},
		},
	}
	golden(t, "testdata/service.yaml", Service(s, "shop-rome", "cloud", romeMilan, DefaultFilter))
	s.Annotations["liqo.io/force-remote-node-port"] = "true"
	s.Spec.ClusterIP = corev1.ClusterIPNone
	s.Spec.Type = corev1.ServiceTypeNodePort
	if got := Service(s, "shop-rome", "cloud", romeMilan, DefaultFilter).Spec; got.Ports[0].NodePort != 30000 || got.ClusterIP != corev1.ClusterIPNone || got.LoadBalancerClass != nil {
		t.Errorf("%+v", got)
	}
	if Service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}}, "x", "", romeMilan, DefaultFilter) != nil {
		t.Error("the Service of the API server is reflected")
	}
}

func TestEndpoints(t *testing.T) {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-abc", UID: "1", Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.243.0.4"}, NodeName: new("worker"), Conditions: discoveryv1.EndpointConditions{Ready: new(true)}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-1"}},
			{Addresses: []string{"10.71.0.4"}, NodeName: new("milan")},
			{Addresses: []string{"10.243.0.5"}, NodeName: new("worker"), Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
			{Addresses: []string{"not an address", "192.0.2.9"}},
		},
	}
	inPods := netip.MustParsePrefix("10.243.0.0/16")
	got := Endpoints(s, romeMilan, func(node string) bool { return node == "milan" }, func(a netip.Addr) (netip.Addr, bool) {
		return a, inPods.Contains(a)
	})
	golden(t, "testdata/shadowendpointslice.yaml", ShadowEndpointSlice(s, got, "shop-rome", romeMilan, DefaultFilter))
	if !ReflectsSlice(s) || ReflectsSlice(&discoveryv1.EndpointSlice{}) {
		t.Error("a slice is reflected if it belongs to a Service")
	}
}

func TestEvent(t *testing.T) {
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "web.1"}, Reason: strings.Repeat("R", 300), Message: strings.Repeat("m", 5000), Type: "Evil",
		Source: corev1.EventSource{Component: "kubelet", Host: "node-of-milan"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web"}, Count: -1,
	}
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "1"}
	got := Event(e, about)
	if len(got.Reason) > 128 || len(got.Message) > 1024 || got.Type != corev1.EventTypeNormal || got.Count != 0 || got.Namespace != "shop" {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(about, got.InvolvedObject); diff != "" {
		t.Error(diff)
	}
	if got.Source.Component != "kubelet (remote)" || got.Source.Host != "" {
		t.Errorf("source %+v", got.Source)
	}
}

func TestTokenData(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	want := map[string][]byte{"namespace": []byte("shop"), "k": []byte("v")}
	if diff := cmp.Diff(want, TokenData(pod, map[string]string{"k": "v"})); diff != "" {
		t.Error(diff)
	}
}
