package scale

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// fewNodes is how many nodes the cluster of many peerings has.
const fewNodes = 3

// internalNetworkOnly leaves out the other controllers.
const internalNetworkOnly = onlyEnv + "=true"

// TestPeerings measures many peerings of a cluster with few nodes, of which the
// controllers of the internal network see gateways that run.
func TestPeerings(t *testing.T) {
	if !*measure {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -scale runs it")
	}
	w := newWorld(t)
	w.network()
	w.nodes(fewNodes)
	w.many("peerings", *peerings, func(i int) error { return w.observed(w.peering(i)) })
	w.measurePeerings("the controllers of the internal network", internalNetworkOnly)
}

// TestWholeController measures the same with all controllers, from what a user
// writes to gateways that are known to the nodes. The test is scheduler and
// kubelet of the gateways' pods.
func TestWholeController(t *testing.T) {
	if !*measure {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -scale runs it")
	}
	w := newWorld(t)
	w.nodes(fewNodes)
	w.many("peerings", *peerings, func(i int) error {
		_, _, err := w.peering(i)
		return err
	})
	w.runGatewayPods()
	w.measurePeerings("all controllers")
}

func (w *world) measurePeerings(what string, env ...string) {
	t := w.t
	start := time.Now()
	c := startControllers(t, w.Cluster, env...)
	until(t, "all tunnels are there", func() error { return w.count(new(networkingv1beta1.GeneveTunnelList), fewNodes**peerings) })
	until(t, "all gateways are ready", w.gatewaysReady)
	converged := time.Since(start)
	f := c.rest(t, func(figures) bool { return true }, cmp.Or(*profile, collect))
	c.stop()

	start = time.Now()
	c = startControllers(t, w.Cluster, env...)
	again := c.rest(t, func(f figures) bool { return f.Reconciled["genevetunnel"] >= fewNodes**peerings }, quick)
	restarted := time.Since(start) - restFor

	out := newReport("controller-scale", controlPlane, fmt.Sprintf("%d peerings, %d nodes, %s", *peerings, fewNodes, what))
	out.row("start of the controllers to all gateways ready", "%.1f s", converged.Seconds())
	out.row("  CPU time of the controllers", "%.1f s", f.CPU.Seconds())
	out.row("  writes for each peering", "%.2f", float64(f.writes())/float64(*peerings))
	out.requests("", f.Writes)
	out.row("  looks for each peering", "")
	for _, name := range slices.Sorted(maps.Keys(f.Reconciled)) {
		out.row("    "+name, "%.1f", float64(f.Reconciled[name])/float64(*peerings))
	}
	out.row("  heap after a collection", "%.0f MiB", f.HeapMiB)
	out.row("  resident, and its peak", "%.0f, %.0f MiB", f.RSSMiB, f.PeakMiB)
	out.row("second start until all is looked at", "%.1f s", restarted.Seconds())
	out.row("  CPU time of the controllers", "%.1f s", again.CPU.Seconds())
	out.row("  writes", "%d", again.writes())
	out.requests("", again.Writes)
	out.done(t)
}

// peering makes what a user writes of one.
func (w *world) peering(i int) (*networkingv1beta1.Configuration, *networkingv1beta1.GatewayServer, error) {
	peer := fmt.Sprintf("cluster-%04d", i)
	ns := "liqo-tenant-" + peer
	if err := w.CreateNamespace(ns, nil); err != nil {
		return nil, nil, err
	}
	labels := map[string]string{networkingv1beta1.LabelRemoteClusterID: peer}
	c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: peer, Labels: labels}}
	cidr := func(first int) networkingv1beta1.CIDRs {
		return networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(fmt.Sprintf("10.%d.%d.0/24", first+i/256, i%256))}}
	}
	c.Spec.Remote.CIDR = networkingv1beta1.ClusterCIDR{Pod: cidr(16), External: cidr(32)}
	if err := w.Client.Create(w.ctx, c); err != nil {
		return nil, nil, err
	}
	g := &networkingv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gateway", Labels: labels}}
	g.Spec.MTU = 1340
	g.Spec.Endpoint.Port = 51840
	g.Spec.ServerTemplateRef = corev1.ObjectReference{APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGatewayServerTemplate", Name: "wireguard-server", Namespace: "liqo"}
	return c, g, w.Client.Create(w.ctx, g)
}

// observed writes what the controllers before those of the internal network
// would.
func (w *world) observed(c *networkingv1beta1.Configuration, g *networkingv1beta1.GatewayServer, err error) error {
	if err != nil {
		return err
	}
	err = w.writeStatus(c, networkingv1beta1.ConfigurationStatus{
		Remote: &networkingv1beta1.ClusterConfig{CIDR: c.Spec.Remote.CIDR},
		Conditions: []metav1.Condition{{
			Type: string(networkingv1beta1.ConditionNetworkCIDRsConfigured), Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now(),
			Reason: string(networkingv1beta1.ReasonNetworkCIDRsConfigured), ObservedGeneration: c.Generation,
		}},
	})
	if err != nil {
		return err
	}
	return w.writeStatus(g, map[string]any{"internalEndpoint": map[string]any{"ip": "172.16.255.1", "node": nodeName(0)}})
}

// runGatewayPods places the pods of gateways on nodes and has them run.
func (w *world) runGatewayPods() {
	pods, err := w.core.CoreV1().Pods("").Watch(w.ctx, metav1.ListOptions{
		LabelSelector: networkingv1beta1.LabelComponent + "=" + networkingv1beta1.ComponentGateway, FieldSelector: "spec.nodeName=",
	})
	w.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		n := 0
		for e := range pods.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok || e.Type != "ADDED" {
				continue
			}
			n++
			if err := w.runPod(p, nodeName(n%fewNodes), fmt.Sprintf("172.16.%d.%d", n/250, 1+n%250)); err != nil && w.ctx.Err() == nil {
				w.t.Errorf("run %s/%s: %v", p.Namespace, p.Name, err)
			}
		}
	}()
	w.t.Cleanup(func() { <-done })
}

func (w *world) runPod(p *corev1.Pod, node, ip string) error {
	pods := w.core.CoreV1().Pods(p.Namespace)
	err := pods.Bind(w.ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return w.writeStatus(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}, corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	})
}

func (w *world) count(l client.ObjectList, want int) error {
	if err := w.Client.List(w.ctx, l); err != nil {
		return err
	}
	if n := meta.LenList(l); n != want {
		return fmt.Errorf("%d of %d", n, want)
	}
	return nil
}

func (w *world) gatewaysReady() error {
	var l networkingv1beta1.GatewayServerList
	if err := w.Client.List(w.ctx, &l); err != nil {
		return err
	}
	n := 0
	for _, g := range l.Items {
		if meta.IsStatusConditionTrue(g.Status.Conditions, string(networkingv1beta1.ConditionInternalNetworkReady)) {
			n++
		}
	}
	if n != len(l.Items) {
		return fmt.Errorf("%d of %d", n, len(l.Items))
	}
	return nil
}
