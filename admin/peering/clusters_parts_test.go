package peering_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// testObjects looks at what was made.
func testObjects(t *testing.T, local, remote *side) {
	for _, s := range []struct {
		*side
		peer, namespace string
	}{{local, "milan", "liqo-tenant-milan"}, {remote, "rome", "liqo-tenant-rome"}} {
		var n corev1.Namespace
		s.Read(t, "", s.namespace, &n)
		for k, v := range map[string]string{
			"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": s.peer,
			"app.kubernetes.io/managed-by": "liqoctl", "pod-security.kubernetes.io/enforce": "restricted",
		} {
			if n.Labels[k] != v {
				t.Errorf("namespace %s: label %s is %q, want %q", n.Name, k, n.Labels[k], v)
			}
		}
		var c networkingv1beta1.Configuration
		s.Read(t, s.namespace, s.peer, &c)
		want := networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{
			Pod:      networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.243.0.0/16"}, Scalar: true},
			External: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.70.0.0/16"}, Scalar: true},
		}}
		if diff := cmp.Diff(want, c.Spec.Remote); diff != "" {
			t.Errorf("Configuration of %s (-want +got):\n%s", s.peer, diff)
		}
	}
	testKeys(t, local, remote)
}

// testKeys checks that each side has the key of the other.
func testKeys(t *testing.T, local, remote *side) {
	t.Helper()
	ctx := t.Context()
	for _, x := range []struct {
		of, at          *side
		role            networkingv1beta1.ConnectionType
		ofNS, of1, atNS string
	}{
		{local, remote, networkingv1beta1.ConnectionClient, "liqo-tenant-milan", "milan", "liqo-tenant-rome"},
		{remote, local, networkingv1beta1.ConnectionServer, "liqo-tenant-rome", "rome", "liqo-tenant-milan"},
	} {
		key, err := peering.PublicKeyOf(ctx, x.of.access, x.role, x.ofNS, x.of1)
		if err != nil {
			t.Fatal(err)
		}
		var k networkingv1beta1.PublicKey
		x.at.Read(t, x.atNS, x.of.id, &k)
		if !bytes.Equal(key, k.Spec.PublicKey) || len(key) != 32 {
			t.Errorf("%s has another key of %s than that has", x.at.id, x.of.id)
		}
	}
}

// testTimeout has the gateways never answer, until time is up.
func testTimeout(t *testing.T, local, remote *side) {
	t.Run("", func(t *testing.T) { // ends the play
		local.play(t, networkingv1beta1.Connecting)
		remote.play(t, networkingv1beta1.Connecting)
		const seen = "no handshake with 192.0.2.1:51840"
		ctx := &expiring{t.Context(), make(chan struct{})}
		cfg := rest.CopyConfig(local.Config)
		look := &reader{text: []byte(seen), then: sync.OnceFunc(func() { close(ctx.over) })}
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			look.next = rt
			return look
		})
		impatient, err := access.New(cfg, local.access.Options)
		if err != nil {
			t.Fatal(err)
		}
		o := options()
		o.Timeout = 0
		var s told
		left := map[string]bool{access.Local: true, access.Remote: true} // who does something else yet
		err = peering.Connect(ctx, impatient, remote.access, o, func(e progress.Event) {
			if s.tell(e); e.Kind == progress.Waiting && e.Text == "Waiting for Connection to be established" {
				if delete(left, e.Cluster); len(left) == 0 {
					look.wait(2) // the first answer has had its effect when the second one comes
				}
			}
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v after\n%s", err, strings.Join(s.lines, "\n"))
		}
		for _, want := range []string{
			"(local) timed out after ",
			"while waiting for Connection to be established: Connection liqo-tenant-milan/gw-milan is Connecting: " + seen,
			"check that the client's nodes can reach the address and UDP port",
			"of 23 steps are done and stay done: run the same command again to continue",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in\n%v", want, err)
			}
		}
	})
	if err := peering.Reset(t.Context(), local.access, remote.access, options(), nil); err != nil {
		t.Fatal(err)
	}
}

// expiring is a context whose time is up when over is closed.
type expiring struct {
	context.Context
	over chan struct{}
}

func (e *expiring) Done() <-chan struct{} { return e.over }

func (e *expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// reader reads what an API server answers about Connections.
type reader struct {
	next http.RoundTripper
	text []byte
	then func()

	mu    sync.Mutex
	times int // answers with the text until then is called; 0: it is not
}

// wait has then called after so many answers that have the text in them.
func (r *reader) wait(times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times = times
}

func (r *reader) RoundTrip(q *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(q)
	if err != nil || !strings.Contains(q.URL.Path, "/connections") {
		return resp, err
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(b))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.times > 0 && bytes.Contains(b, r.text) {
		if r.times--; r.times == 0 {
			r.then()
		}
	}
	return resp, err
}

// testReset removes everything, step by step with what others left.
func testReset(t *testing.T, local, remote *side) {
	ctx := t.Context()
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "mine"}}
	local.Create(t, mine)
	// Liqo's liqoctl leaves nonces, a consumer that was away its copies. Those of another peering stay.
	left := func(namespace, peer, secret, label string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: %s, labels: {%s: "true", liqo.io/remote-cluster-id: %s}}
`, secret, namespace, label, peer)
	}
	renew := func(name, namespace, origin string) string {
		return fmt.Sprintf(`
apiVersion: authentication.liqo.io/v1beta1
kind: Renew
metadata: {name: %s, namespace: %s, labels: {liqo.io/replicated: "true", liqo.io/originID: %s}}
spec: {consumerClusterID: %[3]s, identityType: ControlPlane, publicKey: AA==, csr: AA==}
`, name, namespace, origin)
	}
	remote.Apply(left("liqo-tenant-rome", "rome", "liqo-nonce", "liqo.io/nonce") + "---" + renew("left", "liqo-tenant-rome", "rome"))
	local.Apply(left("liqo-tenant-milan", "milan", "liqo-signed-nonce", "liqo.io/signed-nonce") + "---" + renew("of-naples", "liqo-tenant-milan", "naples") +
		"---" + left("liqo-tenant-milan", "naples", "liqo-nonce", "liqo.io/nonce"))
	o := options()
	o.OwnNamespaces = true
	refusal := errors.New("better not")
	o.Confirm = func(_ context.Context, what []string) error {
		want := []string{
			"(local) In cluster rome (" + local.access.Where() + "), from its peering with milan:",
			"  Configuration liqo-tenant-milan/milan",
			"  public keys of the peer in namespace liqo-tenant-milan",
			"  namespace liqo-tenant-milan, unless it contains objects that do not belong to the peering",
			"(remote) In cluster milan (" + remote.access.Where() + "), from its peering with rome:",
			"  Configuration liqo-tenant-rome/rome",
			"  public keys of the peer in namespace liqo-tenant-rome",
			"  namespace liqo-tenant-rome, unless it contains objects that do not belong to the peering",
		}
		if diff := cmp.Diff(want, what); diff != "" {
			t.Errorf("what the user is told (-want +got)\n%s", diff)
		}
		return refusal
	}
	if err := peering.Reset(ctx, local.access, remote.access, o, nil); !errors.Is(err, refusal) {
		t.Errorf("a refusal: %v", err)
	}
	o.Confirm = nil
	var s told
	if err := peering.Reset(ctx, local.access, remote.access, o, s.tell); err != nil {
		t.Fatal(err)
	}
	s.want(t, identified+`(local) Gateway client already deleted
(remote) Gateway server already deleted
(local) Network configuration correctly deleted
(remote) Network configuration correctly deleted
WARN (local) Namespace liqo-tenant-milan is kept, because it contains objects that do not belong to the peering: ConfigMap mine, Renew of-naples, Secret liqo-nonce
`)
	var n corev1.Namespace
	if err := remote.Get(ctx, "", "liqo-tenant-rome", &n); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("namespace liqo-tenant-rome: %v, want it gone", err)
	}
	for _, s := range []*side{local, remote} {
		s.nothing(t, "configurations,publickeies,networks.ipam.liqo.io")
	}
	local.Delete(t, mine)
	local.Delete(t, &authv1beta1.Renew{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "of-naples"}})
	for _, name := range []string{"liqo-nonce", "liqo-signed-nonce"} {
		local.Delete(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: name}})
	}
}

// testForeign uses what somebody made under other names.
func testForeign(t *testing.T, local, remote *side) {
	ctx := t.Context()
	remote.Apply(`
apiVersion: v1
kind: Namespace
metadata: {name: customers, labels: {liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: rome}}
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: conf, namespace: customers, labels: {liqo.io/remote-cluster-id: rome}}
spec: {remote: {cidr: {pod: [10.1.0.0/16], external: [10.70.0.0/16]}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: server, namespace: customers, labels: {liqo.io/remote-cluster-id: rome}}
spec: {mtu: 1300, endpoint: {port: 51840, serviceType: NodePort, nodePort: 30777}}
`)
	o := options()
	o.Server = peering.ServerFlags{}
	o.Client = peering.ClientFlags{Address: "milan.example.com"}
	var s told
	if err := peering.Connect(ctx, local.access, remote.access, o, s.tell); err != nil {
		t.Fatal(err)
	}
	s.want(t, strings.NewReplacer("(remote) Network configuration correctly set up",
		"WARN (remote) Configuration customers/conf had CIDRs other than those of cluster rome: corrected\n(remote) Network configuration correctly set up",
		"(remote) Configuration applied successfully",
		"WARN (remote) Pods of cluster rome are now reached as 10.1.0.0/16, its external addresses as 10.0.0.0/16: check whether anything still uses other addresses\n"+
			"(remote) Configuration applied successfully").Replace(initialized)+
		checked+strings.Replace(gateways, "gw-rome", "gw-server", 1)+keys+established)
	var c networkingv1beta1.GatewayClient
	local.Read(t, "liqo-tenant-milan", "milan", &c)
	want := networkingv1beta1.Endpoint{Addresses: []string{"milan.example.com"}, Port: 30777, Protocol: corev1.ProtocolUDP}
	if diff := cmp.Diff(want, c.Spec.Endpoint); diff != "" || c.Spec.MTU != 1300 {
		t.Errorf("the client dials, with MTU %d (-want +got):\n%s", c.Spec.MTU, diff)
	}
	o.Client = peering.ClientFlags{}
	s = told{}
	if err := peering.Connect(ctx, local.access, remote.access, o, s.tell); err != nil {
		t.Fatal(err)
	}
	local.Read(t, "liqo-tenant-milan", "milan", &c)
	if diff := cmp.Diff(want, c.Spec.Endpoint); diff != "" {
		t.Errorf("without the flag it dials (-want +got):\n%s", diff)
	}
	if err := peering.Reset(ctx, local.access, remote.access, o, nil); err != nil {
		t.Fatal(err)
	}
	var networks ipamv1alpha1.NetworkList
	if err := remote.Client.List(ctx, &networks, client.InNamespace("customers")); err != nil || len(networks.Items) > 0 {
		t.Errorf("%d Networks are left (%v)", len(networks.Items), err)
	}
	if err := remote.Get(ctx, "", "customers", new(corev1.Namespace)); err != nil {
		t.Errorf("somebody's namespace: %v", err)
	}
	if _, err := remote.Kubectl("delete", "namespace", "customers", "--wait=false"); err != nil {
		t.Error(err)
	}
}

// testOneNamespace connects with rights to one namespace, no Secrets among them,
// and to what the installation makes known.
func testOneNamespace(t *testing.T, local, remote *side) {
	ctx := t.Context()
	local.Apply(`
{apiVersion: v1, kind: Namespace, metadata: {name: mine}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: tenant, namespace: mine}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: mine}
rules:
- {apiGroups: [networking.liqo.io], resources: [configurations, gatewayclients, gatewayservers, publickeies, connections], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: mine}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{kind: ServiceAccount, name: tenant, namespace: mine}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenants, namespace: liqo}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
- {apiGroups: [ipam.liqo.io], resources: [networks], verbs: [list]}
- {apiGroups: [networking.liqo.io], resources: [wggatewayclienttemplates], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenants, namespace: liqo}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenants}
subjects: [{kind: ServiceAccount, name: tenant, namespace: mine}]
`)
	tenant, err := access.New(local.ServiceAccount("mine", "tenant"), access.Options{
		Name: access.Local, Origin: "kubeconfig of a tenant", Namespace: "mine", NamespaceGiven: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var s told
	if err := peering.Connect(ctx, tenant, remote.access, options(), s.tell); err != nil {
		t.Fatal(err)
	}
	s.want(t, initialized+checked+gateways+keys+established)
	var c networkingv1beta1.GatewayClient
	if err := local.Get(ctx, "mine", "milan", &c); err != nil {
		t.Error(err)
	}
	if err := peering.Reset(ctx, tenant, remote.access, options(), nil); err != nil {
		t.Fatal(err)
	}
	if err := local.Get(ctx, "mine", "milan", &c); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the GatewayClient: %v, want it gone", err)
	}
}

// testAlone cleans up in the local cluster when the remote one cannot be asked.
func testAlone(t *testing.T, local, remote *side) {
	ctx := t.Context()
	if err := peering.Connect(ctx, local.access, remote.access, options(), nil); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.OwnNamespaces = true
	o.RemoteClusterID = "rome"
	if err := peering.Reset(ctx, local.access, nil, o, nil); err == nil || !strings.Contains(err.Error(), `"rome" is the ID of this cluster itself`) {
		t.Errorf("error %v", err)
	}
	o.RemoteClusterID = "milan"
	var s told
	if err := peering.Reset(ctx, local.access, nil, o, s.tell); err != nil {
		t.Fatal(err)
	}
	s.want(t, `
(local) Cluster identity correctly retrieved
(local) Gateway client correctly deleted
(local) Network configuration correctly deleted
`)
	local.nothing(t, "gatewayclients,configurations,publickeies,networks.ipam.liqo.io,deployments,pods,secrets")
	s = told{}
	o.RemoteClusterID, o.OwnNamespaces = "", false // whose end takes five seconds; testReset has it
	if err := peering.Reset(ctx, local.access, remote.access, o, s.tell); err != nil {
		t.Fatal(err)
	}
	s.want(t, identified+`(local) Gateway client already deleted
(remote) Gateway server correctly deleted
(local) Network configuration already deleted
(remote) Network configuration correctly deleted
`)
}

// testPeerWithout: without authentication a peering is the network, and says so.
func testPeerWithout(t *testing.T, local, remote *side) {
	ctx := t.Context()
	o := peering.PeerOptions{Options: options(), IdentityRequired: true}
	err := peering.Peer(ctx, local.access, remote.access, o, nil)
	if err == nil || !strings.Contains(err.Error(), "authentication is not enabled in cluster rome") || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("with what only an identity can have: %v", err)
	}
	var asked []string
	o.Enable = func(_ context.Context, c *access.Cluster) error {
		asked = append(asked, c.Name)
		return errors.New("no")
	}
	err = peering.Peer(ctx, local.access, remote.access, o, nil)
	if err == nil || !strings.Contains(err.Error(), "enable authentication: no") || len(asked) != 1 || asked[0] != access.Local {
		t.Errorf("where it cannot be enabled, in %v: %v", asked, err)
	}
	local.nothing(t, "configurations,gatewayclients")

	var s told
	o = peering.PeerOptions{Options: options(), Slice: &peering.Slice{}}
	if err := peering.Peer(ctx, local.access, remote.access, o, s.tell); err != nil {
		t.Fatal(err)
	}
	s.want(t, initialized+checked+gateways+keys+established+
		"WARN () Only the networks are connected: rome has no identity in milan and cannot ask it for resources. "+
		"This requires authentication in both clusters; enable it with the following commands, then run this command again:\n"+
		"WARN (local) liqoctl install --set authentication.enabled=true --kubeconfig=/of/rome\n"+
		"WARN (remote) liqoctl install --set authentication.enabled=true --kubeconfig=/of/milan\n")
	s = told{}
	if err := peering.Unpeer(ctx, local.access, remote.access, options(), s.tell); err != nil {
		t.Fatal(err)
	}
	s.want(t, `
(local) No virtualnodes found
(local) No resourceslices found
(local) Identity control plane already deleted
(remote) Tenant already deleted
(remote) Ensured resourceslices absence`+identified+`(local) Gateway client correctly deleted
(remote) Gateway server correctly deleted
(local) Network configuration correctly deleted
(remote) Network configuration correctly deleted
(local) Namespace liqo-tenant-milan stays for a later peering; the same command with --delete-namespaces deletes it
(remote) Namespace liqo-tenant-rome stays for a later peering; the same command with --delete-namespaces deletes it
`)
	local.nothing(t, "configurations,gatewayclients,publickeies")
}
