package bundle

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestClean(t *testing.T) {
	for _, tt := range []struct{ name, in, want, secrets string }{
		{name: "a ConfigMap of others", in: `
kind: ConfigMap
metadata: {name: theirs}
data: {password: canary}
binaryData: {x: Y2FuYXJ5}
`, want: `
kind: ConfigMap
metadata: {name: theirs}
entries: {password: (left out), x: (left out)}
`},
		{name: "a ConfigMap of ours", in: `
kind: ConfigMap
metadata: {name: liqo-clusterid-configmap}
data: {CLUSTER_ID: rome, more: canary}
`, want: `
kind: ConfigMap
metadata: {name: liqo-clusterid-configmap}
entries: {CLUSTER_ID: rome, more: (left out)}
`},
		{name: "annotations and managed fields", in: `
kind: GatewayServer
metadata:
  name: milan
  managedFields: [{manager: x}]
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{"spec":"canary"}'
    example.com/token: canary
    networking.liqo.io/hash: abc
`, want: `
kind: GatewayServer
metadata:
  name: milan
  annotations:
    example.com/token: (left out)
    networking.liqo.io/hash: abc
`},
		{name: "a pod template within a template", in: `
kind: WgGatewayServerTemplate
metadata: {name: wireguard-server}
spec:
  objectKind: {kind: WgGatewayServer}
  template:
    metadata: {annotations: {example.com/x: canary}}
    spec:
      deployment:
        spec:
          template:
            spec:
              containers:
              - name: gateway
                image: sluice.local/gateway:unknown
                env:
                - {name: TOKEN, value: canary-env}
                - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
                command: [/usr/bin/gateway, run, -c, "curl -u me:canary x"]
                args: [--name, '{{ .Name }}', '--mode=server', --api-token=canary, --other, canary, '{{ "canary" }}', $(NODE)]
                readinessProbe: {httpGet: {path: /readyz, httpHeaders: [{name: Authorization, value: canary}]}}
              volumes:
              - name: keys
                secret: {secretName: '{{ .SecretName }}'}
`, want: `
kind: WgGatewayServerTemplate
metadata: {name: wireguard-server}
spec:
  objectKind: {kind: WgGatewayServer}
  template:
    metadata: {annotations: {example.com/x: (left out)}}
    spec:
      deployment:
        spec:
          template:
            spec:
              containers:
              - name: gateway
                image: sluice.local/gateway:unknown
                env:
                - {name: TOKEN, value: (left out)}
                - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
                command: [/usr/bin/gateway, run, -c, (left out)]
                args: [--name, '{{ .Name }}', '--mode=server', --api-token=(left out), --other, (left out), (left out), $(NODE)]
                readinessProbe: {httpGet: {path: /readyz, httpHeaders: [{name: Authorization, value: (left out)}]}}
              volumes:
              - name: keys
                secret: {secretName: '{{ .SecretName }}'}
`, secrets: "canary-env"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var o, want unstructured.Unstructured
			for text, into := range map[string]*unstructured.Unstructured{tt.in: &o, tt.want: &want} {
				if err := yaml.Unmarshal([]byte(text), &into.Object); err != nil {
					t.Fatal(err)
				}
			}
			var c cleaner
			c.object(&o)
			if diff := cmp.Diff(want.Object, o.Object); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			var secrets []string
			for _, s := range c.secrets {
				secrets = append(secrets, string(s))
			}
			if got := strings.Join(secrets, " "); got != tt.secrets {
				t.Errorf("secrets met: %q, want %q", got, tt.secrets)
			}
			text, err := yaml.Marshal(o.Object)
			if err != nil || strings.Contains(string(text), "canary") {
				t.Errorf("(%v) a secret is left in\n%s", err, text)
			}
		})
	}
}

func TestFlagsAreSorted(t *testing.T) {
	if !slices.IsSorted(ourFlags) {
		t.Error("not sorted")
	}
}
