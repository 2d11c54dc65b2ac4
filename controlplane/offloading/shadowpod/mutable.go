package shadowpod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// annotationMetadata is on each Pod: which labels and annotations it has of the ShadowPod, see [metadata].
const annotationMetadata = "liqo.io/shadowpod-metadata"

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

// setMutable sets what Kubernetes lets one change of a living pod, except labels, annotations and resources. A toleration that is gone stays: Kubernetes takes none back.
func setMutable(p, want *corev1.PodSpec) {
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
