package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/document"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
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

func (m manifest) try() (string, error) {
	args := []string{"apply", "-f", "-"}
	if m.namespace != "" {
		args = append(args, "-n", m.namespace)
	}
	return m.on.KubectlInput(m.text, args...)
}

func (m manifest) apply(t *testing.T) {
	t.Helper()
	if out, err := m.try(); err != nil {
		t.Fatalf("%s: %v\n%s%s", m.on.Name, err, out, m.text)
	}
}

// testDeclarative applies the manifests of the document with kubectl and nothing
// else, in its order. Then it applies our own in the opposite order, with a load
// balancer in front of the server, and replaces the keys. By -kubernetes.long many
// other orders follow.
func testDeclarative(t *testing.T, w *world) {
	w.apart(t)
	sides := w.pairOfServers(t, 2)
	t.Run("in the document's order", func(t *testing.T) {
		namespaces, objects := declarative(t, w, document.Read(t, document.Declarative))
		w.declare(t, sides, slices.Concat(namespaces, objects))
		if got := w.kubectl(t, w.b, "get", "services", "-n", providerNamespace, "-o", "jsonpath={.items[*].spec.ports[?(@.name=='wireguard')].nodePort}"); got != nodePort {
			t.Errorf("the node port is %q, want %s", got, nodePort)
		}
		// Keys of one's own are used as they are: nothing else is made.
		for c, n := range map[*kubelab.Cluster]string{w.a: consumerNamespace, w.b: providerNamespace} {
			if got := w.kubectl(t, c, "get", "secrets", "-n", n, "-o", "jsonpath={.items[*].metadata.name}"); got != "gw-keys" {
				t.Errorf("Secrets in %s of %s: %q, want gw-keys", n, c.Name, got)
			}
		}
		w.refuses(t, []string{"your own, in Secret " + consumerNamespace + "/gw-keys", "nothing was changed"}, w.both("network", "rotate-keys", "--skip-confirm")...)
		pods := gatewayPods(t, w)
		w.liqoctl(t, w.both("network", "connect", "--wait", "--gw-client-address", w.b.Public.String())...) // which finds what is there
		if diff := cmp.Diff(pods, gatewayPods(t, w)); diff != "" {
			t.Errorf("connect changed the gateways (-before +after)\n%s", diff)
		}
		if got := w.kubectl(t, w.b, "get", "gatewayservers", "-A", "-o", "name"); strings.Count(got, "\n") != 0 {
			t.Errorf("gateway servers:\n%s", got)
		}
		t.Run("reset and connect", func(t *testing.T) { w.connectAnew(t, sides) })
	})
	t.Run("in the opposite order", func(t *testing.T) {
		d := document.Ours(t, document.Declarative)
		namespaces, objects := declarative(t, w, d)
		slices.Reverse(objects)
		for i := range objects {
			objects[i].text = balanced(objects[i].text)
		}
		w.balance(t)
		w.declare(t, sides, slices.Concat(namespaces, objects))
		t.Run("new keys", func(t *testing.T) { w.declareKeys(t, d) })
		// Only the gateways end, and come again.
		for c, n := range map[*kubelab.Cluster]string{w.a: consumerNamespace, w.b: providerNamespace} {
			w.kubectl(t, c, "delete", "-n", n, "gatewayservers,gatewayclients", "--all")
		}
		lab.Eventually(t, patience, "what they made is collected", func() error { return w.noGateways() })
		w.disconnected(t)
		for _, m := range objects {
			m.apply(t)
		}
		w.connected(t)
		w.talk(t, sides)
	})
	if !*long {
		return
	}
	for range 20 {
		seed := rand.Uint64()
		ok := t.Run("in any order", func(t *testing.T) {
			t.Logf("seed %#x", seed)
			namespaces, objects := declarative(t, w, document.Read(t, document.Declarative))
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
			w.declare(t, sides, slices.Concat(namespaces, objects))
		})
		if !ok {
			return // one failure says enough
		}
	}
}

// connectAnew resets what manifests have made, and connects the clusters in the same
// namespaces. The keys stay, as they are the user's: what is to be done about them is said.
func (w *world) connectAnew(t *testing.T, sides [2]*side) {
	start := time.Now()
	_, said := w.liqoctl(t, w.both("network", "reset", "--wait", "--skip-confirm")...)
	w.refuses(t, []string{"Secret gw-keys is labelled as keys for cluster ", "nothing was changed"}, w.connectArgs()...)
	for c, n := range map[*kubelab.Cluster]string{w.a: consumerNamespace, w.b: providerNamespace} {
		remove := "kubectl -n " + n + " delete secret gw-keys"
		if !strings.Contains(said, remove) {
			t.Errorf("reset does not say %q:\n%s", remove, said)
		}
		w.kubectl(t, c, strings.Fields(remove)[1:]...)
	}
	w.liqoctl(t, w.connectArgs()...)
	w.talk(t, sides)
	t.Logf("reset and connected after %v", time.Since(start).Round(10*time.Millisecond))
}

// declare applies manifests, waits until pods talk, and removes everything with the
// test.
func (w *world) declare(t *testing.T, sides [2]*side, manifests []manifest) {
	t.Helper()
	t.Cleanup(func() { removePeering(t, w, consumerNamespace, providerNamespace) })
	defer w.explain(t) // before it is removed
	start := time.Now()
	for _, m := range manifests {
		m.apply(t)
	}
	w.connected(t)
	t.Logf("connected %v after the first manifest", time.Since(start).Round(10*time.Millisecond))
	w.talk(t, sides)
}

// declareKeys replaces the keys of both sides under traffic, all four objects at the
// same time, and then tries keys that are none.
func (w *world) declareKeys(t *testing.T, d *document.Document) {
	f := newFaults(t, w)
	_, objects := declarative(t, w, d) // with new keys
	objects = slices.DeleteFunc(objects, func(m manifest) bool {
		return !strings.Contains(m.text, "kind: Secret") && !strings.Contains(m.text, "kind: PublicKey")
	})
	pods := gatewayPods(t, w)
	f.measure(t, "keys replaced by manifests", promise{}, f.paths(t), func() {
		var all sync.WaitGroup
		for _, m := range objects {
			all.Go(func() {
				if out, err := m.try(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
		all.Wait()
		for c, n := range map[*kubelab.Cluster]string{w.a: consumerNamespace, w.b: providerNamespace} {
			lab.Eventually(t, patience, "the gateway of "+c.Name+" talks to the new key", func() error { return w.usesKeys(c, n) })
		}
	})

	x := startTraffic(t, f.paths(t)...)
	defer x.end()
	start := time.Now()
	const wrong = `{"spec":{"publicKey":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="}}` // 31 bytes
	if _, err := w.a.Kubectl("patch", "publickey", "gw-publickey", "-n", consumerNamespace, "--type=merge", "-p", wrong); err == nil || !strings.Contains(err.Error(), "32 bytes") {
		t.Errorf("a public key of 31 bytes: %v, want it refused with what is right", err)
	}
	good := w.kubectl(t, w.a, "get", "secret", "gw-keys", "-n", consumerNamespace, "-o", "jsonpath={.data.privateKey}")
	for _, tt := range []struct{ key, status string }{
		{"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==", "False SecretInvalid"},
		{good, "True KeysProvided"},
	} {
		w.kubectl(t, w.a, "patch", "secret", "gw-keys", "-n", consumerNamespace, "--type=merge", "-p", fmt.Sprintf(`{"data":{"privateKey":%q}}`, tt.key))
		lab.Eventually(t, patience, "the condition KeysReady is "+tt.status, func() error {
			got, err := w.a.Kubectl("get", "gatewayclient", "client", "-n", consumerNamespace, "-o", "jsonpath={.status.conditions[?(@.type=='KeysReady')].status} {.status.conditions[?(@.type=='KeysReady')].reason}")
			if err == nil && strings.TrimSpace(got) != tt.status {
				err = fmt.Errorf("it is %s", got)
			}
			return err
		})
	}
	x.back(t, patience)
	if o := x.since(start); len(o.lost) > 0 || o.outage > loadedMachine*oneReplica {
		t.Errorf("keys that are none: %v", o)
	}
	if diff := cmp.Diff(pods, gatewayPods(t, w)); diff != "" {
		t.Errorf("new keys changed the gateways (-before +after)\n%s", diff)
	}
}

// usesKeys checks that the gateway of a cluster has had a handshake with who has the
// private key of its PublicKey.
func (w *world) usesKeys(c *kubelab.Cluster, namespace string) error {
	key, err := c.Kubectl("get", "publickey", "gw-publickey", "-n", namespace, "-o", "jsonpath={.spec.publicKey}")
	if err != nil {
		return err
	}
	out, err := c.Kubectl("exec", "-n", namespace, "deployment/gw-"+map[*kubelab.Cluster]string{w.a: "client", w.b: "server"}[c], "--", "gateway", "status", "-o", "json")
	if err != nil {
		return err
	}
	var s struct {
		DataPlane struct {
			Tunnel struct {
				Peer          string
				LastHandshake time.Time
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return err
	}
	if s.DataPlane.Tunnel.Peer != key || s.DataPlane.Tunnel.LastHandshake.IsZero() {
		return fmt.Errorf("its peer is %+v, want %s", s.DataPlane.Tunnel, key)
	}
	return nil
}

// balancedPort is the port of the load balancer.
const balancedPort = 51840

// balanced puts a load balancer where the document has a node port.
func balanced(text string) string {
	text = strings.Replace(text, "serviceType: NodePort\n    nodePort: "+nodePort+"\n", "serviceType: LoadBalancer\n", 1)
	return strings.Replace(text, "port: "+nodePort+"\n    protocol: UDP", fmt.Sprintf("port: %d\n    protocol: UDP", balancedPort), 1)
}

// balance plays the load balancer of b until the test ends: it gives the Service the
// router's address, and has the router lead the port there to the node port.
func (w *world) balance(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
		w.b.Router.Nft("table ip balancer\ndelete table ip balancer")
	})
	go func() {
		defer close(done)
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			var list corev1.ServiceList
			if err := w.b.Client().List(ctx, &list, client.InNamespace(providerNamespace)); err != nil {
				continue
			}
			for _, s := range list.Items {
				if s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0 {
					continue
				}
				i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == balancedPort })
				if i < 0 {
					continue
				}
				if err := w.b.Router.TryNft(fmt.Sprintf("table ip balancer\ndelete table ip balancer\ntable ip balancer {\n"+
					// Each node port has what is tracked to itself: what the router has tracked to a former one is no more in the way.
					"chain zone { type filter hook prerouting priority raw - 1; iifname wan0 udp dport %[2]d ct zone set %[4]d; "+
					"iifname br0 ip saddr %[3]s udp sport %[4]d ct zone set %[4]d; }\n"+
					"chain pre { type nat hook prerouting priority dstnat - 1; ip daddr %[1]s udp dport %[2]d dnat to %[3]s:%[4]d; }\n}",
					w.b.Public, balancedPort, w.b.Nodes[0].Addr, s.Spec.Ports[i].NodePort)); err != nil {
					t.Error(err)
					return
				}
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: w.b.Public.String()}}
				_ = w.b.Client().Status().Update(ctx, &s) // or the next time
			}
		}
	}()
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
