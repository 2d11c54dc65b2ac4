package resourceslice

import (
	"context"
	"errors"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

// SetupWithManager adds the reconcilers of both sides to mgr.
func SetupWithManager(mgr ctrl.Manager, cluster identify.Cluster, issuer *issue.Issuer, o Options) error {
	p := &provider{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"), Cluster: cluster, Issuer: issuer, Options: o, Began: sync.OnceValue(time.Now)}
	c := &consumer{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"), Cluster: cluster}
	side := func(mine func(*authv1beta1.ResourceSlice) bool) builder.Predicates {
		return builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			s, ok := o.(*authv1beta1.ResourceSlice)
			return ok && mine(s)
		}))
	}
	// A certificate takes ten requests, one after the other.
	copies := controllers.New(mgr, "resourceslice-provider", controllers.Options{MaxConcurrentReconciles: 8, NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
		For(&authv1beta1.ResourceSlice{}, side(isCopy)).
		// Whether its Tenant is ready, cordoned or drained.
		Watches(&authv1beta1.Tenant{}, handler.EnqueueRequestsFromMapFunc(p.ofTenant))
	// What every slice tells of: names, and by annotations which is the default.
	offered := func(o client.Object) {
		copies.Watches(o, handler.EnqueueRequestsFromMapFunc(p.ofAll), builder.WithPredicates(predicate.AnnotationChangedPredicate{}))
	}
	if o.Volumes {
		offered(&storagev1.StorageClass{})
	}
	if len(o.IngressClasses) == 0 {
		offered(&networkingv1.IngressClass{})
	}
	return errors.Join(
		copies.Complete(apply.RequeueOnConflict(p)),
		controllers.New(mgr, "resourceslice-consumer", controllers.Options{NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
			For(&authv1beta1.ResourceSlice{}, side(func(s *authv1beta1.ResourceSlice) bool { return !isCopy(s) })).
			Owns(&authv1beta1.Identity{}).
			Complete(apply.RequeueOnConflict(c)),
	)
}

// ofTenant returns the copies in the namespace of a Tenant.
func (r *provider) ofTenant(ctx context.Context, t client.Object) []ctrl.Request {
	return r.copies(ctx, client.InNamespace(t.GetNamespace()))
}

// ofAll returns the copies of all consumers.
func (r *provider) ofAll(ctx context.Context, _ client.Object) []ctrl.Request { return r.copies(ctx) }

func (r *provider) copies(ctx context.Context, where ...client.ListOption) []ctrl.Request {
	where = append(where, client.MatchingLabels{authv1beta1.LabelReplicated: networkingv1beta1.LabelTrue})
	return enqueue.Each(ctx, r, new(authv1beta1.ResourceSliceList), client.ObjectKeyFromObject, where...)
}
