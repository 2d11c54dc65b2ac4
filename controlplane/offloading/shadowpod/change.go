package shadowpod

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-net/sluice/controlplane/apply"
)

// annotationSpec is on each Pod: a digest of the spec of the ShadowPod that it follows. The cache keeps no specs of Pods.
const annotationSpec = "liqo.io/shadowpod-spec"

// digest identifies the spec of a ShadowPod.
func digest(s *raw) string {
	sum := sha256.Sum256(s.Spec.Pod.Raw)
	return hex.EncodeToString(sum[:12])
}

// change makes the Pod of a ShadowPod follow a spec that it does not have, as far as Kubernetes lets one change a pod: images, the deadline,
// tolerations. What else has changed stays as it was when the Pod was made.
func (r *Reconciler) change(ctx context.Context, s *raw, cached *corev1.Pod) error {
	want := digest(s)
	if !cached.DeletionTimestamp.IsZero() || ended(cached.Status.Phase) {
		return nil
	}
	spec, err := read(s.Spec.Pod.Raw)
	if err != nil {
		r.tell(s, reasonRefused, reasonRefused+err.Error(), err.Error())
		return nil // until it changes
	}
	live := new(corev1.Pod)
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(cached), live); err != nil || live.UID != cached.UID {
		return client.IgnoreNotFound(err) // the cache is about to tell
	}
	changed := live.DeepCopy()
	follow(&changed.Spec, spec)
	mark(changed, want)
	err = r.patch(ctx, live, changed)
	if why, refused := apply.Refusal(err); refused {
		r.tell(s, reasonRefused, reasonRefused+want, "the pod goes on as it is: "+why)
		as := live.DeepCopy()
		mark(as, want) // not to be tried again until it changes
		return r.patch(ctx, live, as)
	}
	if err == nil && !equality.Semantic.DeepEqual(live.Spec, changed.Spec) {
		log.FromContext(ctx).V(1).Info("changed a pod")
	}
	return err
}

func mark(p *corev1.Pod, digest string) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[annotationSpec] = digest
}

func (r *Reconciler) patch(ctx context.Context, from, to *corev1.Pod) error {
	err := r.Patch(ctx, to.DeepCopy(), client.StrategicMergeFrom(from, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change the pod: %w", err)
	}
	return nil
}

// follow takes over what may change of a living pod. A toleration that is gone stays: Kubernetes takes none back.
func follow(p, want *corev1.PodSpec) {
	images := func(list, from []corev1.Container) {
		for i := range list {
			if at := slices.IndexFunc(from, func(c corev1.Container) bool { return c.Name == list[i].Name }); at >= 0 {
				list[i].Image = from[at].Image
			}
		}
	}
	images(p.Containers, want.Containers)
	images(p.InitContainers, want.InitContainers)
	if want.ActiveDeadlineSeconds != nil {
		p.ActiveDeadlineSeconds = want.ActiveDeadlineSeconds // which may fall, and not go
	}
	for _, t := range tolerations(want.Tolerations) {
		same := func(has corev1.Toleration) bool {
			has.TolerationSeconds = t.TolerationSeconds
			return equality.Semantic.DeepEqual(has, t)
		}
		if i := slices.IndexFunc(p.Tolerations, same); i >= 0 {
			p.Tolerations[i].TolerationSeconds = t.TolerationSeconds
		} else {
			p.Tolerations = append(p.Tolerations, t)
		}
	}
}

// tolerations are those that a pod of a consumer keeps.
func tolerations(of []corev1.Toleration) []corev1.Toleration {
	return slices.DeleteFunc(slices.Clone(of), func(t corev1.Toleration) bool {
		return !slices.Contains(keptTolerations, t.Key) || t.Effect != corev1.TaintEffectNoExecute
	})
}
