package reflection

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
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
		{Nothing, map[string]string{offloadingv1beta1.AnnotationAllowReflection: "true"}, false},
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
	compare(t, "testdata/configmap.yaml", ConfigMap(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}, Immutable: new(true)}, "shop-rome", romeMilan, DefaultFilter))
	compare(t, "testdata/secret.yaml", Secret(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"a": []byte("b")}, Type: corev1.SecretTypeTLS}, "shop-rome", romeMilan, DefaultFilter))
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
	compare(t, "testdata/service.yaml", Service(s, "shop-rome", "cloud", romeMilan, DefaultFilter))
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

func TestIngress(t *testing.T) {
	i := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Annotations: map[string]string{"kubernetes.io/ingress.class": "old", "team": "shop"}},
		Spec: networkingv1.IngressSpec{
			IngressClassName: new("nginx"), TLS: []networkingv1.IngressTLS{{Hosts: []string{"shop.example"}, SecretName: "shop-tls"}},
			Rules: []networkingv1.IngressRule{{Host: "shop.example", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}},
				}}},
			}}}},
		},
		Status: networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{Ingress: []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}}},
	}
	compare(t, "testdata/ingress.yaml", Ingress(i, "shop-rome", nil, romeMilan, DefaultFilter))
	for _, c := range []struct {
		offered []offloadingv1beta1.IngressClass
		want    string
	}{
		{nil, ""},
		{[]offloadingv1beta1.IngressClass{{IngressClassName: "other"}}, ""},
		{[]offloadingv1beta1.IngressClass{{IngressClassName: "other", Default: true}}, "other"},
		{[]offloadingv1beta1.IngressClass{{IngressClassName: "other", Default: true}, {IngressClassName: "nginx"}}, "nginx"},
		{[]offloadingv1beta1.IngressClass{{IngressClassName: "nginx"}, {IngressClassName: "other", Default: true}}, "nginx"},
	} {
		got := ""
		if name := Ingress(i, "shop-rome", c.offered, romeMilan, DefaultFilter).Spec.IngressClassName; name != nil {
			got = *name
		}
		if got != c.want {
			t.Errorf("of %v: %q, want %q", c.offered, got, c.want)
		}
	}
}

// A field of Kubernetes that is new is not forgotten in silence.
func TestIngressFields(t *testing.T) {
	var fields []string
	for f := range reflect.TypeFor[networkingv1.IngressSpec]().Fields() {
		fields = append(fields, f.Name)
	}
	if diff := cmp.Diff([]string{"IngressClassName", "DefaultBackend", "TLS", "Rules"}, fields); diff != "" {
		t.Errorf("decide in Ingress what becomes of it:\n%s", diff)
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
	compare(t, "testdata/shadowendpointslice.yaml", ShadowEndpointSlice(s, got, "shop-rome", romeMilan, DefaultFilter))
	if !ReflectsSlice(s) || ReflectsSlice(&discoveryv1.EndpointSlice{}) {
		t.Error("a slice is reflected if it belongs to a Service")
	}
}

func TestEvent(t *testing.T) {
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "web.1"}, Reason: strings.Repeat("R", 300), Message: "\x1b[2Jm\n\u202e" + strings.Repeat("m", 5000), Type: "Evil",
		Source: corev1.EventSource{Component: "kubelet", Host: "node-of-milan"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web"}, Count: -1,
	}
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "1"}
	got := Event(e, about)
	if len(got.Reason) > 128 || len(got.Message) > 1024 || got.Type != corev1.EventTypeNormal || got.Count != 1 || got.Namespace != "shop" {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(about, got.InvolvedObject); diff != "" {
		t.Error(diff)
	}
	if strings.ContainsAny(got.Message, "\x1b\n\u202e") {
		t.Errorf("control characters: %q", got.Message)
	}
	began, last := time.Unix(1000, 0), time.Unix(2000, 0)
	e.EventTime, e.Series = metav1.NewMicroTime(began), &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(last)}
	if s := Event(e, about); s.Count != 7 || !s.FirstTimestamp.Time.Equal(began) || !s.LastTimestamp.Time.Equal(last) {
		t.Errorf("a series: %+v", s)
	}
	if got.Source.Component != "kubelet (remote)" || got.Source.Host != "" {
		t.Errorf("source %+v", got.Source)
	}
}

func TestTokenSecret(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}, Spec: corev1.PodSpec{NodeName: "milan", ServiceAccountName: "web"}}
	expires := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	secret := TokenSecret(pod, map[string]string{"k": "v"}, expires, "shop-rome", romeMilan)
	compare(t, "testdata/tokens.yaml", secret)
	hour := []Token{{ExpirationSeconds: 7200}, {ExpirationSeconds: 3600}}
	for name, c := range map[string]struct {
		change func(*corev1.Pod, *corev1.Secret) *corev1.Secret
		now    bool
	}{
		"as it was made":  {func(_ *corev1.Pod, s *corev1.Secret) *corev1.Secret { return s }, false},
		"none":            {func(*corev1.Pod, *corev1.Secret) *corev1.Secret { return nil }, true},
		"of a former pod": {func(p *corev1.Pod, s *corev1.Secret) *corev1.Secret { p.UID = "v"; return s }, true},
		"without expiration": {func(_ *corev1.Pod, s *corev1.Secret) *corev1.Secret {
			delete(s.Annotations, "offloading.liqo.io/service-account-expiration")
			return s
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod.DeepCopy()
			var have metav1.Object
			if s := c.change(p, secret.DeepCopy()); s != nil {
				have = s
			}
			at := RefreshAt(p, have, hour)
			if at.IsZero() != c.now {
				t.Fatalf("refreshed at %s", at)
			}
			if left := expires.Sub(at); !c.now && (left < 12*time.Minute || left > 18*time.Minute) {
				t.Errorf("%s before the end", left)
			}
		})
	}
	pod.Spec.ServiceAccountName = strings.Repeat("x", 62) + "." + "long"
	if l := TokenSecret(pod, nil, expires, "shop-rome", romeMilan).Labels["offloading.liqo.io/service-account-name"]; l != strings.Repeat("x", 62) {
		t.Errorf("label %q", l)
	}
}

func TestTranslateAPIServer(t *testing.T) {
	var c networkingv1beta1.Configuration
	list := func(p networkingv1beta1.CIDR) networkingv1beta1.CIDRs {
		return networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{p}}
	}
	c.Spec.Remote.CIDR = networkingv1beta1.ClusterCIDR{Pod: list("10.243.0.0/16"), External: list("10.70.0.0/16")}
	c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: list("10.71.0.0/16"), External: list("10.72.0.0/16")}}
	a, err := NewAddresses(&c)
	if err != nil {
		t.Fatal(err)
	}
	spec := &corev1.PodSpec{HostAliases: []corev1.HostAlias{{IP: "10.70.0.9", Hostnames: []string{"db"}}, {IP: "10.70.0.9", Hostnames: []string{"kubernetes.default", "kubernetes.default.svc"}}}}
	if err := TranslateAPIServer(spec, a); err != nil || spec.HostAliases[0].IP != "10.70.0.9" || spec.HostAliases[1].IP != "10.72.0.9" {
		t.Errorf("%+v, %v", spec.HostAliases, err)
	}
	for _, ip := range []string{"192.0.2.1", "x"} {
		spec.HostAliases[1].IP = ip
		if err := TranslateAPIServer(spec, a); err == nil {
			t.Errorf("%s is translated", ip)
		}
	}
}
