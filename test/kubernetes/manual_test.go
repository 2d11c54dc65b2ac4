package kubernetes

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

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
