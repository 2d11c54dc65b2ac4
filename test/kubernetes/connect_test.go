package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/document"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testConnect follows the document from the first command to the last: connect,
// look, talk, disconnect, reset. After the disconnect it connects in two steps and
// with flags as they were called earlier.
func testConnect(t *testing.T, w *world) {
	w.apart(t)
	d := document.Read(t, document.Network)
	sides := w.pairOfServers(t, 4)
	// An administrator of both clusters. They are cl01 and cl02 in Liqo's document.
	admin := w.newShell(w.a, t.TempDir())
	admin.set("CLUSTER_1_KUBECONFIG_PATH", w.a.Kubeconfig)
	admin.set("CLUSTER_2_KUBECONFIG_PATH", w.b.Kubeconfig)
	names := strings.NewReplacer("cl01", w.a.Name, "cl02", w.b.Name)
	// What the server tells is its address behind the NAT, which is no use here.
	connect := oneLine(d.Block(t, []string{"liqoctl network connect", "--wait"})) + " --gw-client-address " + w.b.Public.String()
	connected := linesOf(names.Replace(d.Blocks("(local) Network configuration correctly retrieved", "(remote) Connection is established")[0]))
	w.joined = true

	run := func(t *testing.T) {
		t.Helper()
		start := time.Now()
		got := steps(admin.ok(t, "{ "+connect+"; } 2>&1"))
		t.Logf("%d lines after %v", len(got), time.Since(start).Round(10*time.Millisecond))
		if diff := cmp.Diff(connected, got); diff != "" {
			t.Errorf("(-document +got)\n%s", diff)
		}
		w.talk(t, sides)
	}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"connect", run},
		{"tables", func(t *testing.T) { w.checkTables(t, d) }},
		{"connect once more", func(t *testing.T) {
			before, pods := w.peering().state(t), gatewayPods(t, w)
			run(t)
			w.liqoctl(t, w.between(w.b, w.a, "network", "connect", "--wait")...) // the opposite direction
			if diff := cmp.Diff(before, w.peering().state(t)); diff != "" {
				t.Errorf("it changed something (-before +after)\n%s", diff)
			}
			if diff := cmp.Diff(pods, gatewayPods(t, w)); diff != "" {
				t.Errorf("it changed the gateways (-before +after)\n%s", diff)
			}
		}},
		{"disconnect", func(t *testing.T) {
			to := w.remote(t, w.a, sides[1].pods[0].Addr)
			checkSeparation(t, admin, d, "disconnect")
			w.disconnected(t)
			if _, err := get(t.Context(), sides[0].pods[0], to); err == nil {
				t.Error("pods still reach each other")
			}
		}},
		{"init and former flags", func(t *testing.T) { testFormerFlags(t, w, sides) }},
		{"reset", func(t *testing.T) {
			checkSeparation(t, admin, d, "reset")
			w.nothingLeft(t)
			w.joined = false
		}},
	} {
		if !t.Run(step.name, step.run) {
			return // what follows begins with what this has left
		}
	}
}

// testFormerFlags connects in two steps, with flags as they were called earlier.
func testFormerFlags(t *testing.T, w *world, sides [2]*side) {
	init := append([]string{"INFO   (local) Cluster identity correctly retrieved", "INFO   (remote) Cluster identity correctly retrieved"}, connectLines(t)[:6]...)
	said, err := w.listen(t.Context(), nil, w.both("network", "init", "--wait")...)
	if diff := cmp.Diff(init, told(said)); err != nil || diff != "" {
		t.Fatalf("init: %v (-want +got)\n%s", err, diff)
	}
	if got := w.kubectl(t, w.b, "get", "gatewayservers", "-A", "-o", "name"); got != "" {
		t.Errorf("init made %s", got)
	}
	w.liqoctl(t, w.both("network", "connect", "--server-service-type", "NodePort", "--server-port", "51820", "--node-port", nodePort, "--mtu", "1300",
		"--gw-client-address", w.b.Public.String(), "--wait")...)
	pe := w.peering()
	got := pe.server.kubectl(t, "get", "gatewayserver", pe.server.gateway, "-o", "jsonpath={.spec.endpoint.serviceType} {.spec.endpoint.port} {.spec.endpoint.nodePort} {.spec.mtu} {.status.endpoint.port}")
	if want := "NodePort 51820 " + nodePort + " 1300 " + nodePort; got != want {
		t.Errorf("the server is %s, want %s", got, want)
	}
	if mtu := pe.client.kubectl(t, "get", "gatewayclient", pe.client.gateway, "-o", "jsonpath={.spec.mtu}"); mtu != "1300" {
		t.Errorf("the client has an MTU of %s", mtu)
	}
	w.talk(t, sides)
}

// disconnected waits until no gateway is left in any cluster. What is known of the
// peer stays.
func (w *world) disconnected(t *testing.T) {
	t.Helper()
	if err := w.noGateways(); err != nil {
		t.Error(err)
	}
	for _, c := range w.Clusters {
		if got := w.kubectl(t, c, "get", "configurations", "-A", "-o", "name"); got == "" {
			t.Errorf("%s has forgotten its peer", c.Name)
		}
	}
	lab.Eventually(t, patience, "the gateways are gone", func() error {
		if pods := gatewayPods(t, w); len(pods) > 0 {
			return fmt.Errorf("there are %v", pods)
		}
		return nil
	})
}

// noGateways tells which objects there are that belong to a gateway.
func (w *world) noGateways() error {
	for _, c := range w.Clusters {
		got, err := c.Kubectl("get", "gatewayservers,gatewayclients,connections,internalfabrics,genevetunnels", "-A", "-o", "name")
		if err == nil && got != "" {
			err = fmt.Errorf("left in %s:\n%s", c.Name, got)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkSeparation runs `network disconnect` or `network reset`, says yes, and
// compares what it prints.
func checkSeparation(t *testing.T, admin *shell, d *document.Document, command string) {
	t.Helper()
	words := "liqoctl network " + command
	shown := d.Outputs(words)
	if len(shown) != 1 {
		t.Fatalf("the document shows %d outputs of %s", len(shown), words)
	}
	start := time.Now()
	got := steps(admin.ok(t, "{ "+oneLine(d.Block(t, []string{words}))+"; } 2>&1 <<< yes"))
	t.Logf("%s after %v", command, time.Since(start).Round(10*time.Millisecond))
	// Before it asks, it says more than the document: what goes, and in which clusters.
	question := slices.IndexFunc(got, func(line string) bool { return strings.HasSuffix(line, "is a potentially destructive command.") })
	if question < 0 {
		t.Fatalf("%s does not ask: %q", command, got)
	}
	what := strings.Join(got[:question], "\n")
	for _, c := range []*kubelab.Cluster{admin.w.a, admin.w.b} {
		if !strings.Contains(what, "In cluster "+c.Name+" (") {
			t.Errorf("%s does not say what goes in %s:\n%s", command, c.Name, what)
		}
	}
	got = got[question:]
	// Here nobody types the answer on a terminal that would show it.
	if diff := cmp.Diff(linesOf(strings.ReplaceAll(shown[0], "[y/N]yes", "[y/N]")), got); diff != "" {
		t.Errorf("%s (-document +got)\n%s", command, diff)
	}
}

// oneLine is a command without its end, so that more can be added.
func oneLine(command string) string { return strings.TrimSpace(command) }

// steps are the lines of an output of liqoctl, without those about long waits.
func steps(output string) []string { return slices.DeleteFunc(linesOf(output), document.IsWait) }

// linesOf are the lines of an output, without what surrounds them.
func linesOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// gatewayPods are the pods of gateways, by name with cluster and namespace: their
// UIDs, and how often they were restarted.
func gatewayPods(t *testing.T, w *world) map[string]string {
	t.Helper()
	pods := make(map[string]string)
	for _, c := range w.Clusters {
		for line := range strings.Lines(w.kubectl(t, c, "get", "pods", "-A", "-l", "networking.liqo.io/component=gateway",
			"-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.metadata.uid} restarts {.status.containerStatuses[0].restartCount}{"\n"}{end}`)) {
			name, uid, _ := strings.Cut(strings.TrimSpace(line), " ")
			pods[c.Name+"/"+name] = uid
		}
	}
	return pods
}

// peeringKinds are those of which nothing may be left in a tenant namespace.
const peeringKinds = "gatewayservers,gatewayclients,wggatewayservers,wggatewayclients,configurations,connections,publickeies," +
	"internalfabrics,genevetunnels"

// nothingLeft waits until no cluster has anything of a peering: no object, and no
// link on a node.
func (w *world) nothingLeft(t *testing.T) {
	t.Helper()
	for _, c := range w.Clusters {
		lab.Eventually(t, patience, "nothing of the peering is left in "+c.Name, func() error { return left(t.Context(), c) })
	}
}

func left(_ context.Context, c *kubelab.Cluster) error {
	var errs []error
	for _, args := range [][]string{
		{"get", peeringKinds, "-A", "-o", "name"},
		{"get", "namespaces", "-l", "liqo.io/tenant-namespace=true", "-o", "name"},
		{"get", "roles,rolebindings", "-A", "-l", "networking.liqo.io/gateway-namespace", "-o", "name"},
		{"get", "clusterrolebindings", "-l", "networking.liqo.io/gateway-namespace", "-o", "name"},
		{"get", "deployments,services,pods,networkpolicies,poddisruptionbudgets", "-A", "-l", "networking.liqo.io/component=gateway", "-o", "name"},
	} {
		out, err := c.Kubectl(args...)
		if names := strings.Fields(out); err != nil || len(names) > 0 {
			errs = append(errs, fmt.Errorf("kubectl %s: %v (%w)", strings.Join(args, " "), names, err))
		}
	}
	for _, n := range c.Nodes {
		links, err := liqoLinks(n)
		if err != nil || len(links) > 0 {
			errs = append(errs, fmt.Errorf("links on node %s: %v (%w)", n.Name, links, err))
		}
	}
	return errors.Join(errs...)
}
