package peering_test

import (
	"context"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// side is a real control plane with controllers and nodes. Gateway pods run
// without a process; the test plays the gateways.
type side struct {
	*controlplanetest.Cluster
	id     string
	access *access.Cluster
	// restart ends the controllers and starts them again with other options.
	restart func(change func(*manager.Options))
	// how many requests of access were for Secrets with their data; not those that delete one, or ask for a new one by
	// sending one without data
	forSecrets atomic.Int32
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func startSide(t *testing.T, name, id string, changes ...func(*controlplanetest.Cluster, *manager.Options)) *side {
	t.Helper()
	return startSideWith(t, controlplanetest.Image{}, name, id, changes...)
}

func startSideWith(t *testing.T, gateway controlplanetest.Image, name, id string, changes ...func(*controlplanetest.Cluster, *manager.Options)) *side {
	t.Helper()
	c := controlplanetest.Start(t)
	controlplanetest.StartKubelet(t, c, controlplanetest.KubeletOptions{Images: map[string]controlplanetest.Image{
		"sluice.local/gateway:unknown": gateway, "sluice.local/virtualkubelet:unknown": {}, "app": {},
	}})
	o := manager.Options{
		LiqoNamespace: controlplanetest.LiqoNamespace,
		Bootstrap: bootstrap.Options{
			ClusterID:    id,
			PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.243.0.0/16")},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
			ExternalCIDR: bootstrap.Range{Prefix: netip.MustParsePrefix("10.70.0.0/16")},
			InternalCIDR: bootstrap.Range{Prefix: netip.MustParsePrefix("10.80.0.0/16")},
		},
		Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}
	for _, change := range changes {
		change(c, &o)
	}
	run := func() (stop func()) {
		return c.RunManager(t, func(mgr ctrl.Manager) error { return manager.SetupWithManager(mgr, o) })
	}
	stop := run()
	s := &side{Cluster: c, id: id, restart: func(change func(*manager.Options)) {
		stop()
		change(&o)
		stop = run()
	}}
	c.Elect(t)
	config := rest.CopyConfig(c.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if slices.Contains(strings.Split(r.URL.Path, "/"), "secrets") && r.Method != http.MethodDelete && r.Method != http.MethodPost && !onlyMetadata(r) {
				s.forSecrets.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	var err error
	s.access, err = access.New(config, access.Options{Name: name, Origin: "kubeconfig of " + id, Flags: []string{"--kubeconfig=/of/" + id}})
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

// onlyMetadata tells whether the answer has names and labels alone: that is the form which every API server since
// Kubernetes 1.15 gives where it is asked for first.
func onlyMetadata(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	return strings.Contains(first, "as=PartialObjectMetadata")
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
	s.Follow(t, func(ctx context.Context) {
		var list networkingv1beta1.ConnectionList
		if s.Client.List(ctx, &list) != nil {
			return
		}
		for _, c := range list.Items {
			// The controllers say Connecting, too.
			if c.Status.Value == value && (value == networkingv1beta1.Connected || len(c.Status.Conditions) > 0) {
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
	}, new(networkingv1beta1.Connection))
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

// options are for commands that succeed: as many waits as they have, and no test waits for the end of one.
func options() peering.Options {
	return peering.Options{
		Timeout: 5 * controlplanetest.Patience, Wait: true,
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

func TestOnClusters(t *testing.T) {
	t.Parallel()
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
		connect(t, options(), initialized+checked+gateways+keys+established)
		// Of keys only the public ones are read, from the status of the gateways.
		if l, r := local.forSecrets.Load(), remote.forSecrets.Load(); l != 0 || r != 0 {
			t.Errorf("%d and %d requests for Secrets", l, r)
		}
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
	t.Run("more tunnels, and fewer", func(t *testing.T) { testTunnels(t, local, remote) })
	t.Run("another way to be reached", func(t *testing.T) {
		o := options()
		o.MTU = 1400
		o.Server.Ports = []int32{51999}
		connect(t, o, initialized+checked+"(remote) Deleted existing gateway server\n"+gateways+keys+established)
		testKeys(t, local, remote)
		var c networkingv1beta1.GatewayClient
		local.Read(t, "liqo-tenant-milan", "milan", &c)
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
		for _, want := range []string{"(local) GatewayClient liqo-tenant-milan/milan already exists", "(remote) GatewayServer liqo-tenant-rome/rome already exists", "have no effect", "(local) Connection is established", "(remote) Connection is established"} {
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
	t.Run("gateways without conditions, as Liqo's", func(t *testing.T) {
		put := withoutConditions(t, remote, "gatewayservers", "gatewayclients", "connections")
		connect(t, options(), initialized+checked+gateways+keys+established)
		if err := peering.Reset(ctx, local.access, remote.access, options(), nil); err != nil {
			t.Fatal(err)
		}
		put()
	})
	t.Run("objects under other names", func(t *testing.T) { testForeign(t, local, remote) })
	t.Run("a user of one namespace", func(t *testing.T) { testOneNamespace(t, local, remote) })
	t.Run("peer where authentication is off", func(t *testing.T) { testPeerWithout(t, local, remote) })
	t.Run("a peer that is gone for good", func(t *testing.T) { testAlone(t, local, remote) })
}
