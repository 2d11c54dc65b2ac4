package internalnetwork_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

func testDuplicates(t *testing.T, w *world) {
	// Ages have a resolution of one second. Between equal ones kind and name
	// decide, and these stand in that order too.
	const a, b = "liqo-tenant-a", "liqo-tenant-b"
	w.namespace(t, a)
	first := gatewayClient(a, "first", "milan")
	conf := configuration(a, "milan")
	w.Create(t, first, conf)
	w.pod(t, first, "10.243.1.1")
	w.configured(t, conf, "10.61.0.0/16", "10.71.0.0/16")
	ready(t, w, first, networkingv1beta1.ReasonInternalFabricReady)
	second := gatewayServer(a, "second", "milan")
	w.Create(t, second)
	w.pod(t, second, "10.243.1.2")
	ready(t, w, second, networkingv1beta1.ReasonDuplicateGateway)
	third, _ := w.peering(t, b, "milan", "10.243.1.3")
	ready(t, w, third, networkingv1beta1.ReasonDuplicateGateway)
	w.event(t, "second", "DuplicateGateway")
	serves := func(ns string, ip networkingv1beta1.Address, owner client.Object) {
		t.Helper()
		eventually(t, w, "the fabric is that of "+owner.GetName(), fabric(ns, "milan"), func(f *networkingv1beta1.InternalFabric) error {
			if f.Spec.GatewayIP != ip || len(f.OwnerReferences) != 1 || f.OwnerReferences[0].UID != owner.GetUID() {
				return fmt.Errorf("gateway %s, owners %+v", f.Spec.GatewayIP, f.OwnerReferences)
			}
			return nil
		})
	}
	serves(a, "10.243.1.1", first)
	w.delete(t, first)
	ready(t, w, second, networkingv1beta1.ReasonInternalFabricReady)
	serves(a, "10.243.1.2", second)
	w.delete(t, second)
	ready(t, w, third, networkingv1beta1.ReasonInternalFabricReady)
	serves(b, "10.243.1.3", third)
	w.Gone(t, fabric(a, "milan"))
}

func testNames(t *testing.T, w *world) {
	// milan-a and b meet milan and a-b: both are milan-a-b.
	w.node(t, "b")
	w.node(t, "a-b")
	w.peering(t, "liqo-tenant-x", "milan", "10.243.1.5")
	g, c := gatewayServer("liqo-tenant-x", "other", "milan-a"), configuration("liqo-tenant-x", "milan-a")
	w.Create(t, g, c)
	w.pod(t, g, "10.243.1.6")
	w.configured(t, c, "10.62.0.0/16", "10.72.0.0/16")
	controlplanetest.Eventually(t, "four tunnels between two gateways and two nodes", func(ctx context.Context) error {
		var l networkingv1beta1.GeneveTunnelList
		if err := w.Client.List(ctx, &l, client.InNamespace("liqo-tenant-x")); err != nil {
			return err
		}
		pairs, ids := map[string]bool{}, map[int32]bool{}
		for _, g := range l.Items {
			if node := g.Spec.InternalNodeRef.Name; node == "b" || node == "a-b" {
				pairs[g.Spec.InternalFabricRef.Name+" "+node], ids[g.Spec.ID] = true, true
			}
		}
		if len(pairs) != 4 || len(ids) != 4 {
			return fmt.Errorf("%v with %v", pairs, ids)
		}
		return nil
	})
}

func testRestart(t *testing.T, w *world) {
	w.node(t, "n1")
	w.node(t, "n2")
	w.namespace(t, "pods")
	w.kubePod(t, "pods", "dual", "n1", false, "10.243.1.20", "fd00:243::20")
	w.kubePod(t, "pods", "one", "n1", false, "10.243.1.3")
	g, _ := w.peering(t, "liqo-tenant-r", "milan", "10.243.1.5")
	w.node(t, "n3") // after the fabric
	ready(t, w, g, networkingv1beta1.ReasonInternalFabricReady)
	for _, n := range []string{"n1", "n2", "n3"} {
		eventually(t, w, "routes", routes(n), exists)
		eventually(t, w, "tunnel", tunnel("liqo-tenant-r", "milan-"+n), exists)
	}
	n1 := eventually(t, w, "n1", inode("n1"), exists).Spec.Interface
	gw := string(n1.Node.IP)
	w.destinations(t, "n1", "10.243.1.3/32 "+gw+" one", "10.243.1.20/32 "+gw+" dual", "fd00:243::20/128 "+n1.Gateway.Name+" dual")
	w.stop()
	before := w.versions(t)
	count := reconciled(t)
	w.run()
	last, since := count, time.Now()
	controlplanetest.Eventually(t, "all is looked at", func(context.Context) error {
		now := reconciled(t)
		if !maps.Equal(now, last) {
			last, since = now, time.Now()
		}
		for name, least := range map[string]float64{"node": 3, "internalfabric": 1, "genevetunnel": 3, "internalnode_route": 3} {
			if now[name] < count[name]+least {
				return fmt.Errorf("%s ran %v times", name, now[name]-count[name])
			}
		}
		if time.Since(since) < 2*time.Second { // longer than anything is put off
			return errors.New("they may not be done")
		}
		return nil
	})
	if n := w.writes.Load(); n != 0 {
		t.Errorf("a restart wrote %d times", n)
	}
	if diff := cmp.Diff(before, w.versions(t)); diff != "" {
		t.Errorf("a restart changed (-before +after):\n%s", diff)
	}
}

func testBackup(t *testing.T, w *world) {
	// What belongs to n2 is the youngest.
	w.node(t, "n1")
	w.peering(t, "liqo-tenant-b", "milan", "10.243.1.5")
	i1 := eventually(t, w, "n1", inode("n1"), exists)
	g1 := eventually(t, w, "tunnel", tunnel("liqo-tenant-b", "milan-n1"), exists)
	w.node(t, "n2")
	i2 := eventually(t, w, "n2", inode("n2"), exists)
	g2 := eventually(t, w, "tunnel", tunnel("liqo-tenant-b", "milan-n2"), exists)
	f := eventually(t, w, "fabric", fabric("liqo-tenant-b", "milan"), exists)
	w.stop()
	// n2 and the gateway have the address of n1, and both tunnels have one number.
	ip := string(i1.Spec.Interface.Node.IP)
	w.patch(t, inode("n2"), `{"spec":{"interface":{"node":{"ip":"`+ip+`"}}}}`)
	w.patch(t, fabric("liqo-tenant-b", "milan"), `{"spec":{"interface":{"gateway":{"ip":"`+ip+`"}}}}`)
	w.patch(t, tunnel("liqo-tenant-b", "milan-n2"), fmt.Sprintf(`{"spec":{"id":%d}}`, g1.Spec.ID))
	w.run()
	controlplanetest.Eventually(t, "all are different again", func(ctx context.Context) error {
		for _, o := range []client.Object{i1, i2, g1, g2, f} {
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
		}
		x, y, z := i1.Spec.Interface.Node.IP, i2.Spec.Interface.Node.IP, f.Spec.Interface.Gateway.IP
		if x == y || y == z || x == z || g1.Spec.ID == g2.Spec.ID {
			return fmt.Errorf("addresses %s %s %s, VNIs %d and %d", x, y, z, g1.Spec.ID, g2.Spec.ID)
		}
		return nil
	})
	// Ages have a resolution of one second; kind and name decide between equal ones.
	kept, lost := string(i1.Spec.Interface.Node.IP), f.Name
	if !i1.CreationTimestamp.Before(&f.CreationTimestamp) {
		kept, lost = string(f.Spec.Interface.Gateway.IP), i1.Name
	}
	if kept != ip {
		t.Errorf("the oldest has %s and had %s", kept, ip)
	}
	w.event(t, lost, "AddressReplaced")
	w.event(t, "n2", "AddressReplaced")
	w.event(t, "milan-n2", "VNIReplaced")
	eventually(t, w, "the routes follow", routes("n2"), func(r *networkingv1beta1.RouteConfiguration) error {
		if want := string(i2.Spec.Interface.Node.IP) + "/32"; string(r.Spec.Table.Rules[0].Dst) != want {
			return fmt.Errorf("rules %+v", r.Spec.Table.Rules)
		}
		return nil
	})
}

func testNamespace(t *testing.T, w *world) {
	w.node(t, "n1")
	g, _ := w.peering(t, "liqo-tenant-n", "milan", "10.243.1.5")
	ready(t, w, g, networkingv1beta1.ReasonInternalFabricReady)
	// Its parts go in any order, and what another implementation left on them too.
	w.patch(t, fabric("liqo-tenant-n", "milan"), `{"metadata":{"finalizers":["`+networkingv1beta1.FinalizerInternalFabricGeneve+`"]}}`)
	meta := func(finalizer string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "liqo-tenant-n", Name: "of-liqo", Finalizers: []string{finalizer}}
	}
	route := &networkingv1beta1.RouteConfiguration{ObjectMeta: meta(networkingv1beta1.FinalizerRouteConfiguration)}
	route.Spec.Table = networkingv1beta1.RouteTable{Name: "milan", Rules: []networkingv1beta1.RoutingRule{{
		Dst: "10.9.0.0/16", Routes: []networkingv1beta1.Route{{Dst: "10.9.0.0/16", Dev: "liqo.x"}}}}}
	firewall := &networkingv1beta1.FirewallConfiguration{ObjectMeta: meta(networkingv1beta1.FinalizerFirewallConfiguration)}
	firewall.Spec.Table = networkingv1beta1.FirewallTable{Name: "milan", Family: "IPV4"}
	w.Create(t, route)
	w.Create(t, firewall)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-n"}}
	w.delete(t, ns)
	w.Gone(t, ns)
}

func testCIDR(t *testing.T, w *world) {
	replace := func(cidr ipamv1alpha1.CIDR) {
		n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "internal-cidr"}}
		w.delete(t, n)
		w.Gone(t, n)
		if cidr != "" {
			w.internalCIDR(t, cidr)
		}
	}
	replace("")
	w.node(t, "c1")
	w.event(t, "c1", "WaitingForInternalCIDR")
	replace("10.90.0.0/30") // two addresses
	c1 := eventually(t, w, "an address", inode("c1"), exists)
	w.node(t, "c2")
	c2 := eventually(t, w, "an address", inode("c2"), exists)
	w.node(t, "c3")
	w.event(t, "c3", "InternalCIDRExhausted")
	g, _ := w.peering(t, "liqo-tenant-c", "milan", "10.243.1.5")
	ready(t, w, g, networkingv1beta1.ReasonInternalCIDRExhausted)
	w.event(t, "gw", "InternalCIDRExhausted")

	replace("10.90.0.0/16")
	ready(t, w, g, networkingv1beta1.ReasonInternalFabricReady)
	eventually(t, w, "an address", inode("c3"), exists)
	for _, old := range []*networkingv1beta1.InternalNode{c1, c2} {
		now := eventually(t, w, "the node", inode(old.Name), exists)
		if diff := cmp.Diff(old.Spec, now.Spec); diff != "" {
			t.Errorf("%s: (-in the small CIDR +in the large one):\n%s", old.Name, diff)
		}
	}
	replace("10.91.0.0/16")
	inside := func(a networkingv1beta1.Address) error {
		if !strings.HasPrefix(string(a), "10.91.0.") {
			return fmt.Errorf("has %s", a)
		}
		return nil
	}
	for _, name := range []string{"c1", "c2", "c3"} {
		eventually(t, w, "another address", inode(name), func(n *networkingv1beta1.InternalNode) error { return inside(n.Spec.Interface.Node.IP) })
	}
	eventually(t, w, "another address", fabric("liqo-tenant-c", "milan"), func(f *networkingv1beta1.InternalFabric) error {
		return inside(f.Spec.Interface.Gateway.IP)
	})
}
