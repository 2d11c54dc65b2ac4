package configuration

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

// Options is what the program decides.
type Options struct {
	// LiqoNamespace is where the installation lives, and its Networks.
	LiqoNamespace string
}

// SetupWithManager adds the controller.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	return newReconciler(mgr, o).setup(mgr)
}

func newReconciler(mgr ctrl.Manager, o Options) *reconciler {
	return &reconciler{Client: mgr.GetClient(), events: mgr.GetEventRecorder("liqo-controller"), liqoNamespace: o.LiqoNamespace}
}

func (r *reconciler) setup(mgr ctrl.Manager) error {
	described := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))
	installed := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == r.liqoNamespace && o.GetLabels()[ipamv1alpha1.LabelNetworkType] != ""
	}))
	return controllers.New(mgr, "configuration", controllers.Options{NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
		// Its status, too: what a hand wrote there the gateways would go by.
		For(new(networkingv1beta1.Configuration)).
		// What they are granted is collected, and those deleted by hand come back.
		Owns(new(ipamv1alpha1.Network)).
		// They are what spec.local is filled in from.
		Watches(new(ipamv1alpha1.Network), handler.EnqueueRequestsFromMapFunc(r.withoutLocal), installed).
		// Of two for the same remote cluster one waits until the other goes.
		Watches(new(networkingv1beta1.Configuration), handler.EnqueueRequestsFromMapFunc(r.others), described).
		Complete(apply.RequeueOnConflict(r))
}

// withoutLocal finds the Configurations whose spec.local is to be filled in.
func (r *reconciler) withoutLocal(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.which(ctx, func(c *networkingv1beta1.Configuration) bool { return isEmpty(c.Spec.Local) })
}

// others finds the other Configurations for the same remote cluster.
func (r *reconciler) others(ctx context.Context, o client.Object) []reconcile.Request {
	id := o.GetLabels()[networkingv1beta1.LabelRemoteClusterID]
	return r.which(ctx, func(c *networkingv1beta1.Configuration) bool {
		return id != "" && c.Labels[networkingv1beta1.LabelRemoteClusterID] == id && c.Name != o.GetName()
	}, client.InNamespace(o.GetNamespace()))
}

func (r *reconciler) which(ctx context.Context, test func(*networkingv1beta1.Configuration) bool, opts ...client.ListOption) []reconcile.Request {
	var list networkingv1beta1.ConfigurationList
	if err := r.List(ctx, &list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list Configurations")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if test(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}
