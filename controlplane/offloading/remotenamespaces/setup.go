package remotenamespaces

import (
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

// SetupWithManager adds the reconciler to mgr. namespaces sees the namespaces with the label of what controllers make.
func SetupWithManager(mgr ctrl.Manager, namespaces cache.Cache, o Options) error {
	r := &Reconciler{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"), Options: o, uncounted: uncounted{}}
	ofTenant := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
		if o.GetLabels()[networkingv1beta1.LabelRemoteClusterID] == "" {
			return nil
		}
		return r.mapsOf(ctx, o.GetName()) // it has the name of the tenant namespace
	})
	// One at a time: they share a number.
	return controllers.New(mgr, "remotenamespaces", controllers.Options{MaxConcurrentReconciles: 1, NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
		For(&offloadingv1beta1.NamespaceMap{}).
		// Whether it may ask, and whether it is drained.
		Watches(&authv1beta1.Tenant{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, t client.Object) []ctrl.Request {
			return r.mapsOf(ctx, t.GetNamespace())
		})).
		Watches(&rbacv1.RoleBinding{}, ofTenant).
		// Whether it is as it is to be, and whether the cluster counts what it bounds; not every object that is counted.
		Watches(&corev1.ResourceQuota{}, ofTenant, builder.WithPredicates(enqueue.When(func(before, now *corev1.ResourceQuota) bool {
			return !equality.Semantic.DeepEqual(before.Spec, now.Spec) || !maps.Equal(before.Labels, now.Labels) ||
				!equality.Semantic.DeepEqual(before.Status.Hard, now.Status.Hard) || len(before.Status.Used) != len(now.Status.Used)
		}))).
		// At a start this finds what was made for maps that are gone.
		WatchesRawSource(source.Kind(namespaces, &corev1.Namespace{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, n *corev1.Namespace) []ctrl.Request {
				namespace, name, ok := strings.Cut(n.Annotations[offloadingv1beta1.AnnotationManagedByNamespaceMap], "/")
				if !ok {
					return nil
				}
				return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
			}))).
		Complete(apply.RequeueOnConflict(r))
}

// mapsOf returns the NamespaceMaps of a namespace.
func (r *Reconciler) mapsOf(ctx context.Context, namespace string) []ctrl.Request {
	return enqueue.Each(ctx, r, new(offloadingv1beta1.NamespaceMapList), client.ObjectKeyFromObject, client.InNamespace(namespace))
}
