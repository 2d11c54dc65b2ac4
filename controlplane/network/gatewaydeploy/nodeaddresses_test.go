package gatewaydeploy

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// nodeLister lists nodes, and counts how often it is asked.
type nodeLister struct {
	client.Reader
	nodes []corev1.Node
	lists int
}

// List implements client.Reader.
func (l *nodeLister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.NodeList:
		l.lists++
		list.Items = l.nodes
	case *networkingv1beta1.InternalNodeList:
	default:
		return fmt.Errorf("%T", list)
	}
	return nil
}

// TestNodeAddresses counts the gateways that changes of nodes wake, and the looks at
// all nodes.
func TestNodeAddresses(t *testing.T) {
	node := func(name, address string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
	}
	lister := &nodeLister{nodes: []corev1.Node{node("a", "192.0.2.1"), node("b", "192.0.2.7")}}
	woken := 0
	n := &nodeAddresses{Reader: lister, wake: []func(context.Context){func(context.Context) { woken++ }}}
	get := func(want int) {
		t.Helper()
		for range 1000 { // gateways
			if prefixes, err := n.get(t.Context()); err != nil || len(prefixes) != want {
				t.Fatalf("%v, %v", prefixes, err)
			}
		}
	}
	get(2)
	if lister.lists != 1 {
		t.Errorf("%d looks at all nodes for 1000 gateways", lister.lists)
	}
	for _, step := range []struct {
		name  string
		nodes []corev1.Node
		woken int
	}{
		{"nothing", lister.nodes, 0},
		{"a node is registered again under another name", []corev1.Node{node("c", "192.0.2.1"), node("b", "192.0.2.7")}, 0},
		{"a node has another address", []corev1.Node{node("c", "192.0.2.3"), node("b", "192.0.2.7")}, 1},
		{"a node goes", []corev1.Node{node("b", "192.0.2.7")}, 2},
	} {
		lister.nodes = step.nodes
		if _, err := n.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		if woken != step.woken {
			t.Errorf("%s: all gateways were woken %d times, want %d", step.name, woken, step.woken)
		}
	}
	get(1)
}
