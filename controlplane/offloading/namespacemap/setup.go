package namespacemap

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
)

// SetupWithManager adds the reconciler to mgr. id tells the ID of this cluster; liqoNamespace is where the
// installation lives.
func SetupWithManager(mgr ctrl.Manager, id func(context.Context) (string, error), liqoNamespace string) error {
	r := &Reconciler{Client: mgr.GetClient(), ID: id, LiqoNamespace: liqoNamespace}
	spec := builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))
	return controllers.New(mgr, "namespacemap", controllers.Options{}).
		// Not for each answer of the provider.
		For(new(offloadingv1beta1.NamespaceMap), spec).
		Watches(new(offloadingv1beta1.VirtualNode), handler.EnqueueRequestsFromMapFunc(provider), spec).
		// Their labels decide what selectors select.
		Watches(new(corev1.Node), handler.EnqueueRequestsFromMapFunc(r.providers), builder.WithPredicates(predicate.NewPredicateFuncs(isVirtual), predicate.LabelChangedPredicate{})).
		Watches(new(offloadingv1beta1.NamespaceOffloading), handler.EnqueueRequestsFromMapFunc(r.providers), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// One is offloaded only when it is known that it is not a tenant's.
		WatchesMetadata(new(corev1.Namespace), handler.EnqueueRequestsFromMapFunc(r.providers), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.GetLabels()[networkingv1beta1.LabelTenantNamespace] != e.ObjectNew.GetLabels()[networkingv1beta1.LabelTenantNamespace]
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Complete(apply.RequeueOnConflict(r))
}

func isVirtual(n client.Object) bool {
	return n.GetLabels()[networkingv1beta1.LabelNodeType] == networkingv1beta1.NodeTypeVirtual
}

// provider is the request for the provider of a VirtualNode.
func provider(_ context.Context, o client.Object) []ctrl.Request {
	v, ok := o.(*offloadingv1beta1.VirtualNode)
	if !ok || v.Spec.ClusterID == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: v.Namespace, Name: string(v.Spec.ClusterID)}}}
}

// providers are the requests for all of them.
func (r *Reconciler) providers(ctx context.Context, _ client.Object) (requests []ctrl.Request) {
	requests = enqueue.Each(ctx, r, new(offloadingv1beta1.NamespaceMapList), client.ObjectKeyFromObject)
	var virtual offloadingv1beta1.VirtualNodeList
	if err := r.List(ctx, &virtual, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "list VirtualNodes")
	}
	for i := range virtual.Items {
		requests = append(requests, provider(ctx, &virtual.Items[i])...)
	}
	return requests
}
