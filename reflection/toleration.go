package reflection

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// troubles are the taints that Kubernetes gives a node which is not ready. Pods are evicted that do not tolerate them.
var troubles = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}

// defaultSeconds is how long an API server has pods tolerate such a node that say nothing of it: the default of its plugin
// DefaultTolerationSeconds.
const defaultSeconds = 300

// Staying returns the tolerations of a pod that is on a virtual node, and whether they are others than it has. The pod runs
// on while the provider is away: if it were evicted here, its controller would start another one beside it. One that says
// itself how long it waits keeps that.
func Staying(has []corev1.Toleration) (out []corev1.Toleration, changed bool) {
	out = slices.Clone(has)
	for _, key := range troubles {
		switch i := slices.IndexFunc(out, func(t corev1.Toleration) bool { return tolerates(&t, key) }); {
		case i < 0:
			out, changed = append(out, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}), true
		case byDefault(&out[i]):
			out[i].TolerationSeconds, changed = nil, true
		}
	}
	return out, changed
}

// tolerates tells whether t is for a node with the taint of a key, which has no value and evicts.
func tolerates(t *corev1.Toleration, key string) bool {
	if t.Effect != "" && t.Effect != corev1.TaintEffectNoExecute {
		return false
	}
	if t.Operator == corev1.TolerationOpExists {
		return t.Key == "" || t.Key == key
	}
	return (t.Operator == "" || t.Operator == corev1.TolerationOpEqual) && t.Key == key && t.Value == ""
}

// byDefault tells whether a toleration is what an API server adds.
func byDefault(t *corev1.Toleration) bool {
	return t.TolerationSeconds != nil && *t.TolerationSeconds == defaultSeconds
}

// tolerations are those of a pod at the provider: its own, without those that are about the virtual node, and those of a
// VirtualNode. With what Staying gives, it would stay on a node of the provider that is lost.
func tolerations(of, more []corev1.Toleration) []corev1.Toleration {
	of = slices.DeleteFunc(of, func(t corev1.Toleration) bool {
		return t.Key == offloadingv1beta1.TaintNotAllowed || slices.Contains(troubles, t.Key) && (t.TolerationSeconds == nil || byDefault(&t))
	})
	for _, t := range more {
		if !slices.Contains(of, t) {
			of = append(of, t)
		}
	}
	return of
}
