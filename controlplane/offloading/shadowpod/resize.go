package shadowpod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/reflection"
)

// annotationResources is on each Pod: a digest of the resources of the ShadowPod that it follows, or of which Kubernetes lets
// it not. What this cluster has made of them stays until the ShadowPod asks for others.
const annotationResources = "liqo.io/shadowpod-resources"

// resourcesOf identifies the resources that a spec asks for, in whatever words.
func resourcesOf(spec *corev1.PodSpec) string {
	of := func(list []corev1.Container) map[string]corev1.ResourceRequirements {
		m := map[string]corev1.ResourceRequirements{}
		for _, c := range list {
			m[c.Name] = c.Resources
		}
		return m
	}
	text, err := json.Marshal([]any{spec.Resources, of(spec.Containers), of(spec.InitContainers)}) // sorts keys
	if err != nil {
		return "" // no Pod follows that
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// resized is a living Pod with the resources that its ShadowPod asks for; nil: it follows them, or has them anyway. What the
// ShadowPod does not name stays: Kubernetes takes no request or limit away, and this cluster may have added it.
func resized(live *corev1.Pod, want *corev1.PodSpec) *corev1.Pod {
	follows := live.Annotations[annotationResources]
	if follows == resourcesOf(want) && !strings.HasSuffix(live.Annotations[reflection.AnnotationFollowed], reflection.SuffixResizing) { // else others may have been set
		return nil
	}
	to, differs := live.DeepCopy(), false
	set := func(has *corev1.ResourceList, want corev1.ResourceList) {
		for name, q := range want {
			if had, ok := (*has)[name]; ok && had.Cmp(q) == 0 {
				continue
			}
			if *has == nil {
				*has = corev1.ResourceList{}
			}
			(*has)[name], differs = q.DeepCopy(), true
		}
	}
	both := func(has *corev1.ResourceRequirements, want corev1.ResourceRequirements) {
		set(&has.Requests, want.Requests)
		set(&has.Limits, want.Limits)
	}
	each := func(list, from []corev1.Container) {
		for i := range list {
			if at := slices.IndexFunc(from, func(c corev1.Container) bool { return c.Name == list[i].Name }); at >= 0 {
				both(&list[i].Resources, from[at].Resources)
			}
		}
	}
	each(to.Spec.Containers, want.Containers)
	each(to.Spec.InitContainers, want.InitContainers)
	if want.Resources != nil {
		if to.Spec.Resources == nil {
			to.Spec.Resources = new(corev1.ResourceRequirements)
		}
		both(to.Spec.Resources, *want.Resources)
	}
	if !differs {
		return nil
	}
	return to
}

// grows tells whether some amounts are more than others anywhere.
func grows(from, to corev1.ResourceList) bool {
	for name, q := range to {
		if had := from[name]; had.Cmp(q) < 0 {
			return true
		}
	}
	return false
}

// obstacle says why a living Pod is not resized for now; empty: it may be, if the Quota of its user has room.
//
//	resources                              Quota                  reason
//	no more is requested                   none, or cordoned      -
//	more is requested                      none                   QuotaMissing
//	more is requested                      cordoned               Cordoned
//	without those that a Quota enforces    -                      PodNotResized
func obstacle(to *corev1.PodSpec, more bool, q *offloadingv1beta1.Quota, consumer string) (reason, why string) {
	if q != nil {
		if why := stated(to, q.Spec.LimitsEnforcement); why != "" {
			return reasonNotResized, why
		}
	}
	if more {
		return closed(q, consumer)
	}
	return "", ""
}

// quotaOf is the Quota that a living Pod counts against; nil: it is gone.
func quotaOf(user string, quotas []offloadingv1beta1.Quota) *offloadingv1beta1.Quota {
	if i := slices.IndexFunc(quotas, func(q offloadingv1beta1.Quota) bool { return label(q.Spec.User) == user }); i >= 0 {
		return &quotas[i]
	}
	return nil
}

// unresized says why an API server has not resized a Pod; empty: it has not said that it will not. It is final where the
// same would be said of this Pod again.
func unresized(err error) (why string, final bool) {
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return "the Kubernetes of the provider cannot resize pods in place: recreate the pod", true
	}
	why, _ = apply.Refusal(err)
	return why, apierrors.IsInvalid(err)
}
