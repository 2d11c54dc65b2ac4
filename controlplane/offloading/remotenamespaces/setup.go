package remotenamespaces

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// SetupWithManager adds the reconciler to mgr. namespaces sees the namespaces with the label of what controllers make.
func SetupWithManager(mgr ctrl.Manager, namespaces cache.Cache, o Options) error {
	r := &Reconciler{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"), Options: o}
	return ctrl.NewControllerManagedBy(mgr).Named("remotenamespaces").
		For(&offloadingv1beta1.NamespaceMap{}).
		// Whether it is ready or drained.
		Watches(&authv1beta1.Tenant{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, t client.Object) []ctrl.Request {
			return r.mapsOf(ctx, t.GetNamespace())
		})).
		// It has the name of the tenant namespace.
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, b client.Object) []ctrl.Request {
			if b.GetLabels()[networkingv1beta1.LabelRemoteClusterID] == "" {
				return nil
			}
			return r.mapsOf(ctx, b.GetName())
		})).
		// At a start this finds what was made for maps that are gone.
		WatchesRawSource(source.Kind(namespaces, &corev1.Namespace{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, n *corev1.Namespace) []ctrl.Request {
				namespace, name, ok := strings.Cut(n.Annotations[offloadingv1beta1.AnnotationManagedByNamespaceMap], "/")
				if !ok {
					return nil
				}
				return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
			}))).
		// One at a time: they share a number.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(apply.RequeueOnConflict(r))
}

// mapsOf returns the NamespaceMaps of a namespace.
func (r *Reconciler) mapsOf(ctx context.Context, namespace string) (requests []ctrl.Request) {
	var list offloadingv1beta1.NamespaceMapList
	if err := r.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "list the NamespaceMaps of a namespace")
	}
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
