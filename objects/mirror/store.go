package mirror

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-net/sluice/objects/manifests"
)

// Object is a pointer to a T that has metadata.
type Object[T any] interface {
	*T
	metav1.Object
}

// Store holds the objects of one watch. What is in it is never changed, only
// replaced. Its fields are set before it is followed. It implements what a
// reflector writes to, which is how tests fill it.
type Store[T any, P Object[T]] struct {
	// Trim empties what nobody reads; nil: metadata alone is trimmed.
	Trim func(P)
	// Keep tells which objects matter; nil: all.
	Keep func(P) bool
	// Changed is called after a change that may matter; nil: nobody asks.
	Changed func()

	mu      sync.Mutex
	objects map[types.NamespacedName]P
	synced  bool
}

// NewStore builds a Store of all objects.
func NewStore[T any, P Object[T]]() *Store[T, P] {
	return &Store[T, P]{objects: make(map[types.NamespacedName]P)}
}

func (s *Store[T, P]) tell() {
	if s.Changed != nil {
		s.Changed()
	}
}

// stripList strips every object of one page of a list.
func (s *Store[T, P]) stripList(list runtime.Object) {
	_ = meta.EachListItem(list, func(o runtime.Object) error { // no list: the reflector will say so
		if p, ok := o.(P); ok {
			s.strip(p)
		}
		return nil
	})
}

// strip empties what nobody reads.
func (s *Store[T, P]) strip(p P) {
	p.SetManagedFields(nil)
	p.SetAnnotations(nil)
	p.SetOwnerReferences(nil)
	p.SetFinalizers(nil)
	if s.Trim != nil {
		s.Trim(p)
	}
}

// Add implements cache.ReflectorStore.
func (s *Store[T, P]) Add(o any) error { return s.Update(o) }

// Update implements cache.ReflectorStore.
func (s *Store[T, P]) Update(o any) error {
	p, ok := o.(P)
	if !ok {
		return fmt.Errorf("%T instead of %T", o, p)
	}
	s.mu.Lock()
	before, after := s.put(p)
	s.mu.Unlock()
	if !same[T](before, after) {
		s.tell()
	}
	return nil
}

// put has p replace what is there, and returns both; nil: nothing. The caller holds mu.
func (s *Store[T, P]) put(p P) (before, after P) {
	s.strip(p)
	key := types.NamespacedName{Namespace: p.GetNamespace(), Name: p.GetName()}
	before = s.objects[key]
	if !s.matters(p) {
		delete(s.objects, key)
		return before, nil
	}
	s.objects[key] = p
	return before, p
}

// Wrote takes an object as the API server has answered to a write, before the watch
// tells of it. Where the watch was faster, with a later version or the deletion, that
// stands: nothing would ever correct it.
func (s *Store[T, P]) Wrote(p P) {
	s.mu.Lock()
	changed := false
	live, ok := s.objects[types.NamespacedName{Namespace: p.GetNamespace(), Name: p.GetName()}]
	if ok && later(p, live) {
		before, after := s.put(p)
		changed = !same[T](before, after)
	}
	s.mu.Unlock()
	if changed {
		s.tell()
	}
}

// later tells whether a is a later version of an object than b. Of versions that
// cannot be compared none is: the watch will tell.
func later(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}

// matters tells whether p counts. An object that is being deleted is gone for
// us: what waits for its end is not the one who reads it.
func (s *Store[T, P]) matters(p P) bool {
	return p.GetDeletionTimestamp() == nil && (s.Keep == nil || s.Keep(p))
}

// same tells whether two versions of an object differ in nothing that is read.
func same[T any, P Object[T]](a, b P) bool {
	if a == nil || b == nil {
		return a == b
	}
	was := *a // others read it
	P(&was).SetResourceVersion(b.GetResourceVersion())
	return reflect.DeepEqual(P(&was), b)
}

// Delete implements cache.ReflectorStore.
func (s *Store[T, P]) Delete(o any) error {
	if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = t.Obj
	}
	p, ok := o.(P)
	if !ok {
		return fmt.Errorf("%T instead of %T", o, p)
	}
	key := types.NamespacedName{Namespace: p.GetNamespace(), Name: p.GetName()}
	s.mu.Lock()
	_, had := s.objects[key]
	delete(s.objects, key)
	s.mu.Unlock()
	if had {
		s.tell()
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *Store[T, P]) Replace(list []any, _ string) error {
	objects := make(map[types.NamespacedName]P, len(list))
	for _, o := range list {
		p, ok := o.(P)
		if !ok {
			return fmt.Errorf("%T instead of %T", o, p)
		}
		s.strip(p)
		if s.matters(p) {
			objects[types.NamespacedName{Namespace: p.GetNamespace(), Name: p.GetName()}] = p
		}
	}
	s.mu.Lock()
	s.objects, s.synced = objects, true
	s.mu.Unlock()
	s.tell()
	return nil
}

// Resync implements cache.ReflectorStore. Nothing is level-triggered by time.
func (s *Store[T, P]) Resync() error { return nil }

// Size returns how many objects there are, and whether they are all.
func (s *Store[T, P]) Size() (n int, synced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects), s.synced
}

// List returns the objects, the oldest first: of two that contradict each other
// the one that was there before stays.
func (s *Store[T, P]) List() []P {
	s.mu.Lock()
	out := make([]P, 0, len(s.objects))
	for _, p := range s.objects {
		out = append(out, p)
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b P) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
			cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return out
}

// Only returns the one object of a watch that has at most one, or nil.
func (s *Store[T, P]) Only() P {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.objects {
		return p
	}
	return nil
}

// Sourced returns the objects as those that were read from files.
func Sourced[T any, P Object[T]](s *Store[T, P]) []manifests.Sourced[T] {
	if s == nil {
		return nil // not followed
	}
	list := s.List()
	out := make([]manifests.Sourced[T], len(list))
	for i, p := range list {
		out[i] = manifests.Sourced[T]{Object: (*T)(p)}
	}
	return out
}
