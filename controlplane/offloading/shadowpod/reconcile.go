package shadowpod

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/controlplane/requests"
	"github.com/sluice-net/sluice/reflection"
)

const (
	// settle is when to look again at what the cache is about to tell.
	settle = 100 * time.Millisecond
	// starting is how old a Pod is before its ShadowPod tells its phase, which nothing waits for unless it has ended. Most run
	// by then, and have one write less.
	starting = 5 * time.Second
	// retry is when what was refused is tried again: what refused it may have changed.
	retry = time.Minute
)

// Reasons of the events of a ShadowPod.
const (
	reasonRefused  = "PodRefused"
	reasonInTheWay = "PodInTheWay"
	reasonNoQuota  = "QuotaMissing"
	reasonCordoned = "Cordoned"
	reasonFull     = "QuotaExceeded"
	// reasonNotResized means that the pod goes on with the resources that it has, whatever room its Quota has.
	reasonNotResized = "PodNotResized"
	// reasonNoNetwork means that the pod is to reach its API server, and it is not known here how.
	reasonNoNetwork = "NetworkMissing"
)

// Reconciler makes the Pod of one ShadowPod.
type Reconciler struct {
	client.Client
	// Pods sees ShadowPods, as raw, and the Pods made of them; Namespaces those that were made for consumers.
	Pods, Namespaces client.Reader
	// Reader reads past every cache.
	Reader   client.Reader
	Recorder events.EventRecorder

	ledger *ledger

	// room has one place: it is sent to when a Pod does not count any more.
	room chan event.TypedGenericEvent[*raw]

	mu sync.Mutex
	// waiting are those that a Quota has no room for, by its tenant namespace; told is what was last told about one.
	waiting map[string]map[types.NamespacedName]bool
	told    map[types.NamespacedName]string
}

// A ValidatingAdmissionPolicy of the chart says which Pods may be written.
//
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=shadowpods,verbs=get;list;watch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=shadowpods/status,verbs=patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=quotas,verbs=get;list;watch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/resize,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks at one ShadowPod and its Pod.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := new(raw)
	if err := r.Pods.Get(ctx, req.NamespacedName, s); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
		r.forget(req.NamespacedName)
		pod := new(corev1.Pod)
		if err := r.Pods.Get(ctx, req.NamespacedName, pod); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		return ctrl.Result{}, r.end(ctx, pod)
	}
	namespace := new(corev1.Namespace)
	if err := r.Namespaces.Get(ctx, client.ObjectKey{Name: s.Namespace}, namespace); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // a user's: what is in it is none of ours
	}
	p, ok := placement.ConsumerOf(namespace)
	if !ok || !namespace.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	pod := new(corev1.Pod)
	err := r.Pods.Get(ctx, req.NamespacedName, pod)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, err
	case err == nil && !metav1.IsControlledBy(pod, s):
		return ctrl.Result{}, r.end(ctx, pod) // that of an earlier ShadowPod of the name
	case err == nil && !s.DeletionTimestamp.IsZero():
		return ctrl.Result{}, apply.Delete(ctx, r.Client, pod)
	case err == nil && pod.Annotations[reflection.AnnotationFollowed] == digest(s):
		r.forget(req.NamespacedName)
		if wait := phaseAfter(s, pod); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		return ctrl.Result{}, r.status(ctx, s, phaseOf(s, pod), nil)
	case err == nil:
		again, err := r.change(ctx, s, p, pod)
		return ctrl.Result{RequeueAfter: again}, errors.Join(err, r.status(ctx, s, phaseOf(s, pod), nil))
	case !s.DeletionTimestamp.IsZero() || ended(s.Status.Phase):
		return ctrl.Result{}, nil
	}
	again, made, why, err := r.make(ctx, s, p)
	if err != nil || made {
		return ctrl.Result{}, err // the Pod is about to tell its phase
	}
	before := refusal{s.Status.Reason, s.Status.Message}
	switch {
	case why == nil: // nobody knows yet
		why = &before
	case why.reason == reasonFull:
		// What other pods have changes all the time, and many may wait: what was said first stays.
		r.tell(s, why.reason, why.reason, why.message)
		if before.reason == reasonFull {
			why = &before
		}
	default:
		r.tell(s, why.reason, why.reason+why.message, why.message)
	}
	return ctrl.Result{RequeueAfter: again}, r.status(ctx, s, corev1.PodPending, why)
}

// refusal is why there is no pod.
type refusal struct{ reason, message string }

// end deletes a Pod whose ShadowPod is gone. The garbage collector would, too; after an API server was away that takes it a
// minute or more, and the consumer waits for the end of the pod.
func (r *Reconciler) end(ctx context.Context, pod *corev1.Pod) error {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "ShadowPod" || !pod.DeletionTimestamp.IsZero() {
		return nil
	}
	there, err := r.lives(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, owner.UID)
	if err != nil || there {
		return err // the cache is about to tell
	}
	return apply.Delete(ctx, r.Client, pod)
}

// lives tells, by the word of the API server and not of a cache, whether a ShadowPod is there.
func (r *Reconciler) lives(ctx context.Context, name types.NamespacedName, uid types.UID) (bool, error) {
	live := new(metav1.PartialObjectMetadata)
	live.SetGroupVersionKind(offloadingv1beta1.GroupVersion.WithKind("ShadowPod"))
	err := r.Reader.Get(ctx, name, live)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read a ShadowPod past the cache: %w", err)
	}
	return err == nil && live.UID == uid, nil
}

// make makes the Pod, or says why not. Before, the API server has to say that the ShadowPod is there: after an outage the
// cache may be far behind, and a Pod that is gone may be so because its ShadowPod is. The consumer has been told by then that
// nothing is left, and what takes the place of its pod may run.
func (r *Reconciler) make(ctx context.Context, s *raw, p placement.Consumer) (again time.Duration, made bool, why *refusal, err error) {
	name := client.ObjectKeyFromObject(s)
	spec, err := specOf(s)
	if err != nil {
		return 0, false, &refusal{reasonRefused, err.Error()}, nil // until it changes
	}
	addresses, err := r.addresses(ctx, p)
	if err != nil {
		return 0, false, nil, err
	}
	if err := reflection.TranslateAPIServer(spec, addresses); err != nil {
		r.wait(p, name)
		return retry, false, &refusal{reasonNoNetwork, err.Error()}, nil
	}
	q, live, selector, err := r.quota(ctx, p, func(all []offloadingv1beta1.Quota) *offloadingv1beta1.Quota { return choose(s, all) })
	if err != nil {
		return 0, false, nil, err
	}
	if reason, why := closed(q, p.ID); reason != "" {
		r.wait(p, name)
		return 0, false, &refusal{reason, why}, nil
	}
	if why := stated(spec, q.Spec.LimitsEnforcement); why != "" {
		return retry, false, &refusal{reasonRefused, why}, nil
	}
	pod := podOf(s, spec, p, q, selector)
	short, old, known := r.ledger.take(name, accountOf(pod), live, requests.OfPod(pod), q.Spec.Resources)
	switch {
	case known:
		return settle, false, nil, r.check(ctx, name, old)
	case short != "":
		// In this order: what is given back in between is tried again.
		r.wait(p, name)
		if s2, _, _ := r.ledger.take(name, accountOf(pod), live, requests.OfPod(pod), q.Spec.Resources); s2 == "" {
			r.ledger.forget(name, "")
			return settle, false, nil, nil
		}
		return 0, false, &refusal{reasonFull, short}, nil
	}
	wanted, err := r.lives(ctx, name, s.UID)
	if err == nil && wanted {
		err = r.Create(ctx, pod, client.FieldOwner(apply.FieldOwner))
	}
	if err == nil && wanted {
		r.countPod(pod)
		r.forget(name)
		log.FromContext(ctx).V(1).Info("made a pod", "clusterID", p.ID)
		return 0, true, nil, nil
	}
	if r.ledger.forget(name, "") { // another pod may wait for what this one does not take
		r.wake()
	}
	if err == nil {
		return 0, true, nil, nil // the ShadowPod is gone: the cache is about to tell
	}
	if apierrors.IsAlreadyExists(err) {
		return retry, false, &refusal{reasonInTheWay, "there is a pod of this name that was not made for this ShadowPod: it is left as it is"}, nil
	}
	if why, refused := apply.Refusal(err); refused {
		return retry, false, &refusal{reasonRefused, why}, nil
	}
	if apply.NamespaceEnds(err) {
		return 0, false, nil, nil
	}
	return 0, false, nil, fmt.Errorf("make the pod: %w", err)
}

// check stops counting a pod of which no cache has told and that is gone.
func (r *Reconciler) check(ctx context.Context, name types.NamespacedName, uid types.UID) error {
	if uid == "" {
		return nil // it is being made
	}
	live := new(corev1.Pod)
	err := r.Reader.Get(ctx, name, live)
	if apierrors.IsNotFound(err) || err == nil && live.UID != uid {
		r.ledger.forget(name, uid)
		return nil
	}
	return err
}

// addresses translates those of the consumer; without a network of the peering none.
func (r *Reconciler) addresses(ctx context.Context, p placement.Consumer) (reflection.Addresses, error) {
	var list networkingv1beta1.ConfigurationList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy, client.InNamespace(p.Tenant), client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: p.ID}); err != nil {
		return reflection.Addresses{}, fmt.Errorf("list Configurations: %w", err)
	}
	a, err := reflection.OldestAddresses(list.Items)
	if err != nil {
		return reflection.Addresses{}, nil // nothing is translated: a pod that needs it waits
	}
	return a, nil
}

// quota is the one of the consumer's that is picked, which of its users have one, and where its pods run as the ResourceSlice
// says.
func (r *Reconciler) quota(ctx context.Context, p placement.Consumer, pick func([]offloadingv1beta1.Quota) *offloadingv1beta1.Quota) (q *offloadingv1beta1.Quota, users map[string]bool, selector map[string]string, err error) {
	var list offloadingv1beta1.QuotaList
	if err := r.List(ctx, &list, client.InNamespace(p.Tenant), client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: p.ID}); err != nil {
		return nil, nil, nil, fmt.Errorf("list Quotas: %w", err)
	}
	var granted authv1beta1.ResourceSliceList
	if err := r.List(ctx, &granted, client.UnsafeDisableDeepCopy, client.InNamespace(p.Tenant)); err != nil {
		return nil, nil, nil, fmt.Errorf("list ResourceSlices: %w", err)
	}
	quotas := live(list.Items, granted.Items)
	users = map[string]bool{}
	for _, q := range quotas {
		users[label(q.Spec.User)] = true
	}
	if q = pick(quotas); q == nil {
		return nil, nil, nil, nil
	}
	if at := slices.IndexFunc(granted.Items, func(s authv1beta1.ResourceSlice) bool { return metav1.IsControlledBy(q, &s) }); at >= 0 {
		selector = maps.Clone(granted.Items[at].Status.NodeSelector)
	}
	return q, users, selector, nil
}

// accountOf is what a Pod counts against, as its labels say, which only the controller writes.
func accountOf(p *corev1.Pod) account {
	return account{p.Labels[networkingv1beta1.LabelRemoteClusterID], p.Labels[offloadingv1beta1.LabelCreatorUser]}
}

// status writes the phase, and why there is no pod unless why is nil. The object is written without its spec, which nobody has
// judged.
func (r *Reconciler) status(ctx context.Context, s *raw, phase corev1.PodPhase, why *refusal) error {
	status := offloadingv1beta1.ShadowPodStatus{Phase: cmp.Or(phase, corev1.PodPending)}
	if why != nil {
		status.Reason, status.Message = why.reason, text.Printable(why.message, text.MaxEvent)
	}
	if s.Status == status {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": s.UID},
		"status":   map[string]any{"phase": status.Phase, "reason": orNull(status.Reason), "message": orNull(status.Message)},
	})
	if err != nil {
		return err
	}
	o := new(unstructured.Unstructured)
	o.SetGroupVersionKind(offloadingv1beta1.GroupVersion.WithKind("ShadowPod"))
	o.SetNamespace(s.Namespace)
	o.SetName(s.Name)
	if err := r.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(apply.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// orNull is what a merge patch removes a field with, if there is no text.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// tell tells the consumer, once for each what.
func (r *Reconciler) tell(s *raw, reason, what, message string) {
	name := client.ObjectKeyFromObject(s)
	r.mu.Lock()
	before := r.told[name]
	r.told[name] = what
	r.mu.Unlock()
	if before == what {
		return
	}
	about := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion}}
	about.SetGroupVersionKind(offloadingv1beta1.GroupVersion.WithKind("ShadowPod"))
	apply.Event(r.Recorder, about, corev1.EventTypeWarning, reason, "Create", strings.ToValidUTF8(message, ""))
}

func (r *Reconciler) wait(p placement.Consumer, name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[p.Tenant] == nil {
		r.waiting[p.Tenant] = map[types.NamespacedName]bool{}
	}
	r.waiting[p.Tenant][name] = true
}

func (r *Reconciler) forget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, name)
	for _, w := range r.waiting {
		delete(w, name)
	}
}

// waitingIn returns those that wait for a Quota of a tenant namespace; empty: of any.
func (r *Reconciler) waitingIn(tenant string) (requests []ctrl.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for in, names := range r.waiting {
		if tenant != "" && in != tenant {
			continue
		}
		for name := range names {
			requests = append(requests, ctrl.Request{NamespacedName: name})
		}
	}
	return requests
}
