package virtualkubelet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/reflection"
)

// foreignError says that there is an object of a name at the provider that this peering has not made.
type foreignError struct{ resource, namespace, name string }

// Error implements error. Its text is made for an Event.
func (e *foreignError) Error() string {
	return fmt.Sprintf("the other cluster has an object %s %s/%s that was not reflected from here, and it is left alone: give one of the two another name", e.resource, e.namespace, e.name)
}

// resource is one kind at the provider.
type resource struct {
	client rest.Interface
	name   string
	made   *made // nil: nothing is remembered
}

// resource is one kind at the provider of the session.
func (s *session) resource(client rest.Interface, name string) resource {
	return resource{client, name, &s.made}
}

// late is how long a watch may take to tell of an object that was made. After that it is asked for.
const late = 5 * time.Second

// made are objects that were made a moment ago, by resource, namespace and name. That they are not in a cache means nothing
// yet, and asking for each would be a request for each.
type made struct {
	mu sync.Mutex
	at map[[3]string]time.Time
}

// remember notes that an object was made.
func (r resource) remember(namespace, name string) {
	if r.made == nil {
		return
	}
	now := time.Now()
	r.made.mu.Lock()
	defer r.made.mu.Unlock()
	if r.made.at == nil {
		r.made.at = map[[3]string]time.Time{}
	}
	maps.DeleteFunc(r.made.at, func(_ [3]string, at time.Time) bool { return now.Sub(at) > late })
	r.made.at[[3]string{r.name, namespace, name}] = now
}

// forget notes that an object was seen or deleted: that it is not in a cache means something again.
func (r resource) forget(namespace, name string) {
	if r.made == nil {
		return
	}
	r.made.mu.Lock()
	defer r.made.mu.Unlock()
	delete(r.made.at, [3]string{r.name, namespace, name})
}

// justMade tells whether an object was made a moment ago.
func (r resource) justMade(namespace, name string) bool {
	if r.made == nil {
		return false
	}
	r.made.mu.Lock()
	defer r.made.mu.Unlock()
	at, ok := r.made.at[[3]string{r.name, namespace, name}]
	return ok && time.Since(at) <= late
}

// reflected is an object to be written at the provider.
type reflected interface {
	metav1.Object
	runtime.Object
}

// noVersion is the version of no object: a store counts from it. What is applied with it is made, or is a conflict.
const noVersion = "1"

// apply makes the object at the provider equal to desired, and reports whether it wrote. have is what the cache has of
// it; nil: nothing.
func (r resource) apply(ctx context.Context, p reflection.Peering, desired reflected, have metav1.Object) (wrote bool, err error) {
	text, err := json.Marshal(desired)
	if err != nil {
		return false, fmt.Errorf("encode %s %s/%s: %w", r.name, desired.GetNamespace(), desired.GetName(), err)
	}
	sum := sha256.Sum256(text)
	hash := hex.EncodeToString(sum[:12])
	if have == nil {
		if r.justMade(desired.GetNamespace(), desired.GetName()) {
			return false, errNotListed
		}
		err := r.create(ctx, desired, hash, noVersion)
		if !apierrors.IsConflict(err) {
			return err == nil, err
		}
		// The cache is late, or does not see it as it is not ours.
		live, notRead := r.metadata(ctx, desired.GetNamespace(), desired.GetName())
		switch {
		case notRead != nil:
			return false, notRead
		case live == nil: // not every server makes an object of which a version is named
			err := r.create(ctx, desired, hash, "")
			return err == nil, err
		}
		have = live
	} else {
		r.forget(desired.GetNamespace(), desired.GetName())
	}
	switch {
	case !p.Ours(have.GetLabels()):
		return false, &foreignError{r.name, desired.GetNamespace(), desired.GetName()}
	case have.GetAnnotations()[reflection.AnnotationHash] == hash:
		return false, nil
	}
	err = r.write(ctx, desired, hash, have, "")
	return err == nil, err
}

// create makes an object of which there is none, and remembers that.
func (r resource) create(ctx context.Context, desired reflected, hash, version string) error {
	err := r.write(ctx, desired, hash, nil, version)
	if err == nil {
		r.remember(desired.GetNamespace(), desired.GetName())
	}
	return err
}

// write applies an object in place of have, and not of another one that has its name by now; nil: of none. Version is the
// one that it must have there; empty: any.
func (r resource) write(ctx context.Context, desired reflected, hash string, have metav1.Object, version string) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return fmt.Errorf("convert %s %s/%s: %w", r.name, desired.GetNamespace(), desired.GetName(), err)
	}
	delete(fields, "status")
	o := unstructured.Unstructured{Object: fields}
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	if version != "" {
		o.SetResourceVersion(version)
	}
	if have != nil {
		o.SetUID(have.GetUID())
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[reflection.AnnotationHash] = hash
	o.SetAnnotations(annotations)
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	force := have != nil // by force never what somebody makes in this moment
	err = r.client.Patch(types.ApplyPatchType).Namespace(o.GetNamespace()).Resource(r.name).Name(o.GetName()).
		VersionedParams(&metav1.PatchOptions{FieldManager: offloadingv1beta1.FieldManagerReflection, Force: &force}, metav1.ParameterCodec).
		Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("apply %s %s/%s: %w", r.name, o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// metadata reads the metadata of an object past every cache; nil: there is none.
func (r resource) metadata(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	text, err := r.client.Get().Namespace(namespace).Resource(r.name).Name(name).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s %s/%s: %w", r.name, namespace, name, err)
	}
	o := new(metav1.PartialObjectMetadata)
	if err := json.Unmarshal(text, o); err != nil {
		return nil, fmt.Errorf("get %s %s/%s: %w", r.name, namespace, name, err)
	}
	return o, nil
}

// delete deletes an object as it was read, and not another one that has its name by now. One that is not there is as
// good. grace is that of a pod; nil: its own.
func (r resource) delete(ctx context.Context, o metav1.Object, grace *int64) error {
	uid := o.GetUID()
	err := r.client.Delete().NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").Resource(r.name).Name(o.GetName()).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, GracePeriodSeconds: grace}).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s %s/%s: %w", r.name, o.GetNamespace(), o.GetName(), err)
	}
	r.forget(o.GetNamespace(), o.GetName()) // it may be wanted again before it would be asked for
	return nil
}

// Reasons of Events.
const (
	// ReasonFailedReflection says why an object does not reach the provider.
	ReasonFailedReflection = "FailedReflection"
	// ReasonNotOffloaded says that the namespace of a pod on a virtual node is not offloaded.
	ReasonNotOffloaded = "OffloadingBackOff"
	// ReasonAborted says that the namespace of a pod is offloaded no more.
	ReasonAborted = "OffloadingAborted"
	// ReasonNodeTaken says that there is a Node of the name of a VirtualNode which is none.
	ReasonNodeTaken = "NodeNameTaken"
	// ReasonTooMuch says that the provider has more objects of a kind than are held of it.
	ReasonTooMuch = "ProviderHoldsTooMuch"
	// ReasonKubeconfig says that the credentials for the provider are missing or refused.
	ReasonKubeconfig = "KubeconfigInvalid"
)

// event makes a Warning about an object here, once for each text within the life of an Event.
func (k *Kubelet) event(ctx context.Context, about corev1.ObjectReference, reason, note string) {
	note = text.Cut(note, text.MaxEvent)
	sum := sha256.Sum256([]byte(string(about.UID) + reason + note))
	namespace := cmp.Or(about.Namespace, metav1.NamespaceDefault)
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: about.Name + "." + hex.EncodeToString(sum[:8])},
		InvolvedObject: about, Type: corev1.EventTypeWarning, Reason: reason, Message: note, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: component},
	}
	err := k.home.core.Post().Namespace(namespace).Resource("events").Body(e).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
		k.log.Debug("cannot write an event", "reason", reason, "error", err)
	}
}

// reference names an object in an Event.
func reference(version, kind string, o metav1.Object) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: version, Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}
