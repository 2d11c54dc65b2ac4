package clusters

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// testRefusals calls network connect as it must not be called. Nothing may be
// changed by that.
func testRefusals(t *testing.T, p *pair) {
	local, remote := p.consumer.Kubeconfig, p.provider.Kubeconfig
	connect := func(local, remote string, more ...string) []string {
		return append([]string{"network", "connect", "--wait", "--gw-server-service-type", "NodePort", "--kubeconfig", local, "--remote-kubeconfig", remote}, more...)
	}
	kubeconfig := func(name string, change func(*rest.Config)) string {
		config := rest.CopyConfig(p.provider.Config)
		change(config)
		path, err := p.provider.WriteKubeconfig(name, config)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("%!\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
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
		{"an expired token", connect(local, kubeconfig("expired", func(c *rest.Config) { c.BearerToken = "expired" })), []string{"(remote)", "does not accept the credentials"}},
		{"a cluster that is away", connect(local, kubeconfig("away", func(c *rest.Config) { c.Host = "https://127.0.0.1:1" })), []string{"(remote)", "127.0.0.1:1", "cannot be reached"}},
		{"a certificate of somebody else", connect(local, kubeconfig("stranger", func(c *rest.Config) { c.CAData = p.consumer.Config.CAData })), []string{"(remote)", "certificate"}},
		{"missing rights", connect(local, p.guest(t, p.provider)), []string{"(remote)", "lacks rights", "create gatewayservers.networking.liqo.io", "nothing was changed"}},
		{"another namespace of the installation", connect(local, remote, "--remote-liqo-namespace", "mars"), []string{"(remote)", "mars", "--remote-liqo-namespace"}},
		{"a template that does not exist", connect(local, remote, "--gw-server-template-name", "mars"), []string{"(remote)", "liqo/mars", "wggatewayservertemplates"}},
		{"an MTU that cannot be", connect(local, remote, "--mtu", "70000"), []string{"--mtu 70000"}},
		{"a type of Services that there is not", connect(local, remote, "--gw-server-service-type", "Magic"), []string{"Magic", "NodePort"}},
		{"a node port out of range", connect(local, remote, "--gw-server-service-nodeport", "80"), []string{"--gw-server-service-nodeport 80", "nothing was changed"}},
		{"a flag that does not exist", connect(local, remote, "--mars"), []string{"--mars", "--help"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			errs := p.liqoctl.refuses(t, tt.words, tt.args...)
			t.Logf("%s", errs)
			p.untouched(t)
		})
	}
	t.Run("a cluster with old kinds, and one with none", func(t *testing.T) { testOldKinds(t, p) })
}

// untouched checks that there is nothing of a peering between the two.
func (p *pair) untouched(t *testing.T) {
	t.Helper()
	for _, e := range p.known().ends() {
		names, err := e.names("get", "namespaces", "-l", "liqo.io/tenant-namespace=true,liqo.io/remote-cluster-id="+e.peerID)
		more, err2 := e.names("get", "configurations,gatewayservers,gatewayclients,publickeies", "-A", "-l", "liqo.io/remote-cluster-id="+e.peerID)
		if names = append(names, more...); len(names) > 0 || err != nil || err2 != nil {
			t.Errorf("%s was changed: %v (%v, %v)", e.id, names, err, err2)
		}
	}
}

// oldKinds are CRDs of an earlier age, and one that lacks a field.
const oldKinds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: configurations.networking.liqo.io}
spec:
  group: networking.liqo.io
  names: {kind: Configuration, plural: configurations}
  scope: Namespaced
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: publickeies.networking.liqo.io}
spec:
  group: networking.liqo.io
  names: {kind: PublicKey, plural: publickeies}
  scope: Namespaced
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}]
`

// testOldKinds connects to a cluster that is not up to date.
func testOldKinds(t *testing.T, p *pair) {
	bare := controlplanetest.StartBare(t)
	args := []string{"network", "connect", "--wait", "--kubeconfig", p.consumer.Kubeconfig, "--remote-kubeconfig", bare.Kubeconfig}
	t.Logf("%s", p.liqoctl.refuses(t, []string{"(remote)", "not installed", "liqoctl install"}, args...))
	if err := bare.CreateNamespace(controlplanetest.LiqoNamespace, nil); err != nil {
		t.Fatal(err)
	}
	bare.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: liqo-clusterid-configmap, namespace: liqo}\ndata: {CLUSTER_ID: bare}\n")
	t.Logf("%s", p.liqoctl.refuses(t, []string{"(remote)", "the CRD gatewayservers.networking.liqo.io is missing", "nothing was changed"}, args...))
	bare.Apply(oldKinds)
	t.Logf("%s", p.liqoctl.refuses(t, []string{"(remote)", "configurations.networking.liqo.io is of another age: it serves v1alpha1", "publickeies.networking.liqo.io is old: it lacks spec.publicKey"}, args...))
	p.untouched(t)
}

// testTimeIsUp connects with a template whose image nobody can pull.
func testTimeIsUp(t *testing.T, p *pair) {
	pe := p.known()
	template := new(networkingv1beta1.WgGatewayServerTemplate)
	if err := p.provider.Get(t.Context(), "liqo", "wireguard-server", template); err != nil {
		t.Fatal(err)
	}
	template.ObjectMeta = metav1.ObjectMeta{Namespace: "liqo", Name: "no-image"}
	template.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind("WgGatewayServerTemplate"))
	manifest, err := json.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	p.provider.Apply(strings.ReplaceAll(string(manifest), "sluice/gateway:latest", "example.com/nothing/here:v0"))
	t.Cleanup(func() {
		pe.remove(t)
		kubectl(t, p.provider, "delete", "wggatewayservertemplates", "-n", "liqo", "no-image")
	})
	lines, err := p.liqoctl.listen(t.Context(), nil, append(p.connectCommand(), "--gw-server-template-name", "no-image", "--timeout", "12s")...)
	if err == nil {
		t.Fatalf("it succeeds\n%s", text(lines))
	}
	all := text(lines)
	for _, want := range []string{
		"(remote) time is up after 12s, waiting for gateway pod gw-consumer to be ready", // which step
		"GatewayServer liqo-tenant-consumer/consumer",                                    // which object
		"Deployment gw-consumer has no ready pod yet",                                    // what it says
		"liqoctl network doctor",                                                         // what to do
		"the same command goes on from there",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q", want)
		}
	}
	t.Logf("\n%s", all)
	// What is missing comes, and the same command, without the template, goes on.
	controlplanetest.Eventually(t, "it is corrected", func(context.Context) error {
		_, err := p.provider.Kubectl("patch", "gatewayserver", "consumer", "-n", pe.provider.namespace, "--type=merge", "-p", `{"spec":{"serverTemplateRef":{"name":"wireguard-server"}}}`)
		return err
	})
	p.liqoctl.ok(t, p.connectCommand()...)
	controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
}
