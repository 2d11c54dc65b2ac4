package clusters

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
)

// atDefault is a peering as somebody makes it by hand, in the namespace default.
func (p *pair) atDefault(t *testing.T) *peering {
	t.Helper()
	pe := &peering{
		provider: end{side: p.provider, namespace: "default", peerID: p.consumer.id, gateway: "server"},
		consumer: end{side: p.consumer, namespace: "default", peerID: p.provider.id, gateway: "client"},
	}
	t.Cleanup(func() { pe.remove(t) })
	pe.explainIfFailed(t)
	return pe
}

// testWalkthrough runs the commands of the document's summary, word for word: two
// administrators, who hand over files in a folder.
func testWalkthrough(t *testing.T, p *pair) {
	d := document.Read(t, document.Network)
	dir := t.TempDir()
	server, client := p.newShell(t, p.provider, dir), p.newShell(t, p.consumer, dir)
	pe := p.atDefault(t)
	start := time.Now()
	command := func(words ...string) string { return d.Block(t, words) }

	id := command("liqoctl info --get clusterid")
	for _, s := range []*shell{server, client} {
		s.set("CLUSTER_ID_SERVER", server.ok(t, id))
		s.set("CLUSTER_ID_CLIENT", client.ok(t, id))
	}
	client.ok(t, command("liqoctl generate configuration > conf-client.yaml"))
	server.ok(t, command("kubectl apply -f conf-client.yaml"))
	client.ok(t, command("kubectl apply -f conf-server.yaml"))
	server.ok(t, command("liqoctl create gatewayserver server", "$CLUSTER_ID_CLIENT"))

	address, port := "", ""
	controlplanetest.Eventually(t, "the gateway server tells where it is", func(ctx context.Context) error {
		out, err := server.run(ctx, d.Block(t, []string{"kubectl get gatewayservers --template {{.status.endpoint}}"}, "GATEWAY_NS", "default", "GATEWAY_NAME", "server"))
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
	said := server.ok(t, d.Block(t, []string{"liqoctl info peer <REMOTE_CLUSTER_ID> --get network.gateway"}, "REMOTE_CLUSTER_ID", p.consumer.id))
	if !strings.Contains(said, address) || !strings.Contains(said, port) {
		t.Errorf("liqoctl info peer says %q, want %s and %s in it", said, address, port)
	}
	client.set("ADDRESS_SERVER", address)
	client.set("PORT_SERVER", port)
	client.ok(t, command("liqoctl create gatewayclient client", "$CLUSTER_ID_SERVER"))
	server.ok(t, command("--gateway-type server", "--gateway-name server > publickey-server.yaml"))
	client.ok(t, command("kubectl apply -f publickey-server.yaml"))
	server.ok(t, command("kubectl apply -f publickey-client.yaml"))
	pe.established(t, start)

	t.Run("the examples print what the document shows", func(t *testing.T) {
		for _, tt := range []struct {
			in    *shell
			find  []string
			words []string
		}{
			{server, []string{"liqoctl create gatewayserver server", "-o yaml"},
				[]string{"kind: GatewayServer", "port: 51840", "serviceType: NodePort", "mtu: 1340", "name: wireguard-server", "namespace: liqo"}},
			{client, []string{"liqoctl create gatewayclient client", "-o yaml"},
				[]string{"kind: GatewayClient", "- " + address, "port: " + port, "protocol: UDP", "name: wireguard-client"}},
			{client, []string{"liqoctl generate publickey --gateway-type client --gateway-name client\n"},
				[]string{"kind: PublicKey", "liqo.io/remote-cluster-id: " + p.consumer.id, `networking.liqo.io/gateway-resource: "true"`, "name: " + p.consumer.id}},
		} {
			commands := d.Block(t, tt.find, "CLIENT_CLUSTER_ID", p.consumer.id, "SERVER_CLUSTER_ID", p.provider.id, "REMOTE_IP", address, "REMOTE_PORT", port)
			out := tt.in.ok(t, commands)
			for _, w := range tt.words {
				if !strings.Contains(out, w) {
					t.Errorf("%s: no %q in\n%s", commands, w, out)
				}
			}
			if strings.Contains(out, "status:") {
				t.Errorf("%s prints a status:\n%s", commands, out)
			}
		}
	})
}

// testDeclarativeWalkthrough applies the manifests of the document, with the
// cluster IDs that liqoctl tells as it says.
func testDeclarativeWalkthrough(t *testing.T, p *pair) {
	d := document.Read(t, document.Declarative)
	id := d.Block(t, []string{"liqoctl info --get clusterid"})
	dir := t.TempDir()
	ids := make(map[*side]string)
	for _, s := range p.sides() {
		ids[s] = p.newShell(t, s, dir).ok(t, id)
	}
	pe := &peering{
		provider: end{side: p.provider, namespace: "liqo-tenant-declared", peerID: ids[p.consumer], gateway: "server"},
		consumer: end{side: p.consumer, namespace: "liqo-tenant-declared", peerID: ids[p.provider], gateway: "client"},
	}
	t.Cleanup(func() { pe.remove(t) })
	pe.explainIfFailed(t)
	pe.connect(t, d)
	t.Run("keys of one's own are not replaced", func(t *testing.T) {
		p.liqoctl.refuses(t, []string{"(local)", "your own, in Secret liqo-tenant-declared/gw-keys", "nothing was changed"}, p.both("network", "rotate-keys")...)
	})
	t.Run("connect finds what is there", func(t *testing.T) {
		pods := pe.gatewayPods(t)
		p.liqoctl.ok(t, p.both("network", "connect", "--wait")...)
		pe.samePods(t, pods)
		if names, err := p.provider.Kubectl("get", "gatewayservers", "-A", "-o", "name"); err != nil || strings.Count(names, "\n") != 1 {
			t.Errorf("gateway servers: %s (%v)", names, err)
		}
	})
}

// testScript runs the script at the end of the document with bash, unchanged but
// for the paths of the kubeconfigs.
func testScript(t *testing.T, p *pair) {
	script := readScript(t)
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("SKIPPED: there is no jq, so the script of the document is NOT tested")
	}
	script = strings.NewReplacer(
		"PATH_TO_CLUSTER_1_KUBECONFIG", p.provider.Kubeconfig, "PATH_TO_CLUSTER_2_KUBECONFIG", p.consumer.Kubeconfig,
		"networking.liqo.io/v1alpha1", "networking.liqo.io/v1beta1",
	).Replace(script)
	pe := p.atDefault(t)
	dir := t.TempDir()
	s := p.newShell(t, p.provider, dir)
	path := filepath.Join(dir, "connect.sh")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*controlplanetest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", path)
	cmd.Dir, cmd.Env = dir, s.vars // no KUBECONFIG: the script says which
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("after %v:\n%s", time.Since(start).Round(time.Millisecond), out)
	for _, bad := range []string{"rror", "timed out", "null"} {
		if strings.Contains(string(out), bad) {
			t.Errorf("it says %q:\n%s", bad, out)
		}
	}
	pe.established(t, start)
}

// readScript returns the script.
func readScript(t *testing.T) string {
	t.Helper()
	_, rest, ok := strings.Cut(document.Text(t, document.Script), "#!/bin/bash\n")
	const last = "kubectl --kubeconfig $KUBE_CLIENT apply -f publickey-server.yaml\n"
	body, _, ok2 := strings.Cut(rest, last)
	if !ok || !ok2 {
		t.Fatalf("%s has no script", document.Script)
	}
	return "#!/bin/bash\n" + body + last
}
