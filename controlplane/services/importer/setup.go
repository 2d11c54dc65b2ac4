package importer

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

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
	"github.com/sluice-net/sluice/controlplane/services/description"
)

// The indices of ImportedServices, over all peerings.
const (
	byName      = "metadata.name"
	byNamespace = "service-namespace"
	byCluster   = "cluster"
)

// Options say how the controller works.
type Options struct {
	LiqoNamespace string
	Alias         bool
	// ID is that of this cluster.
	ID func(context.Context) (string, error)
}

// notStatus leaves out changes of the status alone. It is this controller that writes it, and to look again after each of its
// own words takes time from the changes of peers, and writes EndpointSlices twice of which the cache is behind.
var notStatus = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// SetupWithManager adds the reconciler to mgr. users sees Services, EndpointSlices and Namespaces, but not those that the
// controllers make.
func SetupWithManager(mgr ctrl.Manager, users cache.Cache, o Options) error {
	r := &Reconciler{
		Client: mgr.GetClient(), Users: users, Reader: mgr.GetAPIReader(), ID: o.ID, LiqoNamespace: o.LiqoNamespace, Alias: o.Alias, Clock: clock.RealClock{},
	}
	for name, of := range map[string]func(client.Object) string{
		byName: client.Object.GetName,
		byNamespace: func(o client.Object) string {
			namespace, _ := description.Key(o.GetName())
			return namespace
		},
		byCluster: func(o client.Object) string { return o.GetLabels()[networkingv1beta1.LabelRemoteClusterID] },
	} {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), new(networkingv1beta1.ImportedService), name,
			func(o client.Object) []string { return []string{of(o)} }); err != nil {
			return fmt.Errorf("index ImportedServices: %w", err)
		}
	}
	made := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
		name := o.GetLabels()[mcsv1beta1.LabelServiceName]
		if name == "" {
			return nil
		}
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
	})
	return controllers.New(mgr, "serviceimport", controllers.Options{}).
		For(new(mcsv1beta1.ServiceImport), builder.WithPredicates(notStatus)).
		Watches(new(networkingv1beta1.ImportedService), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: serviceOf(o)}}
		}), builder.WithPredicates(notStatus)).
		// Somebody else's change of what was made is taken back; and the address of a Service is known when it is made.
		Watches(new(corev1.Service), made).
		Watches(new(discoveryv1.EndpointSlice), made).
		// What this cluster exports itself.
		Watches(new(mcsv1beta1.ServiceExport), new(handler.EnqueueRequestForObject), builder.WithPredicates(notStatus)).
		WatchesRawSource(source.Kind(users, new(corev1.Service), handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, s *corev1.Service) []ctrl.Request {
				return r.ifKnown(ctx, s.Namespace, s.Name)
			}))).
		WatchesRawSource(source.Kind(users, new(discoveryv1.EndpointSlice), handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, s *discoveryv1.EndpointSlice) []ctrl.Request {
				return r.ifKnown(ctx, s.Namespace, s.Labels[discoveryv1.LabelServiceName])
			}))).
		WatchesRawSource(source.Kind(users, new(corev1.Namespace), handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, n *corev1.Namespace) []ctrl.Request {
				return r.imports(ctx, client.MatchingFields{byNamespace: n.Name})
			}))).
		// By what addresses the peer is known here, and whether it is known at all.
		Watches(new(networkingv1beta1.Configuration), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
			return r.imports(ctx, client.InNamespace(o.GetNamespace()))
		})).
		// Whether the peer is away.
		Watches(new(corev1beta1.ForeignCluster), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
			return r.imports(ctx, client.MatchingFields{byCluster: o.GetName()})
		}), builder.WithPredicates(enqueue.When(networkChanged))).
		Complete(apply.RequeueOnConflict(r))
}

// serviceOf is the key of the Service that an ImportedService is about.
func serviceOf(o client.Object) types.NamespacedName {
	namespace, name := description.Key(o.GetName())
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// objectName is the name of the ImportedServices of which a request is.
func objectName(r types.NamespacedName) string {
	if r.Name == "" {
		return r.Namespace // one whose name has no dot, and is refused for that
	}
	return r.Namespace + "." + r.Name
}

// imports are the requests for some of the ImportedServices.
func (r *Reconciler) imports(ctx context.Context, which client.ListOption) []ctrl.Request {
	return enqueue.Each(ctx, r, new(networkingv1beta1.ImportedServiceList), serviceOf, which)
}

// ifKnown is the request for a Service of a user if it is exported, or its name is that of an imported one.
func (r *Reconciler) ifKnown(ctx context.Context, namespace, name string) []ctrl.Request {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if name == "" || r.Get(ctx, key, new(mcsv1beta1.ServiceExport)) != nil && r.Get(ctx, key, new(mcsv1beta1.ServiceImport)) != nil {
		return nil
	}
	return []ctrl.Request{{NamespacedName: key}}
}

// networkChanged tells whether the network of a peering came up or went down.
func networkChanged(before, now *corev1beta1.ForeignCluster) bool {
	status := func(c *corev1beta1.ForeignCluster) (s corev1beta1.ConditionStatus) {
		for _, n := range c.Status.Modules.Networking.Conditions {
			if n.Type == corev1beta1.ConditionNetworkConnection {
				s = n.Status
			}
		}
		return s
	}
	return status(before) != status(now)
}
