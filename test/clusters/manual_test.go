package clusters

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
)

// testManual follows the manual setup, cluster by cluster, as its two
// administrators do: each with kubectl in his own cluster, in the namespace
// default, handing over what the other needs.
func testManual(t *testing.T, p *pair) {
	d := document.Read(t, document.Network)
	start := time.Now()
	server, client := p.provider, p.consumer
	pe := &peering{
		provider: end{side: server, namespace: "default", peerID: clusterID(t, client), gateway: "server"},
		consumer: end{side: client, namespace: "default", peerID: clusterID(t, server), gateway: "client"},
	}
	t.Cleanup(func() { pe.remove(t) })
	pe.explainIfFailed(t)

	for _, e := range pe.ends() {
		e.Apply(d.Block(t, []string{"kind: Configuration"}, "REMOTE_CLUSTER_ID", e.peerID))
	}
	server.Apply(d.Block(t, []string{"kind: GatewayServer"}, "CLIENT_CLUSTER_ID", pe.provider.peerID))
	ip, port := endpoint(t, server, "default", "server")
	client.Apply(d.Block(t, []string{"kind: GatewayClient"},
		"SERVER_CLUSTER_ID", pe.consumer.peerID, "REMOTE_IP", ip, "REMOTE_PORT", port))
	server.Apply(d.Block(t, []string{"kind: PublicKey", "CLIENT_CLUSTER_ID"},
		"CLIENT_CLUSTER_ID", pe.provider.peerID, "PUBLIC_KEY", publicKey(t, &pe.consumer)))
	client.Apply(d.Block(t, []string{"kind: PublicKey", "SERVER_CLUSTER_ID"},
		"SERVER_CLUSTER_ID", pe.consumer.peerID, "PUBLIC_KEY", publicKey(t, &pe.provider)))
	pe.established(t, start)

	t.Run("tables", func(t *testing.T) { checkTables(t, pe, ip, port) })
}

// clusterID asks as the document says.
func clusterID(t *testing.T, s *side) string {
	t.Helper()
	return strings.TrimSpace(kubectl(t, s, "get", "configmaps", "-n", "liqo", "liqo-clusterid-configmap", "--template", "{{.data.CLUSTER_ID}}"))
}

func kubectl(t *testing.T, s *side, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var endpointText = regexp.MustCompile(`^map\[addresses:\[([^ \]]+)\] port:(\d+) protocol:UDP\]$`)

// endpoint asks for the endpoint of a gateway server until there is one.
func endpoint(t *testing.T, s *side, namespace, name string) (ip, port string) {
	t.Helper()
	controlplanetest.Eventually(t, "the gateway server tells its endpoint", func(context.Context) error {
		out, err := s.Kubectl("get", "gatewayservers", "--template", "{{.status.endpoint}}", "-n", namespace, name)
		if err != nil {
			return err
		}
		m := endpointText.FindStringSubmatch(strings.TrimSpace(out))
		if m == nil {
			return fmt.Errorf("it tells %q", out)
		}
		ip, port = m[1], m[2]
		return nil
	})
	return ip, port
}

// publicKey is what `liqoctl generate publickey` puts into its manifest: the
// public key of the Secret in the gateway's status.
func publicKey(t *testing.T, e *end) (key string) {
	t.Helper()
	kind := "gatewayclients"
	if e.gateway == "server" {
		kind = "gatewayservers"
	}
	controlplanetest.Eventually(t, "the gateway of "+e.id+" has keys", func(context.Context) error {
		secret, err := e.Kubectl("get", kind, e.gateway, "-n", e.namespace, "-o", "jsonpath={.status.secretRef.name}")
		if err != nil {
			return err
		}
		if secret == "" {
			return fmt.Errorf("no secretRef yet")
		}
		key, err = e.Kubectl("get", "secret", secret, "-n", e.namespace, "-o", "jsonpath={.data.publicKey}")
		return err
	})
	return key
}

// checkTables compares what kubectl prints with the document's tables.
func checkTables(t *testing.T, pe *peering, ip, port string) {
	remapped := func(e *end) string {
		p, err := e.remapped(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p.String()
	}
	for _, tt := range []struct {
		on        *end
		resource  string
		head, row []string
	}{
		{&pe.provider, "configurations.networking.liqo.io", []string{"NAMESPACE", "NAME", "DESIRED POD CIDR", "REMAPPED POD CIDR", "AGE"},
			[]string{"default", "dry-paper", podCIDR, remapped(&pe.provider)}},
		{&pe.consumer, "configurations.networking.liqo.io", []string{"NAMESPACE", "NAME", "DESIRED POD CIDR", "REMAPPED POD CIDR", "AGE"},
			[]string{"default", "dry-paper", podCIDR, remapped(&pe.consumer)}},
		{&pe.provider, "gatewayservers.networking.liqo.io", []string{"NAMESPACE", "NAME", "TEMPLATE NAME", "IP", "PORT", "AGE"},
			[]string{"default", "server", "wireguard-server", ip, port}},
		{&pe.consumer, "gatewayclients.networking.liqo.io", []string{"NAMESPACE", "NAME", "TEMPLATE NAME", "IP", "PORT", "AGE"},
			[]string{"default", "client", "wireguard-client", ip, port}},
		{&pe.provider, "connections.networking.liqo.io", []string{"NAMESPACE", "NAME", "TYPE", "STATUS", "AGE"},
			[]string{"default", "gw-server", "Server", "Connected"}},
		{&pe.consumer, "connections.networking.liqo.io", []string{"NAMESPACE", "NAME", "TYPE", "STATUS", "AGE"},
			[]string{"default", "gw-client", "Client", "Connected"}},
	} {
		lines := strings.Split(strings.TrimSpace(kubectl(t, tt.on.side, "get", tt.resource, "-A")), "\n")
		if head := columns.Split(strings.TrimSpace(lines[0]), -1); !slices.Equal(head, tt.head) {
			t.Errorf("%s has the columns %q, want %q", tt.resource, head, tt.head)
		}
		found := false
		for _, l := range lines[1:] {
			row := columns.Split(strings.TrimSpace(l), -1)
			found = found || slices.Equal(row[:len(row)-1], tt.row) // the last is the age
		}
		if !found {
			t.Errorf("%s of %s has no row %q:\n%s", tt.resource, tt.on.id, tt.row, strings.Join(lines, "\n"))
		}
	}
}

// columns stand apart by at least two blanks.
var columns = regexp.MustCompile(`\s{2,}`)
