package tenant

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

// SetupWithManager adds the reconciler to mgr. peerings sees the Secrets and RoleBindings of peerings.
func SetupWithManager(mgr ctrl.Manager, peerings cache.Cache, cluster identify.Cluster, issuer *issue.Issuer) error {
	r := &Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"), Cluster: cluster, Issuer: issuer,
	}
	return controllers.New(mgr, "tenant", controllers.Options{MaxConcurrentReconciles: 2, NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
		// A changed status is no news, unless somebody else changed it.
		For(&authv1beta1.Tenant{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Owns(&rbacv1.RoleBinding{}).
		// One that is deleted makes way for another one.
		Watches(&authv1beta1.Tenant{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(onlyDeletes())).
		// Those that users make.
		WatchesRawSource(source.Kind(peerings, &rbacv1.RoleBinding{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, b *rbacv1.RoleBinding) []ctrl.Request {
				return r.requests(ctx, client.InNamespace(b.Namespace))
			}))).
		WatchesRawSource(source.Kind(peerings, &corev1.Secret{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, s *corev1.Secret) []ctrl.Request {
				if s.Name != authv1beta1.NonceSecret {
					return nil
				}
				return r.requests(ctx, client.InNamespace(s.Namespace))
			}))).
		Complete(r)
}

func onlyDeletes() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func (r *Reconciler) all(ctx context.Context, _ client.Object) []ctrl.Request { return r.requests(ctx) }

func (r *Reconciler) requests(ctx context.Context, which ...client.ListOption) []ctrl.Request {
	return enqueue.Each(ctx, r, new(authv1beta1.TenantList), client.ObjectKeyFromObject, which...)
}
