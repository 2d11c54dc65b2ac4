package main

import (
	"context"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// rome is a control plane with controllers and a node whose gateway pods have no
// process.
type rome struct {
	*controlplanetest.Cluster
}

func startRome(t *testing.T) *rome {
	t.Helper()
	c := controlplanetest.Start(t)
	controlplanetest.StartKubelet(t, c, controlplanetest.KubeletOptions{Images: map[string]controlplanetest.Image{"sluice.local/gateway:unknown": {}}})
	c.Elect(t)
	c.RunManager(t, func(mgr ctrl.Manager) error {
		return manager.SetupWithManager(mgr, manager.Options{
			LiqoNamespace: controlplanetest.LiqoNamespace,
			Bootstrap: bootstrap.Options{
				LiqoNamespace: controlplanetest.LiqoNamespace, ClusterID: "rome",
				PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.243.0.0/16")},
				ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
				ExternalCIDR: bootstrap.Range{Prefix: netip.MustParsePrefix("10.70.0.0/16")},
				InternalCIDR: bootstrap.Range{Prefix: netip.MustParsePrefix("10.80.0.0/16")},
			},
			Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		})
	})
	return &rome{c}
}

// liqoctl runs the program with rome's kubeconfig.
func (r *rome) liqoctl(t *testing.T, args ...string) result {
	t.Helper()
	return liqoctl(t.Context(), append([]string{"--kubeconfig", r.Kubeconfig}, args...)...)
}

// want fails unless a run wrote this.
func (got result) want(t *testing.T, what, stdout, stderr string) {
	t.Helper()
	code := 0
	if strings.Contains(stderr, " ERRO ") {
		code = 1
	}
	if diff := cmp.Diff(result{stdout, stderr, code}, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestVerbs goes through what the documents do by hand in one cluster, and through
// what may go wrong.
func TestVerbs(t *testing.T) {
	r := startRome(t)
	controlplanetest.Eventually(t, "the installation is complete", func(context.Context) error {
		if got := r.liqoctl(t, "generate", "configuration"); got.code != 0 {
			return errorString(got.stderr)
		}
		return nil
	})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *rome)
	}{
		{"version", testVersion}, {"generate configuration", testGenerateConfiguration}, {"create", testCreate}, {"print", testPrint}, {"for Liqo", testForLiqo},
		{"generate publickey", testGeneratePublicKey}, {"get", testGet}, {"waiting", testWaiting}, {"mistakes", testMistakes}, {"requests", testRequests}, {"delete", testDelete}, {"without rights", testWithoutRights},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, r) })
	}
}

type errorString string

func (e errorString) Error() string { return string(e) }

func testVersion(t *testing.T, r *rome) {
	got := r.liqoctl(t, "version")
	got.want(t, "nothing deployed", "Client version: "+clientVersion()+"\n",
		" WARN   the version of the installation is unknown: there is no Deployment liqo/liqo-controller: nothing is installed, or it is in another namespace: name that with --liqo-namespace\n")
	r.Create(t, controllerDeployment("registry:5000/sluice/controller:v1.2.3"))
	r.liqoctl(t, "version").want(t, "deployed", "Client version: "+clientVersion()+"\nServer version: v1.2.3\n", "")
	got = r.liqoctl(t, "version", "-o", "json")
	if !strings.Contains(got.stdout, `"image": "registry:5000/sluice/controller:v1.2.3"`) || got.code != 0 {
		t.Errorf("as JSON: %+v", got)
	}
}

const romesNetwork = `apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata:
  labels:
    liqo.io/remote-cluster-id: rome
  name: rome
spec:
  remote:
    cidr:
      external: 10.70.0.0/16
      pod: 10.243.0.0/16
`

func testGenerateConfiguration(t *testing.T, r *rome) {
	r.liqoctl(t, "generate", "configuration").want(t, "YAML is the default", romesNetwork, "")
	got := r.liqoctl(t, "generate", "config", "-o", "json")
	if !strings.Contains(got.stdout, `"pod": "10.243.0.0/16"`) {
		t.Errorf("as JSON: %+v", got)
	}
	r.liqoctl(t, "generate", "configuration", "--global-labels", "team=net").want(t, "with labels of the user",
		strings.Replace(romesNetwork, "-id: rome\n", "-id: rome\n    team: net\n", 1), "")
}

func testCreate(t *testing.T, r *rome) {
	configuration := []string{"create", "configuration", "milan", "--remote-cluster-id", "milan", "--pod-cidr", "10.243.0.0/16", "--external-cidr", "10.70.0.0/16", "--wait"}
	r.liqoctl(t, configuration...).want(t, "a Configuration", "", " INFO   Configuration created\n INFO   configuration is ready\n")
	r.liqoctl(t, configuration...).want(t, "again", "", " INFO   Configuration already exists, as it should be\n INFO   configuration is ready\n")

	server := []string{"create", "gatewayserver", "server", "--remote-cluster-id", "milan", "--service-type", "NodePort"}
	r.liqoctl(t, server...).want(t, "a GatewayServer", "", " INFO   Gatewayserver created\n")
	var s networkingv1beta1.GatewayServer
	r.Read(t, "default", "server", &s)
	want := networkingv1beta1.GatewayServerSpec{
		ServerTemplateRef: corev1.ObjectReference{APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGatewayServerTemplate", Name: "wireguard-server", Namespace: "liqo"},
		MTU:               1340,
		Endpoint:          networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: corev1.ServiceTypeNodePort},
	}
	if diff := cmp.Diff(want, s.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	r.liqoctl(t, append(server, "--wait")...).want(t, "again, and wait", "",
		" INFO   Gatewayserver already exists, as it should be\n INFO   gatewayserver is ready\n")
	r.liqoctl(t, append(server, "--mtu", "1400", "--port", "51820", "--global-labels", "a=b")...).want(t, "something else", "",
		" ERRO   GatewayServer default/server already exists, and differs: metadata.labels.a is not set to \"b\"; spec.endpoint.port is 51840, not 51820; spec.mtu is 1340, not 1400\n"+
			"        to change it, run the same command with '-o yaml | kubectl apply -f -'; to keep it, choose another name\n")

	r.liqoctl(t, "create", "publickey", "milan", "--remote-cluster-id", "milan", "--public-key", "n2T4fOWskIj28MVKtdDYPttxK4YqcTzqT/HAAwB7mQc=").
		want(t, "a PublicKey", "", " INFO   Publickey created\n")

	r.Namespace(t, "turin", nil)
	r.liqoctl(t, "-n", "turin", "create", "client", "client", "--remote-cluster-id", "turin", "--addresses", "gw.example.org,192.0.2.1", "--port", "32009", "--wait").
		want(t, "a GatewayClient elsewhere", "", " INFO   Gatewayclient created\n INFO   gatewayclient is ready\n")
}

func testPrint(t *testing.T, r *rome) {
	r.liqoctl(t, "create", "gatewayserver", "other", "--remote-cluster-id", "milan", "--service-type", "nodeport", "--node-port", "30742", "-o", "yaml").
		want(t, "a GatewayServer", `apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata:
  labels:
    liqo.io/remote-cluster-id: milan
  name: other
  namespace: default
spec:
  endpoint:
    nodePort: 30742
    port: 51840
    serviceType: NodePort
  mtu: 1340
  serverTemplateRef:
    apiVersion: networking.liqo.io/v1beta1
    kind: WgGatewayServerTemplate
    name: wireguard-server
    namespace: liqo
`, "")
	r.liqoctl(t, "create", "gatewayclient", "client", "--remote-cluster-id", "rome", "--addresses", "172.19.0.8", "--port", "32009", "-o", "yaml").
		want(t, "a GatewayClient", `apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata:
  labels:
    liqo.io/remote-cluster-id: rome
  name: client
  namespace: default
spec:
  clientTemplateRef:
    apiVersion: networking.liqo.io/v1beta1
    kind: WgGatewayClientTemplate
    name: wireguard-client
    namespace: liqo
  endpoint:
    addresses:
    - 172.19.0.8
    port: 32009
    protocol: UDP
  mtu: 1340
`, "")
	r.liqoctl(t, "create", "gws", "other", "--remote-cluster-id", "milan", "-o", "name").want(t, "a name", "gatewayserver.networking.liqo.io/other\n", "")
	if got := r.liqoctl(t, "get", "gatewayserver", "other"); got.code == 0 {
		t.Errorf("what was printed exists: %+v", got)
	}
}

func testGeneratePublicKey(t *testing.T, r *rome) {
	got := r.liqoctl(t, "generate", "publickey", "--gateway-type", "server", "--gateway-name", "server")
	want := regexp.MustCompile(`^apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata:
  labels:
    liqo.io/remote-cluster-id: rome
    networking.liqo.io/gateway-resource: "true"
  name: rome
spec:
  publicKey: [A-Za-z0-9+/]{43}=
$`)
	if !want.MatchString(got.stdout) || got.stderr != "" || got.code != 0 {
		t.Errorf("got %+v", got)
	}
	if again := r.liqoctl(t, "generate", "publickey", "--gateway-type", "Server", "--gateway-name", "server"); again != got {
		t.Errorf("again: %+v, first %+v", again, got)
	}
	r.liqoctl(t, "generate", "publickey", "--gateway-type", "client", "--gateway-name", "client", "--timeout", "5s").want(t, "of another namespace", "",
		" ERRO   GatewayClient default/client does not exist: 'liqoctl get gatewayclient -A' lists the existing ones, 'liqoctl create gatewayclient' creates one\n")
	if other := r.liqoctl(t, "-n", "turin", "generate", "publickeys", "--gateway-type", "client", "--gateway-name", "client"); !want.MatchString(other.stdout) {
		t.Errorf("of the client: %+v", other)
	}
}

// ages are what changes from run to run.
var ages = regexp.MustCompile(`\b\d+[smh](\d+s)?\b *`)

func testGet(t *testing.T, r *rome) {
	table := func(what, want string, args ...string) {
		t.Helper()
		got := r.liqoctl(t, args...)
		var lines []string
		for line := range strings.Lines(ages.ReplaceAllString(got.stdout, "AGE")) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" || got.code != 0 || got.stderr != "" {
			t.Errorf("%s: exit code %d, stderr %q, stdout (-want +got):\n%s", what, got.code, got.stderr, diff)
		}
	}
	controlplanetest.Eventually(t, "the controllers have made Connections and ForeignClusters", func(context.Context) error {
		if got := r.liqoctl(t, "get", "connections", "-A"); strings.Count(got.stdout, "Connecting") != 2 {
			return errorString(got.stdout)
		}
		if got := r.liqoctl(t, "get", "peerings", "-o", "wide"); strings.Count(got.stdout, "Unknown") != 2 {
			return errorString(got.stdout)
		}
		return nil
	})
	table("Configurations", "NAME DESIRED POD CIDR REMAPPED POD CIDR AGE\nmilan 10.243.0.0/16 10.71.0.0/16 AGE", "get", "configurations")
	table("GatewayClients of all namespaces", "NAMESPACE NAME TEMPLATE NAME IP PORT AGE\nturin client wireguard-client gw.example.org 32009 AGE", "get", "gwc", "-A")
	table("peerings of one namespace", "PEER GATEWAY STATUS POD CIDR REMAPPED POD CIDR AGE\nturin Client Connecting - - AGE", "get", "peerings", "-n", "turin")
	table("peerings of all namespaces", "PEER GATEWAY STATUS POD CIDR REMAPPED POD CIDR AGE\nmilan Server Connecting 10.243.0.0/16 10.71.0.0/16 AGE\nturin Client Connecting - - AGE", "get", "peerings", "-n", "turin", "-A")
	table("by the other cluster", "NAMESPACE NAME TEMPLATE NAME IP PORT AGE\nturin client wireguard-client gw.example.org 32009 AGE",
		"get", "clients", "-A", "--remote-cluster-id", "turin")
	table("PublicKeys by name, wide", "NAME AGE\nmilan AGE", "get", "publickey", "milan", "-o", "wide")
	table("peerings", "PEER GATEWAY STATUS POD CIDR REMAPPED POD CIDR AGE\nmilan Server Connecting 10.243.0.0/16 10.71.0.0/16 AGE\nturin Client Connecting - - AGE", "get", "peerings")
	table("a peering", "PEER GATEWAY STATUS POD CIDR REMAPPED POD CIDR AGE ROLE LATENCY ENDPOINT MTU NAMESPACE\nturin Client Connecting - - AGEUnknown - gw.example.org:32009 1340 turin",
		"get", "peerings", "turin", "-o", "wide")

	r.Apply("{apiVersion: ipam.liqo.io/v1alpha1, kind: IP, metadata: {name: db, namespace: default}, spec: {ip: 10.96.14.7}}")
	controlplanetest.Eventually(t, "the exposed IP is shown at the peers", func(context.Context) error {
		if got := r.liqoctl(t, "info", "peer", "milan", "--get", "network.exposedips.0.remapped"); !strings.HasPrefix(got.stdout, "10.70.0.") || got.code != 0 {
			return errorString(got.stdout + got.stderr)
		}
		return nil
	})
	r.liqoctl(t, "get", "gatewayserver", "server", "-o", "jsonpath={.status.endpoint.port}{.spec.mtu}").want(t, "a field", nodePort(t, r)+"1340", "")
	r.liqoctl(t, "get", "gatewayserver", "-o", "name").want(t, "names", "gatewayserver.networking.liqo.io/server\n", "")
	if got := r.liqoctl(t, "get", "gatewayservers", "-o", "yaml"); !strings.HasPrefix(got.stdout, "apiVersion: v1\nitems:\n- apiVersion: networking.liqo.io/v1beta1\n") {
		t.Errorf("a list: %+v", got)
	}
	table("Connections", "NAMESPACE NAME TYPE STATUS AGE\nturin gw-client Client Connecting AGE", "get", "connections", "-A", "-l", "liqo.io/remote-cluster-id=turin")
	r.liqoctl(t, "-n", "liqo", "get", "connections").want(t, "nothing", "", " INFO   There are no Connections in namespace liqo (-A: in all)\n")
	r.liqoctl(t, "get", "connections", "-A", "-l", "no=ne").want(t, "nothing anywhere", "", " INFO   There are no Connections in any namespace\n")
	r.liqoctl(t, "get", "gws", "nope").want(t, "no such object", "", " ERRO   GatewayServer default/nope does not exist: 'liqoctl get gatewayservers -A' lists all of them\n")
	if got := r.liqoctl(t, "__complete", "get", "gatewayserver", ""); !strings.HasPrefix(got.stdout, "server\n") {
		t.Errorf("completion: %+v", got)
	}
}

// nodePort is the port of the gateway server, which the cluster chose.
func nodePort(t *testing.T, r *rome) string {
	t.Helper()
	got := r.liqoctl(t, "get", "gws", "server", "-o", "go-template={{.status.endpoint.port}}")
	if got.code != 0 || got.stdout == "" {
		t.Fatalf("the port: %+v", got)
	}
	return got.stdout
}

func testWaiting(t *testing.T, r *rome) {
	got := r.liqoctl(t, "create", "gws", "cloud", "--remote-cluster-id", "paris", "--template-name", "no-such", "--wait", "--timeout", "2s")
	for _, part := range []string{
		" INFO   Gatewayserver created\n ERRO   GatewayServer default/cloud is not ready: it has no address: ", "no-such", "(TemplateNotFound)", "(waited 2s)",
		"kubectl -n default describe gatewayserver cloud",
	} {
		if !strings.Contains(got.stderr, part) || got.code != 1 {
			t.Errorf("%q is not in %+v", part, got)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	got = liqoctl(ctx, "--kubeconfig", r.Kubeconfig, "create", "gws", "cloud", "--remote-cluster-id", "paris", "--template-name", "no-such", "--wait")
	if !strings.HasSuffix(got.stderr, " ERRO   interrupted while waiting; what was done stays, and the same command continues from there\n") {
		t.Errorf("interrupted: %+v", got)
	}
}

func testMistakes(t *testing.T, r *rome) {
	for _, tt := range []struct{ name, args, want string }{
		{"a namespace that is not there", "-n nope create publickey milan --remote-cluster-id milan --public-key n2T4fOWskIj28MVKtdDYPttxK4YqcTzqT/HAAwB7mQc=",
			`create PublicKey nope/milan: there is no namespace "nope": create it, or choose another one with -n`},
		{"a key that is none", "create publickey milan --remote-cluster-id milan --public-key abc", `--public-key "abc": must be 32 bytes in base64, 44 characters`},
		{"a CIDR with host bits", "create configuration x --remote-cluster-id x --pod-cidr 10.0.0.1/16 --external-cidr 10.70.0.0/16", "--pod-cidr: 10.0.0.1/16 has host bits: use 10.0.0.0/16"},
		{"no CIDR", "create configuration x --remote-cluster-id x --pod-cidr 10.0.0.1 --external-cidr 10.70.0.0/16", `--pod-cidr: "10.0.0.1" is not a CIDR, such as 10.243.0.0/16`},
		{"a type of Service that is none", "create gws x --remote-cluster-id x --service-type Cloud", `--service-type "Cloud": must be LoadBalancer, NodePort, ClusterIP`},
		{"a protocol", "create gwc x --remote-cluster-id x --addresses a --port 1 --protocol tcp", "--protocol TCP: WireGuard supports only UDP"},
		{"an address with a port", "create gwc x --remote-cluster-id x --addresses 192.0.2.1:5 --port 1", `--addresses "192.0.2.1:5": must be an IP address or a DNS name, without a port (that is --port)`},
		{"a gateway type", "generate publickey --gateway-type both --gateway-name x", `--gateway-type "both": must be server or client`},
		{"names and all namespaces", "get gws -A server", "names cannot be combined with --all-namespaces or --selector"},
		{"a selector", "get gws -l a=b=c", `--selector: found '=', expected: ',' or 'end of string'`},
		{"no installation there", "--liqo-namespace nope generate configuration",
			"there is no ConfigMap nope/liqo-clusterid-configmap, so Sluice is not installed: install it with 'liqoctl install', or name its namespace with --liqo-namespace"},
	} {
		r.liqoctl(t, strings.Fields(tt.args)...).want(t, tt.name, "", " ERRO   "+tt.want+"\n")
	}
}

func testDelete(t *testing.T, r *rome) {
	r.liqoctl(t, "delete", "gatewayserver", "cloud", "server").want(t, "two of them", "", " INFO   Gatewayserver deleted\n INFO   Gatewayserver deleted\n")
	r.liqoctl(t, "delete", "gws", "server").want(t, "again", "", " ERRO   GatewayServer default/server does not exist: 'liqoctl get gatewayservers -A' lists all of them\n")
	r.liqoctl(t, "delete", "gws", "server", "--ignore-not-found").want(t, "again, no matter", "", " INFO   GatewayServer default/server does not exist\n")
	r.liqoctl(t, "delete", "publickey", "milan").want(t, "a PublicKey", "", " INFO   Publickey deleted\n")
	r.liqoctl(t, "delete", "configuration", "milan").want(t, "a Configuration", "", " INFO   Configuration deleted\n")
	r.liqoctl(t, "-n", "turin", "delete", "client", "client").want(t, "a GatewayClient", "", " INFO   Gatewayclient deleted\n")
	var left networkingv1beta1.WgGatewayServerList
	if err := r.Client.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
		t.Errorf("what the controllers made of it is still there: %v, %d objects", err, len(left.Items))
	}
	r.liqoctl(t, "get", "peerings").want(t, "no peerings", "", " INFO   "+noPeers+"\n")
	r.liqoctl(t, "get", "peerings", "-n", "turin").want(t, "no peerings in a namespace", "",
		" INFO   There is no peering in namespace turin: without -n, those of all namespaces are shown.\n")
	r.liqoctl(t, "get", "peerings", "-n", "turin", "-A").want(t, "no peerings in all namespaces", "", " INFO   "+noPeers+"\n")
}

// testRequests: no command that only looks asks for Secrets, of which some hold private keys.
func testRequests(t *testing.T, r *rome) {
	config := rest.CopyConfig(r.Config)
	config.NextProtos = []string{"http/1.1"} // of which `exec` makes a stream
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	api, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var paths []string
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(api)
		mu.Lock()
		defer mu.Unlock()
		paths = append(paths, p.In.URL.Path)
	}}
	server := httptest.NewServer(proxy)
	defer server.Close()
	kubeconfig := kubeconfigFor(t, server.URL)
	seen := func() []string {
		mu.Lock()
		defer mu.Unlock()
		all := paths
		paths = nil
		return all
	}
	for _, args := range []string{
		"network status --interval 0", "network doctor", "info", "info peer", "get peerings", "support bundle --output-file " + filepath.Join(t.TempDir(), "bundle.tar.gz"),
	} {
		got := liqoctl(t.Context(), append([]string{"--kubeconfig", kubeconfig}, strings.Fields(args)...)...)
		all := seen()
		if !slices.ContainsFunc(all, func(p string) bool { return strings.HasSuffix(p, "/gatewayservers") }) {
			t.Errorf("%s: of its requests only %q are seen: %+v", args, all, got)
		}
		for _, p := range all {
			if slices.Contains(strings.Split(p, "/"), "secrets") {
				t.Errorf("%s asks for %s", args, p)
			}
		}
	}
}

// testWithoutRights has somebody ask for peerings who may read their cluster's ID only.
func testWithoutRights(t *testing.T, r *rome) {
	r.Apply(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: somebody, namespace: liqo}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: somebody, namespace: liqo}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: somebody, namespace: liqo}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: somebody}
subjects: [{kind: ServiceAccount, name: somebody, namespace: liqo}]
`)
	kubeconfig, err := r.WriteKubeconfig("somebody", r.ServiceAccount(controlplanetest.LiqoNamespace, "somebody"))
	if err != nil {
		t.Fatal(err)
	}
	const unseen = "Whether there are peerings cannot be seen: you may not read Configurations, GatewayClients, GatewayServers."
	const notAll = " ERRO   the cluster may have peerings that are not shown, as not everything could be read\n"
	for _, tt := range []struct{ args, shown string }{
		{"get peerings", unseen},
		{"get peerings -o json", "[]\n"},
		{"info", unseen},
		{"info -o json", `"clusterID": "rome"`},
		{"info peer", unseen},
		{"network status", unseen},
		{"network status -o json", `"peerings": []`},
	} {
		got := liqoctl(t.Context(), append([]string{"--kubeconfig", kubeconfig}, strings.Fields(tt.args)...)...)
		if got.code != 1 || !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(got.stdout+got.stderr, "│", " ")), " "), strings.TrimSpace(tt.shown)) || !strings.HasSuffix(got.stderr, notAll) || !strings.Contains(got.stderr, "left out, as the user of") {
			t.Errorf("%s: %+v", tt.args, got)
		}
	}
	if got := liqoctl(t.Context(), "--kubeconfig", kubeconfig, "info", "peer", "milan"); got.code != 1 ||
		!strings.Contains(got.stderr, `ERRO   it is not known whether there is a peering with "milan": the user of `) || !strings.Contains(got.stderr, " may not read ") {
		t.Errorf("a peer that may not be read: %+v", got)
	}
	if got := liqoctl(t.Context(), "--kubeconfig", kubeconfig, "info", "--get", "clusterid"); got.code != 0 || got.stdout != "rome\n" {
		t.Errorf("what may be read: %+v", got)
	}
}

func controllerDeployment(image string) client.Object {
	labels := map[string]string{"app.kubernetes.io/name": "liqo-controller"}
	d := &appsv1.Deployment{}
	d.Namespace, d.Name = controlplanetest.LiqoNamespace, "liqo-controller"
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Replicas = new(int32)
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "controller-manager", Image: image}}
	return d
}
