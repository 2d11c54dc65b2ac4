package internalnetwork_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// kubePod makes a pod that runs on a node with some addresses.
func (w *world) kubePod(t *testing.T, ns, name, node string, hostNetwork bool, ips ...string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	p.Spec = corev1.PodSpec{NodeName: node, HostNetwork: hostNetwork, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	w.Create(t, p)
	w.podStatus(t, p, corev1.PodRunning, ips...)
	return p
}

func (w *world) podStatus(t *testing.T, p *corev1.Pod, phase corev1.PodPhase, ips ...string) {
	t.Helper()
	list := []map[string]any{}
	for _, ip := range ips {
		list = append(list, map[string]any{"ip": ip})
	}
	var first any
	if len(ips) > 0 {
		first = ips[0]
	}
	w.status(t, p, map[string]any{"phase": phase, "podIP": first, "podIPs": list})
}

// destinations waits until the routes of a node are exactly these: destination,
// next hop or link, pod.
func (w *world) destinations(t *testing.T, node string, want ...string) {
	t.Helper()
	eventually(t, w, "the routes of "+node, routes(node), func(r *networkingv1beta1.RouteConfiguration) error {
		var got []string
		for _, rule := range r.Spec.Table.Rules[1:] {
			for _, rt := range rule.Routes {
				got = append(got, fmt.Sprintf("%s %s%s %s", rt.Dst, rt.Gw, rt.Dev, rt.TargetRef.Name))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

func testRoutes(t *testing.T, w *world) {
	w.node(t, "n1")
	w.node(t, "n2")
	w.namespace(t, "pods")
	i1, i2 := eventually(t, w, "n1", inode("n1"), exists), eventually(t, w, "n2", inode("n2"), exists)
	gw1, link1, gw2 := string(i1.Spec.Interface.Node.IP), i1.Spec.Interface.Gateway.Name, string(i2.Spec.Interface.Node.IP)
	r := eventually(t, w, "routes to a node without pods", routes("n1"), exists)
	want := networkingv1beta1.RouteTable{Name: "n1", Rules: []networkingv1beta1.RoutingRule{{
		Dst: networkingv1beta1.CIDR(gw1 + "/32"),
		Routes: []networkingv1beta1.Route{{
			Dst: networkingv1beta1.CIDR(gw1 + "/32"), Dev: link1, Scope: networkingv1beta1.RouteScopeLink,
		}},
	}}}
	if diff := cmp.Diff(want, r.Spec.Table); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.OwnerReferences[0].UID != i1.UID || r.Labels[networkingv1beta1.LabelRouteCategory] != "gateway" || r.Labels[networkingv1beta1.LabelRouteSubcategory] != "fabric" {
		t.Errorf("metadata %+v", r.ObjectMeta)
	}

	w.kubePod(t, "pods", "host", "n1", true, "172.18.0.2")
	w.kubePod(t, "pods", "starting", "n1", false)
	dual := w.kubePod(t, "pods", "dual", "n1", false, "10.243.1.20", "fd00:243::20")
	job := w.kubePod(t, "pods", "job", "n1", false, "10.243.1.3")
	w.destinations(t, "n1", "10.243.1.3/32 "+gw1+" job", "10.243.1.20/32 "+gw1+" dual", "fd00:243::20/128 "+link1+" dual")
	w.podStatus(t, job, corev1.PodSucceeded, "10.243.1.3")
	w.destinations(t, "n1", "10.243.1.20/32 "+gw1+" dual", "fd00:243::20/128 "+link1+" dual")
	w.kubePod(t, "pods", "other", "n2", false, "10.243.1.3") // the job's address is free
	w.destinations(t, "n2", "10.243.1.3/32 "+gw2+" other")
	w.podStatus(t, dual, corev1.PodRunning, "10.243.1.21")
	w.destinations(t, "n1", "10.243.1.21/32 "+gw1+" dual")
	w.Delete(t, dual, client.GracePeriodSeconds(0))
	w.destinations(t, "n1")

	t.Run("edits are undone", func(t *testing.T) {
		w.patch(t, routes("n2"), `{"spec":{"table":{"rules":[{"dst":"1.2.3.4/32","routes":[{"dst":"1.2.3.4/32","gw":"1.2.3.4"}]}]}}}`)
		w.destinations(t, "n2", "10.243.1.3/32 "+gw2+" other")
		r := eventually(t, w, "routes", routes("n2"), exists)
		w.delete(t, routes("n2"))
		replaced(t, w, r)
		w.destinations(t, "n2", "10.243.1.3/32 "+gw2+" other")
	})
	t.Run("a busy node is written once a second", func(t *testing.T) { testPace(t, w) })
	t.Run("they go with the node", func(t *testing.T) {
		w.delete(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
		w.Gone(t, routes("n2"))
	})
}

// testPace changes a pod again and again until its node's routes were written a few
// times.
func testPace(t *testing.T, w *world) {
	p := w.kubePod(t, "pods", "busy", "n1", false, "10.243.1.100")
	eventually(t, w, "its route", routes("n1"), func(r *networkingv1beta1.RouteConfiguration) error {
		if len(r.Spec.Table.Rules) != 2 {
			return errors.New("no route yet")
		}
		return nil
	})
	wc, err := client.NewWithWatch(w.Config, client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	events, err := wc.Watch(w.ctx, new(networkingv1beta1.RouteConfigurationList), client.InNamespace("liqo"), client.MatchingFields{"metadata.name": "n1-gw-node"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	const enough = 3
	changes, writes, began := 0, 0, time.Now()
	for writes < enough && time.Since(began) < controlplanetest.Patience {
		changes++
		w.podStatus(t, p, corev1.PodRunning, fmt.Sprintf("10.243.%d.%d", 2+changes/200, 1+changes%200))
		select {
		case e := <-events.ResultChan():
			if e.Type == watch.Modified {
				writes++
			}
		default:
		}
	}
	took := time.Since(began)
	t.Logf("%d changes in %v, %d writes", changes, took, writes)
	// The first may follow at once, and a watch may tell late.
	if most := 2 + int(took/time.Second); writes < enough || writes > most {
		t.Errorf("%d changes in %v made %d writes, want about one each second", changes, took, writes)
	}
}
