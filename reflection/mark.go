package reflection

import (
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

const (
	// AnnotationOriginUID is on each reflected object: the UID of the one that it stands for. Another UID means that an
	// object of this name was deleted and made again.
	AnnotationOriginUID = "offloading.liqo.io/origin-uid"
	// AnnotationHash is on each reflected object: a hash of what was written.
	AnnotationHash = "offloading.liqo.io/reflected-hash"
	// AnnotationFollowed is on each pod that a provider makes of a ShadowPod: a digest of what the pod follows of it. Other
	// implementations do not have it.
	AnnotationFollowed = "liqo.io/shadowpod-spec"
	// SuffixResizing is behind the digest of a pod that follows its ShadowPod in all but its resources. It is there before a
	// resize is asked for: whatever is answered, or not, the pod is looked at again.
	SuffixResizing = "-resizing"
)

// Peering names the two clusters by their IDs.
type Peering struct {
	// Consumer is the cluster that objects are reflected from, Provider the one that they are reflected to.
	Consumer, Provider string
}

// Marks are the labels of what is reflected from the consumer to the provider.
func (p Peering) Marks() map[string]string {
	return map[string]string{offloadingv1beta1.LabelOrigin: p.Consumer, offloadingv1beta1.LabelDestination: p.Provider}
}

// Ours tells whether an object at the provider was reflected there by this peering. What was not must be left alone.
func (p Peering) Ours(labels map[string]string) bool {
	return labels[offloadingv1beta1.LabelOrigin] == p.Consumer && labels[offloadingv1beta1.LabelDestination] == p.Provider
}

// Switchable are the resources whose [Policy] can be chosen, by the name that a VkOptionsTemplate has for them.
var Switchable = map[string]string{"configmap": "configmaps", "event": "events", "ingress": "ingresses", "secret": "secrets", "service": "services"}

// Policy says which objects of a kind are reflected.
type Policy string

// The policies.
const (
	// DenyList reflects all but those with the annotation [offloadingv1beta1.AnnotationSkipReflection].
	DenyList Policy = "DenyList"
	// AllowList reflects only those with the annotation [offloadingv1beta1.AnnotationAllowReflection].
	AllowList Policy = "AllowList"
	// Nothing reflects none.
	Nothing Policy = "None"
)

// Reflects tells whether an object with these annotations is reflected. An annotation counts unless its value is
// "false".
func (p Policy) Reflects(annotations map[string]string) bool {
	set := func(key string) bool {
		v, ok := annotations[key]
		return ok && !strings.EqualFold(v, "false")
	}
	switch p {
	case Nothing:
		return false
	case AllowList:
		return set(offloadingv1beta1.AnnotationAllowReflection)
	}
	return !set(offloadingv1beta1.AnnotationSkipReflection)
}

// Filter lists labels and annotations that are not reflected. An entry is a key, or a pattern as in [path.Match], in
// which an asterisk stands for any characters but a slash: "metallb.io/*".
type Filter struct {
	Labels, Annotations []string
}

// DefaultFilter leaves out what load balancers of a cloud are told, as the provider's cloud is another one.
var DefaultFilter = Filter{Annotations: []string{
	"cloud.google.com/neg", "cloud.google.com/neg-status", "kubernetes.digitalocean.com/load-balancer-id",
	"ingress.kubernetes.io/*", "metallb.universe.tf/*", "metallb.io/*", "loadbalancer.openstack.org/*",
}}

// never are annotations that only concern the object that they are on.
var never = []string{corev1.LastAppliedConfigAnnotation, AnnotationHash, AnnotationOriginUID}

// meta makes the metadata of a reflected object.
func (p Peering) meta(from metav1.ObjectMeta, namespace string, f Filter) metav1.ObjectMeta {
	labels := without(from.Labels, f.Labels)
	maps.Copy(labels, p.Marks())
	annotations := without(from.Annotations, f.Annotations, never)
	annotations[AnnotationOriginUID] = string(from.UID)
	return metav1.ObjectMeta{Namespace: namespace, Name: from.Name, Labels: labels, Annotations: annotations}
}

func without(m map[string]string, lists ...[]string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	patterns := slices.Concat(lists...)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool {
			ok, err := path.Match(pattern, key)
			return ok || err != nil && pattern == key
		})
	})
	return out
}

// IsOfAnother tells whether an object at the provider stands for an earlier object of the same name. One that does not
// say is taken for this one.
func IsOfAnother(here, there metav1.Object) bool {
	uid, ok := there.GetAnnotations()[AnnotationOriginUID]
	return ok && uid != string(here.GetUID())
}
