// Package finalizers lets go of objects that are being deleted and still have a finalizer
// of Liqo's. Those who set it are gone where these controllers are, and it would hold the
// object, and its namespace, for ever. Ours need none: they see the end of an object.
package finalizers

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
)

// Of is a kind, and the finalizers that Liqo sets on its objects.
type Of struct {
	Kind       client.Object
	Finalizers []string
	// Cache has the objects; nil: that of the manager.
	Cache cache.Cache
}

// SetupWithManager adds a controller for each kind to mgr. The role must have get, list,
// watch and patch for it.
func SetupWithManager(mgr ctrl.Manager, kinds ...Of) error {
	for _, of := range kinds {
		if of.Cache == nil {
			of.Cache = mgr.GetCache()
		}
		goes := predicate.NewPredicateFuncs(func(o client.Object) bool { return !o.GetDeletionTimestamp().IsZero() })
		name := strings.ToLower(reflect.TypeOf(of.Kind).Elem().Name()) + "_finalizer"
		err := controllers.New(mgr, name, controllers.Options{}).
			WatchesRawSource(source.Kind(of.Cache, of.Kind, &handler.EnqueueRequestForObject{}, goes)).
			Complete(apply.RequeueOnConflict(&reconciler{mgr.GetClient(), of}))
		if err != nil {
			return fmt.Errorf("set up %s: %w", name, err)
		}
	}
	return nil
}

type reconciler struct {
	client client.Client
	of     Of
}

var _ reconcile.Reconciler = (*reconciler)(nil)

// Reconcile looks at one object.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o, ok := reflect.New(reflect.TypeOf(r.of.Kind).Elem()).Interface().(client.Object)
	if !ok {
		return ctrl.Result{}, fmt.Errorf("%T is no client.Object", r.of.Kind)
	}
	if err := r.of.Cache.Get(ctx, req.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if o.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, apply.RemoveFinalizers(ctx, r.client, o, r.of.Finalizers...)
}
