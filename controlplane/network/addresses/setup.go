package addresses

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

// Options say where the external CIDR is.
type Options struct {
	// LiqoNamespace is where the Networks of the installation live.
	LiqoNamespace string
}

// indexNetwork finds the IPs of a Network by its key, and those that name none by
// externalCIDR.
const (
	indexNetwork = "ipam.network"
	externalCIDR = "external-cidr"
)

// SetupWithManager adds the reconciler to mgr.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	r := &Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"),
		liqoNamespace: o.LiqoNamespace, ledger: newLedger(),
	}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &ipamv1alpha1.IP{}, indexNetwork, func(o client.Object) []string {
		ip, ok := o.(*ipamv1alpha1.IP)
		if !ok {
			return nil
		}
		if network := networkOf(ip); network != "" {
			return []string{network}
		}
		return []string{externalCIDR}
	})
	if err != nil {
		return fmt.Errorf("index IPs by their Network: %w", err)
	}
	// One decision after the other.
	return controllers.New(mgr, "ip", controllers.Options{MaxConcurrentReconciles: 1, NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
		// Also when only the status or a label changed: somebody may have taken away
		// what is recorded there. It costs no request.
		For(&ipamv1alpha1.IP{}, notHalfWritten()).
		// What somebody deletes or changes comes back.
		Owns(&corev1.Service{}, notMade()).
		Owns(&discoveryv1.EndpointSlice{}, notMade()).
		// IPs wait for their Network's prefix, and say so when it is gone.
		Watches(&ipamv1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(r.ofNetwork), otherPrefix(o.LiqoNamespace)).
		// Those that wait and that a decision on another one concerns. The queue is
		// there before the first worker.
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			r.queue = q
			return nil
		})).
		Complete(apply.RequeueOnConflict(r))
}

// notHalfWritten drops the first of the two writes by which an IP gets its
// address, that of the labels: what is seen then is older than the second one, and
// a decision on it would end in a conflict.
func notHalfWritten() builder.Predicates {
	return builder.WithPredicates(enqueue.When(func(before, after *ipamv1alpha1.IP) bool {
		return before.Generation != after.Generation || before.Status.IP != "" || after.Status.IP != "" ||
			before.Labels[ipamv1alpha1.LabelNetworkName] == after.Labels[ipamv1alpha1.LabelNetworkName]
	}))
}

// notMade drops that a child is there: we made it, or the IP is new to us too.
func notMade() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }})
}

// otherPrefix lets pass what changes for the IPs of a Network.
func otherPrefix(liqoNamespace string) builder.Predicates {
	return builder.WithPredicates(enqueue.When(func(before, after *ipamv1alpha1.Network) bool {
		return originOf(before, liqoNamespace) != originOf(after, liqoNamespace)
	}))
}

// ofNetwork returns the IPs that a change of a Network concerns.
func (r *Reconciler) ofNetwork(ctx context.Context, o client.Object) []ctrl.Request {
	n, ok := o.(*ipamv1alpha1.Network)
	if !ok {
		return nil
	}
	s := originOf(n, r.liqoNamespace)
	keys := []string{s.key}
	if n.Namespace == r.liqoNamespace {
		keys = append(keys, externalCIDR) // it may be one, or may not be one any more
	}
	var requests []ctrl.Request
	for _, key := range keys {
		requests = append(requests, enqueue.Each(ctx, r, new(ipamv1alpha1.IPList), client.ObjectKeyFromObject, client.MatchingFields{indexNetwork: key})...)
	}
	return requests
}
