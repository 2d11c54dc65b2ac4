package gatewaydeploy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
)

// nodeAddresses knows from which prefixes nodes send, for the policies of all gateways.
// There may be thousands of nodes and of gateways: it looks at the nodes once for all
// gateways, once for all nodes that change together, and wakes the gateways only if the
// prefixes are others then.
type nodeAddresses struct {
	client.Reader
	// wake has every gateway of a kind reconciled. Set before it runs.
	wake []func(context.Context)

	mu       sync.Mutex
	looked   bool
	prefixes []netip.Prefix
}

// get returns the prefixes as they were seen last.
func (n *nodeAddresses) get(ctx context.Context) ([]netip.Prefix, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.looked {
		if _, err := n.lookLocked(ctx); err != nil {
			return nil, err
		}
	}
	return n.prefixes, nil
}

// lookLocked looks at the nodes, and tells whether that made a difference to those who
// had got an answer.
func (n *nodeAddresses) lookLocked(ctx context.Context) (changed bool, err error) {
	var nodes corev1.NodeList
	if err := n.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list Nodes: %w", err)
	}
	var internal networkingv1beta1.InternalNodeList
	if err := n.List(ctx, &internal, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list InternalNodes: %w", err)
	}
	prefixes := nodePrefixes(nodes.Items, internal.Items)
	changed = n.looked && !slices.Equal(prefixes, n.prefixes)
	n.looked, n.prefixes = true, prefixes
	return changed, nil
}

// Reconcile looks at all nodes. The request names none.
func (n *nodeAddresses) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	n.mu.Lock()
	changed, err := n.lookLocked(ctx)
	n.mu.Unlock()
	if changed {
		for _, wake := range n.wake {
			wake(ctx)
		}
	}
	return ctrl.Result{}, err
}

func (n *nodeAddresses) setup(mgr ctrl.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	return controllers.New(mgr, "nodeaddresses", controllers.Options{}).
		Watches(new(corev1.Node), one, builder.WithPredicates(enqueue.When(nodeMoved))).
		Watches(new(networkingv1beta1.InternalNode), one, builder.WithPredicates(enqueue.When(internalNodeMoved))).
		Complete(n)
}
