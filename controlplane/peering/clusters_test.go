package peering_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/access"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/controlplanetest"
	"github.com/sluice-net/sluice/controlplane/install"
	"github.com/sluice-net/sluice/controlplane/peering"
	"github.com/sluice-net/sluice/controlplane/progress"
)

// side is a real control plane with controllers and nodes. Gateway pods run
// without a process; the test plays the gateways.
type side struct {
	*controlplanetest.Cluster
	id     string
	access *access.Cluster
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func startSide(t *testing.T, name, id string) *side {
	t.Helper()
	c := controlplanetest.Start(t)
	controlplanetest.StartKubelet(t, c, controlplanetest.KubeletOptions{Images: map[string]controlplanetest.Image{"sluice/gateway:latest": {}}})
	c.RunManager(t, func(mgr ctrl.Manager) error {
		return controllers.SetupWithManager(mgr, controllers.Options{
			LiqoNamespace: controlplanetest.LiqoNamespace,
			Install: install.Options{
				ClusterID:    id,
				PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.243.0.0/16")},
				ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
				ExternalCIDR: install.Range{Prefix: netip.MustParsePrefix("10.70.0.0/16")},
				InternalCIDR: install.Range{Prefix: netip.MustParsePrefix("10.80.0.0/16")},
			},
			Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		})
	})
	s := &side{Cluster: c, id: id}
	var err error
	s.access, err = access.New(c.Config, access.Options{Name: name, Origin: "kubeconfig of " + id})
	if err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the installation of "+id+" is complete", func(ctx context.Context) error {
		if _, err := peering.LocalNetwork(ctx, s.access); err != nil {
			return err
		}
		_, err := s.access.ID(ctx)
		return err
	})
	return s
}

// as is the cluster under another name, with the rights of a user.
func (s *side) as(t *testing.T, change func(*access.Options)) *access.Cluster {
	t.Helper()
	o := s.access.Options
	change(&o)
	c, err := access.New(s.Config, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// play has every Connection say what a gateway would until the test ends.
func (s *side) play(t *testing.T, value networkingv1beta1.ConnectionValue) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			var list networkingv1beta1.ConnectionList
			if s.Client.List(ctx, &list) == nil {
				for _, c := range list.Items {
					if c.Status.Value == value {
						continue
					}
					before := c.DeepCopy()
					c.Status.Value = value
					if value != networkingv1beta1.Connected {
						c.Status.Conditions = []metav1.Condition{{
							Type: string(networkingv1beta1.ConditionPeerAnswers), Status: metav1.ConditionFalse, Reason: string(networkingv1beta1.ReasonNoHandshake),
							Message: "no handshake with 192.0.2.1:51840", LastTransitionTime: metav1.Now(),
						}}
					}
					_ = s.Client.Status().Patch(ctx, &c, client.MergeFrom(before)) // it may be gone
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
}

// told are the lines that a user reads, without those that say what is waited for.
type told struct{ lines []string }

func (s *told) tell(e progress.Event) {
	switch e.Kind {
	case progress.Waiting:
	case progress.Warning:
		s.lines = append(s.lines, "WARN ("+e.Cluster+") "+e.Text)
	case progress.Done, progress.Failed:
		s.lines = append(s.lines, "("+e.Cluster+") "+e.Text)
	}
}

func (s *told) want(t *testing.T, lines string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(lines), "\n"), s.lines); diff != "" {
		t.Errorf("what the user reads (-want +got):\n%s", diff)
	}
}

const (
	initialized = `
(local) Network configuration correctly retrieved
(remote) Network configuration correctly retrieved
(local) Network configuration correctly set up
(remote) Network configuration correctly set up
(local) Configuration applied successfully
(remote) Configuration applied successfully
`
	checked = `(remote) Gateway server template "wireguard-server/liqo" correctly checked
(local) Gateway client template "wireguard-client/liqo" correctly checked
(local) Network correctly initialized
(remote) Network correctly initialized
`
	gateways = `(remote) Gateway server correctly set up
(remote) Gateway pod gw-rome is ready
(remote) Gateway server Service created successfully
(local) Gateway client correctly set up
(local) Gateway pod gw-milan is ready
`
	keys = `(remote) Gateway server Secret created successfully
(local) Public key correctly created
(local) Gateway client Secret created successfully
(remote) Public key correctly created
`
	established = `(remote) Connection created successfully
(local) Connection created successfully
(local) Connection is established
(remote) Connection is established
`
	identified = `
(local) Cluster identity correctly retrieved
(remote) Cluster identity correctly retrieved
`
)

func options() peering.Options {
	return peering.Options{
		Timeout: controlplanetest.Patience, Wait: true,
		Server: peering.ServerFlags{ServiceType: corev1.ServiceTypeNodePort},
	}
}

// resourceVersions are those of all objects of a peering: who changes nothing
// changes none of them.
func (s *side) resourceVersions(t *testing.T) string {
	t.Helper()
	out, err := s.Kubectl("get", "configurations,gatewayservers,gatewayclients,publickeies", "-A", "-o", "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid} {.metadata.generation}{\"\\n\"}{end}")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOnClusters(t *testing.T) {
	local, remote := startSide(t, access.Local, "rome"), startSide(t, access.Remote, "milan")
	ctx := t.Context()

	t.Run("refused before anything is changed", func(t *testing.T) { testPreflight(t, local, remote) })
	t.Run("a connection that does not come", func(t *testing.T) { testTimeout(t, local, remote) })

	local.play(t, networkingv1beta1.Connected)
	remote.play(t, networkingv1beta1.Connected)
	connect := func(t *testing.T, o peering.Options, want string) {
		t.Helper()
		var s told
		if err := peering.Connect(ctx, local.access, remote.access, o, s.tell); err != nil {
			t.Fatal(err)
		}
		s.want(t, want)
	}
	t.Run("init", func(t *testing.T) {
		var s told
		if err := peering.Init(ctx, local.access, remote.access, options(), s.tell); err != nil {
			t.Fatal(err)
		}
		s.want(t, identified+strings.TrimPrefix(initialized, "\n"))
	})
	t.Run("connect from nothing", func(t *testing.T) {
		start := time.Now()
		connect(t, options(), initialized+checked+gateways+keys+established)
		t.Logf("connected after %v", time.Since(start).Round(10*time.Millisecond))
		testObjects(t, local, remote)
	})
	t.Run("connect again changes nothing", func(t *testing.T) {
		before := local.resourceVersions(t) + remote.resourceVersions(t)
		connect(t, options(), initialized+checked+gateways+keys+established)
		o := options()
		o.Server = peering.ServerFlags{}
		connect(t, o, initialized+checked+gateways+keys+established) // not back to the default, LoadBalancer
		if diff := cmp.Diff(before, local.resourceVersions(t)+remote.resourceVersions(t)); diff != "" {
			t.Errorf("objects (-before +after):\n%s", diff)
		}
	})
	t.Run("without --wait and without keys", func(t *testing.T) {
		o := options()
		o.Wait = false
		connect(t, o, initialized+checked+gateways+keys)
		o.DisableSharingKeys, o.SkipValidation = true, true
		connect(t, o, initialized+strings.SplitAfterN(checked, "\n", 3)[2]+gateways)
	})
	t.Run("another way to be reached", func(t *testing.T) {
		o := options()
		o.MTU = 1400
		o.Server.Port = 51999
		connect(t, o, initialized+checked+"(remote) Deleted existing gateway server\n"+gateways+keys+established)
		testKeys(t, local, remote)
		var c networkingv1beta1.GatewayClient
		if err := local.Get(ctx, "liqo-tenant-milan", "milan", &c); err != nil {
			t.Fatal(err)
		}
		if c.Spec.MTU != 1400 {
			t.Errorf("the client's MTU is %d", c.Spec.MTU)
		}
	})
	t.Run("in the opposite direction", func(t *testing.T) {
		before := local.resourceVersions(t) + remote.resourceVersions(t)
		o := options()
		o.ServerIsLocal = true
		var s told
		if err := peering.Connect(ctx, local.access, remote.access, o, s.tell); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(s.lines, "\n")
		for _, want := range []string{"(local) GatewayClient liqo-tenant-milan/milan exists already", "(remote) GatewayServer liqo-tenant-rome/rome exists already"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q was not told:\n%s", want, got)
			}
		}
		if diff := cmp.Diff(before, local.resourceVersions(t)+remote.resourceVersions(t)); diff != "" {
			t.Errorf("objects (-before +after):\n%s", diff)
		}
	})
	t.Run("disconnect", func(t *testing.T) {
		for _, want := range []string{"correctly", "already"} {
			var s told
			if err := peering.Disconnect(ctx, local.access, remote.access, options(), s.tell); err != nil {
				t.Fatal(err)
			}
			s.want(t, identified+"(local) Gateway client "+want+" deleted\n(remote) Gateway server "+want+" deleted\n")
		}
		for _, s := range []*side{local, remote} {
			s.nothing(t, "gatewayservers,gatewayclients,connections,deployments,pods,secrets,publickeies")
		}
	})
	t.Run("reset", func(t *testing.T) { testReset(t, local, remote) })
	t.Run("objects under other names", func(t *testing.T) { testForeign(t, local, remote) })
}

// nothing fails unless there are no objects of these kinds in the tenant namespaces.
func (s *side) nothing(t *testing.T, kinds string) {
	t.Helper()
	out, err := s.Kubectl("get", kinds, "-A", "-o", "jsonpath={range .items[*]}{.metadata.namespace} {.kind} {.metadata.name}{\"\\n\"}{end}")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(out, "\n") {
		if strings.HasPrefix(line, "liqo-tenant-") {
			t.Errorf("left in %s: %s", s.id, line)
		}
	}
}

// testObjects looks at what was made.
func testObjects(t *testing.T, local, remote *side) {
	ctx := t.Context()
	for _, s := range []struct {
		*side
		peer, namespace string
	}{{local, "milan", "liqo-tenant-milan"}, {remote, "rome", "liqo-tenant-rome"}} {
		var n corev1.Namespace
		if err := s.Get(ctx, "", s.namespace, &n); err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{
			"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": s.peer,
			"app.kubernetes.io/managed-by": "liqoctl", "pod-security.kubernetes.io/enforce": "restricted",
		} {
			if n.Labels[k] != v {
				t.Errorf("namespace %s: label %s is %q, want %q", n.Name, k, n.Labels[k], v)
			}
		}
		var c networkingv1beta1.Configuration
		if err := s.Get(ctx, s.namespace, s.peer, &c); err != nil {
			t.Fatal(err)
		}
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
		if err := x.at.Get(ctx, x.atNS, x.of.id, &k); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(key, k.Spec.PublicKey) || len(key) != 32 {
			t.Errorf("%s has another key of %s than that has", x.at.id, x.of.id)
		}
	}
}

// testTimeout has the gateways never answer.
func testTimeout(t *testing.T, local, remote *side) {
	t.Run("", func(t *testing.T) { // ends the play
		local.play(t, networkingv1beta1.Connecting)
		remote.play(t, networkingv1beta1.Connecting)
		o := options()
		o.Timeout = 10 * time.Second
		var s told
		err := peering.Connect(t.Context(), local.access, remote.access, o, s.tell)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v after\n%s", err, strings.Join(s.lines, "\n"))
		}
		for _, want := range []string{
			"(local) time is up after 10s, waiting for Connection to be established: Connection liqo-tenant-milan/gw-milan is Connecting: no handshake with 192.0.2.1:51840",
			"check that the client's nodes reach the address and UDP port",
			"of 23 steps are done and stay so: the same command goes on from there",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in\n%v", want, err)
			}
		}
	})
	o := options()
	o.OwnNamespaces = true
	if err := peering.Reset(t.Context(), local.access, remote.access, o, nil); err != nil {
		t.Fatal(err)
	}
}

// testReset removes everything, step by step with what others left.
func testReset(t *testing.T, local, remote *side) {
	ctx := t.Context()
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "mine"}}
	if err := local.Client.Create(ctx, mine); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.OwnNamespaces = true
	var s told
	if err := peering.Reset(ctx, local.access, remote.access, o, s.tell); err != nil {
		t.Fatal(err)
	}
	s.want(t, identified+`(local) Gateway client already deleted
(remote) Gateway server already deleted
(local) Network configuration correctly deleted
(remote) Network configuration correctly deleted
WARN (local) Namespace liqo-tenant-milan stays, as it holds what is not of the peering: ConfigMap mine
`)
	var n corev1.Namespace
	if err := remote.Get(ctx, "", "liqo-tenant-rome", &n); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("namespace liqo-tenant-rome: %v, want it gone", err)
	}
	for _, s := range []*side{local, remote} {
		s.nothing(t, "configurations,publickeies,networks.ipam.liqo.io")
	}
	if err := local.Client.Delete(ctx, mine); err != nil {
		t.Fatal(err)
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
	s.want(t, strings.Replace(initialized, "(remote) Network configuration correctly set up",
		"WARN (remote) Configuration customers/conf had other CIDRs than cluster rome uses: corrected\n(remote) Network configuration correctly set up", 1)+
		checked+strings.Replace(gateways, "gw-rome", "gw-server", 1)+keys+established)
	var c networkingv1beta1.GatewayClient
	if err := local.Get(ctx, "liqo-tenant-milan", "milan", &c); err != nil {
		t.Fatal(err)
	}
	want := networkingv1beta1.Endpoint{Addresses: []string{"milan.example.com"}, Port: 30777, Protocol: corev1.ProtocolUDP}
	if diff := cmp.Diff(want, c.Spec.Endpoint); diff != "" || c.Spec.MTU != 1300 {
		t.Errorf("the client dials, with MTU %d (-want +got):\n%s", c.Spec.MTU, diff)
	}
	o.Client = peering.ClientFlags{}
	s = told{}
	if err := peering.Connect(ctx, local.access, remote.access, o, s.tell); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.lines, "\n"); !strings.Contains(got, "WARN (local) GatewayClient liqo-tenant-milan/milan dials milan.example.com:30777") {
		t.Errorf("nothing tells that the address stays:\n%s", got)
	}
	o.OwnNamespaces = true
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
	if _, err := remote.Kubectl("delete", "namespace", "customers"); err != nil {
		t.Error(err)
	}
}

// testPreflight asks for what cannot be.
func testPreflight(t *testing.T, local, remote *side) {
	ctx := t.Context()
	before := local.resourceVersions(t) + remote.resourceVersions(t)
	remote.Apply(`{apiVersion: v1, kind: Service, metadata: {name: other, namespace: default}, spec: {type: NodePort, ports: [{port: 1, nodePort: 30999, protocol: UDP}]}}`)
	for _, tt := range []struct {
		name          string
		local, remote *access.Cluster
		change        func(*peering.Options)
		want          []string
	}{
		{name: "the same cluster twice", remote: local.as(t, func(o *access.Options) { o.Name = access.Remote }),
			want: []string{"lead to the same cluster, rome", "--remote-kubeconfig"}},
		{name: "nothing installed", remote: remote.as(t, func(o *access.Options) { o.LiqoNamespace = "elsewhere" }),
			want: []string{"(remote) ", "not installed", "--remote-liqo-namespace"}},
		{name: "a template that does not exist", change: func(o *peering.Options) { o.Server.Template.Name = "fast" },
			want: []string{"(remote) there is no WgGatewayServerTemplate liqo/fast", "--gw-server-template-name"}},
		{name: "a template of an unknown kind", change: func(o *peering.Options) { o.Client.Template.Type = "example.com/v1/tunnels" },
			want: []string{"(local) the cluster does not know the type of templates example.com/v1/tunnels"}},
		{name: "a node port out of range", change: func(o *peering.Options) { o.Server.NodePort = 80 },
			want: []string{"(remote) --gw-server-service-nodeport 80: clusters have node ports from 30000 to 32767", "--skip-validation"}},
		{name: "a node port in use", change: func(o *peering.Options) { o.Server.NodePort = 30999 },
			want: []string{"(remote) --gw-server-service-nodeport 30999: ", "already allocated"}},
		{name: "an MTU that is too small", change: func(o *peering.Options) { o.MTU = 500 }, want: []string{"--mtu 500"}},
		{name: "a user without rights", local: user(t, local), want: []string{"(local) ", "of kubeconfig of nobody"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options()
			if tt.change != nil {
				tt.change(&o)
			}
			l, r := local.access, remote.access
			if tt.local != nil {
				l = tt.local
			}
			if tt.remote != nil {
				r = tt.remote
			}
			var s told
			err := peering.Connect(ctx, l, r, o, s.tell)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %q", want, err)
				}
			}
			if len(s.lines) > 0 {
				t.Errorf("lines were told: %q", s.lines)
			}
		})
	}
	t.Run("an old CRD", func(t *testing.T) { testOldKind(t, local, remote) })
	t.Run("a namespace that is being deleted", func(t *testing.T) {
		remote.Apply(`{apiVersion: v1, kind: Namespace, metadata: {name: ending}}`)
		remote.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: stays, namespace: ending, finalizers: [example.com/wait]}}`)
		if _, err := remote.Kubectl("delete", "namespace", "ending", "--wait=false"); err != nil {
			t.Fatal(err)
		}
		at := remote.as(t, func(o *access.Options) { o.Namespace, o.NamespaceGiven = "ending", true })
		err := peering.Connect(ctx, local.access, at, options(), nil)
		if err == nil || !strings.Contains(err.Error(), "(remote) namespace ending is being deleted") {
			t.Errorf("error %v", err)
		}
	})
	if diff := cmp.Diff(before, local.resourceVersions(t)+remote.resourceVersions(t)); diff != "" {
		t.Errorf("objects (-before +after):\n%s", diff)
	}
}

// user is somebody who may look at the cluster and change nothing.
func user(t *testing.T, s *side) *access.Cluster {
	t.Helper()
	s.Apply(`
{apiVersion: v1, kind: ServiceAccount, metadata: {name: nobody, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nobody}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nobody}
subjects: [{kind: ServiceAccount, name: nobody, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nobody}
rules:
- {apiGroups: ["", networking.liqo.io, ipam.liqo.io], resources: ["*"], verbs: [get, list]}
`)
	c, err := access.New(s.ServiceAccount("default", "nobody"), access.Options{Name: access.Local, Origin: "kubeconfig of nobody"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// testOldKind takes a field out of a schema.
func testOldKind(t *testing.T, local, remote *side) {
	const field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/endpoint/properties/nodePort"
	crd := "gatewayservers.networking.liqo.io"
	was, err := remote.Kubectl("get", "crd", crd, "-o", "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.endpoint}")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := strings.TrimSuffix(field, "/properties/nodePort")
	old := fmt.Sprintf(`[{"op":"replace","path":%q,"value":{"type":"object","properties":{"port":{"type":"integer"},"serviceType":{"type":"string"},"loadBalancerIP":{"type":"string"}}}}]`, endpoint)
	if _, err := remote.Kubectl("patch", "crd", crd, "--type=json", "-p", old); err != nil {
		t.Fatal(err)
	}
	err = peering.Connect(t.Context(), local.access, remote.access, options(), nil)
	if want := "(remote) the CRD gatewayservers.networking.liqo.io is old: it lacks spec.endpoint.nodePort"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if _, err := remote.Kubectl("patch", "crd", crd, "--type=json", "-p", fmt.Sprintf(`[{"op":"replace","path":%q,"value":%s}]`, endpoint, was)); err != nil {
		t.Fatal(err)
	}
}
