package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// testRefusals calls network connect as it must not be called, and test network for
// clusters that are not connected. Nothing may be changed by that.
func testRefusals(t *testing.T, w *world) {
	w.apart(t)
	local, remote := w.a.Kubeconfig, w.b.Kubeconfig
	connect := func(local, remote string, more ...string) []string {
		return append([]string{"network", "connect", "--wait", "--gw-server-service-type", "NodePort", "--kubeconfig", local, "--remote-kubeconfig", remote}, more...)
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("%!\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	expired, err := w.b.KubeconfigFor("admin", "system:masters", time.Now().Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	away := fmt.Sprintf("https://%s:6499", w.b.Public)
	elsewhere := w.kubeconfig(t, w.b, "away", func(c *api.Cluster, _ *api.AuthInfo) { c.Server = away })
	others, err := clientcmd.LoadFromFile(local)
	if err != nil {
		t.Fatal(err)
	}
	stranger := w.kubeconfig(t, w.b, "stranger", func(c *api.Cluster, _ *api.AuthInfo) {
		c.CertificateAuthorityData = others.Clusters[others.Contexts[others.CurrentContext].Cluster].CertificateAuthorityData
	})
	for _, tt := range []struct {
		name  string
		args  []string
		words []string
	}{
		{"the same cluster twice", connect(local, local), []string{"same cluster", "nothing was changed", "--remote-kubeconfig"}},
		{"no remote cluster", []string{"network", "connect", "--kubeconfig", local}, []string{"--remote-kubeconfig"}},
		{"a kubeconfig that does not exist", connect(local, "/nonexistent"), []string{"(remote)", "/nonexistent", "--remote-kubeconfig"}},
		{"a kubeconfig that is none", connect(garbage, remote), []string{"(local)", garbage, "--kubeconfig"}},
		{"a context that does not exist", connect(local, remote, "--remote-context", "mars"), []string{"(remote)", "mars"}},
		{"an expired certificate", connect(local, expired), []string{"(remote)", "does not accept the credentials"}},
		{"a cluster that is away", connect(local, elsewhere), []string{"(remote)", w.b.Public.String() + ":6499", "cannot be reached"}},
		{"a certificate of somebody else", connect(local, stranger), []string{"(remote)", "certificate"}},
		{"missing rights", connect(local, w.guest(t, w.b)), []string{"(remote)", "lacks rights", "create gatewayservers.networking.liqo.io", "nothing was changed"}},
		{"another namespace of the installation", connect(local, remote, "--remote-liqo-namespace", "mars"), []string{"(remote)", "mars", "--remote-liqo-namespace"}},
		{"a template that does not exist", connect(local, remote, "--gw-server-template-name", "mars"), []string{"(remote)", "liqo/mars", "wggatewayservertemplates"}},
		{"an MTU that cannot be", connect(local, remote, "--mtu", "70000"), []string{"--mtu 70000"}},
		{"a type of Services that there is not", connect(local, remote, "--gw-server-service-type", "Magic"), []string{"Magic", "NodePort"}},
		{"a node port out of range", connect(local, remote, "--gw-server-service-nodeport", "80"), []string{"--gw-server-service-nodeport 80", "nothing was changed"}},
		{"a node port at an address that both clusters have", connect(local, remote), []string{"(remote)", "is also that of node", "in cluster " + w.a.Name, "nothing was changed", "--gw-client-address"}},
		{"a flag that does not exist", connect(local, remote, "--mars"), []string{"--mars", "--help"}},
		{"a test of clusters that are not peered", w.both("test", "network"), []string{"(local) cluster " + w.a.Name + " has no Configuration for cluster " + w.b.Name, "liqoctl network connect"}},
		{"a status of one cluster twice", []string{"network", "status", "--kubeconfig", local, "--remote-kubeconfig", local}, []string{"(remote) its ID is also " + w.a.Name}},
	} {
		t.Run(tt.name, func(t *testing.T) { w.refuses(t, tt.words, tt.args...) })
	}
	w.untouched(t)
	for _, c := range w.Clusters {
		noNamespaceOfTests(t, w, c)
	}
}
