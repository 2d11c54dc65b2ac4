package namespaceoffloading

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
)

// SetupWithManager adds the reconciler to mgr. id tells the ID of this cluster; liqoNamespace is where the
// installation lives.
func SetupWithManager(mgr ctrl.Manager, id func(context.Context) (string, error), liqoNamespace string) error {
	r := &Reconciler{Client: mgr.GetClient(), ID: id, LiqoNamespace: liqoNamespace, now: metav1.Now}
	virtual := predicate.NewPredicateFuncs(func(n client.Object) bool {
		return n.GetLabels()[networkingv1beta1.LabelNodeType] == networkingv1beta1.NodeTypeVirtual
	})
	return controllers.New(mgr, "namespaceoffloading", controllers.Options{}).
		For(new(offloadingv1beta1.NamespaceOffloading)).
		// The label: also of a namespace whose NamespaceOffloading went while nobody looked. And what keeps it here.
		WatchesMetadata(new(corev1.Namespace), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request { return []ctrl.Request{of(o.GetName())} }),
			builder.WithPredicates(predicate.Funcs{
				UpdateFunc: func(e event.UpdateEvent) bool {
					return labelled(e.ObjectOld) || labelled(e.ObjectNew) ||
						e.ObjectOld.GetLabels()[networkingv1beta1.LabelTenantNamespace] != e.ObjectNew.GetLabels()[networkingv1beta1.LabelTenantNamespace]
				},
				DeleteFunc:  func(event.DeleteEvent) bool { return false },
				GenericFunc: func(event.GenericEvent) bool { return false },
			})).
		Watches(new(offloadingv1beta1.NamespaceMap), answers()).
		// A provider that comes or goes concerns all.
		Watches(new(offloadingv1beta1.NamespaceMap), handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(new(offloadingv1beta1.VirtualNode), handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(new(corev1.Node), handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(virtual, predicate.LabelChangedPredicate{})).
		Complete(apply.RequeueOnConflict(r))
}

func labelled(o client.Object) bool {
	_, there := o.GetLabels()[offloadingv1beta1.LabelSchedulingEnabled]
	return there
}

func of(namespace string) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: offloadingv1beta1.NamespaceOffloadingName}}
}

// answers wakes the namespaces about which a provider says something else than before: it may have thousands.
func answers() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		before, ok := e.ObjectOld.(*offloadingv1beta1.NamespaceMap)
		after, also := e.ObjectNew.(*offloadingv1beta1.NamespaceMap)
		if !ok || !also {
			return
		}
		for name, state := range after.Status.CurrentMapping {
			if before.Status.CurrentMapping[name] != state {
				q.Add(of(name))
			}
		}
		for name := range before.Status.CurrentMapping {
			if _, there := after.Status.CurrentMapping[name]; !there {
				q.Add(of(name))
			}
		}
	}}
}

// all are the requests for every NamespaceOffloading.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []ctrl.Request {
	return enqueue.Each(ctx, r, new(offloadingv1beta1.NamespaceOffloadingList), func(o client.Object) client.ObjectKey {
		return of(o.GetNamespace()).NamespacedName
	})
}
