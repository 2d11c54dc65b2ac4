package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/authentication/resourceslice"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// startSite is a control plane with the controllers of the network and of identities.
func startSite(t *testing.T, id, podCIDR string) *rome {
	t.Helper()
	c := controlplanetest.Start(t)
	c.ApplyManifest(t, "authentication", "authentication.yaml")
	c.Elect(t)
	c.RunManager(t, func(mgr ctrl.Manager) error {
		return manager.SetupWithManager(mgr, manager.Options{
			LiqoNamespace: controlplanetest.LiqoNamespace,
			Bootstrap: bootstrap.Options{
				ClusterID:    id,
				PodCIDRs:     []netip.Prefix{netip.MustParsePrefix(podCIDR)},
				ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
				ExternalCIDR: bootstrap.Range{Prefix: netip.MustParsePrefix("10.70.0.0/16")},
				InternalCIDR: bootstrap.Range{Prefix: netip.MustParsePrefix("10.80.0.0/16")},
			},
			Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			Authentication: &authentication.Options{
				APIServer: issue.APIServer{URL: c.Config.Host, CA: c.Config.CAData}, Slices: resourceslice.Options{DefaultClass: true},
			},
		})
	})
	r := &rome{c}
	controlplanetest.Eventually(t, "cluster "+id+" has its ID", func(context.Context) error {
		if got := r.liqoctl(t, "info", "--get", "clusterid"); got.code != 0 {
			return errorString(got.stderr)
		}
		return nil
	})
	return r
}

// must is a run that succeeds; it returns what was written to standard output.
func (r *rome) must(t *testing.T, args ...string) string {
	t.Helper()
	got := r.liqoctl(t, args...)
	if got.code != 0 {
		t.Fatalf("liqoctl %s: %+v", strings.Join(args, " "), got)
	}
	return got.stdout
}

// TestIdentitiesByHand: two operators, of whom none reaches both clusters, give rome an identity in milan; milan then
// decides about what rome has.
func TestIdentitiesByHand(t *testing.T) {
	rome, milan := startSite(t, "rome", "10.243.0.0/16"), startSite(t, "milan", "10.244.0.0/16")

	milan.liqoctl(t, "get", "nonce", "--remote-cluster-id", "rome").want(t, "no nonce yet", "",
		" ERRO   there is no nonce for cluster rome: create one with 'liqoctl create nonce --remote-cluster-id rome'\n")
	rome.liqoctl(t, "generate", "tenant", "--remote-cluster-id", "milan").want(t, "nothing to sign", "",
		" ERRO   no nonce of cluster milan has been signed yet: pass it with --nonce; 'liqoctl get nonce --remote-cluster-id rome' prints it in that cluster\n")
	rome.liqoctl(t, "generate", "tenant", "--remote-cluster-id", "milan", "--nonce", "aGVsbG8=").want(t, "no nonce", "",
		" ERRO   --nonce: not a nonce: use the output of 'liqoctl get nonce' at the provider\n")
	rome.liqoctl(t, "generate", "tenant", "--remote-cluster-id", "milan", "--proxy-url", "socks5://x").want(t, "no HTTP proxy", "",
		` ERRO   --proxy-url "socks5://x": must be the URL of an HTTP proxy without a user, such as http://10.0.0.1:8118`+"\n")

	for range 2 { // it may be repeated
		milan.liqoctl(t, "create", "nonce", "--remote-cluster-id", "rome").want(t, "a nonce", "",
			" INFO   Tenant namespace correctly ensured\n INFO   Nonce generated successfully\n")
	}
	const notANonce = "nonce of Secret liqo-tenant-rome/liqo-nonce is not a nonce, and no consumer signs it: delete the Secret, and 'liqoctl create nonce' or 'liqoctl authenticate' creates another one\n"
	if _, err := milan.Kubectl("patch", "secret", "liqo-nonce", "-n", "liqo-tenant-rome", "-p", `{"stringData": {"nonce": "\u001b[2J"}}`); err != nil {
		t.Fatal(err)
	}
	milan.liqoctl(t, "get", "nonce", "--remote-cluster-id", "rome").want(t, "something else than a nonce", "", " ERRO   "+notANonce)
	if got := milan.liqoctl(t, "create", "nonce", "--remote-cluster-id", "rome"); got.code != 1 || !strings.Contains(got.stderr, notANonce) {
		t.Errorf("a nonce where there is something else: %+v", got)
	}
	milan.delete(t, "secret", "liqo-nonce", "-n", "liqo-tenant-rome")
	milan.must(t, "create", "nonce", "--remote-cluster-id", "rome")
	nonce := milan.must(t, "get", "nonce", "--remote-cluster-id", "rome")
	got := rome.liqoctl(t, "generate", "tenant", "--remote-cluster-id", "milan", "--nonce", nonce)
	got.want(t, "a Tenant", got.stdout, " INFO   Tenant namespace correctly ensured\n INFO   Signed nonce retrieved\n")
	tenant := got.stdout
	if again := rome.must(t, "generate", "tenant", "--remote-cluster-id", "milan"); again != tenant {
		t.Errorf("without --nonce it is another Tenant: %s, first %s", again, tenant)
	}
	if strings.Contains(tenant, "status:") || !strings.Contains(tenant, "namespace: liqo-tenant-rome\n") {
		t.Errorf("the Tenant is\n%s", tenant)
	}
	milan.Apply(tenant)
	got = milan.liqoctl(t, "generate", "identity", "--remote-cluster-id", "rome")
	got.want(t, "an Identity", got.stdout, " INFO   Tenant status is filled\n")
	if after := milan.must(t, "get", "nonce", "--remote-cluster-id", "rome"); after == nonce {
		t.Error("the nonce serves twice")
	}
	rome.liqoctl(t, "get", "kubeconfig", "controlplane-milan", "--remote-cluster-id", "milan").want(t, "no Identity yet", "",
		" ERRO   there is no Identity liqo-tenant-milan/controlplane-milan: 'kubectl get identities -A' lists the existing ones\n")
	rome.Apply(got.stdout)
	rome.must(t, "create", "resourceslice", "milan", "--remote-cluster-id", "milan", "--cpu", "2")

	kubeconfig := rome.must(t, "get", "kubeconfig", "controlplane-milan", "--remote-cluster-id", "milan")
	if cfg, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig)); err != nil || cfg.Host != milan.Config.Host {
		t.Errorf("the kubeconfig is for %v, %v", cfg, err)
	}
	for listed, want := range map[string]string{"identities": "controlplane-milan", "rslice": "milan"} {
		if got := rome.must(t, "get", listed, "-A"); !strings.Contains(got, "liqo-tenant-milan") || !strings.Contains(got, want) {
			t.Errorf("get %s prints %s", listed, got)
		}
	}
	milan.liqoctl(t, "get", "identities", "-A").want(t, "no identities", "", " INFO   There are no Identities in any namespace\n")
	for what, text := range map[string]string{"Tenant": tenant, "Identity": got.stdout} {
		if strings.Contains(text, "PRIVATE") {
			t.Errorf("the %s holds a private key", what)
		}
	}

	t.Run("peering user", func(t *testing.T) { testPeeringUser(t, milan) })
	t.Run("cordon", func(t *testing.T) { testCordon(t, rome, milan) })
	t.Run("given credentials", func(t *testing.T) { testGivenCredentials(t, rome, milan) })
	t.Run("tenant for Liqo", func(t *testing.T) { testTenantForLiqo(t, rome) })
}

// testGivenCredentials is the other way round: the operator of rome makes credentials for milan, without a handshake.
func testGivenCredentials(t *testing.T, rome, milan *rome) {
	rome.Apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: of-milan, namespace: " + controlplanetest.LiqoNamespace + "}}")
	cfg := rome.ServiceAccount(controlplanetest.LiqoNamespace, "of-milan")
	kubeconfig := func(name, user string) string {
		path := filepath.Join(t.TempDir(), name)
		text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: %s}]}`,
			cfg.Host, base64.StdEncoding.EncodeToString(cfg.CAData), user)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, stale := kubeconfig("good", fmt.Sprintf("{token: %q}", cfg.BearerToken)), kubeconfig("stale", `{token: "of yesterday"}`)
	take := func(path string, more ...string) result {
		return milan.liqoctl(t, append([]string{"create", "identity", "--remote-cluster-id", "rome", "--identity-kubeconfig", path}, more...)...)
	}
	let := []string{"create", "tenant", "--remote-cluster-id", "milan", "--user", "system:serviceaccount:" + controlplanetest.LiqoNamespace + ":of-milan"}

	if got := take(kubeconfig("program", "{exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, interactiveMode: Never}}")); got.code != 1 ||
		!strings.Contains(got.stderr, "--identity-kubeconfig: ") || !strings.Contains(got.stderr, "--minify --flatten") {
		t.Errorf("a kubeconfig that runs a program: %+v", got)
	}
	controlplanetest.Eventually(t, "credentials that are worth nothing are refused", func(context.Context) error {
		if got := take(stale, "--timeout", "1s"); got.code != 1 || !strings.Contains(got.stderr, "does not accept the credentials") {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	const accepted = " INFO   Tenant namespace correctly ensured\n INFO   Secret of the identity correctly ensured\n INFO   API server of cluster rome accepts the credentials\n"
	lacks := func(namespace string) string {
		return accepted + " WARN   The user of these credentials may not create ResourceSlices in namespace " + namespace + " of cluster rome: if that is not the tenant namespace there, " +
			"which 'liqoctl create tenant' prints, name it with --remote-tenant-namespace; otherwise, in cluster rome, bind the user to ClusterRole liqo-remote-controlplane in that namespace, as 'liqoctl create tenant' does\n"
	}
	take(good).want(t, "an identity without rights", "", lacks("liqo-tenant-milan"))
	for range 2 { // it may be repeated
		rome.liqoctl(t, let...).want(t, "a Tenant", "",
			" INFO   Tenant namespace correctly ensured\n INFO   RoleBinding correctly ensured\n INFO   Tenant status is filled\n INFO   Cluster milan may ask for resources in namespace liqo-tenant-milan\n")
	}
	take(good, "--remote-tenant-namespace", "elsewhere").want(t, "another namespace", "", lacks("elsewhere"))
	for range 2 {
		take(good).want(t, "an identity", "", accepted)
	}
	if got := rome.liqoctl(t, "create", "tenant", "--remote-cluster-id", "milan", "--user", "somebody"); got.code != 1 || !strings.Contains(got.stderr, `does not bind exactly user "somebody"`) {
		t.Errorf("another user: %+v", got)
	}
	milan.liqoctl(t, "create", "resourceslice", "rome", "--remote-cluster-id", "rome", "--cpu", "2").want(t, "where offloading is not enabled", "",
		" INFO   ResourceSlice created\n INFO   ResourceSlice authentication: Accepted\n INFO   ResourceSlice resources: Accepted\n"+
			" WARN   Only the resources are granted: there is no virtual node, because offloading is not enabled in this cluster; enable it with the following command, then run this command again: "+
			"liqoctl install --set authentication.enabled=true --set offloading.enabled=true --kubeconfig="+milan.Kubeconfig+"\n")
	if asks := milan.annotations(t, "rslice", "rome", "liqo-tenant-rome"); strings.Contains(asks, "create-virtual-node") {
		t.Errorf("it asks for a virtual node: %s", asks)
	}

	const names = "namespace/liqo-tenant-milan\nrolebinding.rbac.authorization.k8s.io/liqo-remote-controlplane\ntenant.authentication.liqo.io/milan\n"
	if diff := cmp.Diff(names, rome.must(t, append(let, "-o", "name")...)); diff != "" {
		t.Errorf("what is printed for the provider (-want +got):\n%s", diff)
	}
	milan.Apply(take(good, "-o", "yaml", "--remote-tenant-namespace", "liqo-tenant-milan").stdout)
	if got := take(good, "-o", "yaml"); got.code != 1 || !strings.Contains(got.stderr, "--remote-tenant-namespace is required") {
		t.Errorf("printed without the namespace at the provider: %+v", got)
	}

	got := milan.liqoctl(t, "unpeer", "--remote-kubeconfig", rome.Kubeconfig)
	const kept = " WARN   (local) Secret liqo-tenant-rome/controlplane-rome with credentials for cluster rome is kept, because no controller created it: 'kubectl -n liqo-tenant-rome delete secret controlplane-rome' deletes it\n"
	if got.code != 0 || !strings.Contains(got.stderr, kept) || strings.Contains(got.stderr, "RoleBinding") {
		t.Errorf("unpeer, without %q: %+v", kept, got)
	}
	if left := rome.all(t, "rolebindings"); strings.Contains(left, "liqo-remote-controlplane") {
		t.Errorf("left: %s", left)
	}
}

// annotations are those of an object.
func (s *rome) annotations(t *testing.T, kind, name, namespace string) string {
	t.Helper()
	out, err := s.Kubectl("get", kind, name, "-n", namespace, "-o", "jsonpath={.metadata.annotations}")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// testPeeringUser has the operator of rome get a kubeconfig for milan, and lose it. What it is good for is tested in
// admin/peering.
func testPeeringUser(t *testing.T, milan *rome) {
	milan.liqoctl(t, "generate", "peering-user", "--consumer-cluster-id", "rome", "--tls-compatibility-mode", "maybe").want(t, "no mode", "",
		" ERRO   --tls-compatibility-mode \"maybe\": must be auto, true or false\n")
	for _, mode := range []string{"auto", "true"} {
		text := milan.must(t, "generate", "peering-user", "--consumer-cluster-id", "rome", "--tls-compatibility-mode", mode)
		path := filepath.Join(t.TempDir(), "milan-for-rome.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := liqoctlAs(t.Context(), "liqoctl", "", "--kubeconfig", path, "get", "nonce", "--remote-cluster-id", "rome")
		if nonce := milan.must(t, "get", "nonce", "--remote-cluster-id", "rome"); got.code != 0 || got.stdout != nonce {
			t.Errorf("%s: the nonce is %q for milan, and for the user %+v", mode, nonce, got)
		}
		for _, look := range [][]string{{"info"}, {"network", "status", "--interval", "0"}, {"get", "peerings"}} {
			got := liqoctlAs(t.Context(), "liqoctl", "", append(look, "--kubeconfig", path)...)
			if got.code != 0 || !strings.Contains(got.stderr, "only namespace liqo-tenant-rome is shown: the user of ") {
				t.Errorf("%s of a user who sees one namespace: %+v", look, got)
			}
			if all := strings.Join(strings.Fields(strings.ReplaceAll(got.stdout+got.stderr, "│", " ")), " "); !strings.Contains(all, "There is no peering in namespace liqo-tenant-rome, the only one that you may read.") {
				t.Errorf("%s does not say that another namespace may have peerings: %+v", look, got)
			}
		}
	}
	milan.liqoctl(t, "delete", "peering-user", "--consumer-cluster-id", "rome").want(t, "delete", "",
		" INFO   Peering users deleted: their kubeconfigs no longer work\n")
}

// testCordon goes through all that a provider can do about a consumer that has a slice.
func testCordon(t *testing.T, rome, milan *rome) {
	const already = " WARN   "
	for _, step := range []struct{ args, stderr string }{
		{"cordon tenant rome", " INFO   Tenant \"rome\" cordoned\n"},
		{"cordon tenant rome", already + "Tenant \"rome\" is already cordoned\n"},
		{"activate tenant rome", already + "Tenant \"rome\" is cordoned, not drained: use 'liqoctl uncordon tenant'\n"},
		{"uncordon tenant rome", " INFO   Tenant \"rome\" uncordoned\n"},
		{"cordon resourceslice milan", " INFO   ResourceSlice \"milan\" cordoned\n"},
		{"cordon rslice milan -n liqo-tenant-rome", already + "ResourceSlice \"milan\" is already cordoned\n"},
		{"uncordon resourceslice milan", " INFO   ResourceSlice \"milan\" uncordoned\n"},
		{"uncordon resourceslice milan", already + "ResourceSlice \"milan\" is not cordoned\n"},
		{"cordon resourceslice naples", " ERRO   there is no ResourceSlice of another cluster \"naples\"; existing ones: milan\n"},
		{"drain tenant venice", " ERRO   there is no Tenant \"venice\"; existing ones: rome\n"},
		{"drain tenant rome -n default", " ERRO   there is no Tenant \"rome\", nor any other\n"},
		{"drain tenant rome", " INFO   Tenant \"rome\" drained\n"},
		{"activate tenant rome", " INFO   Tenant \"rome\" activated\n"},
	} {
		milan.liqoctl(t, append(strings.Fields(step.args), "--skip-confirm")...).want(t, step.args, "", step.stderr)
	}
	if got := liqoctlAs(t.Context(), "liqoctl", "n\n", "--kubeconfig", milan.Kubeconfig, "drain", "tenant", "rome"); got.code != 1 || !strings.HasSuffix(got.stderr, "action aborted\n") {
		t.Errorf("a drain that the user does not confirm: %+v", got)
	}
	for _, tt := range []struct{ args, stderr string }{ // which is not destructive
		{"cordon tenant rome", "to undo this: liqoctl uncordon tenant rome -n liqo-tenant-rome"},
		{"cordon resourceslice milan", "to undo this: liqoctl uncordon resourceslice milan -n liqo-tenant-rome"},
	} {
		got := liqoctlAs(t.Context(), "liqoctl", "n\n", append(strings.Fields(tt.args), "--kubeconfig", milan.Kubeconfig)...)
		if got.code != 1 || !strings.Contains(got.stderr, tt.stderr) || strings.Contains(got.stderr, "destructive") || !strings.HasSuffix(got.stderr, "action aborted\n") {
			t.Errorf("%s, not confirmed: %+v", tt.args, got)
		}
	}
	// What was drained is granted again.
	rome.must(t, "create", "resourceslice", "milan", "--remote-cluster-id", "milan", "--cpu", "2")
	rome.liqoctl(t, "cordon", "resourceslice", "milan", "--skip-confirm").want(t, "at the consumer", "",
		" ERRO   there is no ResourceSlice of another cluster \"milan\", nor any other\n")
}

// TestPeer goes through the life of peerings without a network of their own: rome has an identity in milan, then milan
// one in rome, too; one is taken back, then the other, and nothing is left. Then a cluster is gone.
func TestPeer(t *testing.T) {
	rome, milan := startSite(t, "rome", "10.243.0.0/16"), startSite(t, "milan", "10.244.0.0/16")
	peer := []string{"peer", "--networking-disabled", "--remote-kubeconfig", milan.Kubeconfig, "--cpu", "2"}
	unpeer := []string{"unpeer", "--remote-kubeconfig", milan.Kubeconfig}
	const authenticated = ` INFO   (local) Tenant namespace correctly ensured
 INFO   (remote) Tenant namespace correctly ensured
 INFO   (remote) Nonce retrieved
 INFO   (local) Signed nonce retrieved
 INFO   (remote) Tenant status is filled
 INFO   (local) Identity status is filled
`
	asked := ` INFO   (local) ResourceSlice created
 INFO   (local) ResourceSlice authentication: Accepted
 INFO   (local) ResourceSlice resources: Accepted
 WARN   Only the resources are granted: there is no virtual node, and no pod of rome runs in milan. This requires offloading in both clusters; enable it with the following commands, then run this command again:
`
	for _, end := range []struct{ name, kubeconfig string }{{"local", rome.Kubeconfig}, {"remote", milan.Kubeconfig}} {
		asked += " WARN   (" + end.name + ") liqoctl install --set authentication.enabled=true --set offloading.enabled=true --kubeconfig=" + end.kubeconfig + "\n"
	}
	const forgotten = ` INFO   (local) No virtualnodes found
 INFO   (local) All resourceslices deleted
 INFO   (local) Identity control plane correctly deleted
 INFO   (remote) Tenant correctly deleted
 INFO   (remote) Ensured resourceslices absence
`
	for range 2 { // it may be repeated
		rome.liqoctl(t, peer...).want(t, "peer", "", authenticated+asked)
	}
	rome.knows(t, "milan", "Provider")
	milan.knows(t, "rome", "Consumer")
	if out := rome.must(t, "info", "peer", "milan"); !strings.Contains(out, "Resource slice accepted") || !strings.Contains(out, "API server: "+milan.Config.Host) {
		t.Errorf("info peer shows\n%s", out)
	}
	got := rome.liqoctl(t, append(peer[:len(peer)-1:len(peer)-1], "3")...)
	if !strings.Contains(got.stderr, "WARN   (local) ResourceSlice milan already exists and asks for something else") || got.code != 0 {
		t.Errorf("another amount: %+v", got)
	}

	milan.must(t, "cordon", "tenant", "rome", "--skip-confirm")
	rome.delete(t, "rslice", "milan", "-n", "liqo-tenant-milan")
	controlplanetest.Eventually(t, "the copy is gone", func(context.Context) error {
		if left := milan.all(t, "rslice"); left != "" {
			return errorString(left)
		}
		return nil
	})
	got = rome.liqoctl(t, peer...)
	if !strings.Contains(got.stderr, "WARN   (local) ResourceSlice resources: cluster milan refused (TenantCordoned)") || got.code != 0 {
		t.Errorf("at a provider that has cordoned the tenant: %+v", got)
	}
	milan.must(t, "uncordon", "tenant", "rome")

	milan.must(t, "peer", "--networking-disabled", "--remote-kubeconfig", rome.Kubeconfig, "--create-resource-slice=false")
	rome.knows(t, "milan", "ConsumerAndProvider")
	milan.knows(t, "rome", "ConsumerAndProvider")
	rome.liqoctl(t, append(unpeer, "--delete-namespaces")...).want(t, "namespaces that are needed", "",
		" ERRO   cluster milan also has an identity in cluster rome, which needs the tenant namespaces; nothing was changed: leave out --delete-namespaces, or first run the command with the two clusters swapped\n")
	rome.liqoctl(t, unpeer...).want(t, "one of two", "", forgotten+" INFO   The networks stay connected: cluster milan also has an identity in cluster rome\n")
	if left := rome.all(t, "identities,rslice") + milan.all(t, "tenants,rslice"); left != "" {
		t.Errorf("left: %s", left)
	}
	if there := milan.all(t, "identities") + rome.all(t, "tenants"); there == "" {
		t.Error("the identity in the other direction is gone, too")
	}
	milan.must(t, "unpeer", "--remote-kubeconfig", rome.Kubeconfig, "--delete-namespaces")
	rome.nothingLeft(t, "milan")
	milan.nothingLeft(t, "rome")

	rome.must(t, peer...)
	milan.liqoctl(t, "force", "unpeer", "rome", "--skip-confirm").want(t, "as provider", "", ` INFO   No virtualnodes found
 INFO   No resourceslices found
 INFO   Identity control plane already deleted
 INFO   Tenant correctly deleted
 INFO   Ensured resourceslices absence
 INFO   Cluster identity correctly retrieved
 INFO   Gateway client already deleted
 INFO   Network configuration already deleted
`)
	milan.nothingLeft(t, "rome")
	if got := rome.liqoctl(t, "force", "unpeer", "mlian", "--skip-confirm"); got.code != 0 || !strings.HasSuffix(got.stderr, " WARN   No peering with cluster mlian was found; there are peerings with milan\n") {
		t.Errorf("a mistyped ID: %+v", got)
	}
	rome.must(t, "force", "unpeer", "milan", "--skip-confirm")
	rome.nothingLeft(t, "milan")
	if got := rome.liqoctl(t, "force", "unpeer", "milan", "--skip-confirm"); got.code != 0 || !strings.HasSuffix(got.stderr, " WARN   No peering with cluster milan was found; there is none with another cluster either\n") {
		t.Errorf("again: %+v", got)
	}

	testConnectPrints(t, rome, milan)
	testExpose(t, rome, milan)
}

// testConnectPrints connects the networks of two clusters, and has both ends printed.
func testConnectPrints(t *testing.T, local, remote *rome) {
	for at, pods := range map[*rome]string{local: "10.243.0.0/16", remote: "10.244.0.0/16"} {
		controlplanetest.StartKubelet(t, at.Cluster, controlplanetest.KubeletOptions{
			Images:  map[string]controlplanetest.Image{"sluice.local/gateway:unknown": {}},
			PodCIDR: netip.MustParsePrefix(pods),
		})
	}
	got := local.liqoctl(t, "network", "connect", "--remote-kubeconfig", remote.Kubeconfig, "--gw-server-service-type", "NodePort", "-o", "json")
	var both connectionInfo
	if err := json.Unmarshal([]byte(got.stdout), &both); err != nil || got.code != 0 || !strings.Contains(got.stderr, " INFO   (remote) Gateway server correctly set up\n") {
		t.Fatalf("%v: %+v", err, got)
	}
	there, here := both.Local, both.Remote // what the local cluster knows of the remote one, and the other way round
	if there.Info.ClusterID != "milan" || here.Info.ClusterID != "rome" || there.Network.Gateway.Role != "Server" || here.Network.Gateway.Role != "Client" {
		t.Errorf("the clusters: %+v, %+v", there, here)
	}
	if len(here.Network.Gateway.Address) != 1 || !cmp.Equal(there.Network.Gateway.Address, here.Network.Gateway.Address) || there.Network.Gateway.Port != here.Network.Gateway.Port {
		t.Errorf("they do not agree on the address: %+v, %+v", there.Network.Gateway, here.Network.Gateway)
	}
	if p := there.Network.CIDRs.Remote.Pod.List; len(p) != 1 || p[0] != "10.244.0.0/16" {
		t.Errorf("milan's pod CIDR: %v", p)
	}
}

// testExpose has pods of milan reach a Service of rome, under whose address and ports they change.
func testExpose(t *testing.T, home, peer *rome) {
	expose := []string{"expose", "service", "web", "-n", "shop", "--remote-kubeconfig", peer.Kubeconfig}
	home.liqoctl(t, expose...).want(t, "no Service", "", " ERRO   (local) there is no Service shop/web: nothing was changed; choose another namespace with -n\n")
	home.Apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	const service = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{name: http, port: 80, targetPort: 8080}PORTS]}}"
	home.Apply(strings.Replace(service, "PORTS", "", 1))
	if got := home.liqoctl(t, expose...); got.code != 1 || !strings.Contains(got.stderr, "(remote) setting up Service shop/web: there is no namespace shop: create it") {
		t.Errorf("no namespace at the peer: %+v", got)
	}
	peer.Apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")

	for _, ports := range []string{"", ", {name: dns, port: 53, protocol: UDP}"} { // it may be repeated
		home.Apply(strings.Replace(service, "PORTS", ports, 1))
		if got := home.liqoctl(t, expose...); got.code != 0 || !strings.Contains(got.stderr, " INFO   (remote) Service shop/web correctly set up\n") {
			t.Fatalf("exposed: %+v", got)
		}
	}
	field := func(at *rome, path string, args ...string) string {
		t.Helper()
		out, err := at.Kubectl(append([]string{"get", "-n", "shop", "-o", "jsonpath=" + path}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	given := netip.MustParseAddr(field(home, "{.status.ip}", "ip", "web")).As4()
	if want := field(home, "{.spec.clusterIP}", "service", "web"); field(home, "{.spec.ip}", "ip", "web") != want {
		t.Errorf("the IP is not for %s, the address of the Service", want)
	}
	prefix := netip.MustParsePrefix(strings.TrimSpace(peer.must(t, "info", "peer", "rome", "--get", "network.CIDRs.remapped.external")))
	there := prefix.Addr().As4()
	there[2], there[3] = given[2], given[3] // the host part of a /16
	const slice = "{.endpoints[0].addresses[0]} {.ports[*].name} {.ports[*].port} {.ports[*].protocol}"
	if got, want := field(peer, slice, "endpointslice", "web"), netip.AddrFrom4(there).String()+" http dns 80 53 TCP UDP"; got != want {
		t.Errorf("the EndpointSlice: %q, want %q", got, want)
	}
	if got := field(peer, "{.spec.selector}{.spec.ports[*].port}", "service", "web"); got != "80 53" {
		t.Errorf("the Service at the peer: %q", got)
	}

	byHand := home.must(t, "expose", "service", "web", "-n", "shop", "--external-cidr", prefix.String(), "-o", "yaml")
	if both := home.must(t, append(expose, "-o", "yaml")...); both != byHand || !strings.Contains(byHand, "- "+netip.AddrFrom4(there).String()+"\n") {
		t.Errorf("printed (-asked the peer +by hand):\n%s", cmp.Diff(both, byHand))
	}
	if got := home.liqoctl(t, "expose", "service", "web", "-n", "shop", "--external-cidr", "10.0.0.0/8"); got.code != 1 || !strings.Contains(got.stderr, "this cluster's external CIDR, 10.70.0.0/16, cannot be remapped to 10.0.0.0/8") {
		t.Errorf("a CIDR of another size: %+v", got)
	}

	home.Apply("{apiVersion: v1, kind: Service, metadata: {name: theirs, namespace: shop}, spec: {ports: [{port: 80}]}}")
	peer.Apply("{apiVersion: v1, kind: Service, metadata: {name: theirs, namespace: shop}, spec: {ports: [{port: 81}]}}")
	home.liqoctl(t, "expose", "service", "theirs", "-n", "shop", "--remote-kubeconfig", peer.Kubeconfig).want(t, "a Service of somebody else", "",
		" ERRO   (remote) Service shop/theirs already exists and was not created by this command: nothing was changed; choose another namespace with --remote-namespace\n")
	if got := home.all(t, "ips"); strings.Contains(got, "theirs") {
		t.Errorf("something was changed: %s", got)
	}
	home.Apply("{apiVersion: v1, kind: Service, metadata: {name: pods, namespace: shop}, spec: {clusterIP: None, ports: [{port: 80}]}}")
	if got := home.liqoctl(t, "expose", "service", "pods", "-n", "shop", "--remote-kubeconfig", peer.Kubeconfig); got.code != 1 || !strings.Contains(got.stderr, "Service shop/pods has no address") {
		t.Errorf("without an address: %+v", got)
	}

	got := home.liqoctl(t, "network", "reset", "--remote-kubeconfig", peer.Kubeconfig, "--skip-confirm")
	for _, hint := range []string{
		" WARN   (remote) Service shop/web stays, but leads nowhere now: 'kubectl -n shop delete service web' deletes it\n",
		" WARN   (local) IP shop/web stays for other clusters: if none uses it, 'kubectl -n shop delete ip web' deletes it\n",
	} {
		if got.code != 0 || !strings.Contains(got.stderr, hint) {
			t.Errorf("reset, without %q: %+v", hint, got)
		}
	}
	if strings.Contains(got.stderr, "theirs") {
		t.Errorf("reset: %+v", got)
	}
}

// knows waits until a cluster shows what another one is to it, and that all is well.
func (r *rome) knows(t *testing.T, peer, role string) {
	t.Helper()
	controlplanetest.Eventually(t, "cluster "+peer+" is "+role, func(context.Context) error {
		got := r.must(t, "info", "peer", peer, "--get", "info.role") + r.must(t, "info", "peer", peer, "--get", "authentication.status")
		if got != role+"\nHealthy\n" {
			return errorString(got)
		}
		return nil
	})
}

func (r *rome) delete(t *testing.T, args ...string) {
	t.Helper()
	if _, err := r.Kubectl(append([]string{"delete"}, args...)...); err != nil {
		t.Fatal(err)
	}
}

// all names the objects of some kinds.
func (r *rome) all(t *testing.T, kinds string) string {
	t.Helper()
	out, err := r.Kubectl("get", kinds, "-A", "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// nothingLeft waits until a cluster has forgotten another one: a namespace takes its time.
func (r *rome) nothingLeft(t *testing.T, peer string) {
	t.Helper()
	controlplanetest.Eventually(t, "nothing is left of "+peer, func(context.Context) error {
		out, err := r.Kubectl("get", "foreignclusters,identities,tenants,rslice,renews,secrets,rolebindings,namespaces,csr", "-A", "-l", "liqo.io/remote-cluster-id="+peer, "-o", "name")
		if err == nil && out != "" {
			err = errorString(out)
		}
		return err
	})
}
