package shadowendpointslice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/controlplane/peeraddress"
)

// retry is when what was refused is tried again: what refused it may have changed.
const retry = time.Minute

// Reasons of the events of a ShadowEndpointSlice.
const (
	reasonRefused   = "EndpointSliceRefused"
	reasonEndpoints = "EndpointsRefused"
	reasonInTheWay  = "EndpointSliceInTheWay"
	reasonNoNetwork = "NetworkMissing"
)

// Reconciler makes the EndpointSlice of one ShadowEndpointSlice.
type Reconciler struct {
	client.Client
	// Slices sees ShadowEndpointSlices, unstructured, Namespaces those that were made for consumers.
	Slices, Namespaces client.Reader
	// Reader reads past every cache.
	Reader        client.Reader
	Recorder      events.EventRecorder
	LiqoNamespace string

	mu sync.Mutex
	// told is what was last told about a ShadowEndpointSlice.
	told map[types.NamespacedName]string
}

// A ValidatingAdmissionPolicy of the chart says which EndpointSlices may be written.
//
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=shadowendpointslices,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch
// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks at one ShadowEndpointSlice and its EndpointSlice.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	asked := newShadow()
	if err := r.Slices.Get(ctx, req.NamespacedName, asked); err != nil {
		r.tell(asked, req.NamespacedName, "", "")
		return ctrl.Result{}, client.IgnoreNotFound(err) // the EndpointSlice goes with its owner
	}
	namespace := new(corev1.Namespace)
	if err := r.Namespaces.Get(ctx, client.ObjectKey{Name: req.Namespace}, namespace); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // a user's: what is in it is none of ours
	}
	c, ok := placement.ConsumerOf(namespace)
	if !ok || !namespace.DeletionTimestamp.IsZero() || asked.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	f, unknown, err := r.gather(ctx, c)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	owner := metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name, UID: asked.GetUID(), Labels: asked.GetLabels()}
	template, err := read(asked)
	var want *discoveryv1.EndpointSlice
	var problems []string
	if err == nil {
		want, problems, err = Build(owner, template, f)
	}
	if err != nil {
		r.tell(asked, req.NamespacedName, reasonRefused, err.Error())
		return ctrl.Result{}, r.remove(ctx, owner)
	}
	reason, note := reasonEndpoints, strings.Join(problems, "; ")
	if unknown != "" && len(template.Endpoints) > 0 {
		reason, note = reasonNoNetwork, unknown
	}
	_, err = apply.Object(ctx, r.Client, r.Reader, want)
	theirs := new(apply.ForeignError)
	switch why, refused := apply.Refusal(err); {
	case errors.As(err, &theirs):
		reason, note = reasonInTheWay, theirs.Error()
	case refused:
		reason, note = reasonRefused, why
	case apply.NamespaceEnds(err):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, err
	default:
		r.tell(asked, req.NamespacedName, reason, note)
		return ctrl.Result{}, nil
	}
	r.tell(asked, req.NamespacedName, reason, note)
	return ctrl.Result{RequeueAfter: retry}, nil
}

// gather reads what slices of a consumer depend on. Unknown says why none of its addresses is known; empty: they are.
func (r *Reconciler) gather(ctx context.Context, c placement.Consumer) (f Facts, unknown string, err error) {
	if f.Judge, unknown, err = peeraddress.Gather(ctx, r.Client, r.Reader, r.LiqoNamespace, c.Tenant, c.ID); err != nil {
		return f, "", err
	}
	peer := new(corev1beta1.ForeignCluster)
	switch err := r.Get(ctx, client.ObjectKey{Name: c.ID}, peer); {
	case client.IgnoreNotFound(err) != nil:
		return f, "", fmt.Errorf("get the ForeignCluster: %w", err)
	case err != nil:
		peer = nil
	}
	f.Away = away(peer)
	return f, unknown, nil
}

// read reads what is asked for. It was not read before so that a ShadowEndpointSlice that cannot be read hides no others.
func read(asked *unstructured.Unstructured) (*offloadingv1beta1.EndpointSliceTemplate, error) {
	if _, dropped := asked.GetAnnotations()[annotationDropped]; dropped {
		return nil, fmt.Errorf("it is larger than %d KiB", maxSize>>10)
	}
	template, _, err := unstructured.NestedMap(asked.Object, "spec", "template")
	if err != nil {
		return nil, errors.New("spec.template is no object")
	}
	t := new(offloadingv1beta1.EndpointSliceTemplate)
	b, err := json.Marshal(template)
	if err == nil {
		err = json.Unmarshal(b, t)
	}
	if err != nil {
		return nil, fmt.Errorf("spec.template cannot be read: %s", text.Quoted(err.Error()))
	}
	return t, nil
}

// remove deletes the EndpointSlice of a ShadowEndpointSlice.
func (r *Reconciler) remove(ctx context.Context, owner metav1.ObjectMeta) error {
	s := new(discoveryv1.EndpointSlice)
	if err := r.Get(ctx, client.ObjectKey{Namespace: owner.Namespace, Name: owner.Name}, s); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(s, &owner) || !s.DeletionTimestamp.IsZero() {
		return nil
	}
	return apply.Delete(ctx, r.Client, s)
}

// tell tells the consumer, once for each note; empty: all is well.
func (r *Reconciler) tell(s *unstructured.Unstructured, name types.NamespacedName, reason, note string) {
	r.mu.Lock()
	before := r.told[name]
	if note == "" {
		delete(r.told, name)
	} else {
		r.told[name] = note
	}
	r.mu.Unlock()
	if note == "" || before == note {
		return
	}
	about := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.GetNamespace(), Name: s.GetName(), UID: s.GetUID(), ResourceVersion: s.GetResourceVersion()}}
	about.SetGroupVersionKind(s.GroupVersionKind())
	apply.Event(r.Recorder, about, corev1.EventTypeWarning, reason, "Reflect", note)
}

// ofPeer selects what belongs to a peering.
func ofPeer(id string) client.MatchingLabels {
	return client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: id}
}
