package internalnetwork

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/gateway/control"
)

func pod(name string, ips ...string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		p.Status.PodIP = ips[0]
	}
	return p
}

func podWith(p corev1.Pod, change func(*corev1.Pod)) corev1.Pod {
	change(&p)
	return p
}

func TestPlanRoutes(t *testing.T) {
	n := internalNode("n1", 1, "10.80.0.2")
	n.UID, n.Spec.Interface.Gateway.Name = "7", "liqo.n1"
	self := networkingv1beta1.RoutingRule{Dst: "10.80.0.2/32", Routes: []networkingv1beta1.Route{{Dst: "10.80.0.2/32", Dev: "liqo.n1", Scope: "link"}}}
	via := func(dst networkingv1beta1.CIDR, pod string) networkingv1beta1.Route {
		return networkingv1beta1.Route{Dst: dst, Gw: "10.80.0.2", TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: pod}}
	}
	by := func(dst networkingv1beta1.CIDR, pod string) networkingv1beta1.Route {
		return networkingv1beta1.Route{Dst: dst, Dev: "liqo.n1", TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: pod}}
	}
	for _, tt := range []struct {
		name string
		pods []corev1.Pod
		want []networkingv1beta1.Route
	}{
		{"no pods", nil, nil},
		{"in the order of addresses", []corev1.Pod{pod("a", "10.243.1.10"), pod("b", "10.243.1.9")},
			[]networkingv1beta1.Route{via("10.243.1.9/32", "b"), via("10.243.1.10/32", "a")}},
		{"both families", []corev1.Pod{pod("a", "fd00::5", "10.243.1.5")},
			[]networkingv1beta1.Route{via("10.243.1.5/32", "a"), by("fd00::5/128", "a")}},
		{"only the older field", []corev1.Pod{podWith(pod("a", "10.243.1.5"), func(p *corev1.Pod) { p.Status.PodIPs = nil })},
			[]networkingv1beta1.Route{via("10.243.1.5/32", "a")}},
		{"two pods with one address", []corev1.Pod{pod("b", "10.243.1.5"), pod("a", "10.243.1.5")},
			[]networkingv1beta1.Route{via("10.243.1.5/32", "a")}},
		{"not these", []corev1.Pod{
			pod("starting"), pod("broken", "10.243"),
			podWith(pod("host", "172.18.0.2"), func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
			podWith(pod("done", "10.243.1.5"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
			podWith(pod("failed", "10.243.1.6"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			podWith(pod("unscheduled", "10.243.1.7"), func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		}, nil},
		{"those that end or start", []corev1.Pod{
			podWith(pod("ending", "10.243.1.5"), func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }),
			podWith(pod("starting", "10.243.1.6"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
		}, []networkingv1beta1.Route{via("10.243.1.5/32", "ending"), via("10.243.1.6/32", "starting")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := &networkingv1beta1.RouteConfiguration{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "liqo", Name: "n1-gw-node", OwnerReferences: []metav1.OwnerReference{ownerReference("InternalNode", "n1", "7")},
					Labels: map[string]string{"liqo.io/managed": "true", "networking.liqo.io/route-category": "gateway", "networking.liqo.io/route-subcategory": "fabric"},
				},
				Spec: networkingv1beta1.RouteConfigurationSpec{Table: networkingv1beta1.RouteTable{Name: "n1", Rules: []networkingv1beta1.RoutingRule{self}}},
			}
			if tt.want != nil {
				want.Spec.Table.Rules = append(want.Spec.Table.Rules, networkingv1beta1.RoutingRule{IIF: "liqo-tunnel", Routes: tt.want})
			}
			for range 5 {
				if diff := cmp.Diff(want, planRoutes(routesFacts{LiqoNamespace: "liqo", InternalNode: &n, Pods: tt.pods})); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
				rand.Shuffle(len(tt.pods), func(i, j int) { tt.pods[i], tt.pods[j] = tt.pods[j], tt.pods[i] })
			}
		})
	}
	going := n.DeepCopy()
	going.DeletionTimestamp = new(metav1.Now())
	wrong := internalNode("n1", 1, "")
	for _, n := range []*networkingv1beta1.InternalNode{nil, going, &wrong} {
		if got := planRoutes(routesFacts{InternalNode: n}); got != nil {
			t.Errorf("%+v: got %+v", n, got)
		}
	}
}

func TestRouteChanged(t *testing.T) {
	a := pod("a", "10.243.1.5")
	for _, tt := range []struct {
		name string
		x, y corev1.Pod
		want bool
	}{
		{"nothing", a, a, false},
		{"another status", a, podWith(a, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending; p.ResourceVersion = "9" }), false},
		{"an address", pod("a"), a, true},
		{"another address", a, pod("a", "10.243.1.6"), true},
		{"one more address", a, pod("a", "10.243.1.5", "fd00::5"), true},
		{"another node", a, podWith(a, func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), true},
		{"the end", a, podWith(a, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), true},
		{"no route before and after", pod("a"), podWith(pod("a"), func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), false},
	} {
		if got := routeChanged(&tt.x, &tt.y); got != tt.want {
			t.Errorf("%s: got %t", tt.name, got)
		}
	}
}

// TestGatewayReadsPlans gives a gateway what the plans make, and looks at what
// its data plane is told.
func TestGatewayReadsPlans(t *testing.T) {
	node := planNode(nodeFacts{Name: "n1", Node: new(corev1.Node), Address: granted("10.80.0.2")}).Apply
	node.UID = "7"
	node.Status.NodeIP.Remote = "172.18.0.2"
	conf := configured("10.61.0.0/16")
	fabric := planFabric(fabricFacts{
		Key:            client.ObjectKey{Namespace: "tenant", Name: "milan"},
		Gateways:       []gateway{{Kind: kindGatewayServer, Namespace: "tenant", Name: "server", UID: "1", PodIP: "10.243.9.9"}},
		Configurations: []networkingv1beta1.Configuration{conf}, Address: granted("10.80.0.1"),
	}).Apply
	geneve := planTunnel(tunnelFacts{Pair: pair{"tenant", "milan", "n1"}, Fabric: fabric, InternalNode: node}).Apply
	geneve.Spec.ID = 7
	routes := planRoutes(routesFacts{LiqoNamespace: "liqo", InternalNode: node, Pods: []corev1.Pod{pod("a", "10.243.1.5", "fd00:244::5")}})

	dir := t.TempDir()
	for _, f := range []string{"gateway.yaml", "network.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../../gateway/control/testdata/server", f))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for kind, o := range map[string]client.Object{"InternalNode": node, "InternalFabric": fabric, "GeneveTunnel": geneve, "RouteConfiguration": routes} {
		o.GetObjectKind().SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind(kind))
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, kind+".yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := control.New(control.Options{Dir: dir}).Load()
	if err != nil {
		t.Fatal(err)
	}
	var (
		addr   = netip.MustParseAddr
		prefix = netip.MustParsePrefix
		values = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
	)
	c := got.DataPlane
	if diff := cmp.Diff([]dataplane.Node{{Name: "n1", VNI: 7, Underlay: []netip.Addr{addr("172.18.0.2")}, Internal: []netip.Addr{addr("10.80.0.2")}}}, c.Nodes, values); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]dataplane.Route{{Dst: prefix("10.243.1.5/32"), Node: "n1"}, {Dst: prefix("fd00:244::5/128"), Node: "n1"}}, c.Routes, values); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]netip.Addr{addr("10.80.0.1")}, c.Internal, values); diff != "" {
		t.Errorf("gateway (-want +got):\n%s", diff)
	}
}
