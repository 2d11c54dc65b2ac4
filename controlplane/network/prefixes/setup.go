package prefixes

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsregistry "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
)

// Options say where prefixes come from.
type Options struct {
	// LiqoNamespace is where the Networks of the installation live.
	LiqoNamespace string
	// Pools are where prefixes are taken from that stand for others, in this order.
	// None means that nothing is remapped; cidr.DefaultPools are the usual ones.
	Pools []netip.Prefix
}

// SetupWithManager adds the reconciler to mgr.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	l, err := newLedger(o.Pools, o.LiqoNamespace)
	if err != nil {
		return fmt.Errorf("pools of the IPAM: %w", err)
	}
	m, err := newMetrics(metricsregistry.Registry)
	if err != nil {
		return fmt.Errorf("metrics of the IPAM: %w", err)
	}
	r := &Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"),
		liqoNamespace: o.LiqoNamespace, ledger: l, metrics: m,
	}
	// One decision after the other.
	return controllers.New(mgr, "network", controllers.Options{MaxConcurrentReconciles: 1}).
		// Also when only the status or a label changed: somebody may have taken away
		// what is recorded there, or have allowed another prefix. It costs no request.
		For(&ipamv1alpha1.Network{}).
		// Those that wait and that a decision on another one concerns. The queue is
		// there before the first worker.
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			r.queue = q
			return nil
		})).
		Complete(apply.RequeueOnConflict(r))
}
