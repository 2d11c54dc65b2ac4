package prefixes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/cidr"
	"github.com/sluice-net/sluice/controlplane/network/prefixes"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const liqo = controlplanetest.LiqoNamespace

// world is one cluster for all tests.
type world struct {
	*controlplanetest.Cluster
	tb   testing.TB // of all tests: a manager outlives the one that starts it
	stop func()
}

func (w *world) run() {
	w.tb.Helper()
	w.stop = w.RunManager(w.tb, func(mgr ctrl.Manager) error {
		return prefixes.SetupWithManager(mgr, prefixes.Options{LiqoNamespace: liqo, Pools: cidr.DefaultPools()})
	})
}

func (w *world) create(t testing.TB, n *ipamv1alpha1.Network) *ipamv1alpha1.Network {
	t.Helper()
	w.Create(t, n)
	return n
}

// want waits until a Network has this prefix and this reason.
func (w *world) want(t testing.TB, namespace, name, prefix string, reason ipamv1alpha1.ConditionReason) *ipamv1alpha1.Network {
	t.Helper()
	var n ipamv1alpha1.Network
	controlplanetest.Eventually(t, fmt.Sprintf("%s/%s: %s %s", namespace, name, reason, prefix), func(ctx context.Context) error {
		if err := w.Get(ctx, namespace, name, &n); err != nil {
			return err
		}
		c := meta.FindStatusCondition(n.Status.Conditions, string(ipamv1alpha1.ConditionAllocated))
		if string(n.Status.CIDR) != prefix || c == nil || c.Reason != string(reason) || c.ObservedGeneration != n.Generation {
			return fmt.Errorf("got %q, %+v", n.Status.CIDR, c)
		}
		return nil
	})
	return &n
}

func message(n *ipamv1alpha1.Network) string {
	return meta.FindStatusCondition(n.Status.Conditions, string(ipamv1alpha1.ConditionAllocated)).Message
}

func newNetwork(namespace, name, cidr string, labels ...string) *ipamv1alpha1.Network {
	n := &ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}},
		Spec:       ipamv1alpha1.NetworkSpec{CIDR: ipamv1alpha1.CIDR(cidr)},
	}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		n.Labels[key] = value
	}
	return n
}

const (
	notRemapped = ipamv1alpha1.LabelNetworkNotRemapped + "=" + networkingv1beta1.LabelTrue
	shared      = ipamv1alpha1.LabelNetworkShared + "=" + networkingv1beta1.LabelTrue
	ofType      = ipamv1alpha1.LabelNetworkType + "="
)

func installation() []*ipamv1alpha1.Network {
	return []*ipamv1alpha1.Network{
		newNetwork(liqo, "reserved-192-168-7-0-24", "192.168.7.0/24", ofType+"reserved", notRemapped, shared),
		newNetwork(liqo, "pod-cidr", "10.243.0.0/16", ofType+"pod-cidr", notRemapped),
		newNetwork(liqo, "service-cidr", "10.96.0.0/12", ofType+"service-cidr", notRemapped),
		newNetwork(liqo, "external-cidr", "10.70.0.0/16", ofType+"external-cidr"),
		newNetwork(liqo, "internal-cidr", "10.80.0.0/16", ofType+"internal-cidr"),
	}
}

func TestControllers(t *testing.T) {
	w := &world{Cluster: controlplanetest.Start(t), tb: t}
	w.run()
	t.Run("the installation comes first", w.testInstallation)
	t.Run("grants", w.testGrants)
	t.Run("waiting", w.testWaiting)
	t.Run("edits", w.testEdits)
	t.Run("overlapping status", w.testOverlappingStatus)
	t.Run("many at once", w.testMany)
	t.Run("restarts while Networks come and go", w.testChurn)
	t.Run("restart", w.testRestart)
}

// testInstallation has a peer come before the cluster knows itself.
func (w *world) testInstallation(t *testing.T) {
	w.Namespace(t, "early", nil)
	// They come within one second, as far as their timestamps go: then the one of the
	// pods is first.
	for {
		external := w.create(t, newNetwork("early", "external", "10.70.0.0/16", networkingv1beta1.LabelCIDRType+"="+networkingv1beta1.CIDRTypeExternal))
		pod := w.create(t, newNetwork("early", "pod", "10.243.0.0/16", networkingv1beta1.LabelCIDRType+"="+networkingv1beta1.CIDRTypePod))
		if pod.CreationTimestamp.Equal(&external.CreationTimestamp) {
			break
		}
		w.Delete(t, external)
		w.Delete(t, pod)
	}
	n := w.want(t, "early", "pod", "", ipamv1alpha1.ReasonNetworkNotReady)
	if !strings.Contains(message(n), "none with label ipam.liqo.io/network-type=pod-cidr, none with service-cidr, none with external-cidr, none with internal-cidr") {
		t.Errorf("message %q", message(n))
	}
	for _, n := range installation() {
		w.create(t, n)
	}
	for _, n := range installation() {
		w.want(t, liqo, n.Name, string(n.Spec.CIDR), ipamv1alpha1.ReasonAllocated)
	}
	// What the documents show for two clusters with the same pod CIDR.
	w.want(t, "early", "pod", "10.71.0.0/16", ipamv1alpha1.ReasonRemapped)
	w.want(t, "early", "external", "10.68.0.0/16", ipamv1alpha1.ReasonRemapped)
	out, err := w.Kubectl("get", "networks.ipam.liqo.io", "-n", "early", "pod", "--no-headers")
	if f := strings.Fields(out); err != nil || len(f) != 4 || f[0] != "pod" || f[1] != "10.243.0.0/16" || f[2] != "10.71.0.0/16" {
		t.Errorf("kubectl shows %q, %v", out, err)
	}
}

func (w *world) testGrants(t *testing.T) {
	w.Namespace(t, "grants", nil)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	w.Create(t, n)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.31.7.8"}, {Type: corev1.NodeHostName, Address: "n"}}
	if err := w.Client.Status().Update(context.Background(), n); err != nil {
		t.Fatal(err)
	}
	servers := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Namespace: "default"},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"172.30.1.1"}}},
	}
	w.Create(t, servers)
	for _, tt := range []struct {
		name, asked string
		labels      []string
		want        string
		reason      ipamv1alpha1.ConditionReason
		message     string
	}{
		{"free", "10.42.0.0/16", nil, "10.42.0.0/16", ipamv1alpha1.ReasonAllocated, "granted as asked for"},
		{"public", "8.8.0.0/16", nil, "10.43.0.0/16", ipamv1alpha1.ReasonRemapped, "10.43.0.0/16 stands for 8.8.0.0/16, which is in no pool"},
		{"reserved", "192.168.7.0/25", nil, "10.40.0.0/25", ipamv1alpha1.ReasonRemapped, "10.40.0.0/25 stands for 192.168.7.0/25"},
		{"a-node", "172.31.7.0/24", nil, "10.40.1.0/24", ipamv1alpha1.ReasonRemapped, "10.40.1.0/24 stands for 172.31.7.0/24"},
		{"a-node-exactly", "172.31.7.8/32", []string{notRemapped}, "", ipamv1alpha1.ReasonOverlap, "172.31.7.8/32 of Node n"},
		{"beside-a-node", "172.31.7.128/25", nil, "10.40.0.128/25", ipamv1alpha1.ReasonRemapped, "10.40.0.128/25 stands for 172.31.7.128/25"},
		{"an-api-server", "172.30.1.0/24", []string{notRemapped}, "", ipamv1alpha1.ReasonOverlap, "overlaps 172.30.1.1/32 of the API server"},
		{"shared", "10.42.0.0/24", []string{shared}, "10.42.0.0/24", ipamv1alpha1.ReasonAllocated, "granted as asked for"},
		{"ipv6", "fd00:10:243::/56", nil, "fd00:10:243::/56", ipamv1alpha1.ReasonAllocated, "granted as asked for"},
		{"ipv6-again", "fd00:10:243::/56", nil, "fd50:52ea::/56", ipamv1alpha1.ReasonRemapped, "which was in use in this cluster"},
		{"not-remapped", "10.42.0.0/16", []string{notRemapped}, "", ipamv1alpha1.ReasonOverlap, "overlaps 10.42.0.0/16 of Network grants/free"},
		{"too-large", "10.0.0.0/8", nil, "", ipamv1alpha1.ReasonExhausted, "give the controller a further pool (--ipam-pools), or delete Networks"},
		{"tunnel", "169.254.18.0/30", nil, "", ipamv1alpha1.ReasonInvalid, "which cannot be routed between clusters"},
	} {
		w.create(t, newNetwork("grants", tt.name, tt.asked, tt.labels...))
		n := w.want(t, "grants", tt.name, tt.want, tt.reason)
		if !strings.Contains(message(n), tt.message) {
			t.Errorf("%s: message %q", tt.name, message(n))
		}
	}
	controlplanetest.Eventually(t, "an event says that nothing is left", func(ctx context.Context) error {
		out, err := w.Kubectl("get", "events.events.k8s.io", "-n", "grants", "-o", "jsonpath={range .items[*]}{.regarding.name} {.reason}{'\\n'}{end}")
		if err != nil || !strings.Contains(out, "too-large Exhausted\n") {
			return fmt.Errorf("got %q, %w", out, err)
		}
		return nil
	})
}

func (w *world) testWaiting(t *testing.T) {
	w.Namespace(t, "waiting", nil)
	holder := w.create(t, newNetwork("waiting", "holder", "10.50.0.0/16"))
	w.want(t, "waiting", "holder", "10.50.0.0/16", ipamv1alpha1.ReasonAllocated)
	w.create(t, newNetwork("waiting", "next", "10.50.0.0/17", notRemapped))
	w.want(t, "waiting", "next", "", ipamv1alpha1.ReasonOverlap)

	// One that another implementation wants to be asked about before it goes.
	theirs := newNetwork("waiting", "theirs", "10.51.0.0/16")
	theirs.Finalizers = []string{ipamv1alpha1.FinalizerNetwork}
	w.create(t, theirs)
	w.want(t, "waiting", "theirs", "10.51.0.0/16", ipamv1alpha1.ReasonAllocated)
	w.Delete(t, theirs)
	w.Gone(t, theirs)
	w.create(t, newNetwork("waiting", "after", "10.51.0.0/16", notRemapped))
	w.want(t, "waiting", "after", "10.51.0.0/16", ipamv1alpha1.ReasonAllocated)

	w.Delete(t, holder)
	w.want(t, "waiting", "next", "10.50.0.0/17", ipamv1alpha1.ReasonAllocated)
	w.create(t, newNetwork("waiting", "holder", "10.50.128.0/17"))
	w.want(t, "waiting", "holder", "10.50.128.0/17", ipamv1alpha1.ReasonAllocated)
}

func (w *world) testEdits(t *testing.T) {
	w.Namespace(t, "edits", nil)
	w.create(t, newNetwork("edits", "a", "10.60.0.0/16"))
	n := w.want(t, "edits", "a", "10.60.0.0/16", ipamv1alpha1.ReasonAllocated)
	w.create(t, newNetwork("edits", "b", "10.60.0.0/16", notRemapped))
	b := w.want(t, "edits", "b", "", ipamv1alpha1.ReasonOverlap)
	t.Run("a condition that is taken away comes back", func(t *testing.T) {
		controlplanetest.EditStatus(t, w.Cluster, n, func(n *ipamv1alpha1.Network) { n.Status.Conditions = nil })
		w.want(t, "edits", "a", "10.60.0.0/16", ipamv1alpha1.ReasonAllocated)
	})
	t.Run("a label that is taken away lets another prefix stand", func(t *testing.T) {
		controlplanetest.Edit(t, w.Cluster, b, func(b *ipamv1alpha1.Network) { delete(b.Labels, ipamv1alpha1.LabelNetworkNotRemapped) })
		controlplanetest.Eventually(t, "it is remapped", func(ctx context.Context) error {
			if err := w.Get(ctx, "edits", "b", b); err != nil || b.Status.CIDR == "" {
				return fmt.Errorf("got %q, %w", b.Status.CIDR, err)
			}
			return nil
		})
	})
}

// testOverlappingStatus puts two Networks into the cluster that were granted the
// same, as a backup might.
func (w *world) testOverlappingStatus(t *testing.T) {
	w.Namespace(t, "overlap", nil)
	w.stop()
	for _, name := range []string{"a-older", "b-younger"} { // one second is one age
		n := w.create(t, newNetwork("overlap", name, "10.243.0.0/16"))
		n.Status.CIDR = "10.61.0.0/16"
		if err := w.Client.Status().Update(context.Background(), n); err != nil {
			t.Fatal(err)
		}
	}
	w.run()
	older := w.want(t, "overlap", "a-older", "10.61.0.0/16", ipamv1alpha1.ReasonRemapped)
	younger := w.want(t, "overlap", "b-younger", "10.61.0.0/16", ipamv1alpha1.ReasonOverlap)
	if !strings.Contains(message(younger), "overlaps 10.61.0.0/16 of Network overlap/a-older") {
		t.Errorf("message %q", message(younger))
	}
	w.Delete(t, older)
	w.want(t, "overlap", "b-younger", "10.61.0.0/16", ipamv1alpha1.ReasonRemapped)
}

// testMany has 200 clusters with few different prefixes come at once.
func (w *world) testMany(t *testing.T) {
	w.Namespace(t, "many", nil)
	asked := []string{"10.244.0.0/16", "10.42.0.0/16", "10.0.0.0/14", "10.128.0.0/20", "172.17.0.0/16", "192.168.0.0/20", "fd00:10:244::/56", "2001:cafe:42::/56"}
	order := rand.Perm(200)
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for _, i := range order[part*25 : (part+1)*25] {
				n := newNetwork("many", fmt.Sprintf("n%d", i), asked[i%len(asked)])
				if err := w.Client.Create(context.Background(), n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	w.wantAll(t, "many")
	w.checkOverlaps(t)
}

// wantAll waits until every Network of a namespace has a prefix.
func (w *world) wantAll(t *testing.T, namespace string) {
	t.Helper()
	controlplanetest.Eventually(t, "all have a prefix", func(ctx context.Context) error {
		var list ipamv1alpha1.NetworkList
		if err := w.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, n := range list.Items {
			if n.Status.CIDR == "" {
				return fmt.Errorf("%s has none: %+v", n.Name, n.Status.Conditions)
			}
		}
		return nil
	})
}

// checkOverlaps looks at every pair of Networks that are not shared.
func (w *world) checkOverlaps(t *testing.T) {
	var list ipamv1alpha1.NetworkList
	if err := w.Client.List(context.Background(), &list); err != nil {
		t.Fatal(err)
	}
	held := map[string]netip.Prefix{}
	for _, n := range list.Items {
		if n.Status.CIDR == "" || n.Labels[ipamv1alpha1.LabelNetworkShared] != "" {
			continue
		}
		p, err := n.Status.CIDR.Prefix()
		asked, err2 := n.Spec.CIDR.Prefix()
		if err != nil || err2 != nil || p.Bits() != asked.Bits() || p.Addr().Is4() != asked.Addr().Is4() {
			t.Errorf("%s/%s: %s for %s", n.Namespace, n.Name, p, asked)
		}
		for other, q := range held {
			if p.Overlaps(q) {
				t.Errorf("%s of %s/%s overlaps %s of %s", p, n.Namespace, n.Name, q, other)
			}
		}
		held[n.Namespace+"/"+n.Name] = p
	}
	if len(held) < 200 {
		t.Errorf("%d Networks have a prefix", len(held))
	}
}

// versions returns the version of every Network. A write changes it.
func (w *world) versions(t *testing.T) map[string]string {
	t.Helper()
	var list ipamv1alpha1.NetworkList
	if err := w.Client.List(context.Background(), &list); err != nil {
		t.Fatal(err)
	}
	v := map[string]string{}
	for _, n := range list.Items {
		v[n.Namespace+"/"+n.Name] = n.ResourceVersion
	}
	return v
}

// testChurn stops the controller in the middle of its work, over and over, while
// Networks come and go.
func (w *world) testChurn(t *testing.T) {
	w.Namespace(t, "churn", nil)
	for round := range 8 {
		before := controlplanetest.Total(t, "network", "controller_runtime_reconcile_total")
		var wg sync.WaitGroup
		for part := range 3 {
			wg.Go(func() {
				for i := range 20 {
					n := newNetwork("churn", fmt.Sprintf("n%d-%d-%d", round, part, i), "10.244.0.0/20")
					err := w.Client.Create(context.Background(), n)
					if err == nil && i%3 == 0 {
						err = w.Client.Delete(context.Background(), n)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		controlplanetest.Eventually(t, "it is at work", func(context.Context) error {
			if done := controlplanetest.Total(t, "network", "controller_runtime_reconcile_total") - before; done < 5*round {
				return fmt.Errorf("%d reconciles", done)
			}
			return nil
		})
		w.stop()
		w.run()
		wg.Wait()
	}
	w.wantAll(t, "churn")
	w.checkOverlaps(t)
}

// touch changes every Network in a way that means nothing, waits until all of
// them were looked at, and returns their versions as they were before that.
func (w *world) touch(t *testing.T) map[string]string {
	t.Helper()
	versions := w.versions(t)
	controlplanetest.Settled(t, "network", len(versions), func() {
		for key := range versions {
			namespace, name, _ := strings.Cut(key, "/")
			n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"looked-at":"%d"}}}`, rand.Int()))
			if err := w.Client.Patch(context.Background(), n, patch); err != nil {
				t.Fatal(err)
			}
			versions[key] = n.ResourceVersion
		}
	})
	return versions
}

// testRestart looks at all Networks again, and starts the controller anew:
// nothing is written, and it knows all that was granted before.
func (w *world) testRestart(t *testing.T) {
	w.stop()
	controlplanetest.Settled(t, "network", len(w.versions(t)), w.run)
	w.touch(t) // messages name those who came since
	before := w.touch(t)
	if diff := cmp.Diff(before, w.versions(t)); diff != "" {
		t.Errorf("written after another look (-want +got):\n%s", diff)
	}
	w.stop()
	controlplanetest.Settled(t, "network", len(before), w.run)
	if diff := cmp.Diff(before, w.versions(t)); diff != "" {
		t.Errorf("written after the start (-want +got):\n%s", diff)
	}
	w.Namespace(t, "restart", nil)
	w.create(t, newNetwork("restart", "next", "10.42.0.0/16"))
	controlplanetest.Eventually(t, "the next one is granted", func(ctx context.Context) error {
		var n ipamv1alpha1.Network
		if err := w.Get(ctx, "restart", "next", &n); err != nil || n.Status.CIDR == "" {
			return fmt.Errorf("got %q, %w", n.Status.CIDR, err)
		}
		return nil
	})
	w.checkOverlaps(t)
	var events corev1.EventList
	if err := w.Client.List(context.Background(), &events, client.InNamespace("many")); err != nil || len(events.Items) != 0 {
		t.Errorf("events of Networks that got what they need: %v, %v", events.Items, err)
	}
}
