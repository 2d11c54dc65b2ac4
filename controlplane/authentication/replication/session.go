package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// copied are the kinds that always are; with offloading, namespaceMap as well.
var copied = []schema.GroupVersionKind{
	authv1beta1.GroupVersion.WithKind("ResourceSlice"),
	authv1beta1.GroupVersion.WithKind("Renew"),
}

var namespaceMap = offloadingv1beta1.GroupVersion.WithKind("NamespaceMap")

const (
	// fieldOwner owns the fields of copies.
	fieldOwner = "sluice-replication"
	// pageSize is how many objects are asked for at once, unless they are too large for one answer; maxCopies how many
	// altogether.
	pageSize, maxCopies = 100, 5000
	// resync is how soon both sides are compared without any sign of a change.
	resync = time.Minute
	// firstRetry and lastRetry bound the pauses after failures.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	// A provider can wake us as often as it likes. Both sides are compared comparisons times in a row at most, and then
	// once a second.
	comparisons = 20
	// maxStatus bounds the status that is taken over, in bytes.
	maxStatus = 256 << 10
	// maxFailures is how many failures of one comparison are told. Their texts are the provider's.
	maxFailures = 3
)

// session copies between one pair of namespaces until its context ends.
type session struct {
	peer
	// kinds are copied.
	kinds []schema.GroupVersionKind
	// local reads from the cache and writes here. remote is the API server there.
	local  client.Client
	remote client.WithWatch
	log    logr.Logger
	// keep has what it takes to take the copies back kept, and is called before anything is copied; nil: it is not kept.
	keep func(context.Context) error
	// tell is called when the session fails for another reason than before, and with nil when it works.
	tell func(error)

	wake chan struct{}
	// written is what this session wrote: what is as it was is not written again.
	written map[objectKey]*unstructured.Unstructured
	// read is what the last comparison has read there, by [weight].
	read int64
}

type objectKey struct {
	kind string
	name string
}

func newSession(p peer, kinds []schema.GroupVersionKind, local client.Client, remote client.WithWatch, log logr.Logger, tell func(error)) *session {
	return &session{peer: p, kinds: kinds, local: local, remote: remote, log: log, tell: tell, wake: make(chan struct{}, 1), written: map[objectKey]*unstructured.Unstructured{}}
}

// changed has both sides compared.
func (s *session) changed() {
	select {
	case s.wake <- struct{}{}:
	default: // it will be
	}
}

// run copies until ctx ends. Nothing of the session is left running then.
func (s *session) run(ctx context.Context) {
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, kind := range s.kinds {
		watches.Go(func() { s.watch(ctx, kind) })
	}
	var told string
	pause := firstRetry
	often := flowcontrol.NewTokenBucketRateLimiter(1, comparisons)
	kept := s.keep == nil
	for {
		if often.Wait(ctx) != nil {
			return
		}
		if !kept {
			err := s.keep(ctx)
			if kept = err == nil; !kept && ctx.Err() == nil {
				s.log.Error(err, "keep what takes copies back")
			}
		}
		s.read = 0
		err := s.synchronize(ctx)
		if ctx.Err() != nil {
			return
		}
		next, soonest := resync, time.Duration(s.read)*time.Second/maxRate // however often something changes
		if err != nil {
			next, pause = max(pause, soonest), min(2*pause, lastRetry)
			soonest = next
		} else {
			pause = firstRetry
		}
		if text := cause(err); text != told {
			told = text
			s.tell(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		case <-s.wake:
			select {
			case <-ctx.Done():
				return
			case <-time.After(soonest):
			}
		}
	}
}

// cause is the class of a failure: its text changes with each try.
func cause(err error) string {
	if err == nil {
		return ""
	}
	return "failed: " + string(apierrors.ReasonForError(err))
}

// watch wakes the session when something changes there. Where that does not work, resync is left.
func (s *session) watch(ctx context.Context, kind schema.GroupVersionKind) {
	pause := firstRetry
	for ctx.Err() == nil {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, watchTimeout)
		w, err := s.remote.Watch(bounded, listOf(kind), client.InNamespace(s.there), s.marks())
		if err == nil {
			for range w.ResultChan() {
				s.changed()
			}
			w.Stop()
		}
		cancel()
		if time.Since(began) > firstRetry {
			pause = firstRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastRetry)
	}
}

// synchronize makes both sides equal. What cannot be done for one object does not keep the others back.
func (s *session) synchronize(ctx context.Context) error {
	var failed error
	for _, kind := range s.kinds {
		if err := s.synchronizeKind(ctx, kind); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", kind.Kind, err))
		}
	}
	return failed
}

func (s *session) synchronizeKind(ctx context.Context, kind schema.GroupVersionKind) error {
	here, err := s.listHere(ctx, kind)
	if err != nil {
		return err
	}
	there, err := s.listThere(ctx, kind)
	if kind == namespaceMap && len(here) == 0 && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
		return nil // a provider without offloading, of which nothing is asked
	}
	if err != nil {
		return err
	}
	d := s.compare(here, there)
	var failed failures
	for _, o := range d.write {
		failed.add(s.write(ctx, o, there))
	}
	for _, o := range d.remove {
		failed.add(s.remove(ctx, o))
	}
	for _, a := range d.answers {
		failed.add(s.answer(ctx, a))
	}
	return errors.Join(failed...)
}

// failures are the first of all.
type failures []error

func (f *failures) add(err error) {
	if err != nil && len(*f) < maxFailures {
		*f = append(*f, err)
	}
}

func listOf(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	l := new(unstructured.UnstructuredList)
	l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return l
}

// listHere reads through the typed cache that the controllers have anyway.
func (s *session) listHere(ctx context.Context, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	made, err := s.local.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return nil, err
	}
	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%T is no list", made)
	}
	if err := s.local.List(ctx, list, client.InNamespace(s.here), s.wanted()); err != nil {
		return nil, fmt.Errorf("list here: %w", err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
	if err != nil {
		return nil, err
	}
	items, _, err := unstructured.NestedSlice(content, "items")
	if err != nil {
		return nil, err
	}
	out := make([]unstructured.Unstructured, 0, len(items))
	for _, item := range items {
		o, ok := item.(map[string]any)
		if !ok {
			continue
		}
		u := unstructured.Unstructured{Object: o}
		u.SetGroupVersionKind(kind)
		out = append(out, u)
	}
	return out, nil
}

// listThere lists the copies in pages, which get smaller where objects are large.
func (s *session) listThere(ctx context.Context, kind schema.GroupVersionKind) (all []unstructured.Unstructured, err error) {
	ctx, left := withBudget(ctx, maxListing)
	defer func() { s.read += maxListing - left.Load() }()
	size, next := pageSize, ""
	for asked := 0; asked < maxCopies; {
		list := listOf(kind)
		page, cancel := context.WithTimeout(ctx, requestTimeout)
		err := s.remote.List(page, list, client.InNamespace(s.there), s.marks(), client.Limit(size), client.Continue(next))
		cancel()
		if errors.Is(err, errAnswerTooLong) && size > 1 {
			size /= 4
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list at cluster %s: %w", s.provider, err)
		}
		all = append(all, list.Items...)
		if next = list.GetContinue(); next == "" && len(all) <= maxCopies {
			return all, nil
		}
		asked += max(size, len(list.Items)) // a page may be empty, and yet have a next one
	}
	return nil, fmt.Errorf("cluster %s tells of more than %d copies: none are looked at", s.provider, maxCopies)
}

// write writes a copy, unless this session has written the same before and it is still there.
func (s *session) write(ctx context.Context, o *unstructured.Unstructured, there []unstructured.Unstructured) error {
	key := objectKey{o.GetKind(), o.GetName()}
	at := slices.IndexFunc(there, func(t unstructured.Unstructured) bool { return t.GetName() == o.GetName() && s.ours(&t) })
	switch before := s.written[key]; {
	case at < 0:
	case before == nil && isCopy(&there[at], o): // an earlier session wrote it
		s.written[key] = o
		return nil
	case before != nil && reflect.DeepEqual(before.Object, o.Object) && isLike(&there[at], o):
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	options := []client.ApplyOption{client.FieldOwner(fieldOwner)}
	if at >= 0 {
		options = append(options, client.ForceOwnership)
	} else if err := s.isFree(ctx, o); err != nil {
		return fmt.Errorf("write %s at cluster %s: %w", o.GetName(), s.provider, err)
	}
	applied := o.DeepCopy()
	if err := s.remote.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), options...); err != nil {
		return fmt.Errorf("write %s at cluster %s: %w", o.GetName(), s.provider, err)
	}
	s.written[key] = o
	return nil
}

// isFree is an error if there is an object with the name of a copy that is none: the provider's own.
func (s *session) isFree(ctx context.Context, o *unstructured.Unstructured) error {
	there := new(unstructured.Unstructured)
	there.SetGroupVersionKind(o.GroupVersionKind())
	err := s.remote.Get(ctx, client.ObjectKey{Namespace: s.there, Name: o.GetName()}, there)
	if err == nil && !s.ours(there) {
		return apierrors.NewAlreadyExists(schema.GroupResource{Group: o.GroupVersionKind().Group, Resource: o.GetKind()}, o.GetName())
	}
	return client.IgnoreNotFound(err)
}

// isCopy tells whether a copy is what is to be written, with nothing added but what is the provider's word.
func isCopy(there, o *unstructured.Unstructured) bool {
	return there.GetDeletionTimestamp() == nil && reflect.DeepEqual(there.Object["spec"], o.Object["spec"]) &&
		maps.Equal(there.GetLabels(), o.GetLabels()) && maps.Equal(kept(there.GetAnnotations()), o.GetAnnotations())
}

// isLike tells whether the copy has the spec that was written: the provider may have changed it.
func isLike(there, written *unstructured.Unstructured) bool {
	return there.GetDeletionTimestamp() != nil || reflect.DeepEqual(there.Object["spec"], written.Object["spec"])
}

func (s *session) remove(ctx context.Context, o *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	delete(s.written, objectKey{o.GetKind(), o.GetName()})
	err := s.remote.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s at cluster %s: %w", o.GetName(), s.provider, err)
	}
	return nil
}

// answerError is why an answer is not taken over.
type answerError struct {
	name string
	err  error
}

func (e *answerError) Error() string { return "the status of " + e.name + ": " + e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

// answer takes over the status of a copy, unless it is none: what the schemas let pass and our types do not would end
// every watch of this kind here, whoever's the other objects are.
func (s *session) answer(ctx context.Context, a answer) error {
	status, there := a.there.Object["status"]
	if !there || reflect.DeepEqual(a.here.Object["status"], status) {
		return nil
	}
	before := a.here.DeepCopy()
	a.here.Object["status"] = status
	if err := s.judgeStatus(a.here, status); err != nil {
		return &answerError{a.here.GetName(), err}
	}
	err := s.local.Status().Patch(ctx, a.here, client.MergeFrom(before), client.FieldOwner(fieldOwner))
	if apierrors.IsInvalid(err) {
		return &answerError{a.here.GetName(), err}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take over the status of %s: %w", a.here.GetName(), err)
	}
	return nil
}

func (s *session) judgeStatus(o *unstructured.Unstructured, status any) error {
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	if len(text) > maxStatus {
		return fmt.Errorf("it has more than %d KiB", maxStatus>>10)
	}
	typed, err := s.local.Scheme().New(o.GroupVersionKind())
	if err != nil {
		return err
	}
	return json.Unmarshal(text, typed)
}
