package virtualkubelet

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-net/sluice/objects/mirror"
)

// follower keeps the objects of one watch. Other than a mirror.Store it keeps annotations, and objects that are being
// deleted, as both matter for a pod.
type follower[T any, P mirror.Object[T]] struct {
	informer cache.SharedIndexInformer
}

// follow begins to keep what w selects, until ctx ends, in a goroutine of wg. Metadata that nobody reads is trimmed, and more by trim, which
// may be nil. changed is called with each object that came, changed or went.
func follow[T any, P mirror.Object[T]](ctx context.Context, wg *sync.WaitGroup, w mirror.Watched, log *slog.Logger, trim func(P), changed func(P)) (*follower[T, P], error) {
	request := func(o metav1.ListOptions) *rest.Request {
		o.LabelSelector, o.FieldSelector = w.Labels, w.Fields
		return w.Client.Get().NamespaceIfScoped(w.Namespace, w.Namespace != "").Resource(w.Resource).VersionedParams(&o, metav1.ParameterCodec)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // zero would get all pages at once
			}
			return request(o).Do(ctx).Get()
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return request(o).Watch(ctx)
		},
	}
	example, ok := any(P(new(T))).(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no runtime.Object", example)
	}
	f := &follower[T, P]{cache.NewSharedIndexInformer(byPages{lw}, example, 0, cache.Indexers{})}
	err := f.informer.SetTransform(func(o any) (any, error) {
		if p, ok := o.(P); ok {
			p.SetManagedFields(nil)
			if trim != nil {
				trim(p)
			}
		}
		return o, nil
	})
	if err != nil {
		return nil, err
	}
	if err := f.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Debug("cannot watch", "what", w.Name(), "error", mirror.PlainError(err))
	}); err != nil {
		return nil, err
	}
	tell := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if p, ok := o.(P); ok {
			changed(p)
		}
	}
	if _, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(_, o any) { tell(o) },
	}); err != nil {
		return nil, err
	}
	quiet := logr.Discard() // of what a reflector says: the handler above has it
	wg.Go(func() { f.informer.RunWithContext(logr.NewContext(ctx, quiet)) })
	return f, nil
}

// byPages makes a reflector read lists by pages, so that a long one is not held twice.
type byPages struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how a reflector asks.
func (byPages) IsWatchListSemanticsUnSupported() bool { return true }

// synced tells whether all objects were listed once: what is missing is not there. Nil is never synced.
func (f *follower[T, P]) synced() bool { return f != nil && f.informer.HasSynced() }

// get returns an object, which others read too; nil: there is none.
func (f *follower[T, P]) get(namespace, name string) P {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	o, ok, err := f.informer.GetStore().GetByKey(key)
	if p, is := o.(P); err == nil && ok && is {
		return p
	}
	return nil
}

// list returns all objects, which others read too.
func (f *follower[T, P]) list() (out []P) {
	if f == nil {
		return nil
	}
	for _, o := range f.informer.GetStore().List() {
		if p, ok := o.(P); ok {
			out = append(out, p)
		}
	}
	return out
}

// onlyMetadata trims an object of which only metadata is read.
func onlyMetadata[T any, P mirror.Object[T]](p P) {
	var bare T
	kept, from := P(&bare), metav1.Object(p)
	kept.SetName(from.GetName())
	kept.SetNamespace(from.GetNamespace())
	kept.SetUID(from.GetUID())
	kept.SetResourceVersion(from.GetResourceVersion())
	kept.SetLabels(from.GetLabels())
	kept.SetAnnotations(from.GetAnnotations())
	kept.SetDeletionTimestamp(from.GetDeletionTimestamp())
	*p = bare
}
