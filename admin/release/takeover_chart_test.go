package release

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// adopted are values as a takeover sets them.
const adopted = "{discovery: {config: {clusterID: rome}}, ipam: {podCIDR: 10.244.0.0/16}, adoption: {enabled: true, liqoTables: [milan-masquerade-bypass, oslo-masquerade-bypass]}}"

// TestAdoptedChart: beside Liqo's release nothing has the name of an object of that, and each program does its part of the takeover.
func TestAdoptedChart(t *testing.T) {
	liqos := []string{
		"ClusterRole liqo-controller-manager", "ClusterRole liqo-crd-replicator", "ClusterRole liqo-fabric", "ClusterRole liqo-gateway", "ClusterRole liqo-metric-agent",
		"ClusterRole liqo-peering-user-tenant-ns", "ClusterRole liqo-remote-controlplane", "ClusterRole liqo-virtual-kubelet-local", "ClusterRole liqo-virtual-kubelet-remote",
		"ClusterRole liqo-webhook", "ClusterRoleBinding liqo-controller-manager", "ClusterRoleBinding liqo-fabric", "Role liqo/liqo-peering-user-liqo-ns", "Role liqo/liqo-gateway",
		"ConfigMap liqo/liqo-clusterid-configmap", "ServiceAccount liqo/liqo-fabric", "DaemonSet liqo/liqo-fabric", "Deployment liqo/liqo-controller-manager",
		"WgGatewayServerTemplate liqo/wireguard-server", "WgGatewayClientTemplate liqo/wireguard-client",
	}
	render := func(more string) (map[string]string, []*unstructured.Unstructured) {
		t.Helper()
		values := merge(parse(t, adopted), parse(t, more))
		if err := embedded(t).Check(values); err != nil {
			t.Fatal(err)
		}
		files, err := embedded(t).render(values, "liqo")
		if err != nil {
			t.Fatal(err)
		}
		return files, objectsOf(t, values)
	}
	files, objects := render("{}")
	seen := map[string]bool{}
	for _, u := range objects {
		seen[describe(u)] = true
		if slices.Contains(liqos, describe(u)) {
			t.Errorf("%s is one of Liqo's release", describe(u))
		}
		// By these its liqoctl finds its own controller.
		if u.GetKind() == "Deployment" && u.GetLabels()["app.kubernetes.io/name"] == "controller-manager" {
			t.Errorf("%s is labelled as Liqo's controller", describe(u))
		}
	}
	for _, want := range []string{
		"ClusterRole sluice-gateway", "Role liqo/sluice-gateway", "ClusterRole sluice-fabric", "ClusterRoleBinding sluice-fabric",
		"WgGatewayServerTemplate liqo/sluice-wireguard-server", "WgGatewayClientTemplate liqo/sluice-wireguard-client",
	} {
		if !seen[want] {
			t.Errorf("no %s", want)
		}
	}
	if text := files["authentication-off.yaml"]; text != "" {
		t.Errorf("Liqo's authentication is refused: %s", text)
	}
	for file, want := range map[string][]string{
		"controller.yaml":   {"- --foreign-clusters=false\n", "- --gateway-role=sluice-gateway\n"},
		"fabric.yaml":       {"- --take-over-liqo\n", "- --liqo-table=milan-masquerade-bypass\n", "- --liqo-table=oslo-masquerade-bypass\n"},
		"installation.yaml": {"adoption: \"true\"\n"},
		"fabric-rbac.yaml":  {"kind: ClusterRole, name: sluice-fabric}"},
	} {
		for _, text := range want {
			if !strings.Contains(files[file], text) {
				t.Errorf("%s lacks %q:\n%s", file, text, files[file])
			}
		}
	}
	if files, _ := render("networking: {fabric: {cleanup: true}}"); !strings.Contains(files["fabric-cleanup.yaml"], "args: [cleanup, --leave-links]\n") {
		t.Errorf("the cleanup takes Liqo's links with it:\n%s", files["fabric-cleanup.yaml"])
	}
	for _, module := range []string{"authentication", "services", "clusterDNS"} {
		_, err := embedded(t).render(merge(parse(t, adopted), value(true, module+".enabled")), "liqo")
		want := module + ".enabled cannot be set where the network of Liqo is taken over, as only that changes hands: leave it out"
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", module, err, want)
		}
	}
	if err := embedded(t).Check(merge(parse(t, adopted), parse(t, "adoption: {liqoTables: ['--purge']}"))); err == nil {
		t.Error("an argument passes as the name of a table")
	}
}
