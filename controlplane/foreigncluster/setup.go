package foreigncluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
)

// byCluster is the index of objects by the ID of the remote cluster.
const byCluster = "remote-cluster-id"

// SetupWithManager adds the controller. secrets sees the Secrets of peerings; it is nil where the controllers of
// authentication do not run. offloads tells whether those of offloading run.
func SetupWithManager(mgr ctrl.Manager, secrets cache.Cache, offloads bool) error {
	r := &reconciler{Client: mgr.GetClient(), offloads: offloads, asker: newAsker(), now: metav1.Now}
	c := controllers.New(mgr, "foreigncluster", controllers.Options{}).For(new(corev1beta1.ForeignCluster)).
		WatchesRawSource(source.Channel(r.asker.changed, &handler.TypedEnqueueRequestForObject[*corev1beta1.ForeignCluster]{}))
	watch := func(o client.Object, changes ...predicate.Predicate) error {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), o, byCluster, func(o client.Object) []string {
			if id := clusterOf(o); id != "" {
				return []string{id}
			}
			return nil
		}); err != nil {
			return fmt.Errorf("index %T: %w", o, err)
		}
		c.Watches(o, handler.EnqueueRequestsFromMapFunc(cluster), builder.WithPredicates(changes...))
		return nil
	}
	// Of these only counts that they are there.
	relabelled := predicate.LabelChangedPredicate{}
	kinds := map[client.Object]predicate.Predicate{
		new(networkingv1beta1.Configuration): relabelled, new(networkingv1beta1.GatewayServer): relabelled, new(networkingv1beta1.GatewayClient): relabelled,
		// Not for each latency that is measured.
		new(networkingv1beta1.Connection): predicate.Or[client.Object](relabelled, enqueue.When(hasOtherValue)),
		new(appsv1.Deployment):            predicate.ResourceVersionChangedPredicate{},
	}
	if secrets != nil {
		r.secrets = secrets
		for _, o := range []client.Object{new(authv1beta1.Tenant), new(authv1beta1.Identity)} {
			kinds[o] = predicate.ResourceVersionChangedPredicate{}
		}
		c.WatchesRawSource(source.Kind(secrets, new(corev1.Secret), handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, s *corev1.Secret) []ctrl.Request { return cluster(ctx, s) })))
		if err := mgr.Add(r.asker); err != nil {
			return err
		}
	}
	if offloads {
		kinds[new(offloadingv1beta1.VirtualNode)] = predicate.ResourceVersionChangedPredicate{}
		kinds[new(authv1beta1.ResourceSlice)] = predicate.Or[client.Object](relabelled, enqueue.When(becomesDrained))
		// Not for each heartbeat.
		kinds[new(corev1.Node)] = predicate.Or[client.Object](relabelled, enqueue.When(becomesReady))
	}
	for o, changes := range kinds {
		if err := watch(o, changes); err != nil {
			return err
		}
	}
	return c.Complete(apply.RequeueOnConflict(r))
}

// cluster is the request for the remote cluster that an object is about.
func cluster(_ context.Context, o client.Object) []ctrl.Request {
	id := clusterOf(o)
	if id == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: id}}}
}

// clusterOf is the ID of the remote cluster that an object is about. A VirtualNode that a user has made need not be
// labelled. A ResourceSlice counts in the cluster that asks.
func clusterOf(o client.Object) string {
	switch o := o.(type) {
	case *offloadingv1beta1.VirtualNode:
		return string(o.Spec.ClusterID)
	case *authv1beta1.ResourceSlice:
		return o.Asks()
	}
	return o.GetLabels()[networkingv1beta1.LabelRemoteClusterID]
}

// hasOtherValue tells whether a Connection has come up or gone down.
func hasOtherValue(before, now *networkingv1beta1.Connection) bool {
	return before.Status.Value != now.Status.Value
}

// becomesDrained tells whether the provider has drained this cluster, or does so no more.
func becomesDrained(before, now *authv1beta1.ResourceSlice) bool {
	return before.Drained() != now.Drained()
}

// becomesReady tells whether a Node has become ready, or is so no more.
func becomesReady(before, now *corev1.Node) bool { return isReady(before) != isReady(now) }
