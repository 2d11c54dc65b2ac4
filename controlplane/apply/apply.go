package apply

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// FieldOwner is the name under which the controllers own fields.
const FieldOwner = "sluice-controller"

// AnnotationHash holds a hash of what was applied last.
const AnnotationHash = "networking.liqo.io/applied-hash"

// Object makes the fields of desired those of the live object, which is created
// if it is not there. It reports whether it wrote. Status and metadata that an
// API server sets are ignored; desired is not changed.
//
// The live object is read through c and, if that is a cache which lacks it, through
// live: of kinds that others make too, caches hold only what is labelled as ours. Live
// is nil for kinds of which c has all. An object that is not ours ([Ours]) is left
// alone, and the error is a [ForeignError].
//
// A desired object with a resourceVersion is for that version of the live one: if there is
// a newer one, the error is a conflict.
//
// An object that is being deleted, or whose owner was an earlier one of the same name,
// is left alone: its end wakes the reconciler.
func Object(ctx context.Context, c client.Client, live client.Reader, desired client.Object) (wrote bool, err error) {
	want, err := fields(c.Scheme(), desired)
	if err != nil {
		return false, err
	}
	found, err := find(ctx, c, live, desired)
	if err != nil {
		return false, fmt.Errorf("get %s: %w", describe(want), err)
	}
	options := []client.ApplyOption{client.FieldOwner(FieldOwner)}
	switch {
	case found == nil:
		// Not by force: what somebody makes in this moment is theirs.
	case isManaged(found) && isGoing(found, desired):
		return false, nil
	case !Ours(c.Scheme(), found, metav1.GetControllerOf(desired)), !sameGateway(found, desired):
		return false, foreign(want.GetKind(), found)
	case !found.GetDeletionTimestamp().IsZero():
		return false, nil
	default:
		have, err := content(found)
		if err != nil {
			return false, err
		}
		if contains(have, want.Object) {
			return false, nil
		}
		want.SetResourceVersion(desired.GetResourceVersion())
		options = append(options, client.ForceOwnership)
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(want), options...); err != nil {
		return false, fmt.Errorf("apply %s: %w", describe(want), err)
	}
	return true, nil
}

// find reads the live object. It is nil if there is none.
func find(ctx context.Context, c client.Client, live client.Reader, o client.Object) (client.Object, error) {
	for _, reader := range []client.Reader{c, live} {
		if reader == nil {
			continue
		}
		found, err := newLike(o)
		if err != nil {
			return nil, err
		}
		switch err := reader.Get(ctx, client.ObjectKeyFromObject(o), found); {
		case err == nil:
			return found, nil
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return nil, nil
}

// DeleteOurs deletes an object if it is ours: see [Ours].
func DeleteOurs(ctx context.Context, c client.Client, o client.Object, owner *metav1.OwnerReference) error {
	if !Ours(c.Scheme(), o, owner) {
		return nil
	}
	return Delete(ctx, c, o)
}

// Delete deletes an object as it was read, and not another one that has its name by
// now. One that is not there is as good.
func Delete(ctx context.Context, c client.Client, o client.Object) error {
	uid := o.GetUID()
	if err := client.IgnoreNotFound(c.Delete(ctx, o, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("delete %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return nil
}

// Status lets change work on the status of live, and writes it if that made a
// difference. It fails with a conflict if live is not the newest version.
func Status(ctx context.Context, c client.Client, live client.Object, change func()) (wrote bool, err error) {
	before, ok := live.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("%T is no client.Object", live)
	}
	change()
	if equality.Semantic.DeepEqual(before, live) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Status().Patch(ctx, live, patch); err != nil {
		return false, fmt.Errorf("write status: %w", err)
	}
	return true, nil
}

// fields returns what is applied of o, with its hash in the annotation.
func fields(scheme *runtime.Scheme, o client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(o, scheme)
	if err != nil {
		return nil, err
	}
	object, err := content(o)
	if err != nil {
		return nil, err
	}
	delete(object, "status")
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(gvk)
	u.SetManagedFields(nil)
	u.SetResourceVersion("")
	u.SetUID("")
	u.SetGeneration(0)
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
	prune(object)
	text, err := json.Marshal(object) // sorts keys
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = make(map[string]string, 1)
	}
	annotations[AnnotationHash] = base64.RawURLEncoding.EncodeToString(sum[:12])
	u.SetAnnotations(annotations)
	return u, nil
}

// content is o as an API server sees it. It shares nothing with o.
func content(o client.Object) (map[string]any, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.DeepCopy().Object, nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}

// newLike returns an empty object of the type of o, so that it is read from the
// cache that the controllers' watches fill.
func newLike(o client.Object) (client.Object, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		n := new(unstructured.Unstructured)
		n.SetGroupVersionKind(u.GroupVersionKind())
		return n, nil
	}
	n, ok := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no client.Object", o)
	}
	return n, nil
}

// prune removes what says nothing: null, as which Go writes an absent time.
func prune(m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			prune(v)
		case []any:
			for _, e := range v {
				if e, ok := e.(map[string]any); ok {
					prune(e)
				}
			}
		}
	}
}

// contains tells whether every field of want is in have. Lists must be equal in
// length and order: what an API server adds to them it adds to their elements.
func contains(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			return len(want) == 0 && have == nil // an empty map is not stored
		}
		for k, w := range want {
			if h, there := have[k]; !there && !empty(w) || there && !contains(h, w) {
				// Kind and version are not kept in typed objects.
				if !there && (k == "kind" || k == "apiVersion") {
					continue
				}
				return false
			}
		}
		return true
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			return !ok && len(want) == 0
		}
		for i := range want {
			if !contains(have[i], want[i]) {
				return false
			}
		}
		return true
	}
	if equality.Semantic.DeepEqual(have, want) {
		return true
	}
	h, w := fmt.Sprint(have), fmt.Sprint(want) // int64 or float64
	if h == w {
		return true
	}
	// "1000m" comes back as "1".
	x, err := resource.ParseQuantity(h)
	if err != nil {
		return false
	}
	y, err := resource.ParseQuantity(w)
	return err == nil && x.Cmp(y) == 0
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

func describe(u *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s", u.GetKind(), client.ObjectKeyFromObject(u))
}
