package internalnetwork_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/network/internalnetwork"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// world is a control plane with the reconcilers, and short words for what tests
// do to it. What others would do - users, kubelets, other reconcilers - the test
// does as administrator.
type world struct {
	*controlplanetest.Cluster
	t    *testing.T // of the whole: the manager outlives subtests
	ctx  context.Context
	stop func()
	// writes counts what the reconcilers asked of the API server to change, but
	// for events.
	writes *atomic.Int64
}

func (w *world) run() {
	w.writes = new(atomic.Int64)
	w.stop = w.RunManager(w.t, func(mgr ctrl.Manager) error {
		c := mgr.GetHTTPClient()
		c.Transport = countWrites{c.Transport, w.writes}
		return internalnetwork.SetupWithManager(mgr, internalnetwork.Options{LiqoNamespace: controlplanetest.LiqoNamespace})
	})
}

type countWrites struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c countWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") {
		c.n.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// reconciled returns how often each controller of this process ran.
func reconciled(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "controller" {
					count[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return count
}

func (w *world) delete(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := w.Client.Delete(w.ctx, o); client.IgnoreNotFound(err) != nil {
			t.Fatalf("delete %T %s: %v", o, client.ObjectKeyFromObject(o), err)
		}
	}
}

// patch applies a JSON merge patch.
func (w *world) patch(t *testing.T, o client.Object, json string) {
	t.Helper()
	if err := w.Client.Patch(w.ctx, o, client.RawPatch(types.MergePatchType, []byte(json))); err != nil {
		t.Fatalf("patch %T %s: %v", o, client.ObjectKeyFromObject(o), err)
	}
}

// status writes the status of an object.
func (w *world) status(t *testing.T, o client.Object, status any) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Status().Patch(w.ctx, o, client.RawPatch(types.MergePatchType, b)); err != nil {
		t.Fatalf("status of %T %s: %v", o, client.ObjectKeyFromObject(o), err)
	}
}

// eventually waits until the object satisfies check, and leaves it in o.
func eventually[T client.Object](t *testing.T, w *world, what string, o T, check func(T) error) T {
	t.Helper()
	key := client.ObjectKeyFromObject(o)
	controlplanetest.Eventually(t, what, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key, o); err != nil {
			return err
		}
		if err := check(o); err != nil {
			return fmt.Errorf("%T %s: %w", o, key, err)
		}
		return nil
	})
	return o
}

func exists[T client.Object](T) error { return nil }

// replaced waits until an object that was deleted is there again.
func replaced[T client.Object](t *testing.T, w *world, o T) T {
	t.Helper()
	old := o.GetUID()
	return eventually(t, w, "it comes back", o, func(o T) error {
		if o.GetUID() == old || o.GetDeletionTimestamp() != nil {
			return fmt.Errorf("is still the old one")
		}
		return nil
	})
}

func (w *world) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.Create(t, n)
	t.Cleanup(func() {
		w.delete(t, n)
		w.Gone(t, inode(name))
	})
	return n
}

func inode(name string) *networkingv1beta1.InternalNode {
	return &networkingv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func fabric(ns, name string) *networkingv1beta1.InternalFabric {
	return &networkingv1beta1.InternalFabric{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func tunnel(ns, name string) *networkingv1beta1.GeneveTunnel {
	return &networkingv1beta1.GeneveTunnel{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func routes(node string) *networkingv1beta1.RouteConfiguration {
	return &networkingv1beta1.RouteConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: node + "-gw-node"}}
}

func (w *world) namespace(t *testing.T, name string) {
	t.Helper()
	w.Namespace(t, name, nil)
	t.Cleanup(func() {
		// Not the namespace, whose end takes five seconds: the next one may find it.
		// There is no kubelet that would end the pods.
		for _, o := range []client.Object{new(corev1.Pod), new(networkingv1beta1.GatewayServer), new(networkingv1beta1.GatewayClient), new(networkingv1beta1.Configuration)} {
			if err := w.Client.DeleteAllOf(w.ctx, o, client.InNamespace(name), client.GracePeriodSeconds(0)); err != nil {
				t.Error(err)
			}
		}
		controlplanetest.Eventually(t, "nothing is left in "+name, func(ctx context.Context) error {
			for _, l := range []client.ObjectList{new(networkingv1beta1.GatewayServerList), new(networkingv1beta1.GatewayClientList),
				new(networkingv1beta1.InternalFabricList), new(networkingv1beta1.GeneveTunnelList)} {
				if err := w.Client.List(ctx, l, client.InNamespace(name)); err != nil || meta.LenList(l) > 0 {
					return fmt.Errorf("%d of %T, %w", meta.LenList(l), l, err)
				}
			}
			return nil
		})
	})
}

// peering makes a namespace with a gateway that has a pod, and a Configuration
// that is ready.
func (w *world) peering(t *testing.T, ns, peer, podIP string) (*networkingv1beta1.GatewayServer, *networkingv1beta1.Configuration) {
	t.Helper()
	w.namespace(t, ns)
	g, c := gatewayServer(ns, "gw", peer), configuration(ns, peer)
	w.Create(t, g, c)
	w.pod(t, g, podIP)
	w.configured(t, c, "10.61.0.0/16", "10.71.0.0/16")
	return g, c
}

func gatewayServer(ns, name, peer string) *networkingv1beta1.GatewayServer {
	g := &networkingv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: peer}}}
	g.Spec.MTU = 1400
	g.Spec.Endpoint.Port = 51840
	g.Spec.ServerTemplateRef = corev1.ObjectReference{APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGatewayServerTemplate", Name: "wireguard-server", Namespace: "liqo"}
	return g
}

func gatewayClient(ns, name, peer string) *networkingv1beta1.GatewayClient {
	g := &networkingv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: peer}}}
	g.Spec.MTU = 1400
	g.Spec.Endpoint = networkingv1beta1.Endpoint{Addresses: []string{"192.0.2.1"}, Port: 51840, Protocol: corev1.ProtocolUDP}
	g.Spec.ClientTemplateRef = corev1.ObjectReference{APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGatewayClientTemplate", Name: "wireguard-client", Namespace: "liqo"}
	return g
}

// pod makes ip the address of the active pod; empty means that there is none.
func (w *world) pod(t *testing.T, gateway client.Object, ip string) {
	t.Helper()
	var endpoint any
	if ip != "" {
		endpoint = map[string]any{"ip": ip, "node": "n1"}
	}
	w.status(t, gateway, map[string]any{"internalEndpoint": endpoint})
}

func configuration(ns, peer string) *networkingv1beta1.Configuration {
	c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: peer, Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: peer}}}
	c.Spec.Remote.CIDR = networkingv1beta1.ClusterCIDR{
		Pod:      networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.243.0.0/16"}},
		External: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.70.0.0/16"}},
	}
	return c
}

// configured makes a Configuration ready, as of its newest spec.
func (w *world) configured(t *testing.T, c *networkingv1beta1.Configuration, pod, external string) {
	t.Helper()
	if err := w.Client.Get(w.ctx, client.ObjectKeyFromObject(c), c); err != nil {
		t.Fatal(err)
	}
	w.status(t, c, networkingv1beta1.ConfigurationStatus{
		Remote: &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{
			Pod:      networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(pod)}},
			External: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(external)}},
		}},
		Conditions: []metav1.Condition{{
			Type: string(networkingv1beta1.ConditionNetworkCIDRsConfigured), Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now(),
			Reason: string(networkingv1beta1.ReasonNetworkCIDRsConfigured), Message: "All network CIDRs are configured", ObservedGeneration: c.Generation,
		}},
	})
}

// ready waits until a gateway has the condition with a reason.
func ready(t *testing.T, w *world, g client.Object, reason networkingv1beta1.ConditionReason) {
	t.Helper()
	eventually(t, w, "the gateway says "+string(reason), g, func(g client.Object) error {
		conditions := func() []metav1.Condition {
			switch g := g.(type) {
			case *networkingv1beta1.GatewayServer:
				return g.Status.Conditions
			case *networkingv1beta1.GatewayClient:
				return g.Status.Conditions
			}
			return nil
		}()
		c := meta.FindStatusCondition(conditions, string(networkingv1beta1.ConditionInternalNetworkReady))
		if c == nil || c.Reason != string(reason) || c.ObservedGeneration != g.GetGeneration() {
			return fmt.Errorf("has condition %+v", c)
		}
		if wantTrue := reason == networkingv1beta1.ReasonInternalFabricReady; (c.Status == metav1.ConditionTrue) != wantTrue {
			return fmt.Errorf("is %s", c.Status)
		}
		return nil
	})
}

// internalCIDR makes the Network of the internal CIDR, with a prefix.
func (w *world) internalCIDR(t *testing.T, cidr ipamv1alpha1.CIDR) *ipamv1alpha1.Network {
	t.Helper()
	n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "internal-cidr"}, Spec: ipamv1alpha1.NetworkSpec{CIDR: cidr}}
	w.Create(t, n)
	w.status(t, n, map[string]any{"cidr": cidr})
	return n
}

// event waits for an event about an object that says something.
func (w *world) event(t *testing.T, about, reason string) {
	t.Helper()
	controlplanetest.Eventually(t, "event "+reason+" about "+about, func(ctx context.Context) error {
		var l corev1.EventList
		if err := w.Client.List(ctx, &l); err != nil {
			return err
		}
		for _, e := range l.Items {
			if e.InvolvedObject.Name == about && e.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(l.Items))
	})
}

// versions returns the resource versions of everything that the reconcilers
// write.
func (w *world) versions(t *testing.T) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for _, l := range []client.ObjectList{
		new(networkingv1beta1.InternalNodeList), new(networkingv1beta1.InternalFabricList), new(networkingv1beta1.GeneveTunnelList),
		new(networkingv1beta1.RouteConfigurationList), new(networkingv1beta1.GatewayServerList), new(networkingv1beta1.GatewayClientList),
	} {
		if err := w.Client.List(w.ctx, l); err != nil {
			t.Fatal(err)
		}
		items, err := meta.ExtractList(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range items {
			o := i.(client.Object)
			out[fmt.Sprintf("%T %s", o, client.ObjectKeyFromObject(o))] = fmt.Sprint(o.GetUID(), " ", o.GetResourceVersion())
		}
	}
	return out
}
