package internalnetwork

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// finalizersReconciler lets go of objects of one kind that are being deleted and still
// have a finalizer of Liqo's node agents. Those are gone, and the finalizer would hold
// the object, and its namespace, for ever. Ours need none: they see the end of an object.
type finalizersReconciler struct {
	client.Client
	finalizer string
	new       func() client.Object
}

// +kubebuilder:rbac:groups=networking.liqo.io,resources=firewallconfigurations;routeconfigurations,verbs=get;list;watch;patch

// Reconcile looks at one object.
func (r *finalizersReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o := r.new()
	if err := r.Get(ctx, req.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if o.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, apply.RemoveFinalizers(ctx, r.Client, o, r.finalizer)
}

func setupFinalizers(mgr ctrl.Manager, _ Options, _ *addressBook) error {
	deleted := predicate.NewPredicateFuncs(func(o client.Object) bool { return !o.GetDeletionTimestamp().IsZero() })
	for name, r := range map[string]*finalizersReconciler{
		"firewallconfiguration_finalizer": {mgr.GetClient(), networkingv1beta1.FinalizerFirewallConfiguration,
			func() client.Object { return new(networkingv1beta1.FirewallConfiguration) }},
		"routeconfiguration_finalizer": {mgr.GetClient(), networkingv1beta1.FinalizerRouteConfiguration,
			func() client.Object { return new(networkingv1beta1.RouteConfiguration) }},
	} {
		if err := ctrl.NewControllerManagedBy(mgr).Named(name).For(r.new(), builder.WithPredicates(deleted)).Complete(apply.RequeueOnConflict(r)); err != nil {
			return err
		}
	}
	return nil
}
