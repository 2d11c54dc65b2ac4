package shadowpod

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// reads is a reader that has one object of each type at most.
type reads struct {
	client.Reader
	shadow    *raw
	namespace *corev1.Namespace
	live      types.UID // of the ShadowPod, past every cache; empty: it is gone
}

// Get implements [client.Reader].
func (r reads) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch o := into.(type) {
	case *raw:
		*o = *r.shadow
		return nil
	case *corev1.Namespace:
		*o = *r.namespace
		return nil
	case *metav1.PartialObjectMetadata:
		if o.UID = r.live; r.live != "" {
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

var errMade = errors.New("it would make the pod")

// makes is a client that has granted a consumer one pod.
type makes struct{ client.Client }

// List implements [client.Reader].
func (makes) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if list, ok := into.(*offloadingv1beta1.QuotaList); ok {
		list.Items = []offloadingv1beta1.Quota{{Spec: offloadingv1beta1.QuotaSpec{User: "rome", Resources: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}}}}
	}
	return nil
}

// Create implements [client.Writer].
func (makes) Create(context.Context, client.Object, ...client.CreateOption) error { return errMade }

// TestMadeAgain has the cache know a ShadowPod without a Pod. Where the ShadowPod is gone, no Pod is made: the consumer has let
// its pod go as soon as it saw neither, and what takes the pod's place may run by now.
func TestMadeAgain(t *testing.T) {
	const uid = "1"
	for name, tt := range map[string]struct {
		phase corev1.PodPhase
		live  types.UID
		want  error
	}{
		"the first time":                     {"", uid, errMade},
		"it was deleted at once":             {"", "", nil},
		"it waited for room, or for a node":  {corev1.PodPending, uid, errMade},
		"it was pending, and is not wanted":  {corev1.PodPending, "", nil},
		"it was pending, and was made again": {corev1.PodPending, "2", nil},
		"it ran, and is wanted":              {corev1.PodRunning, uid, errMade},
		"it ran, and is not wanted":          {corev1.PodRunning, "", nil},
		"it ran, and another one is asked":   {corev1.PodRunning, "2", nil},
		"it has ended":                       {corev1.PodSucceeded, uid, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &raw{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "web", UID: uid}}
			s.Status.Phase = tt.phase
			s.Spec.Pod.Raw = []byte(`{"containers":[{"name":"web","image":"web"}]}`)
			read := reads{shadow: s, live: tt.live, namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Labels:      map[string]string{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: "rome"},
				Annotations: map[string]string{offloadingv1beta1.AnnotationManagedByNamespaceMap: "liqo-tenant-rome/milan"},
			}}}
			r := &Reconciler{Client: makes{}, Pods: read, Namespaces: read, Reader: read, ledger: newLedger(), told: map[types.NamespacedName]string{}}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if len(r.ledger.pods) > 0 {
				t.Errorf("what was not made counts: %v", r.ledger.pods)
			}
		})
	}
}
