package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/document"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// endpointText is how kubectl prints a gateway server's endpoint with the
// document's template.
var endpointText = regexp.MustCompile(`^map\[addresses:\[([^ \]]+)[^\]]*\] port:(\d+) protocol:UDP\]$`)

// testManual runs the commands of the document's summary, word for word: two
// administrators, each of whom reaches his own cluster only, hand over files in a
// folder, and tell each other IDs, address and port.
func testManual(t *testing.T, w *world) {
	w.apart(t)
	d := document.Read(t, document.Network)
	sides := w.pairOfServers(t, 2)
	dir := t.TempDir()
	server, client := w.newShell(w.b, dir), w.newShell(w.a, dir)
	t.Cleanup(func() { removePeering(t, w, "default") })
	start := time.Now()
	command := func(words ...string) string { return d.Block(t, words) }

	byLiqoctl, byKubectl := command("liqoctl info --get clusterid"), command("kubectl get configmaps -n liqo liqo-clusterid-configmap")
	for s, want := range map[*shell]string{server: w.b.Name, client: w.a.Name} {
		if a, b := s.ok(t, byLiqoctl), s.ok(t, byKubectl); a != want || b != want {
			t.Errorf("the ID of cluster %s is %q by liqoctl, %q by kubectl", want, a, b)
		}
	}
	server.set("CLUSTER_ID_CLIENT", client.ok(t, byLiqoctl))
	client.set("CLUSTER_ID_SERVER", server.ok(t, byLiqoctl))

	client.ok(t, command("liqoctl generate configuration > conf-client.yaml"))
	server.ok(t, command("kubectl apply -f conf-client.yaml"))
	client.ok(t, command("kubectl apply -f conf-server.yaml"))
	server.ok(t, command("liqoctl create gatewayserver server", "$CLUSTER_ID_CLIENT"))
	address, port := serverEndpoint(t, server, d)
	// The NAT has the same port as the node behind it, but not its address.
	client.set("ADDRESS_SERVER", w.b.Public.String())
	client.set("PORT_SERVER", port)
	client.ok(t, command("liqoctl create gatewayclient client", "$CLUSTER_ID_SERVER"))
	server.ok(t, command("--gateway-type server", "--gateway-name server > publickey-server.yaml"))
	client.ok(t, command("kubectl apply -f publickey-server.yaml"))
	server.ok(t, command("kubectl apply -f publickey-client.yaml"))
	w.connected(t)
	t.Logf("connected by hand after %v", time.Since(start).Round(10*time.Millisecond))
	w.talk(t, sides)

	for c, want := range map[*kubelab.Cluster][]string{w.b: {"default", "gw-server", "Server", "Connected"}, w.a: {"default", "gw-client", "Client", "Connected"}} {
		checkTable(t, c, d, "connections", want)
	}
	said := server.ok(t, d.Block(t, []string{"liqoctl info peer <REMOTE_CLUSTER_ID> --get network.gateway"}, "REMOTE_CLUSTER_ID", w.a.Name))
	if !strings.Contains(said, address) || !strings.Contains(said, port) {
		t.Errorf("liqoctl info peer says %q, want %s and %s in it", said, address, port)
	}
	checkExamples(t, w, server, client, d)
	checkManifests(t, w, d, port)
}

// checkExamples runs the commands that print a manifest.
func checkExamples(t *testing.T, w *world, server, client *shell, d *document.Document) {
	t.Helper()
	values := []string{"CLIENT_CLUSTER_ID", w.a.Name, "SERVER_CLUSTER_ID", w.b.Name, "REMOTE_IP", "192.0.2.1", "REMOTE_PORT", "32009"}
	for _, tt := range []struct {
		in          *shell
		find, words []string
	}{
		{server, []string{"liqoctl create gatewayserver server", "-o yaml"},
			[]string{"kind: GatewayServer", "port: 51840", "serviceType: NodePort", "mtu: 1340", "name: wireguard-server", "namespace: liqo"}},
		{client, []string{"liqoctl create gatewayclient client", "-o yaml"},
			[]string{"kind: GatewayClient", "- 192.0.2.1", "port: 32009", "protocol: UDP", "name: wireguard-client"}},
		{client, []string{"liqoctl generate publickey --gateway-type client --gateway-name client\n"},
			[]string{"kind: PublicKey", "liqo.io/remote-cluster-id: " + w.a.Name, `networking.liqo.io/gateway-resource: "true"`, "name: " + w.a.Name}},
	} {
		out := tt.in.ok(t, d.Block(t, tt.find, values...))
		for _, word := range tt.words {
			if !strings.Contains(out, word) {
				t.Errorf("%q: no %q in\n%s", tt.find, word, out)
			}
		}
		if strings.Contains(out, "status:") {
			t.Errorf("%q prints a status:\n%s", tt.find, out)
		}
	}
}

// checkManifests applies the manifests of the document over what the commands have
// made: they say the same, so nothing changes, and the connection stays.
func checkManifests(t *testing.T, w *world, d *document.Document, port string) {
	t.Helper()
	pods := gatewayPods(t, w)
	key := func(c *kubelab.Cluster, kind, name string) string {
		secret := w.kubectl(t, c, "get", kind, name, "-o", "jsonpath={.status.secretRef.name}")
		return w.kubectl(t, c, "get", "secret", secret, "-o", "jsonpath={.data.publicKey}")
	}
	for _, m := range []struct {
		on     *kubelab.Cluster
		kind   string
		find   []string
		values []string
	}{
		{w.b, "gatewayserver/server", []string{"kind: GatewayServer"}, []string{"CLIENT_CLUSTER_ID", w.a.Name}},
		{w.a, "gatewayclient/client", []string{"kind: GatewayClient"}, []string{"SERVER_CLUSTER_ID", w.b.Name, "REMOTE_IP", w.b.Public.String(), "REMOTE_PORT", port}},
		{w.b, "publickey/" + w.a.Name, []string{"kind: PublicKey", "CLIENT_CLUSTER_ID"}, []string{"CLIENT_CLUSTER_ID", w.a.Name, "PUBLIC_KEY", key(w.a, "gatewayclient", "client")}},
		{w.a, "publickey/" + w.b.Name, []string{"kind: PublicKey", "SERVER_CLUSTER_ID"}, []string{"SERVER_CLUSTER_ID", w.b.Name, "PUBLIC_KEY", key(w.b, "gatewayserver", "server")}},
	} {
		spec := func() string { return w.kubectl(t, m.on, "get", m.kind, "-o", "jsonpath={.spec}") }
		before := spec()
		if out, err := m.on.KubectlInput(d.Block(t, m.find, m.values...), "apply", "-f", "-"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if diff := cmp.Diff(before, spec()); diff != "" {
			t.Errorf("%s of the document says something else than the command (-command +document)\n%s", m.kind, diff)
		}
	}
	for _, c := range []*kubelab.Cluster{w.a, w.b} {
		text := d.Block(t, []string{"kind: Configuration"}, "REMOTE_CLUSTER_ID", "naples")
		if out, err := c.KubectlInput(text, "apply", "--dry-run=server", "-f", "-"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	w.connected(t)
	if diff := cmp.Diff(pods, gatewayPods(t, w)); diff != "" {
		t.Errorf("the manifests changed the gateways (-before +after)\n%s", diff)
	}
}

// testScript runs the script of the document with bash, unchanged but for the paths
// of the kubeconfigs and for the address of the server, which it takes from the
// server's status: behind a NAT the client has to dial another one.
func testScript(t *testing.T, w *world) {
	w.apart(t)
	sides := w.pairOfServers(t, 2)
	address := regexp.MustCompile(`(?m)^ADDRESS_SERVER=.*$`)
	script := document.Script(t)
	if n := len(address.FindAllString(script, -1)); n != 1 {
		t.Fatalf("the script names the server's address %d times", n)
	}
	script = strings.NewReplacer(
		"PATH_TO_CLUSTER_1_KUBECONFIG", w.b.Kubeconfig, "PATH_TO_CLUSTER_2_KUBECONFIG", w.a.Kubeconfig,
		"networking.liqo.io/v1alpha1", "networking.liqo.io/v1beta1",
	).Replace(address.ReplaceAllString(script, "ADDRESS_SERVER="+w.b.Public.String()))
	admin := w.newShell(w.b, t.TempDir())
	if err := os.WriteFile(filepath.Join(admin.dir, "connect.sh"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removePeering(t, w, "default") })
	out := admin.ok(t, "unset KUBECONFIG; bash connect.sh 2>&1") // the script says which
	for _, bad := range []string{"rror", "timed out", "null"} {
		if strings.Contains(out, bad) {
			t.Errorf("it says %q:\n%s", bad, out)
		}
	}
	w.connected(t)
	w.talk(t, sides)
}

// serverEndpoint asks where the server is, as the document has it, until it tells.
func serverEndpoint(t *testing.T, s *shell, d *document.Document) (address, port string) {
	t.Helper()
	ask := d.Block(t, []string{"kubectl get gatewayservers --template {{.status.endpoint}}"}, "GATEWAY_NS", "default", "GATEWAY_NAME", "server")
	lab.Eventually(t, patience, "the gateway server tells where it is", func() error {
		out, err := s.run(t.Context(), ask)
		if err != nil {
			return err
		}
		m := endpointText.FindStringSubmatch(strings.TrimSpace(out))
		if m == nil {
			return fmt.Errorf("it tells %q", out)
		}
		address, port = m[1], m[2]
		return nil
	})
	return address, port
}

// removePeering removes a peering that somebody has made by hand, in both
// clusters, and waits until nothing is left. A namespace of its own goes, too.
func removePeering(t *testing.T, w *world, namespaces ...string) {
	t.Helper()
	for _, c := range []*kubelab.Cluster{w.a, w.b} {
		for _, n := range namespaces {
			args := []string{"delete", "namespace", n, "--ignore-not-found", "--wait=false"}
			if n == "default" {
				args = []string{"delete", "-n", n, "gatewayservers,gatewayclients,configurations,publickeies", "--all", "--wait=false"}
			}
			if out, err := c.Kubectl(args...); err != nil {
				t.Errorf("%s: %v\n%s", c.Name, err, out)
			}
		}
	}
	w.nothingLeft(t)
}
