package gatewaydeploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// objectsOfUser have the names of those that a gateway would consist of.
const objectsOfUser = `
apiVersion: v1
kind: Service
metadata: {name: gw-server, namespace: NS}
spec: {selector: {app: shop}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: gw-server-metrics, namespace: NS}
spec: {selector: {app: shop}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: gw-server, namespace: NS}
spec:
  replicas: 0
  selector: {matchLabels: {app: shop}}
  template: {metadata: {labels: {app: shop}}, spec: {containers: [{name: shop, image: shop}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gw-server, namespace: NS}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: gw-server, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: liqo-gateway-NS-server, namespace: liqo}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: liqo-gateway-NS-server}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: alice}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: gw-server, namespace: NS}
spec: {podSelector: {matchLabels: {app: shop}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: gw-server, namespace: NS}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: shop}}}
`

// testForeign makes a gateway whose objects have the names of a user's. They are
// left as they are, also when the gateway goes, and it says what is in the way.
func (w *world) testForeign(t *testing.T) {
	s := w.space(t, objectsOfUser)
	theirs := func(t *testing.T) map[string]string {
		t.Helper()
		seen := make(map[string]string)
		for i, doc := range strings.Split(strings.ReplaceAll(objectsOfUser, "NS", s.ns), "\n---\n") {
			u := new(unstructured.Unstructured)
			if err := yaml.Unmarshal([]byte(doc), u); err != nil {
				t.Fatal(err)
			}
			name := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
			if err := w.Get(context.Background(), u.GetNamespace(), u.GetName(), u); err != nil {
				t.Errorf("object %d, %s: %v", i, name, err)
				continue
			}
			for _, f := range u.GetManagedFields() {
				if f.Manager == apply.FieldOwner {
					t.Errorf("%s is written to", name)
				}
			}
			seen[name] = string(u.GetUID())
		}
		return seen
	}
	before := theirs(t)
	s.apply(strings.Replace(serverManifest, "replicas: 1", "replicas: 2", 1) +
		"  metrics: {enabled: true, service: {spec: {selector: {a: b}, ports: [{port: 8082}]}}}\n")
	eventually(t, s, "a condition that names all", "server", func(g *networkingv1beta1.WgGatewayServer) error {
		c := meta.FindStatusCondition(g.Status.Conditions, "Deployed")
		if c == nil || c.Reason != "ObjectRefused" {
			return fmt.Errorf("%v", c)
		}
		for name := range before {
			kind, key, _ := strings.Cut(name, " ")
			if !strings.Contains(c.Message, kind+" "+key[strings.Index(key, "/")+1:]+": it exists") {
				return fmt.Errorf("it does not name %s: %s", name, c.Message)
			}
		}
		return nil
	})
	controlplanetest.Eventually(t, "an event says it", func(context.Context) error {
		out, err := w.Kubectl("-n", s.ns, "get", "events.events.k8s.io", "-o=jsonpath={.items[*].reason}")
		if err == nil && !strings.Contains(out, "ObjectRefused") {
			err = errors.New(out)
		}
		return err
	})
	s.kubectl(t, "patch", "wggatewayserver", "server", "--type=merge", "-p",
		`{"spec":{"metrics":null,"deployment":{"spec":{"replicas":1}},"service":{"spec":{"type":"ExternalName","externalName":"example.org"}}}}`)
	s.serverSays(t, "EndpointReady=False ServiceTypeUnsupported")
	s.kubectl(t, "delete", "wggatewayserver", "server", "--cascade=foreground")
	if diff := cmp.Diff(before, theirs(t)); diff != "" {
		t.Errorf("objects of a user (-want +got):\n%s", diff)
	}
}
