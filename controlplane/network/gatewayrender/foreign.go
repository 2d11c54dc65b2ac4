package gatewayrender

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// foreign watches kinds that the scheme does not know, from when the first gateway
// needs them. What wakes a gateway is that an object changed, so only metadata is
// held.
type foreign struct {
	cache  cache.Cache
	reader client.Reader // past the caches

	mu       sync.Mutex
	handlers map[*kind]handlers
	watched  map[watch]bool
}

// handlers are what wakes the gateways of a kind.
type handlers struct {
	controller          controller.Controller
	templates, children handler.EventHandler
}

// watch is a watch on behalf of the gateways of a kind: of templates of the kind gvk, or of objects that were made of
// the gateways.
type watch struct {
	kind      *kind
	gvk       schema.GroupVersionKind
	templates bool
}

// newForeign adds its cache to the manager.
func newForeign(mgr ctrl.Manager) (*foreign, error) {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: metadata,
	})
	if err != nil {
		return nil, fmt.Errorf("new cache: %w", err)
	}
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("add cache: %w", err)
	}
	return &foreign{cache: c, reader: mgr.GetAPIReader(), handlers: make(map[*kind]handlers), watched: make(map[watch]bool)}, nil
}

// metadata keeps of an object what wakes a gateway needs.
func metadata(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		m.Annotations, m.Labels, m.ManagedFields = nil, nil, nil
	}
	return o, nil
}

// watch wakes the gateways when an object of the kind gvk changes.
func (f *foreign) watch(ctx context.Context, w watch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watched[w] {
		return nil
	}
	// A watch that is not allowed fails in the background only, time and again.
	list := new(metav1.PartialObjectMetadataList)
	list.SetGroupVersionKind(w.gvk.GroupVersion().WithKind(w.gvk.Kind + "List"))
	if err := f.reader.List(ctx, list, client.Limit(1)); err != nil {
		return fmt.Errorf("list %s: %w", w.gvk.Kind, err)
	}
	h := f.handlers[w.kind]
	wake := h.children
	if w.templates {
		wake = h.templates
	}
	object := new(metav1.PartialObjectMetadata)
	object.SetGroupVersionKind(w.gvk)
	if err := h.controller.Watch(source.Kind[client.Object](f.cache, object, wake)); err != nil {
		return fmt.Errorf("watch %s: %w", w.gvk.Kind, err)
	}
	f.watched[w] = true
	return nil
}

// forget ends the watch of a kind of templates that is none any more.
func (f *foreign) forget(ctx context.Context, k *kind, gvk schema.GroupVersionKind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.watched[watch{k, gvk, true}] {
		return
	}
	for w := range f.watched {
		if w.gvk == gvk {
			delete(f.watched, w) // the other kind of gateways asks again if it needs it
		}
	}
	object := new(metav1.PartialObjectMetadata)
	object.SetGroupVersionKind(gvk)
	if err := f.cache.RemoveInformer(ctx, object); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot end a watch", "kind", gvk.Kind)
	}
}
