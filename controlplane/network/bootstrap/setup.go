package bootstrap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/controllers"
)

// key is the one key of the queue.
var key reconcile.Request

// SetupWithManager adds the reconciler to mgr.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	r := &Reconciler{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"), Options: o}
	configMaps, err := configMapCache(mgr, o.LiqoNamespace)
	if err != nil {
		return err
	}
	return controllers.New(mgr, "bootstrap", controllers.Options{MaxConcurrentReconciles: 1}).
		// One look at the start, when there may be nothing yet to watch.
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			q.Add(key)
			return nil
		})).
		// A Network that somebody deletes comes back, and one that somebody edits may
		// contradict the options.
		WatchesRawSource(source.Kind(mgr.GetCache(), &ipamv1alpha1.Network{},
			handler.TypedFuncs[*ipamv1alpha1.Network, reconcile.Request]{DeleteFunc: gone[*ipamv1alpha1.Network], UpdateFunc: changed[*ipamv1alpha1.Network]},
			predicate.NewTypedPredicateFuncs(func(n *ipamv1alpha1.Network) bool { return n.Namespace == o.LiqoNamespace }),
			predicate.Or(predicate.TypedGenerationChangedPredicate[*ipamv1alpha1.Network]{}, predicate.TypedLabelChangedPredicate[*ipamv1alpha1.Network]{}))).
		// So with the ID of the cluster.
		WatchesRawSource(source.Kind(configMaps, &corev1.ConfigMap{},
			handler.TypedFuncs[*corev1.ConfigMap, reconcile.Request]{
				CreateFunc: appeared[*corev1.ConfigMap], UpdateFunc: changed[*corev1.ConfigMap], DeleteFunc: gone[*corev1.ConfigMap],
			})).
		Complete(r)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func appeared[T any](_ context.Context, _ event.TypedCreateEvent[T], q queue) { q.Add(key) }

func changed[T any](_ context.Context, _ event.TypedUpdateEvent[T], q queue) { q.Add(key) }

func gone[T any](_ context.Context, _ event.TypedDeleteEvent[T], q queue) { q.Add(key) }

// configMapCache holds the one ConfigMap. The manager's cache would hold, and
// would have to be allowed to read, those of the whole cluster.
func configMapCache(mgr ctrl.Manager, namespace string) (cache.Cache, error) {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
				namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", ClusterIDConfigMap)},
			}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("new cache of ConfigMaps: %w", err)
	}
	return c, mgr.Add(c)
}
