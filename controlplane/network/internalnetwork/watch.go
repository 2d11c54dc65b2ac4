package internalnetwork

import (
	"context"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/enqueue"
)

// Fields of the cache's indexes. Pods belong to others too, hence the prefix.
const (
	indexPeer = "internalnetwork/peer" // gateways and Configurations by the remote cluster's ID
	indexNode = "internalnetwork/node" // pods that have a route, by node
	indexPair = "internalnetwork/pair" // GeneveTunnels by fabric and node
)

// recorder is the name under which events are made.
const recorder = "liqo-controller"

func indexFields(ctx context.Context, mgr ctrl.Manager) error {
	peer := func(o client.Object) []string {
		if id := peerOf(o); id != "" {
			return []string{id}
		}
		return nil
	}
	node := func(o client.Object) []string {
		if p, ok := o.(*corev1.Pod); ok && hasRoute(p) {
			return []string{p.Spec.NodeName}
		}
		return nil
	}
	for _, index := range []struct {
		object client.Object
		field  string
		keys   client.IndexerFunc
	}{
		{&networkingv1beta1.GatewayServer{}, indexPeer, peer},
		{&networkingv1beta1.GatewayClient{}, indexPeer, peer},
		{&networkingv1beta1.Configuration{}, indexPeer, peer},
		{&networkingv1beta1.GeneveTunnel{}, indexPair, indexPairs},
		{&corev1.Pod{}, indexNode, node},
	} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, index.object, index.field, index.keys); err != nil {
			return err
		}
	}
	return nil
}

// peerOf returns the ID of the remote cluster that an object is for.
func peerOf(o client.Object) string { return o.GetLabels()[networkingv1beta1.LabelRemoteClusterID] }

// notStatus passes updates of anything but the status and of what only an API
// server looks at: someone changed what we wrote, or it is being deleted.
var notStatus = enqueue.When(func(x, y client.Object) bool {
	return x.GetUID() != y.GetUID() || x.GetGeneration() != y.GetGeneration() ||
		x.GetDeletionTimestamp().IsZero() != y.GetDeletionTimestamp().IsZero() ||
		!maps.Equal(x.GetLabels(), y.GetLabels()) || !maps.Equal(x.GetAnnotations(), y.GetAnnotations()) ||
		!slices.Equal(x.GetFinalizers(), y.GetFinalizers()) || !reflect.DeepEqual(x.GetOwnerReferences(), y.GetOwnerReferences())
})

// comesOrGoes passes an update only if the object is another one now, is about
// to go, or is for another remote cluster.
var comesOrGoes = enqueue.When(func(x, y client.Object) bool {
	return x.GetUID() != y.GetUID() || x.GetDeletionTimestamp().IsZero() != y.GetDeletionTimestamp().IsZero() || peerOf(x) != peerOf(y)
})

// partChanged passes updates of a Node that change whether it takes part.
var partChanged = enqueue.When(func(x, y client.Object) bool {
	const l = networkingv1beta1.LabelNodeType
	return x.GetUID() != y.GetUID() || x.GetLabels()[l] != y.GetLabels()[l]
})

// gatewayChanged passes updates of a gateway that its InternalFabric shows, and
// of the condition that speaks of it.
var gatewayChanged = enqueue.When(func(x, y client.Object) bool {
	const ready = string(networkingv1beta1.ConditionInternalNetworkReady)
	return x.GetGeneration() != y.GetGeneration() || peerOf(x) != peerOf(y) || gatewayOf(x) != gatewayOf(y) ||
		!equality.Semantic.DeepEqual(meta.FindStatusCondition(conditionsOf(x), ready), meta.FindStatusCondition(conditionsOf(y), ready))
})

// configurationChanged passes updates of a Configuration's status, and those
// that make it speak of an older spec.
var configurationChanged = enqueue.When(func(old, now *networkingv1beta1.Configuration) bool {
	return old.Generation != now.Generation || peerOf(old) != peerOf(now) || !equality.Semantic.DeepEqual(old.Status, now.Status)
})

// internalCIDR passes the Network of the internal CIDR when its prefix changes.
func internalCIDR(key client.ObjectKey) predicate.Predicate {
	return predicate.And(
		predicate.NewPredicateFuncs(func(o client.Object) bool { return client.ObjectKeyFromObject(o) == key }),
		enqueue.When(func(old, now *ipamv1alpha1.Network) bool {
			return old.Status.CIDR != now.Status.CIDR || old.UID != now.UID
		}))
}

// fabricsOfPeer maps a gateway to the InternalFabrics of its remote cluster: its
// own, and those of gateways that it may stand in the way of.
func fabricsOfPeer(c client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []ctrl.Request {
		id := peerOf(o)
		if id == "" {
			return nil
		}
		requests := []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: id}}}
		gateways, _, err := gatewaysOf(ctx, c, id)
		if err != nil {
			log.FromContext(ctx).Error(err, "an event may be lost") // the cache is being stopped
		}
		for _, g := range gateways {
			requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: g.Namespace, Name: id}})
		}
		return requests
	}
}

// fabricOfPeer maps an object to the InternalFabric of its remote cluster in its
// namespace.
func fabricOfPeer(_ context.Context, o client.Object) []ctrl.Request {
	id := peerOf(o)
	if id == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: id}}}
}

// all maps an object to all objects of a kind, by their names.
func all(c client.Reader, kind func() client.ObjectList, key func(client.Object) types.NamespacedName) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) (requests []ctrl.Request) {
		list(ctx, c, kind(), func(o client.Object) {
			if k := key(o); k.Name != "" {
				requests = append(requests, ctrl.Request{NamespacedName: k})
			}
		})
		return requests
	}
}

// list calls each for all objects of a kind, which it must not change.
func list(ctx context.Context, c client.Reader, l client.ObjectList, each func(client.Object)) {
	err := c.List(ctx, l, client.UnsafeDisableDeepCopy)
	if err == nil {
		err = meta.EachListItem(l, func(o runtime.Object) error {
			if o, ok := o.(client.Object); ok {
				each(o)
			}
			return nil
		})
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "an event may be lost") // the cache is being stopped
	}
}

// podEvents wakes the nodes whose routes an event of a pod changes, after a
// moment in which others may come. Most events of pods change none.
type podEvents struct{}

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// Create implements [handler.EventHandler].
func (podEvents) Create(_ context.Context, e event.CreateEvent, q queue) { wakeNode(q, e.Object) }

// Delete implements [handler.EventHandler].
func (podEvents) Delete(_ context.Context, e event.DeleteEvent, q queue) { wakeNode(q, e.Object) }

// Generic implements [handler.EventHandler].
func (podEvents) Generic(_ context.Context, e event.GenericEvent, q queue) { wakeNode(q, e.Object) }

// Update implements [handler.EventHandler].
func (podEvents) Update(_ context.Context, e event.UpdateEvent, q queue) {
	x, isPod := e.ObjectOld.(*corev1.Pod)
	y, arePods := e.ObjectNew.(*corev1.Pod)
	if isPod && arePods && routeChanged(x, y) {
		wakeNode(q, x)
		wakeNode(q, y)
	}
}

func wakeNode(q queue, o client.Object) {
	if p, ok := o.(*corev1.Pod); ok && hasRoute(p) {
		q.AddAfter(ctrl.Request{NamespacedName: types.NamespacedName{Name: p.Spec.NodeName}}, settle)
	}
}
