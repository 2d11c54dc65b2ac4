package v1beta1_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// columns is what kubectl get shows of a kind: without the namespace and age.
// Columns that -o wide adds stand behind a bar.
var columns = map[string]struct{ base, headers, row string }{
	"configurations": {"Configuration", "NAME, DESIRED POD CIDR, REMAPPED POD CIDR, AGE | DESIRED EXTERNAL CIDR, REMAPPED EXTERNAL CIDR, CLUSTERID",
		"shown, 10.243.0.0/16, 10.71.0.0/16, AGE | 10.70.0.0/16, 10.72.0.0/16, milan"},
	// kubectl puts what is wide only where it stands in the CRD.
	"gatewayservers": {"GatewayServer", "NAME, TEMPLATE NAME, IP, PORT, AGE | TEMPLATE KIND, TEMPLATE NAMESPACE, PROTOCOL, MTU",
		"shown, wireguard-server, 172.19.0.8, 32009, AGE | WgGatewayServerTemplate, liqo, UDP, 1340"},
	"gatewayclients": {"GatewayClient", "NAME, TEMPLATE NAME, IP, PORT, AGE | TEMPLATE KIND, TEMPLATE NAMESPACE, PROTOCOL, MTU",
		"shown, wireguard-client, 192.0.2.1, 51840, AGE | WgGatewayClientTemplate, liqo, UDP, 1340"},
	"connections":            {"Connection", "NAME, TYPE, STATUS, AGE | LATENCY", "shown, Server, Connected, AGE | 12ms"},
	"internalnodes":          {"InternalNode", "NAME, NODE IP LOCAL, NODE IP REMOTE, AGE", "shown, 10.243.2.1, 172.18.0.3, AGE"},
	"internalfabrics":        {"InternalFabric", "NAME, GATEWAY IP, AGE", "shown, fd00:243::7, AGE"},
	"routeconfigurations":    {"RouteConfiguration", "NAME, AGE", "shown, AGE"},
	"firewallconfigurations": {"FirewallConfiguration", "NAME, AGE", "shown, AGE"},
	"genevetunnels":          {"GeneveTunnel", "NAME, AGE", "shown, AGE"},
	"publickeies":            {"PublicKey", "NAME, AGE", "shown, AGE"},
	"networks":               {"Network", "NAME, DESIRED CIDR, REMAPPED CIDR, AGE", "shown, 10.70.0.0/16, 10.71.0.0/16, AGE"},
	"ips":                    {"IP", "NAME, LOCAL IP, REMAPPED IP, REMAPPED IP CIDR, AGE", "shown, 10.0.0.1, 10.70.0.5, 10.70.0.0/16, AGE"},
}

// shown are the statuses of the objects, and specs as the documents have them.
var shown = map[string]values{
	"Configuration": {"spec.remote.cidr.pod": `"10.243.0.0/16"`, "status.remote.cidr": `{"pod": ["10.71.0.0/16"], "external": ["10.72.0.0/16"]}`},
	"GatewayServer": {"status.endpoint": `{"addresses": ["172.19.0.8"], "port": 32009, "protocol": "UDP"}`},
	"Connection":    {"status": `{"value": "Connected", "latency": {"value": "12ms", "timestamp": "2026-01-02T03:04:05Z"}}`},
	"InternalNode":  {"status.nodeIP": `{"local": "10.243.2.1", "remote": "172.18.0.3"}`},
	"Network":       {"status.cidr": `"10.71.0.0/16"`},
	"IP":            {"status": `{"ip": "10.70.0.5", "cidr": "10.70.0.0/16"}`},
}

func checkColumns(t *testing.T, c *controlplanetest.Cluster) {
	documented := documentedHeaders(t)
	for resource, want := range columns {
		t.Run(resource, func(t *testing.T) {
			create(t, c.Client, want.base, shown[want.base])
			plain, wide := kubectlGet(t, c, resource), kubectlGet(t, c, resource, "-o", "wide")
			normal, extra, _ := strings.Cut(want.headers, " | ")
			cells, extraCells, _ := strings.Cut(want.row, " | ")
			if diff := cmp.Diff(normal, strings.Join(plain.headers, ", ")); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(cells, strings.Join(plain.row, ", ")); diff != "" {
				t.Errorf("row (-want +got):\n%s", diff)
			}
			got := map[string]string{}
			for i, h := range wide.headers {
				got[h] = wide.row[i]
			}
			all := map[string]string{}
			values := append(strings.Split(cells, ", "), split(extraCells)...)
			for i, h := range append(strings.Split(normal, ", "), split(extra)...) {
				all[h] = values[i]
			}
			if diff := cmp.Diff(all, got); diff != "" {
				t.Errorf("wide (-want +got):\n%s", diff)
			}
			for _, d := range documented[resource] {
				if diff := cmp.Diff(d, append([]string{"NAMESPACE"}, plain.headers...)); diff != "" {
					t.Errorf("headers in the specification (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ", ")
}

// table is what kubectl get prints of the object "shown".
type table struct{ headers, row []string }

var gap = regexp.MustCompile(`\s{2,}`)

func kubectlGet(t *testing.T, c *controlplanetest.Cluster, resource string, args ...string) table {
	t.Helper()
	out, err := c.Kubectl(append([]string{"get", resource, "shown"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 {
		t.Fatalf("got %s", out)
	}
	tab := table{gap.Split(strings.TrimSpace(lines[0]), -1), gap.Split(strings.TrimSpace(lines[1]), -1)}
	for i, h := range tab.headers {
		if h == "AGE" && i < len(tab.row) {
			tab.row[i] = "AGE"
		}
	}
	return tab
}

// create makes the object "shown" of a kind, with the status in set.
func create(t *testing.T, c client.Client, base string, set values) {
	t.Helper()
	ctx := context.Background()
	o := parse(t, bases[base])
	edit(t, o.Object, set)
	o.SetName("shown")
	status := o.Object["status"]
	if err := c.Create(ctx, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), o); err != nil {
			t.Error(err)
		}
	})
	if status == nil {
		return
	}
	o.Object["status"] = status
	if err := c.Status().Update(ctx, o); err != nil {
		t.Fatal(err)
	}
}

// documentedHeaders takes the tables of kubectl get -A out of the documents.
func documentedHeaders(t *testing.T) map[string][][]string {
	t.Helper()
	headers := map[string][][]string{}
	command := regexp.MustCompile(`kubectl get ([a-z]+)\.networking\.liqo\.io -A`)
	for _, text := range documents(t) {
		resource := ""
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if m := command.FindStringSubmatch(line); m != nil {
				resource = m[1]
			}
			if strings.HasPrefix(line, "NAMESPACE ") && resource != "" {
				headers[resource] = append(headers[resource], gap.Split(line, -1))
			}
		}
	}
	t.Logf("documented tables: %d", len(headers))
	return headers
}

func checkDefaults(t *testing.T, c client.Client) {
	for _, tt := range []struct{ doc, path, want string }{
		{`{apiVersion: networking.liqo.io/v1beta1, kind: GatewayServer, metadata: {name: d, namespace: default}, spec: {endpoint: {port: 1}}}`,
			"spec", `{"endpoint":{"port":1,"serviceType":"ClusterIP"},"mtu":1340,"serverTemplateRef":{"apiVersion":"networking.liqo.io/v1beta1","kind":"WgGatewayServerTemplate","name":"wireguard-server"}}`},
		{`{apiVersion: networking.liqo.io/v1beta1, kind: GatewayClient, metadata: {name: d, namespace: default}, spec: {endpoint: {port: 1, addresses: [a]}}}`,
			"spec", `{"clientTemplateRef":{"apiVersion":"networking.liqo.io/v1beta1","kind":"WgGatewayClientTemplate","name":"wireguard-client"},"endpoint":{"addresses":["a"],"port":1,"protocol":"UDP"},"mtu":1340}`},
		{`{apiVersion: authentication.liqo.io/v1beta1, kind: Tenant, metadata: {name: d, namespace: default}, spec: {clusterID: rome}}`,
			"spec", `{"authzPolicy":"KeysExchange","clusterID":"rome","tenantCondition":"Active"}`},
	} {
		o := parse(t, tt.doc)
		if err := c.Create(context.Background(), o, client.DryRunAll); err != nil {
			t.Error(err)
			continue
		}
		want := parse(t, `{apiVersion: v1, kind: A, spec: `+tt.want+`}`)
		if diff := cmp.Diff(want.Object["spec"], o.Object[tt.path]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", o.GetKind(), diff)
		}
	}
}

// acceptLargeTables: API servers bound the effort of judging an object. What
// controllers write for a large node, and what a person may write, is below.
func acceptLargeTables(t *testing.T, c client.Client) {
	route := parse(t, bases["RouteConfiguration"])
	var routes []any
	for i := range 2000 {
		routes = append(routes, map[string]any{"dst": "10." + strconv.Itoa(i>>8) + ".1." + strconv.Itoa(i&255) + "/32", "gw": "10.80.0.2"})
	}
	if err := unstructured.SetNestedSlice(route.Object, []any{map[string]any{"iif": "liqo-tunnel", "routes": routes}}, "spec", "table", "rules"); err != nil {
		t.Fatal(err)
	}
	firewall := parse(t, bases["FirewallConfiguration"])
	var chains []any
	for i := range 8 {
		var rules []any
		for j := range 500 {
			rules = append(rules, map[string]any{"name": "r" + strconv.Itoa(j), "action": "drop", "counter": true, "match": []any{
				map[string]any{"op": "eq", "ip": map[string]any{"position": "src", "value": "10.0.0.1-10.0.0.9"},
					"proto": map[string]any{"value": "tcp"}, "port": map[string]any{"position": "dst", "value": "8000-8099"}},
			}})
		}
		chains = append(chains, map[string]any{"name": "c" + strconv.Itoa(i), "type": "filter", "hook": "forward", "priority": int64(0), "policy": "accept",
			"rules": map[string]any{"filterRules": rules}})
	}
	if err := unstructured.SetNestedSlice(firewall.Object, chains, "spec", "table", "chains"); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*unstructured.Unstructured{route, firewall} {
		if err := c.Create(context.Background(), o, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", o.GetKind(), err)
		}
	}
}
