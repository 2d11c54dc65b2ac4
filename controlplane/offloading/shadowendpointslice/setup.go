package shadowendpointslice

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

const (
	// maxSize is how many bytes a ShadowEndpointSlice may have. One of Kubernetes has 100 endpoints, of some 300 bytes each.
	maxSize = 256 << 10
	// annotationDropped is in the cache on a ShadowEndpointSlice whose spec was too large to keep.
	annotationDropped = "offloading.liqo.io/dropped"
	// workers is how many ShadowEndpointSlices are looked at at the same time.
	workers = 4
)

// SetupWithManager adds the reconciler to mgr. namespaces sees the namespaces that were made for consumers, whom queues serve
// in turn; the installation lives in liqoNamespace.
func SetupWithManager(mgr ctrl.Manager, namespaces cache.Cache, queues fairqueue.New[ctrl.Request], liqoNamespace string) error {
	slices, err := sliceCache(mgr)
	if err != nil {
		return err
	}
	r := &Reconciler{
		Client: mgr.GetClient(), Slices: slices, Namespaces: namespaces, Reader: mgr.GetAPIReader(),
		Recorder: mgr.GetEventRecorder("liqo-controller"), LiqoNamespace: liqoNamespace, told: map[types.NamespacedName]string{},
	}
	ofConsumer := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
		return r.slicesOf(ctx, o.GetLabels()[networkingv1beta1.LabelRemoteClusterID])
	})
	return controllers.New(mgr, "shadowendpointslice", controllers.Options{MaxConcurrentReconciles: workers, NewQueue: queues}).
		WatchesRawSource(source.Kind(slices, newShadow(), &handler.TypedEnqueueRequestForObject[*unstructured.Unstructured]{})).
		// A cache may know of a slice before it knows for whom the namespace was made.
		WatchesRawSource(source.Kind(namespaces, new(corev1.Namespace), handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, n *corev1.Namespace) []ctrl.Request { return r.slicesIn(ctx, n.Name) }))).
		// Somebody else's change of it is taken back.
		Watches(new(discoveryv1.EndpointSlice), &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return o.GetLabels()[offloadingv1beta1.LabelManagedBy] == offloadingv1beta1.ManagedByShadowEndpointSlice
		}))).
		// By what addresses the consumer is known here.
		Watches(new(networkingv1beta1.Configuration), ofConsumer).
		// Whether the consumer is away.
		Watches(new(corev1beta1.ForeignCluster), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
			return r.slicesOf(ctx, o.GetName())
		}), builder.WithPredicates(enqueue.When(func(before, now *corev1beta1.ForeignCluster) bool { return away(before) != away(now) }))).
		Complete(apply.RequeueOnConflict(r))
}

// slicesOf are the requests for the slices of a consumer.
func (r *Reconciler) slicesOf(ctx context.Context, id string) (requests []ctrl.Request) {
	if id == "" {
		return nil
	}
	var namespaces corev1.NamespaceList
	if err := r.Namespaces.List(ctx, &namespaces, ofPeer(id)); err != nil {
		log.FromContext(ctx).Error(err, "list the namespaces of a consumer")
	}
	for i := range namespaces.Items {
		requests = append(requests, r.slicesIn(ctx, namespaces.Items[i].Name)...)
	}
	return requests
}

// slicesIn are the requests for the slices of a namespace.
func (r *Reconciler) slicesIn(ctx context.Context, namespace string) []ctrl.Request {
	list := new(unstructured.UnstructuredList)
	list.SetGroupVersionKind(newShadow().GroupVersionKind())
	return enqueue.Each(ctx, r.Slices, list, client.ObjectKeyFromObject, client.InNamespace(namespace))
}

// sliceCache adds to mgr a cache of ShadowEndpointSlices.
func sliceCache(mgr ctrl.Manager) (cache.Cache, error) {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{newShadow(): {Transform: trim}},
	})
	if err != nil {
		return nil, fmt.Errorf("new cache of ShadowEndpointSlices: %w", err)
	}
	return c, mgr.Add(c)
}

// newShadow is a ShadowEndpointSlice of which nothing is known.
func newShadow() *unstructured.Unstructured {
	o := new(unstructured.Unstructured)
	o.SetGroupVersionKind(offloadingv1beta1.GroupVersion.WithKind("ShadowEndpointSlice"))
	return o
}

// trim keeps what is read, and of what is too large that it is.
func trim(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil // a tombstone
	}
	kept := newShadow()
	kept.SetNamespace(u.GetNamespace())
	kept.SetName(u.GetName())
	kept.SetUID(u.GetUID())
	kept.SetResourceVersion(u.GetResourceVersion())
	kept.SetDeletionTimestamp(u.GetDeletionTimestamp())
	l := map[string]string{}
	for _, key := range []string{discoveryv1.LabelServiceName, corev1.IsHeadlessService} {
		if v, ok := u.GetLabels()[key]; ok {
			l[key] = v
		}
	}
	kept.SetLabels(l)
	if text, err := json.Marshal(u.Object["spec"]); err != nil || len(text) > maxSize {
		kept.SetAnnotations(map[string]string{annotationDropped: "true"})
		return kept, nil
	}
	kept.Object["spec"] = u.Object["spec"]
	return kept, nil
}
