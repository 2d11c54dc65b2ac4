package exporter

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
	"github.com/sluice-net/sluice/controlplane/services/description"
)

// byName is the index of ExportedServices by their name, over all peerings.
const byName = "metadata.name"

// SetupWithManager adds the reconciler to mgr. users sees Services, EndpointSlices and Namespaces, but not those that the
// controllers make; the installation lives in liqoNamespace.
func SetupWithManager(mgr ctrl.Manager, users cache.Cache, liqoNamespace string) error {
	r := &Reconciler{Client: mgr.GetClient(), Users: users, LiqoNamespace: liqoNamespace, Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), new(networkingv1beta1.ExportedService), byName,
		func(o client.Object) []string { return []string{o.GetName()} }); err != nil {
		return fmt.Errorf("index ExportedServices: %w", err)
	}
	everything := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []ctrl.Request { return r.exports(ctx) })
	// One at a time: what a peer is told of, and how many addresses are taken for it, is bounded over all Services.
	return controllers.New(mgr, "serviceexport", controllers.Options{MaxConcurrentReconciles: 1}).
		// What this controller and the importer say of it in its status is no news.
		For(new(mcsv1beta1.ServiceExport), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(source.Kind(users, new(corev1.Service), handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, s *corev1.Service) []ctrl.Request {
				return r.ifExported(ctx, s.Namespace, s.Name)
			}))).
		WatchesRawSource(source.Kind(users, new(discoveryv1.EndpointSlice), handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, s *discoveryv1.EndpointSlice) []ctrl.Request {
				return r.ifExported(ctx, s.Namespace, s.Labels[discoveryv1.LabelServiceName])
			}))).
		// Somebody else's change of one is taken back; and of those of which there is no ServiceExport, as after a change while
		// no controller ran, this is how they are found.
		Watches(new(networkingv1beta1.ExportedService), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			namespace, name := description.Key(o.GetName())
			return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
		})).
		// What there is to pass on, and by which addresses. That the network of a peer went down or its CIDRs changed, this one
		// hears from what the importer makes of it; what it says counts for nothing else.
		Watches(new(mcsv1beta1.ServiceImport), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
			return r.ifExported(ctx, o.GetNamespace(), o.GetName())
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(new(networkingv1beta1.ImportedService), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
			namespace, name := description.Key(o.GetName())
			return r.ifExported(ctx, namespace, name)
		})).
		Watches(new(discoveryv1.EndpointSlice), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
			return r.ifExported(ctx, o.GetNamespace(), o.GetLabels()[mcsv1beta1.LabelServiceName])
		})).
		Watches(new(ipamv1alpha1.IP), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			if o.GetLabels()[networkingv1beta1.LabelPassedOnFrom] == "" {
				return nil
			}
			return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[mcsv1beta1.LabelServiceName]}}}
		})).
		// Who the peers are and what they may see, not how they are reached.
		Watches(new(networkingv1beta1.Configuration), everything, builder.WithPredicates(predicate.Or(
			predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		// Which addresses are those of pods.
		Watches(new(ipamv1alpha1.Network), everything, builder.WithPredicates(predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(func(o client.Object) bool {
			return o.GetLabels()[ipamv1alpha1.LabelNetworkType] == ipamv1alpha1.NetworkTypePodCIDR
		}))).
		Complete(apply.RequeueOnConflict(r))
}

// exports are the requests for all Services that are exported.
func (r *Reconciler) exports(ctx context.Context) []ctrl.Request {
	return enqueue.Each(ctx, r, new(mcsv1beta1.ServiceExportList), client.ObjectKeyFromObject)
}

// ifExported is the request for a Service if it is exported. Most are not.
func (r *Reconciler) ifExported(ctx context.Context, namespace, name string) []ctrl.Request {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if name == "" || r.Get(ctx, key, new(mcsv1beta1.ServiceExport)) != nil {
		return nil // a ServiceExport that is made later wakes the reconciler itself
	}
	return []ctrl.Request{{NamespacedName: key}}
}
