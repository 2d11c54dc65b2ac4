package clusters

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/doctor"
	steps "github.com/sluice-net/sluice/admin/peering"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// examined is a peering that a doctor looks at: the consumer is the local cluster
// and has the client.
type examined struct {
	*pair
	local, remote *access.Cluster
}

// fault is something that goes wrong, and what must be found.
type fault struct {
	name           string
	inject, repair func(t *testing.T, x *examined)
	// settled tells when the fault shows; nil: at once.
	settled func(x *examined) error
	check   string
	cluster string
	status  doctor.Status
	says    string // part of message, cause or object
}

// testDoctor connects the pair and breaks the peering in many ways: each time the
// first thing that fails is the cause.
func testDoctor(t *testing.T, p *pair) {
	x := newExamined(t, p)
	t.Run("healthy", func(t *testing.T) {
		r := x.examine(t)
		for _, f := range r.Findings {
			if f.Status == doctor.Failed || f.Status == doctor.Skipped {
				t.Errorf("%+v", f)
			}
			t.Logf("%-8s %-18s %-7s %s", f.Status, f.Check, f.Cluster, f.Message)
		}
	})
	t.Run("command", func(t *testing.T) {
		start := time.Now()
		out := p.liqoctl.ok(t, p.both("network", "doctor")...)
		t.Logf("%v:\n%s", time.Since(start).Round(10*time.Millisecond), out)
		var r doctor.Report
		p.liqoctl.decode(t, &r, p.both("network", "doctor", "-o", "json")...)
		if !r.Healthy() || len(r.Clusters) != 2 {
			t.Errorf("%+v", r)
		}
		fault := faults()[0]
		fault.inject(t, x)
		defer fault.repair(t, x)
		out, errs, err := p.liqoctl.run(t.Context(), p.both("network", "doctor")...)
		if err == nil || !strings.Contains(out, "FAILED  keys (local), PublicKey liqo-tenant-provider/provider\n") || !strings.Contains(errs, "1 problem found") {
			t.Errorf("%v\n%s%s", err, out, errs)
		}
		t.Log(out + errs)
	})
	t.Run("one side", func(t *testing.T) {
		for _, c := range []*access.Cluster{x.local, x.remote} {
			r := examine(t, target(c, ""))
			for _, f := range r.Findings {
				if f.Status == doctor.Failed {
					t.Errorf("%+v", f)
				}
			}
		}
	})
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) { x.suffer(t, f) })
	}
	t.Run("a kubeconfig of no use", func(t *testing.T) {
		stranger := rest.CopyConfig(p.provider.Config)
		stranger.BearerToken, stranger.CertData, stranger.KeyData, stranger.CertFile, stranger.KeyFile = "expired", nil, nil, "", ""
		c, err := access.New(stranger, access.Options{Name: access.Remote, Origin: "kubeconfig old.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		r := examine(t, target(x.local, access.Local), target(c, access.Remote))
		find(t, r, fault{check: "api-access", cluster: access.Remote, status: doctor.Failed, says: "does not accept the credentials of kubeconfig old.yaml"})
		find(t, r, fault{check: "keys", cluster: access.Local, status: doctor.OK}) // the other side by itself
	})
	t.Run("a user without rights", func(t *testing.T) {
		if err := p.provider.CreateNamespace("doctor-nobody", nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kubectl(t, p.provider, "delete", "namespace", "doctor-nobody", "--wait=false") })
		kubectl(t, p.provider, "create", "serviceaccount", "nobody", "-n", "doctor-nobody")
		c, err := access.New(p.provider.ServiceAccount("doctor-nobody", "nobody"), access.Options{Name: access.Remote, Origin: "kubeconfig nobody.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		r := examine(t, target(x.local, access.Local), target(c, access.Remote))
		find(t, r, fault{check: "permissions", cluster: access.Remote, status: doctor.Failed, says: "the user of kubeconfig nobody.yaml lacks rights"})
		find(t, r, fault{check: "identity", cluster: access.Remote, status: doctor.Skipped, says: "may not do this"})
		find(t, r, fault{check: "permissions", cluster: access.Local, status: doctor.OK})
	})
	t.Run("the same cluster twice", func(t *testing.T) {
		r := examine(t, target(x.local, access.Local), target(x.local, access.Remote))
		find(t, r, fault{check: "identity", status: doctor.Failed, says: "both are the same cluster"})
	})
}

// newExamined connects the pair until the test ends.
func newExamined(t *testing.T, p *pair) *examined {
	t.Helper()
	x := &examined{pair: p}
	for _, c := range []struct {
		name string
		of   *side
		to   **access.Cluster
	}{{access.Local, p.consumer, &x.local}, {access.Remote, p.provider, &x.remote}} {
		var err error
		if *c.to, err = access.New(c.of.Config, access.Options{Name: c.name, Origin: "kubeconfig " + c.of.id}); err != nil {
			t.Fatal(err)
		}
	}
	o := steps.Options{Wait: true, Timeout: 2 * time.Minute, MTU: 1340, DeleteNamespaces: true}
	o.Server.ServiceType = corev1.ServiceTypeNodePort
	t.Cleanup(func() {
		if err := steps.Reset(context.Background(), x.local, x.remote, o, nil); err != nil {
			t.Error(err)
		}
	})
	if err := steps.Connect(t.Context(), x.local, x.remote, o, nil); err != nil {
		t.Fatal(err)
	}
	return x
}

// suffer breaks the peering, has it examined, and heals it.
func (x *examined) suffer(t *testing.T, f fault) {
	f.inject(t, x)
	defer func() {
		f.repair(t, x)
		for _, s := range x.sides() {
			controlplanetest.Eventually(t, s.id+" is Connected again", func(ctx context.Context) error { return x.connected(ctx, s) })
		}
	}()
	if f.settled != nil {
		controlplanetest.Eventually(t, "the fault shows", func(context.Context) error { return f.settled(x) })
	}
	start := time.Now()
	r := x.examine(t)
	t.Logf("examined in %v", time.Since(start).Round(10*time.Millisecond))
	find(t, r, f)
	if f.status == doctor.Failed && r.Healthy() {
		t.Error("the report is healthy")
	}
	for _, found := range r.Findings {
		if found.Status == doctor.Failed && found.Check != f.check {
			t.Errorf("fails too, which is no cause: %+v", found)
		}
	}
}

// find demands a finding.
func find(t *testing.T, r *doctor.Report, want fault) {
	t.Helper()
	var of []string
	for _, f := range r.Findings {
		if f.Check != want.check {
			continue
		}
		text := f.Object + ": " + f.Message + "; " + f.Cause
		if f.Cluster == want.cluster && f.Status == want.status && strings.Contains(text, want.says) {
			t.Logf("%s %s (%s) %s\n\tcause: %s\n\tfix: %s", f.Status, f.Check, f.Cluster, f.Object+": "+f.Message, f.Cause, f.Fix)
			return
		}
		of = append(of, fmt.Sprintf("%+v", f))
	}
	t.Errorf("no finding of %s is %s in %q and says %q, but:\n%s", want.check, want.status, want.cluster, want.says, strings.Join(of, "\n"))
}

func target(c *access.Cluster, name string) doctor.Target {
	other := *c
	other.Name = name
	return doctor.Target{Name: name, Origin: c.Origin, Cluster: &other}
}

func (x *examined) examine(t *testing.T) *doctor.Report {
	t.Helper()
	return examine(t, target(x.local, access.Local), target(x.remote, access.Remote))
}

func examine(t *testing.T, clusters ...doctor.Target) *doctor.Report {
	t.Helper()
	r, err := doctor.Examine(t.Context(), doctor.Options{Version: "v1.0.0", Clusters: clusters}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// namespace is the tenant namespace of a side, object the name of all that is in
// it: the other's ID.
func (x *examined) namespace(s *side) string { return "liqo-tenant-" + x.peerOf(s).id }

func (x *examined) peerOf(s *side) *side {
	if s == x.provider {
		return x.consumer
	}
	return x.provider
}

func (x *examined) connected(ctx context.Context, s *side) error {
	c := new(networkingv1beta1.Connection)
	if err := s.Get(ctx, x.namespace(s), "gw-"+x.peerOf(s).id, c); err != nil {
		return err
	}
	if c.Status.Value != networkingv1beta1.Connected {
		return fmt.Errorf("connection of %s is %q", s.id, c.Status.Value)
	}
	return nil
}

// silent tells whether a side has noticed that the peer does not answer.
func (x *examined) silent(s *side) error {
	if x.connected(context.Background(), s) == nil {
		return fmt.Errorf("%s is still Connected", s.id)
	}
	return nil
}

// change edits an object of a side that is named after the peer.
func change[T client.Object](t *testing.T, x *examined, s *side, o T, edit func(T)) {
	t.Helper()
	o.SetNamespace(x.namespace(s))
	o.SetName(x.peerOf(s).id)
	controlplanetest.Edit(t, s.Cluster, o, edit)
}

func faults() []fault {
	var saved struct {
		key      []byte
		endpoint networkingv1beta1.Endpoint
		remote   networkingv1beta1.ClusterConfig
	}
	return []fault{
		{
			name: "wrong public key", check: "keys", cluster: access.Local, status: doctor.Failed, says: "but the gateway of provider has",
			inject: func(t *testing.T, x *examined) {
				change(t, x, x.consumer, &networkingv1beta1.PublicKey{}, func(o *networkingv1beta1.PublicKey) {
					saved.key = o.Spec.PublicKey
					o.Spec.PublicKey = append([]byte(nil), o.Spec.PublicKey...)
					o.Spec.PublicKey[3] ^= 1
				})
			},
			repair: func(t *testing.T, x *examined) {
				change(t, x, x.consumer, &networkingv1beta1.PublicKey{}, func(o *networkingv1beta1.PublicKey) { o.Spec.PublicKey = saved.key })
			},
		},
		{
			name: "another port, which the session has outlived", check: "endpoint", cluster: access.Local, status: doctor.Warning, says: "it works by what the tunnel has learnt",
			inject: func(t *testing.T, x *examined) {
				change(t, x, x.consumer, &networkingv1beta1.GatewayClient{}, func(o *networkingv1beta1.GatewayClient) {
					saved.endpoint = *o.Spec.Endpoint.DeepCopy()
					o.Spec.Endpoint.Port = 9
				})
			},
			repair: func(t *testing.T, x *examined) {
				change(t, x, x.consumer, &networkingv1beta1.GatewayClient{}, func(o *networkingv1beta1.GatewayClient) { o.Spec.Endpoint = saved.endpoint })
			},
		},
		{
			name: "wrong port", check: "reachability", cluster: access.Local, status: doctor.Failed, says: "it says that it is at",
			inject: func(t *testing.T, x *examined) {
				change(t, x, x.consumer, &networkingv1beta1.GatewayClient{}, func(o *networkingv1beta1.GatewayClient) { o.Spec.Endpoint.Port = 9 })
				x.lose(t, controlplanetest.LoseOut) // or the server would find the new client first
				kubectl(t, x.consumer, "delete", "pods", "--all", "-n", x.namespace(x.consumer))
			},
			settled: func(x *examined) error {
				if _, err := x.consumer.Kubectl("wait", "--for=condition=Ready", "pods", "--all", "-n", x.namespace(x.consumer), "--timeout=1s"); err != nil {
					return err
				}
				return x.silent(x.consumer)
			},
			repair: func(t *testing.T, x *examined) {
				change(t, x, x.consumer, &networkingv1beta1.GatewayClient{}, func(o *networkingv1beta1.GatewayClient) { o.Spec.Endpoint = saved.endpoint })
				x.lose(t, "")
			},
		},
		{
			name: "MTUs differ", check: "mtu", status: doctor.Failed, says: "it is 1400 here and 1340 there",
			inject: func(t *testing.T, x *examined) {
				change(t, x, x.consumer, &networkingv1beta1.GatewayClient{}, func(o *networkingv1beta1.GatewayClient) { o.Spec.MTU = 1400 })
			},
			repair: func(t *testing.T, x *examined) {
				change(t, x, x.consumer, &networkingv1beta1.GatewayClient{}, func(o *networkingv1beta1.GatewayClient) { o.Spec.MTU = 1340 })
			},
		},
		{
			name: "wrong CIDR", check: "configuration", cluster: access.Remote, status: doctor.Failed, says: "are in 10.99.0.0/16, but they are in 10.243.0.0/16",
			inject: func(t *testing.T, x *examined) {
				change(t, x, x.provider, &networkingv1beta1.Configuration{}, func(o *networkingv1beta1.Configuration) {
					saved.remote = *o.Spec.Remote.DeepCopy()
					o.Spec.Remote.CIDR.Pod.List = []networkingv1beta1.CIDR{"10.99.0.0/16"}
				})
			},
			repair: func(t *testing.T, x *examined) {
				change(t, x, x.provider, &networkingv1beta1.Configuration{}, func(o *networkingv1beta1.Configuration) { o.Spec.Remote = saved.remote })
			},
		},
		{
			name: "UDP lost on the way there", check: "reachability", cluster: access.Local, status: doctor.Failed, says: "nothing arrives at the server",
			inject:  func(t *testing.T, x *examined) { x.lose(t, controlplanetest.LoseIn) },
			settled: func(x *examined) error { return x.silent(x.consumer) },
			repair:  func(t *testing.T, x *examined) { x.lose(t, "") },
		},
		{
			name: "UDP lost on the way back", check: "reachability", cluster: access.Local, status: doctor.Failed, says: "nothing comes back to the client",
			inject:  func(t *testing.T, x *examined) { x.lose(t, controlplanetest.LoseOut) },
			settled: func(x *examined) error { return x.silent(x.consumer) },
			repair:  func(t *testing.T, x *examined) { x.lose(t, "") },
		},
		{
			name: "NetworkPolicy in the way", check: "network-policies", cluster: access.Local, status: doctor.Warning, says: "it keeps packets to the server from gateway pods",
			inject: func(t *testing.T, x *examined) {
				// The controller's own policy opens what gateways listen on; where they send
				// to it leaves to others.
				err := x.consumer.Client.Create(t.Context(), &networkingv1.NetworkPolicy{
					ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace(x.consumer), Name: "deny-egress"},
					Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}},
				})
				if err != nil {
					t.Fatal(err)
				}
			},
			repair: func(t *testing.T, x *examined) {
				kubectl(t, x.consumer, "delete", "networkpolicy", "deny-egress", "-n", x.namespace(x.consumer))
			},
		},
		{
			name: "no gateway pod", check: "gateway-pods", cluster: access.Remote, status: doctor.Failed, says: "the API server refuses its pods",
			inject: func(t *testing.T, x *examined) {
				ns := x.namespace(x.provider)
				err := x.provider.Client.Create(t.Context(), &corev1.LimitRange{
					ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tiny"},
					Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
						Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Ki")},
					}}},
				})
				if err != nil {
					t.Fatal(err)
				}
				kubectl(t, x.provider, "delete", "pods", "--all", "-n", ns)
			},
			settled: func(x *examined) error {
				out, err := x.provider.Kubectl("get", "events", "-n", x.namespace(x.provider), "--field-selector=reason=FailedCreate", "-o", "name")
				if err == nil && strings.TrimSpace(out) == "" {
					err = fmt.Errorf("no event yet")
				}
				return err
			},
			repair: func(t *testing.T, x *examined) {
				kubectl(t, x.provider, "delete", "limitrange", "tiny", "-n", x.namespace(x.provider))
				kubectl(t, x.provider, "delete", "replicasets", "--all", "-n", x.namespace(x.provider)) // the next one tries at once
			},
		},
		{
			name: "a node without agent", check: "nodes", cluster: access.Local, status: doctor.Failed, says: "has never been heard",
			inject: func(t *testing.T, x *examined) {
				x.consumer.fabric.setAway("node-2", true)
				kubectl(t, x.consumer, "delete", "pods", "--all", "-n", x.namespace(x.consumer))
			},
			settled: func(x *examined) error { return x.settledGateway(x.consumer) },
			repair:  func(_ *testing.T, x *examined) { x.consumer.fabric.setAway("node-2", false) },
		},
		{
			name: "new keys by hand", check: "keys", cluster: access.Remote, status: doctor.Failed, says: "but the gateway of consumer has",
			inject: func(t *testing.T, x *examined) {
				ns := x.namespace(x.consumer)
				secret := strings.TrimSpace(kubectl(t, x.consumer, "get", "gatewayclient", "-n", ns, x.provider.id, "-o=jsonpath={.status.secretRef.name}"))
				saved.key = nil
				kubectl(t, x.consumer, "delete", "secret", "-n", ns, secret)
			},
			settled: func(x *examined) error {
				r, err := x.consumer.Kubectl("get", "secrets", "-n", x.namespace(x.consumer), "-l", networkingv1beta1.LabelGatewayResource+"=true", "-o", "name")
				if err == nil && strings.TrimSpace(r) == "" {
					err = fmt.Errorf("no Secret yet")
				}
				return err
			},
			repair: func(t *testing.T, x *examined) {
				o := steps.Options{Wait: true, Timeout: 2 * time.Minute, MTU: 1340}
				o.Server.ServiceType = corev1.ServiceTypeNodePort
				if err := steps.Connect(t.Context(), x.local, x.remote, o, nil); err != nil {
					t.Error(err)
				}
			},
		},
	}
}

// lose has datagrams between the gateways get lost before the server.
func (x *examined) lose(t *testing.T, direction string) {
	t.Helper()
	kubectl(t, x.provider, "annotate", "--overwrite", "service", "gw-"+x.consumer.id, "-n", x.namespace(x.provider), controlplanetest.AnnotationLose+"="+direction)
}

// settledGateway waits until a gateway has run long enough to have heard all its
// nodes.
func (x *examined) settledGateway(s *side) error {
	if err := x.connected(context.Background(), s); err != nil {
		return err
	}
	out, err := s.Kubectl("get", "pods", "-n", x.namespace(s), "-o=jsonpath={.items[*].status.startTime}")
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(out))
	if err == nil && time.Since(at) < 14*time.Second {
		err = fmt.Errorf("it runs for %v", time.Since(at))
	}
	return err
}
