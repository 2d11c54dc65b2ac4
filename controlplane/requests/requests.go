// Package requests adds up the resources that pods request.
package requests

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// OfPod is what a pod has of its node, as the scheduler reckons: the sum of its containers, or more while it starts. What a
// resize has taken from it counts until the kubelet has taken it back.
func OfPod(p *corev1.Pod) corev1.ResourceList {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	sum, sidecars, most := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range p.Spec.Containers {
		Add(sum, ofContainer(&p.Spec.Containers[i], p.Status.ContainerStatuses))
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		starting := sidecars.DeepCopy()
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			Add(starting, ofContainer(c, p.Status.InitContainerStatuses))
			sidecars = starting
		} else { // the status of one that has ended tells what it had
			Add(starting, c.Resources.Requests)
		}
		Raise(most, starting)
	}
	Add(sum, sidecars)
	Raise(sum, most)
	if p.Spec.Resources != nil { // of the pod as a whole
		for name, q := range p.Spec.Resources.Requests {
			sum[name] = q
		}
	}
	Add(sum, p.Spec.Overhead)
	// Those of the whole pod with its overhead. What its cgroup has would be rounded.
	Raise(sum, p.Status.AllocatedResources)
	Add(sum, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")})
	return sum
}

// ofContainer is the most of what a container is to have, what the kubelet has allocated, and what it has set.
func ofContainer(c *corev1.Container, statuses []corev1.ContainerStatus) corev1.ResourceList {
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
	if i < 0 {
		return c.Resources.Requests
	}
	most := corev1.ResourceList{}
	Raise(most, c.Resources.Requests)
	Raise(most, statuses[i].AllocatedResources)
	if set := statuses[i].Resources; set != nil {
		Raise(most, set.Requests)
	}
	return most
}

// Default adds to a spec the requests that an API server adds when a pod is created or resized: where there is a limit and
// no request, the request is the limit. Of the pod as a whole it is what the containers request, if they do.
func Default(s *corev1.PodSpec) {
	of := func(r *corev1.ResourceRequirements, besides corev1.ResourceList) {
		for name, limit := range r.Limits {
			_, requested := r.Requests[name]
			if _, has := besides[name]; requested || has {
				continue
			}
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = limit.DeepCopy()
		}
	}
	for _, list := range [][]corev1.Container{s.Containers, s.InitContainers} {
		for i := range list {
			of(&list[i].Resources, nil)
		}
	}
	if s.Resources != nil {
		of(s.Resources, OfPod(&corev1.Pod{Spec: corev1.PodSpec{Containers: s.Containers, InitContainers: s.InitContainers}}))
	}
}

// Add adds some resources to others.
func Add(to, some corev1.ResourceList) {
	for name, q := range some {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}

// Raise has every resource be at least as much as in others.
func Raise(to, others corev1.ResourceList) {
	for name, q := range others {
		if have := to[name]; have.Cmp(q) < 0 {
			to[name] = q.DeepCopy()
		}
	}
}
