package addresses_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/network/addresses"
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
		return addresses.SetupWithManager(mgr, addresses.Options{LiqoNamespace: liqo})
	})
}

func (w *world) edit(t testing.TB, namespace, name string, change func(*ipamv1alpha1.IP)) {
	t.Helper()
	controlplanetest.Edit(t, w.Cluster, &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, change)
}

// network makes a Network; granted may be empty.
func (w *world) network(t testing.TB, namespace, name, cidr string, preAllocated int32) *ipamv1alpha1.Network {
	t.Helper()
	n := &ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       ipamv1alpha1.NetworkSpec{CIDR: ipamv1alpha1.CIDR(cidr), PreAllocated: preAllocated},
	}
	if name == "external-cidr" {
		n.Labels = map[string]string{ipamv1alpha1.LabelNetworkType: ipamv1alpha1.NetworkTypeExternalCIDR}
	}
	w.Create(t, n)
	return n
}

// grant does the work of the controller of Networks.
func (w *world) grant(t testing.TB, n *ipamv1alpha1.Network, cidr string) {
	t.Helper()
	controlplanetest.EditStatus(t, w.Cluster, n, func(n *ipamv1alpha1.Network) { n.Status.CIDR = ipamv1alpha1.CIDR(cidr) })
}

func newIP(namespace, name, addr, network string) *ipamv1alpha1.IP {
	o := &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       ipamv1alpha1.IPSpec{IP: ipamv1alpha1.Address(addr)},
	}
	if network != "" {
		o.Spec.NetworkRef = &corev1.ObjectReference{Name: network}
	}
	return o
}

func condition(o *ipamv1alpha1.IP, kind ipamv1alpha1.ConditionType) metav1.Condition {
	if c := meta.FindStatusCondition(o.Status.Conditions, string(kind)); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// want waits until an IP has this address and this reason.
func (w *world) want(t testing.TB, namespace, name, addr string, reason ipamv1alpha1.ConditionReason) *ipamv1alpha1.IP {
	t.Helper()
	var o ipamv1alpha1.IP
	controlplanetest.Eventually(t, fmt.Sprintf("%s/%s: %s %s", namespace, name, reason, addr), func(ctx context.Context) error {
		if err := w.Get(ctx, namespace, name, &o); err != nil {
			return err
		}
		if c := condition(&o, ipamv1alpha1.ConditionAllocated); string(o.Status.IP) != addr || c.Reason != string(reason) || c.ObservedGeneration != o.Generation {
			return fmt.Errorf("got %q, %+v", o.Status.IP, c)
		}
		return nil
	})
	return &o
}

// wantService waits until the condition of the Service has this reason.
func (w *world) wantService(t testing.TB, namespace, name string, reason ipamv1alpha1.ConditionReason) *ipamv1alpha1.IP {
	t.Helper()
	var o ipamv1alpha1.IP
	controlplanetest.Eventually(t, fmt.Sprintf("Service of %s/%s: %q", namespace, name, reason), func(ctx context.Context) error {
		if err := w.Get(ctx, namespace, name, &o); err != nil {
			return err
		}
		if c := condition(&o, ipamv1alpha1.ConditionServiceReady); c.Reason != string(reason) {
			return fmt.Errorf("got %+v", c)
		}
		return nil
	})
	return &o
}

func TestControllers(t *testing.T) {
	w := &world{Cluster: controlplanetest.Start(t), tb: t}
	w.run()
	t.Run("addresses", w.testAddresses)
	t.Run("waiting", w.testWaiting)
	t.Run("service", w.testService)
	t.Run("service refused", w.testServiceRefused)
	t.Run("same address", w.testSameAddress)
	t.Run("restart", w.testRestart)
}

func (w *world) testAddresses(t *testing.T) {
	w.Namespace(t, "rome", nil)
	w.Create(t, newIP("rome", "early", "10.42.0.7", ""))
	o := w.want(t, "rome", "early", "", ipamv1alpha1.ReasonNetworkNotReady)
	if m := condition(o, ipamv1alpha1.ConditionAllocated).Message; !strings.Contains(m, "there is no external CIDR") {
		t.Errorf("message %q", m)
	}
	external := w.network(t, liqo, "external-cidr", "10.70.0.0/16", 1)
	controlplanetest.Eventually(t, "it names the Network that it waits for", func(ctx context.Context) error {
		if err := w.Get(ctx, "rome", "early", o); err != nil {
			return err
		}
		if m := condition(o, ipamv1alpha1.ConditionAllocated).Message; m != "Network liqo/external-cidr has no prefix yet: its condition says why" {
			return fmt.Errorf("message %q", m)
		}
		return nil
	})
	w.grant(t, external, "10.75.0.0/16") // remapped
	o = w.want(t, "rome", "early", "10.75.0.1", ipamv1alpha1.ReasonAllocated)
	if o.Status.CIDR != "10.75.0.0/16" {
		t.Errorf("status.cidr %s", o.Status.CIDR)
	}
	want := map[string]string{ipamv1alpha1.LabelNetworkNamespace: liqo, ipamv1alpha1.LabelNetworkName: "external-cidr"}
	if diff := cmp.Diff(want, o.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	out, err := w.Kubectl("get", "ips.ipam.liqo.io", "-n", "rome", "early", "--no-headers")
	if f := strings.Fields(out); err != nil || len(f) != 5 || f[1] != "10.42.0.7" || f[2] != "10.75.0.1" || f[3] != "10.75.0.0/16" {
		t.Errorf("kubectl shows %q, %v", out, err)
	}

	w.grant(t, w.network(t, "rome", "own", "10.9.0.0/29", 6), "10.9.0.0/29")
	w.Create(t, newIP("rome", "of-own", "10.42.0.8", "own"))
	w.want(t, "rome", "of-own", "10.9.0.6", ipamv1alpha1.ReasonAllocated)
	w.Create(t, newIP("rome", "other-family", "fd00::8", "own"))
	w.want(t, "rome", "other-family", "", ipamv1alpha1.ReasonInvalid)

	o.Status.IP = "10.75.0.9"
	if err := w.Client.Status().Update(context.Background(), o); err == nil {
		t.Error("status.ip was changed")
	}
}

func (w *world) testWaiting(t *testing.T) {
	w.Namespace(t, "waiting", nil)
	n := w.network(t, "waiting", "small", "10.8.0.0/31", 0)
	w.grant(t, n, "10.8.0.0/31")
	one := newIP("waiting", "one", "10.42.0.1", "small")
	two := newIP("waiting", "two", "10.42.0.2", "small")
	two.Finalizers = []string{ipamv1alpha1.FinalizerIP, ipamv1alpha1.FinalizerIPMapping} // left by another implementation
	w.Create(t, one)
	w.want(t, "waiting", "one", "10.8.0.0", ipamv1alpha1.ReasonAllocated)
	w.Create(t, two)
	w.want(t, "waiting", "two", "10.8.0.1", ipamv1alpha1.ReasonAllocated)
	w.Create(t, newIP("waiting", "three", "10.42.0.3", "small"))
	w.Create(t, newIP("waiting", "four", "10.42.0.4", "small"))
	w.want(t, "waiting", "four", "", ipamv1alpha1.ReasonExhausted)
	o := w.want(t, "waiting", "three", "", ipamv1alpha1.ReasonExhausted)
	if m := condition(o, ipamv1alpha1.ConditionAllocated).Message; !strings.Contains(m, "delete IPs that are not needed, or make a larger Network") {
		t.Errorf("message %q", m)
	}
	w.Delete(t, two)
	w.Gone(t, two)
	served := func(name, addr string) {
		controlplanetest.Eventually(t, "one that waits gets "+addr, func(ctx context.Context) error {
			var list ipamv1alpha1.IPList
			if err := w.Client.List(ctx, &list, client.InNamespace("waiting")); err != nil {
				return err
			}
			for _, o := range list.Items {
				if string(o.Status.IP) == addr && o.Name != name {
					return nil
				}
			}
			return fmt.Errorf("%s is of nobody", addr)
		})
	}
	served("two", "10.8.0.1")
	w.Delete(t, one)
	served("one", "10.8.0.0")

	t.Run("the Network is made again", func(t *testing.T) {
		w.Delete(t, n)
		w.want(t, "waiting", "three", string(w.now(t, "waiting", "three").Status.IP), ipamv1alpha1.ReasonNetworkNotReady)
		w.grant(t, w.network(t, "waiting", "small", "10.8.0.0/31", 0), "10.8.0.0/31")
		w.want(t, "waiting", "three", string(w.now(t, "waiting", "three").Status.IP), ipamv1alpha1.ReasonAllocated)
	})
}

// now returns an IP as it is.
func (w *world) now(t testing.TB, namespace, name string) *ipamv1alpha1.IP {
	t.Helper()
	var o ipamv1alpha1.IP
	w.Read(t, namespace, name, &o)
	return &o
}

func template() *ipamv1alpha1.ServiceTemplate {
	return &ipamv1alpha1.ServiceTemplate{
		Metadata: metav1.ObjectMeta{Labels: map[string]string{"team": "db"}},
		Spec:     corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}, {Name: "metrics", Port: 80, TargetPort: intstr.FromInt32(9090)}}},
	}
}

// testService follows the Service of an IP. That it goes with the IP is the work
// of the garbage collector of Kubernetes, which needs the owner reference.
func (w *world) testService(t *testing.T) {
	w.Namespace(t, "service", nil)
	o := newIP("service", "db", "192.168.1.5", "")
	o.Spec.ServiceTemplate = template()
	w.Create(t, o)
	w.wantService(t, "service", "db", ipamv1alpha1.ReasonServiceApplied)
	check := func(ctx context.Context) error {
		var s corev1.Service
		if err := w.Get(ctx, "service", "db", &s); err != nil {
			return err
		}
		var e discoveryv1.EndpointSlice
		if err := w.Get(ctx, "service", "db", &e); err != nil {
			return err
		}
		if s.Spec.Selector != nil || s.Labels["team"] != "db" || s.Labels["liqo.io/managed"] != "true" || !metav1.IsControlledBy(&s, o) {
			return fmt.Errorf("Service %+v", s)
		}
		if len(e.Endpoints) != 1 || e.Endpoints[0].Addresses[0] != "192.168.1.5" || len(e.Ports) != len(s.Spec.Ports) || !metav1.IsControlledBy(&e, o) {
			return fmt.Errorf("EndpointSlice %+v", e)
		}
		if e.Labels[discoveryv1.LabelServiceName] != "db" || *e.Ports[0].Port != 5432 {
			return fmt.Errorf("EndpointSlice %+v", e)
		}
		return nil
	}
	controlplanetest.Eventually(t, "both are there", check)
	t.Run("what is deleted or changed by hand comes back", func(t *testing.T) {
		w.Delete(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "service", Name: "db"}})
		w.Delete(t, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "service", Name: "db"}})
		controlplanetest.Eventually(t, "both are back", check)
		if _, err := w.Kubectl("-n", "service", "label", "service", "db", "team=other", "--overwrite"); err != nil {
			t.Fatal(err)
		}
		controlplanetest.Eventually(t, "the label is back", check)
	})
	t.Run("the template changes", func(t *testing.T) {
		w.edit(t, "service", "db", func(o *ipamv1alpha1.IP) {
			o.Spec.ServiceTemplate.Spec.Ports = o.Spec.ServiceTemplate.Spec.Ports[:1]
		})
		controlplanetest.Eventually(t, "one port is left", func(ctx context.Context) error {
			var e discoveryv1.EndpointSlice
			var s corev1.Service
			err, err2 := w.Get(ctx, "service", "db", &e), w.Get(ctx, "service", "db", &s)
			if err != nil || err2 != nil || len(e.Ports) != 1 || len(s.Spec.Ports) != 1 {
				return fmt.Errorf("got %v, %v, %v, %v", e.Ports, s.Spec.Ports, err, err2)
			}
			return nil
		})
	})
	t.Run("the template goes", func(t *testing.T) {
		w.edit(t, "service", "db", func(o *ipamv1alpha1.IP) { o.Spec.ServiceTemplate = nil })
		w.Gone(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "service", Name: "db"}})
		w.Gone(t, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "service", Name: "db"}})
		w.wantService(t, "service", "db", "")
	})
}

func (w *world) testServiceRefused(t *testing.T) {
	w.Namespace(t, "refused", nil)
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "refused", Name: "db"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
	w.Create(t, theirs)
	o := newIP("refused", "db", "192.168.1.5", "")
	o.Spec.ServiceTemplate = template()
	w.Create(t, o)
	got := w.wantService(t, "refused", "db", ipamv1alpha1.ReasonObjectRefused)
	if m := condition(got, ipamv1alpha1.ConditionServiceReady).Message; m != "the Service of spec.serviceTemplate cannot be made: it exists and is not of this controller's making: it is left as it is; delete it, or give one of the two another name" {
		t.Errorf("message %q", m)
	}
	if got.Status.IP == "" {
		t.Error("the address does not depend on the Service")
	}
	var s corev1.Service
	if err := w.Get(context.Background(), "refused", "db", &s); err != nil || s.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("somebody else's Service was written (%v)", err)
	}
	// One that was made before is taken away when its template asks for too much, and
	// none leads to a node or an API server. Peers reach these nevertheless, by the IP.
	made := newIP("refused", "made", "192.168.1.6", "")
	made.Spec.ServiceTemplate = template()
	w.Create(t, made)
	w.wantService(t, "refused", "made", ipamv1alpha1.ReasonServiceApplied)
	w.edit(t, "refused", "made", func(o *ipamv1alpha1.IP) { o.Spec.ServiceTemplate.Spec.ExternalIPs = []string{"10.96.0.10"} })
	w.wantService(t, "refused", "made", ipamv1alpha1.ReasonObjectRefused)
	w.Gone(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "refused", Name: "made"}})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	w.Create(t, n)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.1.7"}}
	if err := w.Client.Status().Update(context.Background(), n); err != nil {
		t.Fatal(err)
	}
	w.Create(t, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Namespace: "default"},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.168.1.8"}}},
	})
	for name, taken := range map[string]struct{ addr, who string }{"node": {"192.168.1.7", "Node n"}, "api-server": {"192.168.1.8", "the API server"}} {
		host := newIP("refused", name, taken.addr, "")
		host.Spec.ServiceTemplate = template()
		w.Create(t, host)
		looks := 0
		controlplanetest.Eventually(t, "no Service to "+taken.who, func(ctx context.Context) error {
			looks++ // until the controller has seen the node
			w.edit(t, "refused", name, func(o *ipamv1alpha1.IP) { o.Annotations = map[string]string{"looked-at": fmt.Sprint(looks)} })
			if err := w.Get(ctx, "refused", name, host); err != nil {
				return err
			}
			if m := condition(host, ipamv1alpha1.ConditionServiceReady).Message; !strings.Contains(m, taken.addr+" is an address of "+taken.who) {
				return fmt.Errorf("message %q", m)
			}
			return nil
		})
		if host.Status.IP == "" {
			t.Errorf("%s has no address for peers: %+v", taken.who, host.Status)
		}
	}
	o = newIP("refused", "nameless", "192.168.1.5", "")
	o.Spec.ServiceTemplate = &ipamv1alpha1.ServiceTemplate{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}, {Port: 2}}}}
	w.Create(t, o)
	got = w.wantService(t, "refused", "nameless", ipamv1alpha1.ReasonObjectRefused)
	if m := condition(got, ipamv1alpha1.ConditionServiceReady).Message; !strings.Contains(m, "the Service of spec.serviceTemplate cannot be made: ") || !strings.Contains(m, "spec.ports[0].name") {
		t.Errorf("message %q", m)
	}
}

// testSameAddress puts two IPs into the cluster that were given the same, as a
// backup might.
func (w *world) testSameAddress(t *testing.T) {
	w.Namespace(t, "same", nil)
	w.grant(t, w.network(t, "same", "net", "10.6.0.0/24", 0), "10.6.0.0/24")
	w.stop()
	for _, name := range []string{"a-older", "b-younger"} { // one second is one age
		o := newIP("same", name, "10.42.0.1", "net")
		w.Create(t, o)
		o.Status.IP, o.Status.CIDR = "10.6.0.7", "10.6.0.0/24"
		if err := w.Client.Status().Update(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	}
	w.Create(t, newIP("same", "c-new", "10.42.0.2", "net"))
	w.run()
	older := w.want(t, "same", "a-older", "10.6.0.7", ipamv1alpha1.ReasonAllocated)
	w.want(t, "same", "b-younger", "10.6.0.7", ipamv1alpha1.ReasonOverlap)
	w.want(t, "same", "c-new", "10.6.0.8", ipamv1alpha1.ReasonAllocated)
	w.Delete(t, older)
	w.want(t, "same", "b-younger", "10.6.0.7", ipamv1alpha1.ReasonAllocated)
}

// versions returns the version of every IP, Service and EndpointSlice. A write
// changes it.
func (w *world) versions(t *testing.T) map[string]string {
	t.Helper()
	v := map[string]string{}
	for _, list := range []client.ObjectList{&ipamv1alpha1.IPList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}} {
		if err := w.Client.List(context.Background(), list); err != nil {
			t.Fatal(err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			m, err := meta.Accessor(o)
			if err != nil {
				t.Fatal(err)
			}
			v[fmt.Sprintf("%T %s/%s", o, m.GetNamespace(), m.GetName())] = m.GetResourceVersion()
		}
	}
	return v
}

// testRestart starts the controller anew, with all IPs settled: nothing is
// written, and it knows all that was given before.
func (w *world) testRestart(t *testing.T) {
	w.Namespace(t, "restart", nil)
	o := newIP("restart", "with-service", "192.168.1.5", "")
	o.Spec.ServiceTemplate = template()
	w.Create(t, o)
	w.wantService(t, "restart", "with-service", ipamv1alpha1.ReasonServiceApplied)
	w.stop()
	before := w.versions(t)
	var ips ipamv1alpha1.IPList
	if err := w.Client.List(context.Background(), &ips); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Settled(t, "ip", len(ips.Items), w.run)
	if diff := cmp.Diff(before, w.versions(t)); diff != "" {
		t.Errorf("written after the start (-want +got):\n%s", diff)
	}
	// Every object again, by a change that means nothing.
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"looked-at":"again"}}}`))
	controlplanetest.Settled(t, "ip", len(ips.Items), func() {
		for _, o := range ips.Items {
			if err := w.Client.Patch(context.Background(), &o, patch); err != nil {
				t.Fatal(err)
			}
			before[fmt.Sprintf("%T %s/%s", &o, o.Namespace, o.Name)] = o.ResourceVersion
		}
	})
	if diff := cmp.Diff(before, w.versions(t)); diff != "" {
		t.Errorf("written after another look (-want +got):\n%s", diff)
	}
	w.Create(t, newIP("restart", "next", "10.42.0.9", ""))
	controlplanetest.Eventually(t, "the next one has an address", func(ctx context.Context) error {
		var got ipamv1alpha1.IP
		if err := w.Get(ctx, "restart", "next", &got); err != nil || got.Status.IP == "" {
			return fmt.Errorf("none (%v)", err)
		}
		return nil
	})
	w.checkUnique(t)
}

// checkUnique looks for addresses that two IPs have.
func (w *world) checkUnique(t *testing.T) {
	var list ipamv1alpha1.IPList
	if err := w.Client.List(context.Background(), &list); err != nil {
		t.Fatal(err)
	}
	held := map[ipamv1alpha1.Address]string{}
	for _, o := range list.Items {
		if other, ok := held[o.Status.IP]; ok && o.Status.IP != "" {
			t.Errorf("%s/%s and %s both have %s", o.Namespace, o.Name, other, o.Status.IP)
		}
		held[o.Status.IP] = o.Namespace + "/" + o.Name
	}
}
