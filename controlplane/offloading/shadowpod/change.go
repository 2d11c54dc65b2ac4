package shadowpod

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-net/sluice/controlplane/apply"
)

const (
	// annotationSpec is on each Pod: a digest of what it follows of the ShadowPod. The cache keeps no specs of Pods.
	annotationSpec = "liqo.io/shadowpod-spec"
	// annotationMetadata is on each Pod: which labels and annotations it has of the ShadowPod, see [metadata].
	annotationMetadata = "liqo.io/shadowpod-metadata"
)

// digest identifies what a Pod follows of a ShadowPod.
func digest(s *raw) string {
	of := sha256.New()
	of.Write(s.Spec.Pod.Raw)
	of.Write([]byte(metadataOf(s).String()))
	return hex.EncodeToString(of.Sum(nil)[:12])
}

// metadata are the labels and annotations that a Pod has of its ShadowPod: of each key a hash of the value. What differs
// from it on the Pod somebody of this cluster has written since.
type metadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func metadataOf(s *raw) metadata {
	return metadata{hashes(kept(s.Labels)), hashes(annotations(s))}
}

func hashes(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		sum := sha256.Sum256([]byte(v))
		out[k] = hex.EncodeToString(sum[:8])
	}
	return out
}

// String is the value of the annotation.
func (m metadata) String() string {
	text, err := json.Marshal(m) // sorts keys
	if err != nil {
		return ""
	}
	return string(text)
}

// relabel has a Pod follow the labels and annotations of its ShadowPod. A key that somebody of this cluster has written
// stays: a network plugin, for one, keeps the address of a pod in an annotation.
func relabel(p *corev1.Pod, s *raw) {
	var had metadata
	if json.Unmarshal([]byte(p.Annotations[annotationMetadata]), &had) != nil {
		had = metadata{} // that of an earlier version keeps what it has
	}
	var has metadata
	p.Labels, has.Labels = merge(p.Labels, had.Labels, kept(s.Labels))
	p.Annotations, has.Annotations = merge(p.Annotations, had.Annotations, annotations(s))
	p.Annotations[annotationMetadata] = has.String()
}

// merge returns what a Pod has to have, and the hashes of what is the ShadowPod's of it.
func merge(live, had, want map[string]string) (out, ours map[string]string) {
	if out = maps.Clone(live); out == nil {
		out = map[string]string{}
	}
	now, ours := hashes(live), hashes(want)
	for key := range had {
		if _, still := want[key]; !still && now[key] == had[key] {
			delete(out, key)
		}
	}
	for key, value := range want {
		if now[key] == had[key] { // or neither has it
			out[key] = value
		} else {
			delete(ours, key)
		}
	}
	return out, ours
}

// change makes the Pod of a ShadowPod follow what it does not have of it, as far as Kubernetes lets one change a pod: labels, annotations,
// images, the deadline, tolerations. What else has changed stays as it was when the Pod was made. Amounts may change, too; they
// stay, as the Quota would have to be asked, and the consumer is told.
func (r *Reconciler) change(ctx context.Context, s *raw, cached *corev1.Pod) error {
	want := digest(s)
	if !cached.DeletionTimestamp.IsZero() || ended(cached.Status.Phase) {
		return nil
	}
	spec, err := specOf(s)
	if err != nil {
		r.tell(s, reasonRefused, reasonRefused+err.Error(), err.Error())
		return nil // until it changes
	}
	live := new(corev1.Pod)
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(cached), live); err != nil || live.UID != cached.UID {
		return client.IgnoreNotFound(err) // the cache is about to tell
	}
	if kept := unresized(&live.Spec, spec); kept != "" {
		r.tell(s, reasonNotResized, reasonNotResized+want, kept)
	}
	for _, do := range []func(*corev1.Pod){
		func(p *corev1.Pod) { follow(&p.Spec, spec); relabel(p, s) },
		func(p *corev1.Pod) { relabel(p, s) },
		func(*corev1.Pod) {}, // not to be tried again until it changes
	} {
		changed := live.DeepCopy()
		do(changed)
		mark(changed, want)
		err = r.patch(ctx, live, changed)
		if why, refused := apply.Refusal(err); refused {
			r.tell(s, reasonRefused, reasonRefused+want, "the pod stays as it is: "+why)
			continue
		}
		if err == nil && !equality.Semantic.DeepEqual(live.Spec, changed.Spec) {
			log.FromContext(ctx).V(1).Info("changed a pod")
		}
		return err
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

// unresized says which amounts of a living pod are others than wanted; empty: none. Amounts that are not wanted any more, or
// that this cluster has added, are none of them.
func unresized(p, want *corev1.PodSpec) string {
	differs := func(where string, has, want *corev1.ResourceRequirements) string {
		if want == nil {
			return ""
		}
		for _, kind := range []struct {
			name      string
			has, want corev1.ResourceList
		}{{"requests", has.Requests, want.Requests}, {"limits", has.Limits, want.Limits}} {
			for _, name := range slices.Sorted(maps.Keys(kind.want)) {
				has, want := kind.has[name], kind.want[name]
				if has.Cmp(want) != 0 {
					return fmt.Sprintf("%s %s %s of %s and is to have %s: a pod of another cluster is not resized in place; recreate it", where, kind.name, has.String(), name, want.String())
				}
			}
		}
		return ""
	}
	all := []string{differs("the pod", cmp.Or(p.Resources, new(corev1.ResourceRequirements)), want.Resources)}
	for _, c := range slices.Concat(p.Containers, p.InitContainers) {
		for _, w := range slices.Concat(want.Containers, want.InitContainers) {
			if w.Name == c.Name {
				all = append(all, differs("container "+c.Name, &c.Resources, &w.Resources))
			}
		}
	}
	return cmp.Or(all...)
}

// tolerations are those that a pod of a consumer keeps.
func tolerations(of []corev1.Toleration) []corev1.Toleration {
	return slices.DeleteFunc(slices.Clone(of), func(t corev1.Toleration) bool {
		return !slices.Contains(keptTolerations, t.Key) || t.Effect != corev1.TaintEffectNoExecute
	})
}
