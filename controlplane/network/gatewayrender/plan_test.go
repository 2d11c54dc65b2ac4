package gatewayrender

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := new(unstructured.Unstructured)
	b, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := u.UnmarshalJSON(b); err != nil {
		t.Fatal(err)
	}
	return u
}

func testServer(change func(*networkingv1beta1.GatewayServer)) *networkingv1beta1.GatewayServer {
	s := &networkingv1beta1.GatewayServer{
		ObjectMeta: metav1.ObjectMeta{
			Name: "server", Namespace: "tenant", UID: "u1", Generation: 3,
			Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: "consumer"},
		},
		Spec: networkingv1beta1.GatewayServerSpec{
			MTU: 1340, Endpoint: networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: corev1.ServiceTypeNodePort},
			ServerTemplateRef: corev1.ObjectReference{Name: "t"},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

const foreignTemplate = `
apiVersion: example.org/v1
kind: PipeTemplate
metadata: {name: t, namespace: liqo}
spec:
  objectKind: {apiVersion: example.org/v1, kind: Pipe}
  template:
    metadata: {name: "{{ .Name }}-{{ .ClusterID }}", labels: {a: "1"}, creationTimestamp: null}
    spec: {port: "{{ .Spec.Endpoint.Port }}", "?secret": "{{ .SecretName }}", args: ["{{ .Spec.MTU }}"]}
`

func TestBuildRenders(t *testing.T) {
	for _, tt := range []struct {
		name           string
		gateway        *networkingv1beta1.GatewayServer
		template, want string
	}{
		{"an object of somebody else's kind", testServer(nil), foreignTemplate, `
apiVersion: example.org/v1
kind: Pipe
metadata:
  name: server-consumer
  namespace: tenant
  labels: {a: "1", liqo.io/managed: "true", liqo.io/remote-cluster-id: consumer}
  ownerReferences: [{apiVersion: networking.liqo.io/v1beta1, kind: GatewayServer, name: server, uid: u1, controller: true}]
spec: {port: 51840, args: ["1340"]}
`},
		{"labels and annotations of the Service, and the first of several ports", testServer(func(s *networkingv1beta1.GatewayServer) {
			s.Spec.Endpoint.Port, s.Spec.Endpoint.Ports, s.Spec.Endpoint.NodePorts = 0, []int32{500, 501}, []int32{30500, 30501}
			s.Spec.ServiceLabels = map[string]string{"b": "user", "c": "user"}
			s.Spec.ServiceAnnotations = map[string]string{"d": "user"}
			s.Spec.SecretRef.Name = "keys"
		}), `
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayServerTemplate
metadata: {name: t, namespace: liqo}
spec:
  objectKind: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServer}
  template:
    spec:
      ?secretRef: {?name: "{{ .SecretName }}"}
      service:
        metadata: {labels: {a: "1", b: template}}
        spec: {type: "{{ .Spec.Endpoint.ServiceType }}", ports: [{port: "{{ .Spec.Endpoint.Port }}", ?nodePort: "{{ .Spec.Endpoint.NodePort }}"}]}
      deployment: {spec: {template: {spec: {containers: [{name: a, env: [{name: PORTS, value: "{{ len .Spec.Endpoint.Ports }}"}]}]}}}}
`, `
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayServer
metadata:
  name: server
  namespace: tenant
  labels: {liqo.io/managed: "true", liqo.io/remote-cluster-id: consumer}
  ownerReferences: [{apiVersion: networking.liqo.io/v1beta1, kind: GatewayServer, name: server, uid: u1, controller: true}]
spec:
  secretRef: {name: keys}
  service:
    metadata: {labels: {a: "1", b: user, c: user}, annotations: {d: user}}
    spec: {type: NodePort, ports: [{port: 500, nodePort: 30500}]}
  deployment: {spec: {template: {spec: {containers: [{name: a, env: [{name: PORTS, value: "2"}]}]}}}}
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Build(Facts{Gateway: serverKind.gatewayOf(tt.gateway), Template: object(t, tt.template)})
			if p.Problem != nil {
				t.Fatal(p.Problem)
			}
			if diff := cmp.Diff(object(t, tt.want).Object, p.Object.Object); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestExpand: a template may have other ports besides that of the first tunnel, or list those of the others itself.
func TestExpand(t *testing.T) {
	for _, tt := range []struct{ name, ports, want string }{
		{"the first only", `[{protocol: UDP, port: "{{ .Spec.Endpoint.Port }}"}]`,
			`[{name: wireguard-500, protocol: UDP, port: 500}, {name: wireguard-501, protocol: UDP, port: 501, targetPort: 501}, {name: wireguard-502, protocol: UDP, port: 502, targetPort: 502}]`},
		{"others", `[{name: a, protocol: TCP, port: 501}, {name: b, protocol: UDP, port: "{{ .Spec.Endpoint.Port }}", targetPort: vpn}, {name: c, protocol: UDP, port: 9}]`,
			`[{name: a, protocol: TCP, port: 501}, {name: b, protocol: UDP, port: 500, targetPort: vpn}, {name: c, protocol: UDP, port: 9},
			{name: wireguard-501, protocol: UDP, port: 501, targetPort: 501}, {name: wireguard-502, protocol: UDP, port: 502, targetPort: 502}]`},
		{"some of the tunnels", `[{name: a, protocol: UDP, port: "{{ index .Spec.Endpoint.Ports 1 }}"}, {name: b, protocol: UDP, port: "{{ .Spec.Endpoint.Port }}"}]`,
			`[{name: a, protocol: UDP, port: 501}, {name: b, protocol: UDP, port: 500}, {name: wireguard-502, protocol: UDP, port: 502, targetPort: 502}]`},
		{"no UDP", `[{port: "{{ .Spec.Endpoint.Port }}"}]`, ""},
		{"a fixed port", `[{protocol: UDP, port: 443, targetPort: "{{ .Spec.Endpoint.Port }}"}]`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := testServer(func(s *networkingv1beta1.GatewayServer) { s.Spec.Endpoint.SetPorts([]int32{500, 501, 502}) })
			p := Build(Facts{Gateway: serverKind.gatewayOf(s), Template: object(t, `
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayServerTemplate
metadata: {name: t, namespace: liqo}
spec:
  objectKind: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServer}
  template: {spec: {service: {spec: {ports: `+tt.ports+`}}}}
`)})
			if p.Problem != nil {
				t.Fatal(p.Problem)
			}
			if tt.want == "" {
				if p.FirstPort == nil || p.Object.GetAnnotations() != nil {
					t.Errorf("%v, annotations %v", p.FirstPort, p.Object.GetAnnotations())
				}
				return
			}
			got, _, _ := unstructured.NestedSlice(p.Object.Object, "spec", "service", "spec", "ports")
			want := object(t, "{apiVersion: v1, kind: List, ports: "+tt.want+"}").Object["ports"]
			if diff := cmp.Diff(want, any(got)); diff != "" || p.FirstPort != nil || p.Object.GetAnnotations()[networkingv1beta1.AnnotationTunnelPorts] != "500,501,502" {
				t.Errorf("%v, annotations %v; (-want +got):\n%s", p.FirstPort, p.Object.GetAnnotations(), diff)
			}
		})
	}
}

func TestBuildProblems(t *testing.T) {
	withKind := func(apiVersion, kind string) *unstructured.Unstructured {
		u := object(t, foreignTemplate)
		_ = unstructured.SetNestedStringMap(u.Object, map[string]string{"apiVersion": apiVersion, "kind": kind}, "spec", "objectKind")
		return u
	}
	with := func(v any, path ...string) *unstructured.Unstructured {
		u := object(t, foreignTemplate)
		_ = unstructured.SetNestedField(u.Object, v, append([]string{"spec", "template"}, path...)...)
		return u
	}
	missing := &Problem{networkingv1beta1.ReasonTemplateNotFound, "is missing"}
	for _, tt := range []struct {
		name  string
		label string
		facts Facts
		want  Problem // Message is a part
	}{
		{"no label", "", Facts{Template: object(t, foreignTemplate)}, Problem{networkingv1beta1.ReasonRemoteClusterIDMissing, "label liqo.io/remote-cluster-id is missing"}},
		{"a label that is no ID", "Not_an_ID", Facts{Template: object(t, foreignTemplate)}, Problem{networkingv1beta1.ReasonRemoteClusterIDMissing, `"Not_an_ID"`}},
		{"no template", "consumer", Facts{NoTemplate: missing}, *missing},
		{"no kind", "consumer", Facts{Template: withKind("", "")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "PipeTemplate liqo/t: spec.objectKind: apiVersion and kind are required"}},
		{"a version that is none", "consumer", Facts{Template: withKind("a/b/c", "X")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "spec.objectKind.apiVersion: "}},
		{"a kind of Kubernetes", "consumer", Facts{Template: withKind("rbac.authorization.k8s.io/v1", "RoleBinding")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "is a kind of Kubernetes"}},
		{"a kind of its core", "consumer", Facts{Template: withKind("v1", "Secret")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "is a kind of Kubernetes"}},
		{"another kind of ours", "consumer", Facts{Template: withKind("ipam.liqo.io/v1alpha1", "Network")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "WgGatewayServer"}},
		{"the kind of clients", "consumer", Facts{Template: withKind("networking.liqo.io/v1beta1", "WgGatewayClient")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "a GatewayServer is made of is networking.liqo.io/v1beta1, WgGatewayServer"}},
		{"another namespace", "consumer", Facts{Template: with("elsewhere", "metadata", "namespace")}, Problem{networkingv1beta1.ReasonTemplateInvalid, `spec.template.metadata.namespace: is "elsewhere"`}},
		{"metadata that cannot be given", "consumer", Facts{Template: with([]any{"x"}, "metadata", "finalizers")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "spec.template.metadata.finalizers: only"}},
		{"metadata that is none", "consumer", Facts{Template: with("x", "metadata")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "spec.template.metadata: is no map"}},
		{"a status", "consumer", Facts{Template: with("x", "status")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "spec.template.status: only"}},
		{"no spec", "consumer", Facts{Template: with("x", "spec")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "spec.template.spec: is required"}},
		{"no template in it", "consumer", Facts{Template: with("x")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "spec.template: is required"}},
		{"an unknown variable", "consumer", Facts{Template: with("{{ .Spec.ExtraConfig }}", "spec", "port")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "PipeTemplate liqo/t: spec.template.spec.port: "}},
		{"a Service with labels that are none", "consumer", Facts{Template: with(map[string]any{"metadata": map[string]any{"labels": "x"}}, "spec", "service")}, Problem{networkingv1beta1.ReasonTemplateInvalid, "spec.template.spec.service.metadata.labels: is no map of strings"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.facts.Gateway = serverKind.gatewayOf(testServer(func(s *networkingv1beta1.GatewayServer) {
				s.Labels = map[string]string{networkingv1beta1.LabelRemoteClusterID: tt.label}
				s.Spec.ServiceLabels = map[string]string{"a": "b"}
				s.Status.ServerRef = &corev1.ObjectReference{Kind: "Old", APIVersion: "example.org/v1", Name: "x"}
			}))
			p := Build(tt.facts)
			if p.Problem == nil {
				t.Fatalf("rendered to %v", p.Object)
			}
			if p.Problem.Reason != tt.want.Reason || !strings.Contains(p.Problem.Message, tt.want.Message) {
				t.Errorf("%s: %s\nwant %s: ...%s...", p.Problem.Reason, p.Problem.Message, tt.want.Reason, tt.want.Message)
			}
			if p.Object != nil || p.Superseded != nil {
				t.Error("something changes although the template is bad")
			}
		})
	}
}

// TestBuildOfLiqo: where Liqo's network was taken over, its gateways are not made, and those that are there stay as they are.
func TestBuildOfLiqo(t *testing.T) {
	template := func(containers string) *unstructured.Unstructured {
		return object(t, `
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayServerTemplate
metadata: {name: wireguard-server, namespace: liqo}
spec:
  objectKind: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServer}
  template: {spec: {deployment: {spec: {template: {spec: {containers: `+containers+`}}}}}}
`)
	}
	const liqos, ours = "[{name: gateway}, {name: wireguard}, {name: geneve}]", "[{name: gateway}, {name: metrics}]"
	for _, tt := range []struct {
		containers string
		beside     bool
		refused    bool
	}{{liqos, true, true}, {liqos, false, false}, {ours, true, false}} {
		p := Build(Facts{Gateway: serverKind.gatewayOf(testServer(nil)), Template: template(tt.containers), BesideLiqo: tt.beside})
		if (p.Problem != nil) != tt.refused || (p.Object == nil) != tt.refused || p.Superseded != nil {
			t.Errorf("%+v: %+v, made %v", tt, p.Problem, p.Object)
		}
		if tt.refused && (p.Problem.Reason != networkingv1beta1.ReasonTemplateOfLiqo || !strings.Contains(p.Problem.Message, "'liqoctl network adopt consumer'")) {
			t.Errorf("%+v", p.Problem)
		}
	}
}

func TestBuildSupersedes(t *testing.T) {
	for _, tt := range []struct {
		name string
		made *corev1.ObjectReference
		want bool
	}{
		{"nothing made before", nil, false},
		{"the same", &corev1.ObjectReference{APIVersion: "example.org/v1", Kind: "Pipe", Name: "server-consumer"}, false},
		{"the same in another version", &corev1.ObjectReference{APIVersion: "example.org/v1alpha1", Kind: "Pipe", Name: "server-consumer"}, false},
		{"another name", &corev1.ObjectReference{APIVersion: "example.org/v1", Kind: "Pipe", Name: "server"}, true},
		{"another kind", &corev1.ObjectReference{APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGatewayServer", Name: "server-consumer"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := serverKind.gatewayOf(testServer(func(s *networkingv1beta1.GatewayServer) { s.Status.ServerRef = tt.made }))
			if p := Build(Facts{Gateway: g, Template: object(t, foreignTemplate)}); (p.Superseded != nil) != tt.want {
				t.Errorf("supersedes %v", p.Superseded)
			}
		})
	}
}

func TestTemplateRef(t *testing.T) {
	for _, tt := range []struct {
		name      string
		kind      *kind
		gateway   client.Object
		ref, want corev1.ObjectReference
	}{
		{"of a server, by name only", &serverKind, testServer(nil), corev1.ObjectReference{Name: "a"},
			corev1.ObjectReference{APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGatewayServerTemplate", Namespace: "liqo", Name: "a"}},
		{"of a client, by name only", &clientKind, new(networkingv1beta1.GatewayClient), corev1.ObjectReference{Name: "a"},
			corev1.ObjectReference{APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGatewayClientTemplate", Namespace: "liqo", Name: "a"}},
		{"in full", &serverKind, testServer(nil), corev1.ObjectReference{APIVersion: "example.org/v1", Kind: "T", Namespace: "n", Name: "a"},
			corev1.ObjectReference{APIVersion: "example.org/v1", Kind: "T", Namespace: "n", Name: "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := tt.kind.gatewayOf(tt.gateway)
			g.ref = tt.ref
			if diff := cmp.Diff(tt.want, g.templateRef("liqo")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
