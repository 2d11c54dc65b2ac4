package internalnetwork_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestInternalNetwork runs the reconcilers on one control plane.
func TestInternalNetwork(t *testing.T) {
	w := &world{t: t, Cluster: controlplanetest.Start(t), ctx: context.Background()}
	w.run()
	t.Run("waits for the internal CIDR", func(t *testing.T) {
		w.node(t, "early")
		w.event(t, "early", "WaitingForInternalCIDR")
		w.internalCIDR(t, "10.80.0.0/16")
		eventually(t, w, "the node gets an address", inode("early"), exists)
	})
	t.Run("nodes", func(t *testing.T) { testNodes(t, w) })
	t.Run("fabric", func(t *testing.T) { testFabric(t, w) })
	t.Run("duplicates", func(t *testing.T) { testDuplicates(t, w) })
	t.Run("names that meet", func(t *testing.T) { testNames(t, w) })
	t.Run("routes", func(t *testing.T) { testRoutes(t, w) })
	t.Run("restart", func(t *testing.T) { testRestart(t, w) })
	t.Run("restored from a backup", func(t *testing.T) { testBackup(t, w) })
	t.Run("namespace is deleted", func(t *testing.T) { testNamespace(t, w) })
	t.Run("another internal CIDR", func(t *testing.T) { testCIDR(t, w) })
}

func testNodes(t *testing.T, w *world) {
	n1 := w.node(t, "n1")
	w.node(t, "n2")
	virtual := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{"liqo.io/type": "virtual-node"}}}
	w.Create(t, virtual)
	t.Cleanup(func() { w.delete(t, virtual) })

	i1, i2 := eventually(t, w, "n1 takes part", inode("n1"), exists), eventually(t, w, "n2 takes part", inode("n2"), exists)
	if x, y := i1.Spec.Interface, i2.Spec.Interface; x.Node.IP == y.Node.IP || x.Gateway.Name == y.Gateway.Name || len(x.Gateway.Name) != 15 {
		t.Errorf("%+v and %+v", x, y)
	}
	w.status(t, i1, map[string]any{"nodeIP": map[string]any{"local": "10.243.1.1", "remote": "172.18.0.2"}})
	same := func(i *networkingv1beta1.InternalNode) error {
		if diff := cmp.Diff(i1.Spec, i.Spec); diff != "" {
			return errors.New(diff)
		}
		return nil
	}
	t.Run("an edit is undone, and the status stays", func(t *testing.T) {
		w.patch(t, inode("n1"), `{"metadata":{"labels":{"liqo.io/managed":null}},"spec":{"interface":{"node":{"ip":"10.80.9.9"},"gateway":{"name":"eth7"}}}}`)
		eventually(t, w, "the spec is back", inode("n1"), same)
		i := eventually(t, w, "the label is back", inode("n1"), func(i *networkingv1beta1.InternalNode) error {
			if i.Labels["liqo.io/managed"] != "true" {
				return fmt.Errorf("labels %v", i.Labels)
			}
			return nil
		})
		if i.Status.NodeIP.Remote != "172.18.0.2" {
			t.Errorf("status %+v", i.Status)
		}
	})
	t.Run("a deleted one comes back with its address", func(t *testing.T) {
		w.delete(t, inode("n1"))
		eventually(t, w, "n1 is back", replaced(t, w, i1.DeepCopy()), same)
	})
	t.Run("a node registered again keeps its address", func(t *testing.T) {
		w.stop() // so that it sees only the outcome
		w.delete(t, n1)
		n1.ResourceVersion = ""
		w.Create(t, n1)
		w.run()
		eventually(t, w, "the spec is the same", inode("n1"), same)
	})
	t.Run("one that becomes virtual leaves", func(t *testing.T) {
		w.patch(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, `{"metadata":{"labels":{"liqo.io/type":"virtual-node"}}}`)
		w.Gone(t, inode("n2"))
	})
	t.Run("a foreign finalizer stops nobody", func(t *testing.T) {
		w.patch(t, inode("n1"), `{"metadata":{"finalizers":["`+networkingv1beta1.FinalizerInternalNodeRoute+`"]}}`)
		w.delete(t, n1)
		w.Gone(t, inode("n1"))
	})
	t.Run("an orphan goes at the start", func(t *testing.T) {
		w.stop()
		o := inode("orphan")
		o.Spec = i1.Spec
		w.Create(t, o)
		w.run()
		w.Gone(t, o)
	})
	if err := w.Get(w.ctx, "", "milan", inode("")); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the virtual node has an InternalNode (%v)", err)
	}
}

func testFabric(t *testing.T, w *world) {
	const ns, peer = "liqo-tenant-milan", "milan"
	w.node(t, "n1")
	w.namespace(t, ns)
	g := gatewayServer(ns, "gw", peer)
	w.Create(t, g)
	ready(t, w, g, networkingv1beta1.ReasonWaitingForGatewayPod)
	w.pod(t, g, "10.243.1.5")
	ready(t, w, g, networkingv1beta1.ReasonWaitingForConfiguration)
	c := configuration(ns, peer)
	w.Create(t, c)
	ready(t, w, g, networkingv1beta1.ReasonWaitingForConfiguration)
	if err := w.Get(w.ctx, ns, peer, fabric("", "")); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("an InternalFabric without a Configuration (%v)", err)
	}
	w.configured(t, c, "10.61.0.0/16", "10.71.0.0/16")
	ready(t, w, g, networkingv1beta1.ReasonInternalFabricReady)

	f := eventually(t, w, "the fabric", fabric(ns, peer), exists)
	want := networkingv1beta1.InternalFabricSpec{
		MTU: 1400, GatewayIP: "10.243.1.5", RemoteCIDRs: []networkingv1beta1.CIDR{"10.61.0.0/16", "10.71.0.0/16"}, Interface: f.Spec.Interface,
	}
	if diff := cmp.Diff(want, f.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(f.OwnerReferences) != 1 || f.OwnerReferences[0].UID != g.UID || f.Labels[networkingv1beta1.LabelRemoteClusterID] != peer {
		t.Errorf("metadata %+v", f.ObjectMeta)
	}
	is := func(f *networkingv1beta1.InternalFabric) error {
		if diff := cmp.Diff(want, f.Spec); diff != "" {
			return errors.New(diff)
		}
		return nil
	}
	vni := eventually(t, w, "the tunnel", tunnel(ns, peer+"-n1"), exists)
	hasVNI := func(g *networkingv1beta1.GeneveTunnel) error {
		if diff := cmp.Diff(vni.Spec, g.Spec); diff != "" {
			return errors.New(diff)
		}
		return nil
	}
	t.Run("the pod moves", func(t *testing.T) {
		w.pod(t, g, "")
		ready(t, w, g, networkingv1beta1.ReasonWaitingForGatewayPod)
		eventually(t, w, "the fabric stays", fabric(ns, peer), is)
		w.pod(t, g, "10.243.2.9")
		want.GatewayIP = "10.243.2.9"
		eventually(t, w, "the fabric follows", fabric(ns, peer), is)
		ready(t, w, g, networkingv1beta1.ReasonInternalFabricReady)
	})
	t.Run("the MTU changes", func(t *testing.T) {
		w.patch(t, gatewayServer(ns, "gw", peer), `{"spec":{"mtu":1300}}`)
		want.MTU = 1300
		eventually(t, w, "the fabric follows", fabric(ns, peer), is)
	})
	t.Run("the Configuration changes", func(t *testing.T) {
		w.patch(t, c, `{"spec":{"remote":{"cidr":{"pod":["10.244.0.0/16"]}}}}`)
		ready(t, w, g, networkingv1beta1.ReasonWaitingForConfiguration) // the status is that of an older spec
		eventually(t, w, "the fabric stays", fabric(ns, peer), is)
		w.configured(t, c, "10.62.0.0/16", "10.71.0.0/16")
		want.RemoteCIDRs = []networkingv1beta1.CIDR{"10.62.0.0/16", "10.71.0.0/16"}
		eventually(t, w, "the fabric follows", fabric(ns, peer), is)
	})
	t.Run("the Configuration is gone for a while", func(t *testing.T) {
		w.delete(t, c)
		ready(t, w, g, networkingv1beta1.ReasonWaitingForConfiguration)
		with := want.RemoteCIDRs
		want.RemoteCIDRs = nil
		eventually(t, w, "nothing is routed", fabric(ns, peer), is)
		c = configuration(ns, peer)
		w.Create(t, c)
		w.configured(t, c, "10.62.0.0/16", "10.71.0.0/16")
		want.RemoteCIDRs = with
		eventually(t, w, "all is routed", fabric(ns, peer), is)
		ready(t, w, g, networkingv1beta1.ReasonInternalFabricReady)
	})
	t.Run("edits are undone", func(t *testing.T) {
		w.patch(t, fabric(ns, peer), `{"spec":{"gatewayIP":"1.2.3.4","interface":{"gateway":{"ip":"10.80.9.9"}}}}`)
		eventually(t, w, "the fabric is back", fabric(ns, peer), is)
		w.patch(t, tunnel(ns, peer+"-n1"), `{"spec":{"id":77}}`)
		eventually(t, w, "the tunnel is back", tunnel(ns, peer+"-n1"), hasVNI)
		w.delete(t, tunnel(ns, peer+"-n1"))
		eventually(t, w, "the tunnel is back", replaced(t, w, vni.DeepCopy()), hasVNI)
	})
	t.Run("a deleted fabric comes back as it was", func(t *testing.T) {
		w.delete(t, fabric(ns, peer))
		f := eventually(t, w, "the fabric is back", replaced(t, w, f.DeepCopy()), is)
		eventually(t, w, "so is the tunnel", tunnel(ns, peer+"-n1"), func(g *networkingv1beta1.GeneveTunnel) error {
			if len(g.OwnerReferences) != 1 || g.OwnerReferences[0].UID != f.UID {
				return fmt.Errorf("owners %+v", g.OwnerReferences)
			}
			return hasVNI(g)
		})
	})
	t.Run("a fabric that takes its time comes back as it was", func(t *testing.T) {
		w.delete(t, c)
		ready(t, w, g, networkingv1beta1.ReasonWaitingForConfiguration)
		w.delete(t, fabric(ns, peer))
		w.Gone(t, fabric(ns, peer), tunnel(ns, peer+"-n1"))
		c = configuration(ns, peer)
		w.Create(t, c)
		w.configured(t, c, "10.62.0.0/16", "10.71.0.0/16")
		eventually(t, w, "the fabric is back", fabric(ns, peer), is)
		eventually(t, w, "so is the tunnel", tunnel(ns, peer+"-n1"), hasVNI)
	})
	t.Run("nodes come and go", func(t *testing.T) {
		w.node(t, "n2")
		g := eventually(t, w, "a tunnel", tunnel(ns, peer+"-n2"), exists)
		if g.Spec.ID == vni.Spec.ID || g.Labels[networkingv1beta1.LabelInternalNodeName] != "n2" || g.Labels[networkingv1beta1.LabelInternalFabricName] != peer {
			t.Errorf("tunnel %+v", g)
		}
		w.delete(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
		w.Gone(t, g)
	})
	t.Run("the gateway is for somebody else", func(t *testing.T) {
		w.patch(t, gatewayServer(ns, "gw", ""), `{"metadata":{"labels":{"liqo.io/remote-cluster-id":"turin"}}}`)
		w.Gone(t, fabric(ns, peer), tunnel(ns, peer+"-n1"))
	})
	t.Run("the gateway goes", func(t *testing.T) {
		w.patch(t, gatewayServer(ns, "gw", ""), `{"metadata":{"labels":{"liqo.io/remote-cluster-id":"milan"}}}`)
		eventually(t, w, "the fabric", fabric(ns, peer), exists)
		w.patch(t, fabric(ns, peer), `{"metadata":{"finalizers":["`+networkingv1beta1.FinalizerInternalFabricGeneve+`","`+networkingv1beta1.FinalizerInternalFabricLegacy+`"]}}`)
		w.delete(t, g)
		w.Gone(t, fabric(ns, peer), tunnel(ns, peer+"-n1"))
	})
}
