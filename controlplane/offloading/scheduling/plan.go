package scheduling

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/reflection"
)

// Added is the toleration of pods that may run on virtual nodes. The policy in the chart gives new pods the same.
var Added = corev1.Toleration{Key: offloadingv1beta1.TaintNotAllowed, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}

// Tolerate tells whether pods that were made before their namespace was offloaded get the toleration: only if they may
// then run on every virtual node there is. Which nodes a pod may run on cannot be narrowed any more. kept says why the
// namespace is never offloaded; empty: it can be.
//
//	strategy                 selector                         pods made before
//	LocalAndRemote, Remote   selects every virtual node       tolerate virtual nodes; with Remote they may run here too
//	                         does not, or means nothing       stay as they are: somebody must make them anew
//	Local                    whatever                         stay as they are
func Tolerate(o *offloadingv1beta1.NamespaceOffloading, kept string, nodes []placement.Node) bool {
	if !placement.Offloads(o, kept) || o.Spec.PodOffloadingStrategy == offloadingv1beta1.LocalPodOffloadingStrategy || len(nodes) == 0 {
		return false
	}
	for _, n := range nodes {
		if selected, err := placement.Selects(o.Spec.ClusterSelector, n); err != nil || !selected {
			return false
		}
	}
	return true
}

// Waits tells whether p waits for a node, could not be scheduled onto a virtual one, and could run there.
func Waits(p *corev1.Pod) bool { return waits(p) && !forVirtual(p) && !reflection.NeedsVolume(&p.Spec) }

// Hopeless tells whether p waits for a virtual node alone, and could not run there: it needs a PersistentVolume. The
// scheduler waits for that, so that no virtual kubelet ever says so.
func Hopeless(p *corev1.Pod, o *offloadingv1beta1.NamespaceOffloading, kept string) bool {
	return waits(p) && reflection.NeedsVolume(&p.Spec) && placement.Offloads(o, kept) &&
		(placement.OnlyVirtual(p) || forVirtual(p) && o.Spec.PodOffloadingStrategy == offloadingv1beta1.RemotePodOffloadingStrategy)
}

// concerns tells whether a pod is to be looked at when its namespace is offloaded.
func concerns(p *corev1.Pod) bool {
	return waits(p) && (!forVirtual(p) || reflection.NeedsVolume(&p.Spec))
}

func waits(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && p.Status.Phase == corev1.PodPending && p.DeletionTimestamp.IsZero()
}

// forVirtual tells whether p could be scheduled onto a virtual node.
func forVirtual(p *corev1.Pod) bool {
	return placement.ByRuntimeClass(p) || slices.ContainsFunc(p.Spec.Tolerations, tolerates)
}

// tolerates tells whether a pod with t may be scheduled onto a virtual node.
func tolerates(t corev1.Toleration) bool {
	if t.Effect != "" && t.Effect != corev1.TaintEffectNoExecute {
		return false
	}
	switch {
	case t.Operator == corev1.TolerationOpExists:
		return t.Key == "" || t.Key == offloadingv1beta1.TaintNotAllowed
	case t.Operator == "" || t.Operator == corev1.TolerationOpEqual:
		return t.Key == offloadingv1beta1.TaintNotAllowed && t.Value == "true"
	}
	return false
}
