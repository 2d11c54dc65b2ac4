package reflection

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// Patch is what a VirtualNode adds to the pods on it.
type Patch struct {
	Filter           Filter
	NodeSelector     map[string]string
	Tolerations      []corev1.Toleration
	NodeAffinity     *corev1.NodeAffinity
	RuntimeClassName string
}

// PodOptions are what a ShadowPod depends on beside the Pod.
type PodOptions struct {
	Peering   Peering
	Namespace string // at the provider
	Patch     Patch
	// API says how the pod reaches the API server of the consumer.
	API APIAccess
}

// RefusedError says why a pod cannot run at a provider. Its text is made for an Event.
type RefusedError struct {
	// Field is the path of the field in the pod.
	Field string
	// Why completes "the field ...".
	Why string
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the pod cannot run on a virtual node: %s %s", e.Field, e.Why)
}

// ShadowPod returns what asks the provider for a pod. The error is a [*RefusedError].
func ShadowPod(pod *corev1.Pod, o PodOptions) (*offloadingv1beta1.ShadowPod, error) {
	spec, err := podSpec(pod, o)
	if err != nil {
		return nil, err
	}
	m := o.Peering.meta(pod.ObjectMeta, o.Namespace, o.Patch.Filter)
	delete(m.Labels, networkingv1beta1.LabelShadowPod)
	m.Labels[offloadingv1beta1.LabelNodeName] = pod.Spec.NodeName
	return &offloadingv1beta1.ShadowPod{
		TypeMeta:   metav1.TypeMeta{APIVersion: offloadingv1beta1.GroupVersion.String(), Kind: "ShadowPod"},
		ObjectMeta: m, Spec: offloadingv1beta1.ShadowPodSpec{Pod: spec},
	}, nil
}

// podSpec returns the spec from which the provider makes the pod.
func podSpec(pod *corev1.Pod, o PodOptions) (corev1.PodSpec, error) {
	if err := refuse(&pod.Spec); err != nil {
		return corev1.PodSpec{}, err
	}
	s := pod.Spec.DeepCopy()
	spec := corev1.PodSpec{
		// As they are.
		Volumes:                       s.Volumes,
		InitContainers:                s.InitContainers,
		Containers:                    s.Containers,
		RestartPolicy:                 s.RestartPolicy,
		TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds,
		ActiveDeadlineSeconds:         s.ActiveDeadlineSeconds,
		DNSPolicy:                     s.DNSPolicy,
		DNSConfig:                     s.DNSConfig,
		ShareProcessNamespace:         s.ShareProcessNamespace,
		SecurityContext:               s.SecurityContext,
		ImagePullSecrets:              s.ImagePullSecrets,
		Hostname:                      s.Hostname,
		HostnameOverride:              s.HostnameOverride,
		Subdomain:                     s.Subdomain,
		SetHostnameAsFQDN:             s.SetHostnameAsFQDN,
		HostAliases:                   s.HostAliases,
		EnableServiceLinks:            s.EnableServiceLinks,
		TopologySpreadConstraints:     spread(s.TopologySpreadConstraints),
		OS:                            s.OS,
		HostUsers:                     s.HostUsers,
		Resources:                     s.Resources,
		// As the provider's nodes need it.
		NodeSelector:     o.Patch.NodeSelector,
		Affinity:         affinity(pod, o.Patch.NodeAffinity),
		Tolerations:      tolerations(s.Tolerations, o.Patch.Tolerations),
		RuntimeClassName: runtimeClass(pod, o.Patch),
		// A token of the provider would be worth something there: see APIAccess.
		AutomountServiceAccountToken: new(false),
	}
	o.API.apply(pod, &spec, o.Peering)
	return spec, nil
}

// volumes are the sources of volumes that mean the same in every cluster.
func portable(v *corev1.VolumeSource) bool {
	return v.EmptyDir != nil || v.Secret != nil || v.ConfigMap != nil || v.DownwardAPI != nil || v.Projected != nil ||
		v.Image != nil || v.CSI != nil
}

// persistent tells whether a volume needs a PersistentVolume: by a claim that is there or, as a StatefulSet has it, will be,
// or by one that the pod brings.
func persistent(v *corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }

// NeedsVolume tells whether a pod needs a PersistentVolume, with which it cannot be offloaded.
func NeedsVolume(s *corev1.PodSpec) bool {
	return slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool { return persistent(&v) })
}

// Refused says what of a pod cannot work at a provider; nil: nothing. It is a [*RefusedError].
func Refused(s *corev1.PodSpec) error { return refuse(s) }

// refuse tells what of a spec cannot work at a provider.
func refuse(s *corev1.PodSpec) error {
	switch {
	case s.HostNetwork:
		return &RefusedError{"spec.hostNetwork", "asks for the network of a node, and the virtual node has none"}
	case s.HostPID:
		return &RefusedError{"spec.hostPID", "asks for the processes of a node, and the virtual node has none"}
	case s.HostIPC:
		return &RefusedError{"spec.hostIPC", "asks for the inter-process communication of a node, and the virtual node has none"}
	case len(s.ResourceClaims) > 0:
		return &RefusedError{"spec.resourceClaims", "names ResourceClaims, which another cluster does not know"}
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		field := fmt.Sprintf("spec.volumes[%d] (%.63s)", i, v.Name)
		switch {
		case portable(&v.VolumeSource):
		case v.HostPath != nil:
			return &RefusedError{field, "is a hostPath, a directory of a node, and the virtual node has none"}
		case persistent(v):
			return &RefusedError{field, "needs a PersistentVolume, which is not offloaded: use a volume that needs none, or run the pod on another node"}
		case v.VolumeSource == corev1.VolumeSource{}:
			// Without a source it is an emptyDir; the API server has made it one.
		default:
			return &RefusedError{field, "is a storage that only this cluster knows: an offloaded pod can have configMap, secret, emptyDir, downwardAPI, projected and image volumes"}
		}
	}
	return nil
}

func runtimeClass(pod *corev1.Pod, p Patch) *string {
	if name := pod.Annotations[offloadingv1beta1.AnnotationRemoteRuntimeClassName]; name != "" {
		return &name
	}
	if name := pod.Spec.RuntimeClassName; name != nil && *name != offloadingv1beta1.RuntimeClassName {
		return new(*name)
	}
	if p.RuntimeClassName != "" {
		return &p.RuntimeClassName
	}
	return nil
}

// affinity is what decides among the nodes of the provider. That of the pod decided among the nodes of the consumer.
func affinity(pod *corev1.Pod, node *corev1.NodeAffinity) *corev1.Affinity {
	var a corev1.Affinity
	if node != nil {
		a.NodeAffinity = node.DeepCopy()
	}
	switch preset := pod.Annotations[offloadingv1beta1.AnnotationAntiAffinityPreset]; preset {
	case "propagate":
		if pod.Spec.Affinity != nil {
			a.PodAntiAffinity = unmerged(pod.Spec.Affinity.PodAntiAffinity.DeepCopy())
		}
	case "soft", "hard":
		if selector := antiAffinityLabels(pod); len(selector) > 0 {
			term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: selector}}
			if preset == "hard" {
				a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
			} else {
				a.PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}}
			}
		}
	}
	if a == (corev1.Affinity{}) {
		return nil
	}
	return &a
}

// spread returns the constraints as somebody wrote them. The API server here has added to each selector what the keys of
// labels stand for, and that of the provider would refuse to do it again.
func spread(constraints []corev1.TopologySpreadConstraint) []corev1.TopologySpreadConstraint {
	for i := range constraints {
		c := &constraints[i]
		c.MatchLabelKeys = unselected(c.MatchLabelKeys, c.LabelSelector)
	}
	return constraints
}

// unmerged does the same for anti-affinity; nil stays nil.
func unmerged(a *corev1.PodAntiAffinity) *corev1.PodAntiAffinity {
	if a == nil {
		return nil
	}
	term := func(t *corev1.PodAffinityTerm) {
		t.MatchLabelKeys = unselected(t.MatchLabelKeys, t.LabelSelector)
		t.MismatchLabelKeys = unselected(t.MismatchLabelKeys, t.LabelSelector)
	}
	for i := range a.RequiredDuringSchedulingIgnoredDuringExecution {
		term(&a.RequiredDuringSchedulingIgnoredDuringExecution[i])
	}
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		term(&a.PreferredDuringSchedulingIgnoredDuringExecution[i].PodAffinityTerm)
	}
	return a
}

// unselected are the keys that a selector says nothing of.
func unselected(keys []string, selector *metav1.LabelSelector) (left []string) {
	for _, key := range keys {
		if selector == nil || !slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == key }) {
			left = append(left, key)
		}
	}
	return left
}

// antiAffinityLabels are the labels by which pods are spread: those that an annotation lists, or all.
func antiAffinityLabels(pod *corev1.Pod) map[string]string {
	keys := listed(pod.Annotations[offloadingv1beta1.AnnotationAntiAffinityLabels])
	out := map[string]string{}
	for k, v := range pod.Labels {
		if k != networkingv1beta1.LabelShadowPod && (len(keys) == 0 || slices.Contains(keys, k)) {
			out[k] = v
		}
	}
	return out
}
