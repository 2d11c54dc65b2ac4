package virtualkubelet

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/reflection"
)

// follower keeps the objects of one watch. Other than a mirror.Store it keeps annotations, and objects that are being
// deleted, as both matter for a pod.
type follower[T any, P mirror.Object[T]] struct {
	informer cache.SharedIndexInformer
}

const (
	// maxHeld is how many objects of one kind and namespace of the provider are held.
	maxHeld = 50_000
	// pageOf is how many objects of the provider one answer has, smallPage how many of those that can be of the size that
	// an API server stores: they fit into maxAnswer.
	pageOf, smallPage = 250, 40
)

// tooManyError says that the provider has more objects than are held of it. Its text is made for an Event.
type tooManyError struct{ what string }

// Error implements error.
func (e *tooManyError) Error() string {
	return fmt.Sprintf("the provider has more than %d %s, which is more than is held of another cluster: nothing new of them is seen until there are fewer", maxHeld, e.what)
}

// followThere begins to keep what w selects at the provider, which may hold anything: of each object what keep returns, and
// no more than a number of objects. over is told when there are more. They are tried again later and later.
func followThere[T any, P mirror.Object[T]](ctx context.Context, wg *sync.WaitGroup, w mirror.Watched, log *slog.Logger, keep func(P), changed func(P), over func(error)) (*follower[T, P], error) {
	held := new(atomic.Int64)
	tooMany := &tooManyError{w.Name()}
	listed := 0 // of one list: a reflector reads one at a time
	return followWith(ctx, wg, w, log, keep, changed, options{
		held: held,
		page: func(o *metav1.ListOptions) {
			if o.Continue == "" {
				listed = 0
			}
			if o.Limit = pageOf; w.Resource == configMaps || w.Resource == secrets {
				o.Limit = smallPage
			}
		},
		got: func(page runtime.Object) error {
			if listed += meta.LenList(page); listed > maxHeld {
				over(tooMany)
				return tooMany
			}
			return nil
		},
		seen: func(e watch.Event) watch.Event {
			if e.Type == watch.Added && held.Load() >= maxHeld {
				over(tooMany)
				return watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusRequestEntityTooLarge, Message: tooMany.Error()}}
			}
			return e
		},
	})
}

// options are how what is followed at a provider is bounded. Without them nothing is.
type options struct {
	held *atomic.Int64 // how many objects there are
	page func(*metav1.ListOptions)
	got  func(page runtime.Object) error
	seen func(watch.Event) watch.Event
}

// follow begins to keep what w selects, until ctx ends, in a goroutine of wg. Metadata that nobody reads is trimmed.
// changed is called with each object that came, changed or went.
func follow[T any, P mirror.Object[T]](ctx context.Context, wg *sync.WaitGroup, w mirror.Watched, log *slog.Logger, changed func(P)) (*follower[T, P], error) {
	return followWith(ctx, wg, w, log, nil, changed, options{})
}

// followWith is follow with bounds; trim, which may be nil, trims more.
func followWith[T any, P mirror.Object[T]](ctx context.Context, wg *sync.WaitGroup, w mirror.Watched, log *slog.Logger, trim func(P), changed func(P), bound options) (*follower[T, P], error) {
	request := func(o metav1.ListOptions) *rest.Request {
		o.LabelSelector, o.FieldSelector = w.Labels, w.Fields
		return w.Client.Get().NamespaceIfScoped(w.Namespace, w.Namespace != "").Resource(w.Resource).VersionedParams(&o, metav1.ParameterCodec)
	}
	failed := func(level slog.Level, err error) {
		log.Log(ctx, level, "cannot read, trying again", "what", w.Name(), "error", mirror.PlainError(err))
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			// With zero all pages would come at once. A limit makes any other one mean exactly that version, not one that is at
			// least as new: after a restart of the API server, which can watch from no earlier version than its own, a
			// reflector would get the same old list again and again.
			if o.ResourceVersion == "0" || bound.page != nil {
				o.ResourceVersion = ""
			}
			if bound.page != nil {
				bound.page(&o)
			}
			page, err := untilAnswered(ctx, failed, func() (runtime.Object, error) { return request(o).Do(ctx).Get() })
			if err == nil && bound.got != nil {
				err = bound.got(page)
			}
			return page, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			changes, err := untilAnswered(ctx, failed, func() (watch.Interface, error) { return request(o).Watch(ctx) })
			if err != nil || bound.seen == nil {
				return changes, err
			}
			return through(wg, changes, bound.seen), nil
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
	count := func(n int64) {
		if bound.held != nil {
			bound.held.Add(n)
		}
	}
	if _, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { count(1); tell(o) },
		DeleteFunc: func(o any) { count(-1); tell(o) },
		UpdateFunc: func(was, o any) {
			if !unchanged[T, P](was, o) {
				tell(o)
			}
		},
	}); err != nil {
		return nil, err
	}
	quiet := logr.Discard() // of what a reflector says: the handler above has it
	wg.Go(func() { f.informer.RunWithContext(logr.NewContext(ctx, quiet)) })
	return f, nil
}

// through passes what a watch says through seen, in a goroutine of wg that ends with either watch. That of
// k8s.io/apimachinery/pkg/watch.Filter stays for ever where the watch is stopped while an event waits for its reader.
func through(wg *sync.WaitGroup, from watch.Interface, seen func(watch.Event) watch.Event) watch.Interface {
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	wg.Go(func() {
		defer close(events)
		defer from.Stop()
		for {
			select {
			case e, more := <-from.ResultChan():
				if !more {
					return
				}
				select {
				case events <- seen(e):
				case <-to.StopChan():
					return
				}
			case <-to.StopChan():
				return
			}
		}
	})
	return to
}

// unchanged tells whether nothing that is kept of an object has changed.
func unchanged[T any, P mirror.Object[T]](was, is any) bool {
	a, ok := was.(P)
	b, same := is.(P)
	if !ok || !same {
		return false
	}
	as := *a
	P(&as).SetResourceVersion(b.GetResourceVersion())
	return equality.Semantic.DeepEqual(P(&as), b)
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

// onlyMetadata trims an object of the provider of which only metadata is read.
func onlyMetadata[T any, P mirror.Object[T]](p P) {
	var bare T
	kept, held := P(&bare), reflection.HeldMetadata(p)
	kept.SetName(held.Name)
	kept.SetNamespace(held.Namespace)
	kept.SetUID(held.UID)
	kept.SetResourceVersion(held.ResourceVersion)
	kept.SetLabels(held.Labels)
	kept.SetAnnotations(held.Annotations)
	kept.SetDeletionTimestamp(held.DeletionTimestamp)
	*p = bare
}
