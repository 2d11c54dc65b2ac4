package kubernetes

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/document"
	"github.com/sluice-net/sluice/test/kubelab"
)

var (
	// columns stand apart by at least two blanks, their names have single ones.
	columns = regexp.MustCompile(`\s{2,}`)
	// age is what kubectl prints for one.
	age = regexp.MustCompile(`^(\d+[dhms])+$`)
)

// checkTables compares the tables of both clusters, as they are after connect,
// with those that the document shows.
func (w *world) checkTables(t *testing.T, d *document.Document) {
	t.Helper()
	at := func(c *kubelab.Cluster, peer string) string {
		cidr, err := remoteCIDR(t.Context(), c, peer)
		if err != nil {
			t.Fatal(err)
		}
		return cidr.String()
	}
	// The server tells the node on which its pod is.
	address, port, _ := strings.Cut(w.kubectl(t, w.b, "get", "gatewayservers", "-A", "-o", "jsonpath={.items[0].status.endpoint.addresses[0]} {.items[0].status.endpoint.port}"), " ")
	if !slices.ContainsFunc(w.b.Nodes, func(n *kubelab.Node) bool { return n.Addr.String() == address }) {
		t.Errorf("the server tells the address %q, which no node has", address)
	}
	tenantA, tenantB := "liqo-tenant-"+w.b.Name, "liqo-tenant-"+w.a.Name
	for _, tt := range []struct {
		on   *kubelab.Cluster
		kind string
		want []string
	}{
		{w.a, "configurations", []string{tenantA, w.b.Name, kubelab.PodCIDR, at(w.a, w.b.Name)}},
		{w.a, "gatewayclients", []string{tenantA, w.b.Name, "wireguard-client", w.b.Public.String(), port}},
		{w.a, "connections", []string{tenantA, "gw-" + w.b.Name, "Client", "Connected"}},
		{w.b, "configurations", []string{tenantB, w.a.Name, kubelab.PodCIDR, at(w.b, w.a.Name)}},
		{w.b, "gatewayservers", []string{tenantB, w.a.Name, "wireguard-server", address, port}},
		{w.b, "connections", []string{tenantB, "gw-" + w.a.Name, "Server", "Connected"}},
	} {
		checkTable(t, tt.on, d, tt.kind, tt.want)
	}
}

// checkTable runs the document's command, and wants the columns that it shows and
// one row, which ends with an age.
func checkTable(t *testing.T, c *kubelab.Cluster, d *document.Document, kind string, want []string) {
	t.Helper()
	command := fmt.Sprintf("kubectl get %s.networking.liqo.io -A", kind)
	shown := d.Outputs(command)
	if len(shown) == 0 {
		t.Fatalf("the document shows no output of %s", command)
	}
	out, err := c.Kubectl(strings.Fields(command)[1:]...)
	if err != nil {
		t.Fatalf("%s: %s: %v", c.Name, command, err)
	}
	rows := tableOf(out)
	for _, s := range shown {
		if diff := cmp.Diff(tableOf(s)[0], rows[0]); diff != "" {
			t.Errorf("%s: columns of %s (-document +got)\n%s", c.Name, command, diff)
		}
	}
	if len(rows) != 2 || !slices.Equal(rows[1][:len(rows[1])-1], want) || !age.MatchString(rows[1][len(rows[1])-1]) {
		t.Errorf("%s: %s, want the row %q and an age:\n%s", c.Name, command, want, out)
	}
}

// tableOf splits a table of kubectl into its rows and columns.
func tableOf(text string) (rows [][]string) {
	for _, line := range linesOf(text) {
		rows = append(rows, columns.Split(line, -1))
	}
	return rows
}
