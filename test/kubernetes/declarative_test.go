package kubernetes

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/document"
	"github.com/sluice-net/sluice/test/kubelab"
)

// The tenant namespaces of the declarative set-up: names that nothing derives from
// the IDs of clusters.
const (
	consumerNamespace = "suppliers"
	providerNamespace = "customers"
)

// manifest is what an administrator applies to one cluster.
type manifest struct {
	on        *kubelab.Cluster
	namespace string // for one that has none of its own
	text      string
}

func (m manifest) apply(t *testing.T) {
	t.Helper()
	args := []string{"apply", "-f", "-"}
	if m.namespace != "" {
		args = append(args, "-n", m.namespace)
	}
	if out, err := m.on.KubectlInput(m.text, args...); err != nil {
		t.Fatalf("%s: %v\n%s%s", m.on.Name, err, out, m.text)
	}
}

// testDeclarative applies the manifests of the document with kubectl and nothing
// else: first in its order, and then in the opposite one.
func testDeclarative(t *testing.T, w *world) {
	d := document.Read(t, document.Declarative)
	sides := w.pairOfServers(t, 2)
	for _, order := range []string{"in the document's order", "in the opposite order"} {
		t.Run(order, func(t *testing.T) {
			namespaces, objects := declarative(t, w, d)
			if order == "in the opposite order" {
				slices.Reverse(objects)
			}
			t.Cleanup(func() { removePeering(t, w, consumerNamespace, providerNamespace) })
			start := time.Now()
			for _, m := range append(namespaces, objects...) {
				m.apply(t)
			}
			w.connected(t)
			t.Logf("connected %v after the first manifest", time.Since(start).Round(10*time.Millisecond))
			w.talk(t, sides)
			if got := w.kubectl(t, w.b, "get", "services", "-n", providerNamespace, "-o", "jsonpath={.items[*].spec.ports[?(@.name=='wireguard')].nodePort}"); got != nodePort {
				t.Errorf("the node port is %q, want %s", got, nodePort)
			}
			// Keys of one's own are used as they are: nothing else is made.
			for c, n := range map[*kubelab.Cluster]string{w.a: consumerNamespace, w.b: providerNamespace} {
				if got := w.kubectl(t, c, "get", "secrets", "-n", n, "-o", "jsonpath={.items[*].metadata.name}"); got != "gw-keys" {
					t.Errorf("Secrets in %s of %s: %q, want gw-keys", n, c.Name, got)
				}
			}
		})
	}
}

// declarative returns everything that the document has the administrators of the
// provider, which is b, and of the consumer apply: the namespaces, and what is in
// them.
func declarative(t *testing.T, w *world, d *document.Document) (namespaces, objects []manifest) {
	t.Helper()
	type end struct {
		cluster             *kubelab.Cluster
		namespace, peer     string
		private, public     string
		gateway             string
		external, pods, key string // of the peer
	}
	ends := []*end{
		{cluster: w.b, namespace: providerNamespace, peer: w.a.Name},
		{cluster: w.a, namespace: consumerNamespace, peer: w.b.Name},
	}
	for i, e := range ends {
		other := ends[1-i]
		e.private, e.public = newKeys(t, d)
		other.key = e.public
		// What the other administrator reads from his cluster.
		other.external, other.pods = documentedCIDRs(t, w, d, e.cluster)
	}
	ends[0].gateway = d.Block(t, []string{"kind: GatewayServer", "PROVIDER_TENANT_NAMESPACE"}, "CONSUMER_CLUSTER_ID", w.a.Name,
		"PROVIDER_TENANT_NAMESPACE", providerNamespace, "WIREGUARD_KEYS_SECRET_NAME", "gw-keys")
	ends[1].gateway = d.Block(t, []string{"kind: GatewayClient", "CONSUMER_TENANT_NAMESPACE"}, "PROVIDER_CLUSTER_ID", w.b.Name,
		"CONSUMER_TENANT_NAMESPACE", consumerNamespace, "WIREGUARD_KEYS_SECRET_NAME", "gw-keys", "REMOTE_IP", w.b.Public.String())
	for _, e := range ends {
		values := []string{"REMOTE_CLUSTER_ID", e.peer, "LOCAL_TENANT_NAMESPACE", e.namespace}
		namespaces = append(namespaces, manifest{e.cluster, "", d.Block(t, []string{"kind: Namespace", "LOCAL_TENANT_NAMESPACE"}, values...)})
		objects = append(objects,
			manifest{e.cluster, e.namespace, d.Block(t, []string{"kind: Configuration", "RESOURCE_NAME"},
				append(values, "RESOURCE_NAME", "conf", "EXTERNAL_CIDR_REMOTE_CLUSTER", e.external, "POD_CIDR_REMOTE_CLUSTER", e.pods)...)},
			manifest{e.cluster, "", d.Block(t, []string{"kind: Secret", "WIREGUARD_PRIVATE_KEY"},
				append(values, "RESOURCE_NAME", "gw-keys", "WIREGUARD_PRIVATE_KEY", e.private, "WIREGUARD_PUBLIC_KEY", e.public)...)},
			manifest{e.cluster, "", d.Block(t, []string{"kind: PublicKey", "REMOTE_WIREGUARD_PUBLIC_KEY"},
				append(values, "RESOURCE_NAME", "gw-publickey", "REMOTE_WIREGUARD_PUBLIC_KEY", e.key)...)},
			manifest{e.cluster, "", e.gateway},
		)
	}
	return namespaces, objects
}

// newKeys makes a pair of keys with the commands of the document.
func newKeys(t *testing.T, d *document.Document) (private, public string) {
	t.Helper()
	cmd := exec.Command("bash", "-eu", "-c", d.Block(t, []string{"openssl genpkey", "base64"}))
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the commands of %s: %v\n%s", d.Name, err, out)
	}
	lines := linesOf(string(out))
	if len(lines) != 4 || lines[0] != "Private key:" || lines[2] != "Public key:" {
		t.Fatalf("the commands of %s print\n%s", d.Name, out)
	}
	return lines[1], lines[3]
}

// documentedCIDRs runs the two commands by which the document has an administrator
// look up the CIDRs of his cluster.
func documentedCIDRs(t *testing.T, w *world, d *document.Document, c *kubelab.Cluster) (external, pods string) {
	t.Helper()
	commands, _, _ := strings.Cut(d.Block(t, []string{"kubectl get networks.ipam.liqo.io", "external-cidr"}), "#")
	s := w.newShell(c, t.TempDir())
	for _, command := range linesOf(commands) {
		switch out := s.ok(t, command); {
		case strings.Contains(command, "external-cidr"):
			external = out
		case strings.Contains(command, "pod-cidr"):
			pods = out
		}
	}
	if pods != kubelab.PodCIDR || external == "" {
		t.Errorf("%s tells the pod CIDR %q and the external CIDR %q", c.Name, pods, external)
	}
	return external, pods
}
