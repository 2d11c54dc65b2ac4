package requests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func container(name string, requests corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests}}
}

func status(name string, allocated, set corev1.ResourceList) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, AllocatedResources: allocated, Resources: &corev1.ResourceRequirements{Requests: set}}
}

func TestOfPod(t *testing.T) {
	sidecar := container("s", list("cpu", "1"))
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	for _, tt := range []struct {
		name   string
		spec   corev1.PodSpec
		status corev1.PodStatus
		want   corev1.ResourceList
	}{
		{"its containers", corev1.PodSpec{Containers: []corev1.Container{container("a", list("cpu", "1")), container("b", list("cpu", "2", "memory", "1Gi"))}},
			corev1.PodStatus{}, list("cpu", "3", "memory", "1Gi", "pods", "1")},
		{"more while it starts", corev1.PodSpec{InitContainers: []corev1.Container{sidecar, container("i", list("cpu", "3"))}, Containers: []corev1.Container{container("a", list("cpu", "1"))}},
			corev1.PodStatus{}, list("cpu", "4", "pods", "1")},
		{"as a whole, with overhead", corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("cpu", "5")}, Overhead: list("cpu", "1"), Containers: []corev1.Container{container("a", list("cpu", "1"))}},
			corev1.PodStatus{}, list("cpu", "6", "pods", "1")},
		{"it has ended", corev1.PodSpec{Containers: []corev1.Container{container("a", list("cpu", "1"))}},
			corev1.PodStatus{Phase: corev1.PodFailed}, nil},
		{"it is to have more than the kubelet gives", corev1.PodSpec{Containers: []corev1.Container{container("a", list("cpu", "2"))}},
			corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status("a", list("cpu", "1"), list("cpu", "1"))}}, list("cpu", "2", "pods", "1")},
		{"it is to have less, and the kubelet has yet to allow it", corev1.PodSpec{Containers: []corev1.Container{container("a", list("cpu", "1")), container("b", list("cpu", "1"))}},
			corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status("b", list("cpu", "3"), list("cpu", "3")), status("a", list("cpu", "1"), list("cpu", "1"))}}, list("cpu", "4", "pods", "1")},
		{"the kubelet has allowed it, and has yet to do it", corev1.PodSpec{Containers: []corev1.Container{container("a", list("cpu", "1", "memory", "1Gi"))}},
			corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status("a", list("cpu", "1", "memory", "1Gi"), list("cpu", "3", "memory", "2Gi"))}}, list("cpu", "3", "memory", "2Gi", "pods", "1")},
		{"a sidecar that is to have less", corev1.PodSpec{InitContainers: []corev1.Container{sidecar}, Containers: []corev1.Container{container("a", list("cpu", "1"))}},
			corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{status("s", list("cpu", "2"), nil)}}, list("cpu", "3", "pods", "1")},
		{"a container that has started the others", corev1.PodSpec{InitContainers: []corev1.Container{container("i", list("cpu", "2"))}, Containers: []corev1.Container{container("a", list("cpu", "1"))}},
			corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{status("i", list("cpu", "5"), nil)}}, list("cpu", "2", "pods", "1")},
		{"as a whole it is to have less", corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("cpu", "5")}, Containers: []corev1.Container{container("a", nil)}},
			corev1.PodStatus{AllocatedResources: list("cpu", "6")}, list("cpu", "6", "pods", "1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, OfPod(&corev1.Pod{Spec: tt.spec, Status: tt.status})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefault(t *testing.T) {
	limited := func(requests, limits corev1.ResourceList) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: requests, Limits: limits}
	}
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i", Resources: limited(nil, list("cpu", "1"))}},
		Containers: []corev1.Container{
			{Name: "a", Resources: limited(list("cpu", "1"), list("cpu", "2", "memory", "1Gi"))},
			{Name: "b", Resources: limited(list("cpu", "1"), nil)},
		},
		Resources: new(limited(nil, list("cpu", "5", "hugepages-2Mi", "4Mi"))),
	}
	want := spec.DeepCopy()
	want.InitContainers[0].Resources.Requests = list("cpu", "1")
	want.Containers[0].Resources.Requests = list("cpu", "1", "memory", "1Gi")
	want.Resources.Requests = list("hugepages-2Mi", "4Mi")
	Default(&spec)
	if diff := cmp.Diff(want, &spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
