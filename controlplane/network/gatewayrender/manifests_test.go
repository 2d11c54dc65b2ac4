package gatewayrender

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// shippedTemplates are the default templates, by kind.
func shippedTemplates(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	text, err := fs.ReadFile(deploy.Manifests(), "gateway-templates.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*unstructured.Unstructured)
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		u := object(t, doc)
		all[u.GetKind()] = u
	}
	return all
}

// renderShipped renders the default template for a gateway.
func renderShipped(t *testing.T, g *gateway) *unstructured.Unstructured {
	t.Helper()
	p := Build(Facts{Gateway: g, Template: shippedTemplates(t)[g.kind.template]})
	if p.Problem != nil {
		t.Fatal(p.Problem.Message)
	}
	return p.Object
}

// strictly decodes what was rendered and refuses unknown fields.
func strictly[T any](t *testing.T, u *unstructured.Unstructured) (o T) {
	t.Helper()
	b, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(b, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestShippedTemplatesAreStrict(t *testing.T) {
	all := shippedTemplates(t)
	server := strictly[networkingv1beta1.WgGatewayServerTemplate](t, all["WgGatewayServerTemplate"])
	client := strictly[networkingv1beta1.WgGatewayClientTemplate](t, all["WgGatewayClientTemplate"])
	for _, m := range []metav1.ObjectMeta{server.ObjectMeta, client.ObjectMeta} {
		if m.Namespace != controlplanetest.LiqoNamespace || !slices.Contains([]string{"wireguard-server", "wireguard-client"}, m.Name) {
			t.Errorf("%s/%s", m.Namespace, m.Name)
		}
	}
}

func TestShippedServer(t *testing.T) {
	for _, tt := range []struct {
		name     string
		endpoint networkingv1beta1.ServerEndpoint
		secret   string
		want     corev1.ServiceSpec // without selector
	}{
		{"a cluster address", networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: corev1.ServiceTypeClusterIP}, "", service(corev1.ServiceTypeClusterIP, 51840, 0, "")},
		{"any node port", networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: corev1.ServiceTypeNodePort}, "", service(corev1.ServiceTypeNodePort, 51840, 0, "")},
		{"a node port, and keys", networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: corev1.ServiceTypeNodePort, NodePort: 30742}, "keys", service(corev1.ServiceTypeNodePort, 51840, 30742, "")},
		{"an address of a load balancer", networkingv1beta1.ServerEndpoint{Port: 443, ServiceType: corev1.ServiceTypeLoadBalancer, LoadBalancerIP: "192.0.2.7"}, "", service(corev1.ServiceTypeLoadBalancer, 443, 0, "192.0.2.7")},
		{"several ports", networkingv1beta1.ServerEndpoint{Ports: []int32{51840, 51841}, NodePorts: []int32{30001, 30002}, ServiceType: corev1.ServiceTypeNodePort}, "", several(51840, 30001, 51841, 30002)},
		{"more ports than node ports", networkingv1beta1.ServerEndpoint{Ports: []int32{51840, 51841}, NodePort: 30001, ServiceType: corev1.ServiceTypeNodePort}, "", several(51840, 30001, 51841, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := serverKind.gatewayOf(testServer(func(s *networkingv1beta1.GatewayServer) {
				s.Name = "7" // looks like a number everywhere
				s.Spec.Endpoint, s.Spec.SecretRef.Name = tt.endpoint, tt.secret
			}))
			o := strictly[networkingv1beta1.WgGatewayServer](t, renderShipped(t, g))
			if o.Spec.SecretRef.Name != tt.secret {
				t.Errorf("secretRef %q, want %q", o.Spec.SecretRef.Name, tt.secret)
			}
			selector := o.Spec.Service.Spec.Selector
			o.Spec.Service.Spec.Selector = nil
			if diff := cmp.Diff(tt.want, o.Spec.Service.Spec); diff != "" {
				t.Errorf("Service (-want +got):\n%s", diff)
			}
			checkPod(t, &o.Spec.Deployment, selector, "server")
		})
	}
}

func service(kind corev1.ServiceType, port, nodePort int32, ip string) corev1.ServiceSpec {
	s := corev1.ServiceSpec{
		Type: kind, LoadBalancerIP: ip, PublishNotReadyAddresses: true,
		Ports: []corev1.ServicePort{{Name: "wireguard", Protocol: corev1.ProtocolUDP, Port: port, NodePort: nodePort}},
	}
	s.Ports[0].TargetPort.IntVal = port
	return s
}

// several is a Service of type NodePort of two tunnels.
func several(port, nodePort, other, otherNodePort int32) corev1.ServiceSpec {
	s := service(corev1.ServiceTypeNodePort, port, nodePort, "")
	s.Ports = append(s.Ports, service("", other, otherNodePort, "").Ports...)
	s.Ports[1].Name = portName(other)
	return s
}

func TestShippedClient(t *testing.T) {
	c := &networkingv1beta1.GatewayClient{
		ObjectMeta: metav1.ObjectMeta{Name: "client", Namespace: "tenant", UID: "u1", Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: "provider"}},
		Spec:       networkingv1beta1.GatewayClientSpec{MTU: 1340, Endpoint: networkingv1beta1.Endpoint{Addresses: []string{"gw.example.org"}, Port: 30742}},
	}
	o := strictly[networkingv1beta1.WgGatewayClient](t, renderShipped(t, clientKind.gatewayOf(c)))
	checkPod(t, &o.Spec.Deployment, nil, "client")
}

// checkPod checks what the gateway and the controllers expect of the pods.
func checkPod(t *testing.T, d *networkingv1beta1.DeploymentTemplate, selector map[string]string, mode string) {
	t.Helper()
	labels, pod := d.Spec.Template.Labels, d.Spec.Template.Spec
	for _, s := range []map[string]string{selector, d.Spec.Selector.MatchLabels} {
		for k, v := range s {
			if k != networkingv1beta1.LabelActive && labels[k] != v {
				t.Errorf("selects %s=%s, the pods have %q", k, v, labels[k])
			}
		}
	}
	if d.Spec.Selector.MatchLabels[networkingv1beta1.LabelActive] != "" || labels[networkingv1beta1.LabelActive] != "" {
		t.Error("the label of the active pod is the controllers': neither the pods' template nor the Deployment's selector may have it")
	}
	if selector != nil && selector[networkingv1beta1.LabelActive] != "true" {
		t.Error("the Service must select the active pod")
	}
	if *d.Spec.Replicas != 1 || len(pod.Containers) != 1 || pod.Containers[0].Name != "gateway" {
		t.Error("one replica of one container gateway is expected")
	}
	if r := d.Spec.Strategy.RollingUpdate; r == nil || r.MaxSurge.IntValue() != 1 || r.MaxUnavailable == nil || r.MaxUnavailable.IntValue() != 0 {
		t.Errorf("the old pod must stay until the new one is ready: %+v", d.Spec.Strategy)
	}
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "wireguard-config" && v.Secret != nil }) {
		t.Error("no Secret volume wireguard-config")
	}
	if !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == "wireguard-config" && m.MountPath == "/etc/wireguard/keys" && m.ReadOnly
	}) {
		t.Errorf("the keys are not mounted: %+v", pod.Containers[0].VolumeMounts)
	}
	args := strings.Join(pod.Containers[0].Args, " ")
	for _, want := range []string{"--name=" + pod.ServiceAccountName, "--namespace=tenant", "--mode=" + mode, "--gateway-uid=u1", "--remote-cluster-id=", "--keys-dir=/etc/wireguard/keys", "--leader-election"} {
		if !strings.Contains(args, want) {
			t.Errorf("no %s in %s", want, args)
		}
	}
}

// pod is what a Deployment makes of its template.
func podOf(d *networkingv1beta1.DeploymentTemplate, namespace, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name = namespace, name
	pod.Spec.ServiceAccountName = "default" // the gateway's is made by another controller
	return pod
}
