// Package requests adds up the resources that pods request.
package requests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// OfPod is what a pod has of its node, as the scheduler reckons: the sum of its containers, or more while it starts.
func OfPod(p *corev1.Pod) corev1.ResourceList {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	sum, sidecars, most := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range p.Spec.Containers {
		Add(sum, p.Spec.Containers[i].Resources.Requests)
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		starting := sidecars.DeepCopy()
		Add(starting, c.Resources.Requests)
		raise(most, starting)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = starting
		}
	}
	Add(sum, sidecars)
	raise(sum, most)
	if p.Spec.Resources != nil { // of the pod as a whole
		for name, q := range p.Spec.Resources.Requests {
			sum[name] = q
		}
	}
	Add(sum, p.Spec.Overhead)
	Add(sum, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")})
	return sum
}

// Add adds some resources to others.
func Add(to, some corev1.ResourceList) {
	for name, q := range some {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}

// raise has every resource be at least as much as in others.
func raise(to, others corev1.ResourceList) {
	for name, q := range others {
		if have := to[name]; have.Cmp(q) < 0 {
			to[name] = q.DeepCopy()
		}
	}
}
