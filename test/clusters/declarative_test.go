package clusters

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/document"
)

// wgNodePort is the fixed node port of the document.
const wgNodePort = 30742

// object is a manifest and where it is applied.
type object struct {
	on        *end
	namespace string // for one that has none of its own
	manifest  string
}

func (o object) apply() error {
	args := []string{"apply", "-f", "-"}
	if o.namespace != "" {
		args = append(args, "-n", o.namespace)
	}
	_, err := o.on.KubectlInput(o.manifest, args...)
	return err
}

// keys is a pair of WireGuard keys in base64.
type keys struct{ private, public string }

// newKeys runs the commands of the document.
func newKeys(t *testing.T, d *document.Document) keys {
	t.Helper()
	script := d.Block(t, []string{"openssl genpkey", "base64"})
	cmd := exec.Command("bash", "-eu", "-c", script)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the commands of %s: %v\n%s", d.Name, err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 4 || lines[0] != "Private key:" || lines[2] != "Public key:" {
		t.Fatalf("the commands of %s print\n%s", d.Name, out)
	}
	return keys{private: lines[1], public: lines[3]}
}

// declarative returns everything that the document has the two administrators
// apply, but the namespaces, which come first.
func declarative(t *testing.T, d *document.Document, pe *peering, nodePort int) (namespaces, objects []object) {
	t.Helper()
	own := map[*end]keys{&pe.provider: newKeys(t, d), &pe.consumer: newKeys(t, d)}
	for _, e := range pe.ends() {
		other := &pe.provider
		if e == other {
			other = &pe.consumer
		}
		namespaces = append(namespaces, object{e, "", restricted(d.Block(t, []string{"kind: Namespace", "LOCAL_TENANT_NAMESPACE"},
			"REMOTE_CLUSTER_ID", e.peerID, "LOCAL_TENANT_NAMESPACE", e.namespace))})
		objects = append(objects,
			object{e, e.namespace, d.Block(t, []string{"kind: Configuration", "RESOURCE_NAME"}, "REMOTE_CLUSTER_ID", e.peerID, "RESOURCE_NAME", "conf",
				"EXTERNAL_CIDR_REMOTE_CLUSTER", externalCIDR, "POD_CIDR_REMOTE_CLUSTER", podCIDR)},
			object{e, "", d.Block(t, []string{"kind: Secret", "WIREGUARD_PRIVATE_KEY"}, "REMOTE_CLUSTER_ID", e.peerID, "RESOURCE_NAME", "gw-keys",
				"LOCAL_TENANT_NAMESPACE", e.namespace, "WIREGUARD_PRIVATE_KEY", own[e].private, "WIREGUARD_PUBLIC_KEY", own[e].public)},
			object{e, "", d.Block(t, []string{"kind: PublicKey", "REMOTE_WIREGUARD_PUBLIC_KEY"}, "REMOTE_CLUSTER_ID", e.peerID, "RESOURCE_NAME", "gw-publickey",
				"LOCAL_TENANT_NAMESPACE", e.namespace, "REMOTE_WIREGUARD_PUBLIC_KEY", own[other].public)},
		)
	}
	server := d.Block(t, []string{"kind: GatewayServer", "PROVIDER_TENANT_NAMESPACE"}, "CONSUMER_CLUSTER_ID", pe.provider.peerID,
		"PROVIDER_TENANT_NAMESPACE", pe.provider.namespace, "WIREGUARD_KEYS_SECRET_NAME", "gw-keys")
	client := d.Block(t, []string{"kind: GatewayClient", "CONSUMER_TENANT_NAMESPACE"}, "PROVIDER_CLUSTER_ID", pe.consumer.peerID,
		"CONSUMER_TENANT_NAMESPACE", pe.consumer.namespace, "WIREGUARD_KEYS_SECRET_NAME", "gw-keys",
		"REMOTE_IP", pe.provider.kubelet.Nodes()[0].IP.String())
	for _, o := range []object{{&pe.provider, "", server}, {&pe.consumer, "", client}} {
		o.manifest = strings.ReplaceAll(o.manifest, fmt.Sprint(wgNodePort), fmt.Sprint(nodePort))
		objects = append(objects, o)
	}
	return namespaces, objects
}

// restricted has a namespace admit no pod that asks for any privilege.
func restricted(namespace string) string {
	return strings.Replace(namespace, "  labels:\n", "  labels:\n    pod-security.kubernetes.io/enforce: restricted\n", 1)
}

// newPeering returns a peering that has never been, and removes it at the end.
func newPeering(t *testing.T, p *pair, name string) *peering {
	t.Helper()
	pe := unmade(t, p, name)
	t.Cleanup(func() { pe.remove(t) })
	pe.explainIfFailed(t)
	return pe
}

// unmade returns a peering of which nothing has been made.
func unmade(t *testing.T, p *pair, name string) *peering {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<32))
	if err != nil {
		t.Fatal(err)
	}
	suffix := fmt.Sprintf("%s-%x", name, n)
	return &peering{
		provider: end{side: p.provider, namespace: "customers-" + suffix, peerID: "consumer-" + suffix, gateway: "server"},
		consumer: end{side: p.consumer, namespace: "suppliers-" + suffix, peerID: "provider-" + suffix, gateway: "client"},
	}
}

// testDeclarative applies the manifests of the document in its order.
func testDeclarative(t *testing.T, p *pair) {
	d := document.Read(t, document.Declarative)
	pe := newPeering(t, p, "declarative")
	for _, e := range pe.ends() {
		for network, want := range map[string]string{"external-cidr": externalCIDR, "pod-cidr": podCIDR} {
			got := strings.TrimSpace(kubectl(t, e.side, "get", "networks.ipam.liqo.io", "-n", "liqo", network, "-o=jsonpath={.status.cidr}"))
			if got != want {
				t.Errorf("network %s of %s is %q, want %s", network, e.id, got, want)
			}
		}
	}
	namespaces, objects := declarative(t, d, pe, wgNodePort)
	start := time.Now()
	for _, o := range append(namespaces, objects...) {
		if err := o.apply(); err != nil {
			t.Fatal(err)
		}
	}
	pe.established(t, start)
}
