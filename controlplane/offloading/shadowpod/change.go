package shadowpod

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/controlplane/requests"
	"github.com/sluice-net/sluice/reflection"
)

// digest identifies what a Pod follows of a ShadowPod.
func digest(s *raw) string {
	of := sha256.New()
	of.Write(s.Spec.Pod.Raw)
	of.Write([]byte(metadataOf(s).String()))
	return hex.EncodeToString(of.Sum(nil)[:12])
}

// change makes the Pod of a ShadowPod follow what it does not have of it, as far as Kubernetes lets one change a pod: labels,
// annotations, images, the deadline, tolerations and, by a resize, resources. What else has changed stays as it was when the
// Pod was made. again is when to look again at a resize that waits; zero: it is woken, or none does.
func (r *Reconciler) change(ctx context.Context, s *raw, p placement.Consumer, cached *corev1.Pod) (again time.Duration, err error) {
	if !cached.DeletionTimestamp.IsZero() || ended(cached.Status.Phase) {
		r.forget(client.ObjectKeyFromObject(s))
		return 0, nil
	}
	spec, err := specOf(s)
	if err != nil {
		r.tell(s, reasonRefused, reasonRefused+err.Error(), err.Error())
		return 0, nil // until it changes
	}
	live := new(corev1.Pod)
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(cached), live); err != nil || live.UID != cached.UID {
		return 0, client.IgnoreNotFound(err) // the cache is about to tell
	}
	follows := marks{digest(s), resourcesOf(spec)}
	if resized(live, spec) == nil {
		_, err := r.follow(ctx, s, live, spec, follows)
		return 0, err
	}
	if waits := (marks{spec: follows.spec + reflection.SuffixResizing}); live.Annotations[reflection.AnnotationFollowed] != waits.spec {
		if live, err = r.follow(ctx, s, live, spec, waits); err != nil {
			return 0, err
		}
	}
	now, again, err := r.resize(ctx, s, p, live, spec)
	if now == nil || err != nil {
		return again, err
	}
	_, err = r.patch(ctx, now, follows.put)
	return 0, err
}

// follow has a living Pod follow its ShadowPod in all but its resources, and returns what it is then. What it follows is put
// on it in any case: what is refused is not tried again until it changes.
func (r *Reconciler) follow(ctx context.Context, s *raw, live *corev1.Pod, spec *corev1.PodSpec, follows marks) (now *corev1.Pod, err error) {
	for _, do := range []func(*corev1.Pod){
		func(p *corev1.Pod) { setMutable(&p.Spec, spec); relabel(p, s) },
		func(p *corev1.Pod) { relabel(p, s) },
		func(*corev1.Pod) {},
	} {
		now, err = r.patch(ctx, live, func(p *corev1.Pod) { do(p); follows.put(p) })
		if why, refused := apply.Refusal(err); refused {
			r.tell(s, reasonRefused, reasonRefused+digest(s), "the pod stays as it is: "+why)
			continue
		}
		if err == nil && !equality.Semantic.DeepEqual(live.Spec, now.Spec) {
			log.FromContext(ctx).V(1).Info("changed a pod")
		}
		return now, err
	}
	return now, err
}

// marks say on a Pod what it follows of its ShadowPod.
type marks struct {
	spec      string // [reflection.AnnotationFollowed]
	resources string // [annotationResources]; empty: it stays
}

func (m marks) put(p *corev1.Pod) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[reflection.AnnotationFollowed] = m.spec
	if m.resources != "" {
		p.Annotations[annotationResources] = m.resources
	}
}

// patch changes a living Pod, and returns what it is then. A resize that was asked for before and not answered is over then:
// it was asked of an earlier version.
func (r *Reconciler) patch(ctx context.Context, live *corev1.Pod, change func(*corev1.Pod)) (now *corev1.Pod, err error) {
	now = live.DeepCopy()
	change(now)
	err = r.Patch(ctx, now, client.StrategicMergeFrom(live, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("change the pod: %w", err)
	}
	r.answered(now)
	return now, nil
}

// resize asks for the resources that a ShadowPod asks for, if its Quota has room, and returns the Pod when that is answered for
// good. Else the resize waits: it is looked at again when there may be room, or after a while.
func (r *Reconciler) resize(ctx context.Context, s *raw, p placement.Consumer, live *corev1.Pod, spec *corev1.PodSpec) (now *corev1.Pod, again time.Duration, err error) {
	name, to := client.ObjectKeyFromObject(live), resized(live, spec)
	if to == nil {
		return live, 0, nil
	}
	r.wait(p, name) // before it is looked: what is given back in between wakes it
	user, amount := accountOf(live).user, requests.OfPod(to)
	q, users, _, err := r.quota(ctx, p, func(all []offloadingv1beta1.Quota) *offloadingv1beta1.Quota { return quotaOf(user, all) })
	if err != nil {
		return nil, 0, err
	}
	more := grows(requests.OfPod(live), amount)
	reason, why := obstacle(&to.Spec, more, q, p.ID)
	if reason == "" && more {
		short, known := r.ledger.resize(name, live.UID, users, amount, q.Spec.Resources)
		if !known {
			return nil, settle, nil // the cache is about to tell
		}
		if short != "" {
			reason, why = reasonFull, short
		}
	}
	if reason != "" {
		r.tell(s, reason, reason+digest(s), "the pod keeps its resources for now: "+why)
		return nil, 0, nil
	}
	now = to.DeepCopy()
	err = r.SubResource("resize").Patch(ctx, now, client.StrategicMergeFrom(live, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldOwner))
	if err == nil {
		log.FromContext(ctx).V(1).Info("resized a pod")
		return now, 0, nil
	}
	if why, final := unresized(err); why != "" {
		r.answered(live)
		r.tell(s, reasonNotResized, digest(s)+why, "the pod keeps its resources: "+why)
		if final {
			return live, 0, nil
		}
		return nil, retry, nil
	}
	if apierrors.IsConflict(err) {
		r.answered(live) // it was not done
	}
	if client.IgnoreNotFound(err) == nil {
		return nil, 0, nil // the cache is about to tell
	}
	return nil, 0, fmt.Errorf("resize the pod: %w", err)
}

// answered counts a Pod as it is, and what a resize asked for no more.
func (r *Reconciler) answered(p *corev1.Pod) {
	if r.ledger.answered(client.ObjectKeyFromObject(p), p.UID, p.ResourceVersion, requests.OfPod(p)) {
		r.wake()
	}
}
