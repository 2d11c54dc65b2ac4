package template_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/template"
)

var server = template.Vars{
	Spec: networkingv1beta1.GatewayServerSpec{
		MTU: 1340,
		Endpoint: networkingv1beta1.ServerEndpoint{
			Port: 51840, ServiceType: corev1.ServiceTypeNodePort, Ports: []int32{51840, 51841},
		},
		SecretRef:     corev1.LocalObjectReference{Name: "keys"},
		ServiceLabels: map[string]string{"team": "net"},
	},
	Name: "123", Namespace: "tenant", GatewayUID: "6b2e", ClusterID: "7", SecretName: "keys",
}

var client = template.Vars{
	Spec: networkingv1beta1.GatewayClientSpec{
		Endpoint: networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8", "gw.example.org"}, Port: 32009, Protocol: corev1.ProtocolUDP},
	},
	Name: "client", Namespace: "tenant",
}

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return plain(m).(map[string]any)
}

// plain makes integers of the whole numbers that YAML reads as floats.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = plain(e)
		}
	case []any:
		for i, e := range v {
			v[i] = plain(e)
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return v
}

func TestRender(t *testing.T) {
	for _, tt := range []struct {
		name           string
		vars           template.Vars
		template, want string
	}{
		{"every variable", server,
			`{a: "{{ .Name }}.{{ .Namespace }}", b: "u{{ .GatewayUID }}", c: "c{{ .ClusterID }}", d: "{{ .SecretName }}", e: "{{ .Spec.SecretRef.Name }}"}`,
			`{a: 123.tenant, b: u6b2e, c: c7, d: keys, e: keys}`},
		{"an integer becomes a number", server, `{port: "{{ .Spec.Endpoint.Port }}", plain: "8080"}`, `{port: 51840, plain: 8080}`},
		{"an integer in an unusual form stays text", server, `{a: "007", b: "+7", c: "-0", d: " 7", e: "1e3", f: "0x10"}`, `{a: "007", b: "+7", c: "-0", d: " 7", e: "1e3", f: "0x10"}`},
		{"one that no integer holds stays text", server, `{a: "99999999999999999999"}`, `{a: "99999999999999999999"}`},
		{"text in a sentence", server, `{args: ["--mtu={{ .Spec.MTU }}"]}`, `{args: ["--mtu=1340"]}`},
		{"labels and annotations stay text", server,
			`{labels: {a: "{{ .ClusterID }}", b: "1"}, x: {annotations: {deep: {er: "2"}}}, mtu: "{{ .Spec.MTU }}"}`,
			`{labels: {a: "7", b: "1"}, x: {annotations: {deep: {er: "2"}}}, mtu: 1340}`},
		{"so do the other keys that hold text", server,
			`{selector: {matchLabels: {a: "1"}}, nodeSelector: {a: "1"}, stringData: {a: "1"}, args: ["{{ .Spec.MTU }}"], command: ["1"], env: [{name: A, value: "{{ .Spec.MTU }}"}]}`,
			`{selector: {matchLabels: {a: "1"}}, nodeSelector: {a: "1"}, stringData: {a: "1"}, args: ["1340"], command: ["1"], env: [{name: A, value: "1340"}]}`},
		{"a boolean stays text", server, `{a: "{{ eq .Spec.MTU 1340 }}"}`, `{a: "true"}`},
		{"spelling as in YAML", server, `{a: "{{ .Spec.endpoint.port }}", b: "{{ .Spec.mtu }}", c: "{{ .Spec.Endpoint.serviceType }}"}`, `{a: 51840, b: 1340, c: NodePort}`},
		{"list elements", client, `{a: "{{ index .Spec.Endpoint.Addresses 0 }}:{{ .Spec.Endpoint.Port }}", b: "{{ len .Spec.Endpoint.Addresses }}"}`, `{a: "172.19.0.8:32009", b: 2}`},
		{"loops", client, `{a: "{{ range $i, $x := .Spec.Endpoint.Addresses }}{{ if $i }},{{ end }}{{ $x }}{{ end }}"}`, `{a: "172.19.0.8,gw.example.org"}`},
		{"loops over nothing", server, `{a: "{{ range .Spec.Endpoint.NodePorts }}x{{ else }}none{{ end }}"}`, `{a: none}`},
		{"maps of the spec", server, `{a: "{{ .Spec.ServiceLabels.team }}", b: '{{ index .Spec.ServiceLabels "team" }}'}`, `{a: net, b: net}`},
		{"an optional field that is set", server, `{"?nodePort": "{{ .Spec.Endpoint.Port }}"}`, `{nodePort: 51840}`},
		{"optional fields that are not", server,
			`{"?nodePort": "{{ .Spec.Endpoint.NodePort }}", "?ip": "{{ .Spec.Endpoint.LoadBalancerIP }}", "?a": 0, "?b": false, "?c": null, "?d": "", "?e": [], "?f": {}, "?g": 0.0, z: 1}`,
			`{z: 1}`},
		{"an optional map that is empty after dropping", client, `{"?secretRef": {"?name": "{{ .SecretName }}"}, kept: {"?name": "{{ .SecretName }}"}}`, `{kept: {}}`},
		{"an optional map that is not", server, `{"?secretRef": {"?name": "{{ .SecretName }}"}}`, `{secretRef: {name: keys}}`},
		{"an optional label of 0 is text and kept", server, `{labels: {"?a": "0", "?b": ""}}`, `{labels: {a: "0"}}`},
		{"what is no string", server, `{a: 1, b: 1.5, c: true, d: null, e: [1, {f: false}]}`, `{a: 1, b: 1.5, c: true, d: null, e: [1, {f: false}]}`},
		{"empty results stay where they are not optional", client, `{a: "{{ .SecretName }}"}`, `{a: ""}`},
		{"comments", server, `{a: "{{/* nothing */}}"}`, `{a: ""}`},
		{"functions", server, `{a: '{{ printf "%05d-%s%%" .Spec.MTU .Name }}', b: '{{ print 1 2 }}', c: '{{ html "<" }}'}`, `{a: 01340-123%, b: 1 2, c: "&lt;"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := decode(t, tt.template)
			before := decode(t, tt.template)
			got, err := template.Render(in, tt.vars, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode(t, tt.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, in); diff != "" {
				t.Errorf("the template changed:\n%s", diff)
			}
		})
	}
}

func TestRenderOfAType(t *testing.T) {
	for _, tt := range []struct{ name, template, want string }{
		{"text where the type says so",
			`{metadata: {name: "{{ .Name }}"}, spec: {deployment: {spec: {template: {spec: {serviceAccountName: "{{ .Name }}", containers: [{name: "1", env: [{name: "2", value: "3"}], args: ["4"]}], tolerations: [{key: "5", value: "6"}]}}}}}}`,
			`{metadata: {name: "123"}, spec: {deployment: {spec: {template: {spec: {serviceAccountName: "123", containers: [{name: "1", env: [{name: "2", value: "3"}], args: ["4"]}], tolerations: [{key: "5", value: "6"}]}}}}}}`},
		{"numbers where it says so",
			`{spec: {deployment: {spec: {replicas: "{{ 2 }}"}}, service: {spec: {ports: [{port: "{{ .Spec.Endpoint.Port }}", "?nodePort": "{{ .Spec.Endpoint.NodePort }}"}]}}}}`,
			`{spec: {deployment: {spec: {replicas: 2}}, service: {spec: {ports: [{port: 51840}]}}}}`},
		{"numbers or text",
			`{spec: {service: {spec: {ports: [{port: 1, targetPort: "{{ .Spec.Endpoint.Port }}"}, {port: 2, targetPort: "wg"}]}}}}`,
			`{spec: {service: {spec: {ports: [{port: 1, targetPort: 51840}, {port: 2, targetPort: wg}]}}}}`},
		{"booleans",
			`{spec: {service: {spec: {allocateLoadBalancerNodePorts: "{{ eq .Spec.MTU 1 }}", "?publishNotReadyAddresses": "{{ eq .Spec.MTU 1 }}"}}, metrics: {enabled: "true"}}}`,
			`{spec: {service: {spec: {allocateLoadBalancerNodePorts: false}}, metrics: {enabled: true}}}`},
		{"an optional number that renders to nothing", `{spec: {deployment: {spec: {"?replicas": "{{ if false }}2{{ end }}"}}}}`, `{spec: {deployment: {spec: {}}}}`},
		{"inlined fields", `{apiVersion: v1, kind: "1", spec: {deployment: {spec: {template: {spec: {volumes: [{name: wg, secret: {secretName: "7"}}]}}}}}}`,
			`{apiVersion: v1, kind: "1", spec: {deployment: {spec: {template: {spec: {volumes: [{name: wg, secret: {secretName: "7"}}]}}}}}}`},
		{"what the type leaves open", `{spec: {metrics: {enabled: true, serviceMonitor: {spec: {a: {b: "1"}}}}}}`, `{spec: {metrics: {enabled: true, serviceMonitor: {spec: {a: {b: 1}}}}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := template.Render(decode(t, tt.template), server, &networkingv1beta1.WgGatewayServer{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode(t, tt.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	deep := map[string]any{"a": "1"}
	for range 100 {
		deep = map[string]any{"a": deep}
	}
	for _, tt := range []struct {
		name     string
		as       any
		template map[string]any
		want     []string // parts of the message
	}{
		{"a field that the spec does not have", nil, decode(t, `{spec: {a: [0, 1, "{{ .Spec.ExtraConfig }}"]}}`),
			[]string{"spec.a[2]: ", "ExtraConfig", "no entry"}},
		{"a variable that there is not", nil, decode(t, `{spec: {a: "{{ .Cluster }}"}}`), []string{"spec.a: ", "Cluster"}},
		{"a field below a field", nil, decode(t, `{spec: {a: "{{ .Spec.MTU.Size }}"}}`), []string{"spec.a: ", "MTU.Size"}},
		{"a method of a value", nil, decode(t, `{spec: {a: "{{ .Spec.DeepCopy }}"}}`), []string{"spec.a: ", "DeepCopy"}},
		{"an index out of range", nil, decode(t, `{spec: {a: "{{ index .Spec.Endpoint.Ports 5 }}"}}`), []string{"spec.a: ", "out of range"}},
		{"a template that is none", nil, decode(t, `{spec: {"?a": "{{ .Spec"}}`), []string{"spec.?a: ", "unclosed action"}},
		{"an unknown function", nil, decode(t, `{metadata: {labels: {"networking.liqo.io/active": "{{ env }}"}}}`), []string{"metadata.labels[networking.liqo.io/active]: ", `function "env" not defined`}},
		{"a key twice", nil, decode(t, `{"?a": 1, a: 2}`), []string{"?a: a is there without a question mark"}},
		{"a key without a name", nil, decode(t, `{x: {"?": 1}}`), []string{"x.?: a key must not be empty"}},
		{"what is not JSON", nil, map[string]any{"a": []any{struct{}{}}}, []string{"a[0]: struct {} is no type of JSON"}},
		{"more than an object can be deep", nil, deep, []string{"64 levels"}},
		{"endless loops", nil, decode(t, `{a: "{{ range 1000000000000 }}{{ range 1000000000000 }}{{ end }}{{ end }}"}`), []string{"a: ", "rounds of range"}},
		{"recursion", nil, decode(t, `{a: '{{ define "x" }}{{ template "x" }}{{ template "x" }}{{ end }}{{ template "x" }}'}`), []string{"a: define, block and template"}},
		{"recursion into itself", nil, decode(t, `{a: '{{ if true }}{{ template "value" }}{{ end }}'}`), []string{"a: define, block and template"}},
		{"blocks", nil, decode(t, `{a: '{{ block "x" . }}y{{ end }}'}`), []string{"a: define, block and template"}},
		{"long results", nil, decode(t, `{a: "{{ range 9000 }}0123456789{{ end }}"}`), []string{"a: ", "65536 bytes"}},
		{"wide numbers", nil, decode(t, `{a: '{{ printf "%999999d" 1 }}'}`), []string{"a: ", "width"}},
		{"widths by argument", nil, decode(t, `{a: '{{ printf "%*d" 999999 1 }}'}`), []string{"a: ", "width"}},
		{"text that doubles", nil, decode(t, `{a: '{{ $x := "0123456789" }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}'}`), []string{"a: ", "65536 bytes"}},
		{"text that doubles by a format", nil, decode(t, `{a: '{{ $x := "0123456789" }}{{ range 100 }}{{ $x = printf "%[1]s%[1]s" $x }}{{ end }}'}`), []string{"a: ", "65536 bytes"}},
		{"text that grows by escapes", nil, decode(t, `{a: '{{ $x := "\\" }}{{ range 100 }}{{ $x = js $x }}{{ end }}'}`), []string{"a: ", "65536 bytes"}},
		{"long templates", nil, map[string]any{"a": "{{/*" + strings.Repeat("x", 20000) + "*/}}"}, []string{"a: ", "16384 bytes"}},
		{"large objects", nil, map[string]any{"a": many("{{ range 6000 }}0123456789{{ end }}", 100)}, []string{"larger than"}},
		{"too many values", nil, map[string]any{"a": many(int64(1), 200_000)}, []string{"more than 100000 values"}},

		{"a field that the type does not have", networkingv1beta1.WgGatewayServer{}, decode(t, `{spec: {deployment: {spec: {replica: 1}}}}`), []string{"spec.deployment.spec.replica: there is no such field"}},
		{"text where a number must be", networkingv1beta1.WgGatewayServer{}, decode(t, `{spec: {deployment: {spec: {replicas: "{{ .Namespace }}"}}}}`), []string{`spec.deployment.spec.replicas: "tenant" is no integer of 32 bits`}},
		{"a number that does not fit", networkingv1beta1.WgGatewayServer{}, decode(t, `{spec: {deployment: {spec: {replicas: "5000000000"}}}}`), []string{"no integer of 32 bits"}},
		{"nothing where a number must be", networkingv1beta1.WgGatewayServer{}, decode(t, `{spec: {deployment: {spec: {replicas: "{{ if false }}1{{ end }}"}}}}`), []string{"replicas: renders to nothing", "question mark"}},
		{"text where a boolean must be", networkingv1beta1.WgGatewayServer{}, decode(t, `{spec: {metrics: {enabled: "yes"}}}`), []string{`spec.metrics.enabled: "yes" is neither true nor false`}},
		{"text where fields must be", networkingv1beta1.WgGatewayServer{}, decode(t, `{spec: {deployment: "{{ .Name }}"}}`), []string{`spec.deployment: "123" stands where the object has fields`}},
		{"text where a list must be", networkingv1beta1.WgGatewayServer{}, decode(t, `{spec: {service: {spec: {ports: "x"}}}}`), []string{`stands where the object has a list`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := template.Render(tt.template, server, tt.as)
			if err == nil {
				t.Fatalf("rendered to %v", got)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func many(v any, n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = v
	}
	return list
}

// FuzzRender looks for templates that panic, take long or give what is not JSON,
// and for plain data that does not render to itself.
func FuzzRender(f *testing.F) {
	for _, s := range []string{
		`{"a":"{{ .Spec.MTU }}","?b":{"?c":""}}`, `{"metadata":{"labels":{"a":"1"}},"spec":{"deployment":{"spec":{"replicas":"2"}}}}`,
		`{"a":"{{ range $i, $e := .Spec.Endpoint.Ports }}{{ printf \"%3d\" $e }}{{ end }}"}`, `{"a":"{{ template \"value\" . }}"}`,
		`{"a":[{"b":null},"7",7.5]}`, `{"a":"{{ with $x := index .Spec.Endpoint.Ports 0 }}{{ slice \"abc\" $x }}{{ end }}"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var m map[string]any
		if json.Unmarshal([]byte(text), &m) != nil {
			t.Skip()
		}
		once, err := template.Render(m, server, nil)
		if err == nil && !strings.Contains(text, "{{") && !strings.Contains(text, "?") {
			twice, err := template.Render(once, server, nil)
			if err != nil {
				t.Fatalf("refuses what it rendered: %v", err)
			}
			if diff := cmp.Diff(once, twice); diff != "" {
				t.Errorf("renders its result to something else (-once +twice):\n%s", diff)
			}
		}
		if err == nil {
			if _, err := json.Marshal(once); err != nil {
				t.Errorf("not JSON: %v", err)
			}
		}
		typed, err := template.Render(maps.Clone(m), server, networkingv1beta1.WgGatewayServer{})
		if err == nil {
			if _, err := json.Marshal(typed); err != nil {
				t.Errorf("not JSON: %v", err)
			}
		}
	})
}

func BenchmarkRender(b *testing.B) {
	m := decode(b, `{metadata: {name: "{{ .Name }}", labels: {a: "{{ .ClusterID }}"}}, spec: {service: {spec: {type: "{{ .Spec.Endpoint.ServiceType }}", ports: [{port: "{{ .Spec.Endpoint.Port }}", protocol: UDP}]}},
		deployment: {spec: {template: {spec: {serviceAccountName: "{{ .Name }}", containers: [{name: gateway, args: ["--name={{ .Name }}", "--namespace={{ .Namespace }}", "--mode=server"]}]}}}}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := template.Render(m, server, networkingv1beta1.WgGatewayServer{}); err != nil {
			b.Fatal(err)
		}
	}
}
