package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/kubelab"
)

// peering is where the objects of a connection are on both sides.
type peering struct{ client, server *end }

// end is one side of a peering.
type end struct {
	*kubelab.Cluster
	namespace, peer string
	// kind and gateway are those of the GatewayClient or GatewayServer.
	kind, gateway string
}

// peering is the one that liqoctl makes of a and b.
func (w *world) peering() peering {
	return peering{
		client: &end{w.a, "liqo-tenant-" + w.b.Name, w.b.Name, "gatewayclient", w.b.Name},
		server: &end{w.b, "liqo-tenant-" + w.a.Name, w.a.Name, "gatewayserver", w.a.Name},
	}
}

func (p peering) ends() []*end { return []*end{p.client, p.server} }

// kubectl runs kubectl in the namespace of the end.
func (e *end) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := e.Kubectl(append([]string{"-n", e.namespace}, args...)...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", e.Name, err, out)
	}
	return strings.TrimSpace(out)
}

// apply applies a manifest.
func (e *end) apply(t *testing.T, manifest string) {
	t.Helper()
	if out, err := e.KubectlInput(manifest, "apply", "-f", "-"); err != nil {
		t.Fatalf("%s: %v\n%s", e.Name, err, out)
	}
}

// get reads an object of the namespace.
func (e *end) get(ctx context.Context, name string, into client.Object) error {
	return e.Client().Get(ctx, client.ObjectKey{Namespace: e.namespace, Name: name}, into)
}

// keys are the public keys of both gateways, by cluster.
func (p peering) keys(t *testing.T) map[string]string {
	t.Helper()
	keys := make(map[string]string)
	for _, e := range p.ends() {
		keys[e.Name] = e.kubectl(t, "get", "secret", "gw-"+e.gateway, "-o", "jsonpath={.data.publicKey}")
	}
	return keys
}

// keysMatch checks that each side knows the key of the other's gateway.
func (p peering) keysMatch(ctx context.Context) error {
	for _, ends := range [][2]*end{{p.client, p.server}, {p.server, p.client}} {
		var s corev1.Secret
		if err := ends[0].get(ctx, "gw-"+ends[0].gateway, &s); err != nil {
			return err
		}
		var k networkingv1beta1.PublicKey
		if err := ends[1].get(ctx, ends[1].peer, &k); err != nil {
			return err
		}
		if !bytes.Equal(s.Data["publicKey"], k.Spec.PublicKey) {
			return fmt.Errorf("%s does not have the public key of %s", ends[1].Name, ends[0].Name)
		}
	}
	return nil
}

// stateKinds are the kinds of which a peering has objects, without pods and their
// ReplicaSets, which have other names each time.
const stateKinds = peeringKinds + ",networks.ipam.liqo.io,deployments,services,secrets,serviceaccounts,roles,rolebindings," +
	"leases.coordination.k8s.io,networkpolicies,poddisruptionbudgets"

// state is what two peerings have in common that were made in the same way: names,
// labels, owners and specs of all objects, without what is random.
func (p peering) state(t *testing.T) map[string]string {
	t.Helper()
	state := make(map[string]string)
	for _, e := range p.ends() {
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal([]byte(e.kubectl(t, "get", stateKinds, "-o", "json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			m, _ := o["metadata"].(map[string]any)
			name := fmt.Sprintf("%v/%v", o["kind"], m["name"])
			if name == "ServiceAccount/default" {
				continue
			}
			text, err := json.MarshalIndent(without(o), "", " ")
			if err != nil {
				t.Fatal(err)
			}
			state[e.Name+" "+name] = string(text)
		}
	}
	if err := p.keysMatch(t.Context()); err != nil {
		t.Error(err)
	}
	return state
}

// random are fields that differ from one time to the other.
var random = []string{
	"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "annotations", "status", "clusterIP", "clusterIPs",
	"gatewayIP", "gateway", "publicKey", "privateKey", "holderIdentity", "acquireTime", "renewTime", "leaseTransitions", "id",
}

// someUID is a UID in a text.
var someUID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// without returns a value without these.
func without(v any) any {
	switch v := v.(type) {
	case string:
		return someUID.ReplaceAllString(v, "UID")
	case []any:
		for i := range v {
			v[i] = without(v[i])
		}
	case map[string]any:
		for name := range v {
			if slices.Contains(random, name) {
				v[name] = "..."
			} else {
				v[name] = without(v[name])
			}
		}
	}
	return v
}

// untouched checks that there is nothing of a peering in a and b.
func (w *world) untouched(t *testing.T) {
	t.Helper()
	for _, c := range []*kubelab.Cluster{w.a, w.b} {
		if got := w.kubectl(t, c, "get", peeringKinds, "-A", "-o", "name") + w.kubectl(t, c, "get", "namespaces", "-l", "liqo.io/tenant-namespace=true", "-o", "name"); got != "" {
			t.Errorf("%s was changed: %s", c.Name, got)
		}
	}
}
