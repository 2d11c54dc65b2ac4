package resourceslice

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/controlplane/requests"
)

var sameAmounts = cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })

func container(cpu string, always bool) corev1.Container {
	c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: list("cpu", cpu)}}
	if always {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}
	return c
}

// TestRequests has the cases of the documentation of Kubernetes on init containers and sidecars.
func TestRequests(t *testing.T) {
	for _, c := range []struct {
		name string
		spec corev1.PodSpec
		over corev1.PodPhase
		cpu  string
	}{
		{name: "the sum of the containers", spec: corev1.PodSpec{Containers: []corev1.Container{container("1", false), container("500m", false)}}, cpu: "1500m"},
		{name: "an init container that needs more", spec: corev1.PodSpec{InitContainers: []corev1.Container{container("3", false)}, Containers: []corev1.Container{container("1", false)}}, cpu: "3"},
		{name: "a sidecar stays", spec: corev1.PodSpec{InitContainers: []corev1.Container{container("1", true)}, Containers: []corev1.Container{container("1", false)}}, cpu: "2"},
		{
			name: "an init container beside a sidecar", cpu: "4",
			spec: corev1.PodSpec{InitContainers: []corev1.Container{container("1", true), container("3", false)}, Containers: []corev1.Container{container("1", false)}},
		},
		{name: "overhead", spec: corev1.PodSpec{Overhead: list("cpu", "250m"), Containers: []corev1.Container{container("1", false)}}, cpu: "1250m"},
		{name: "of the pod as a whole", spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("cpu", "5")}, Containers: []corev1.Container{container("1", false)}}, cpu: "5"},
		{name: "it has ended", spec: corev1.PodSpec{Containers: []corev1.Container{container("1", false)}}, over: corev1.PodSucceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want corev1.ResourceList
			if c.cpu != "" {
				want = list("cpu", c.cpu, "pods", "1")
			}
			if diff := cmp.Diff(want, requests.OfPod(&corev1.Pod{Spec: c.spec, Status: corev1.PodStatus{Phase: c.over}}), sameAmounts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTakesPods(t *testing.T) {
	node := func(ready corev1.ConditionStatus, cordoned bool, labels map[string]string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.NodeSpec{Unschedulable: cordoned},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	for name, c := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"ready":        {node(corev1.ConditionTrue, false, nil), true},
		"cordoned":     {node(corev1.ConditionTrue, true, nil), false},
		"not ready":    {node(corev1.ConditionUnknown, false, nil), false},
		"virtual":      {node(corev1.ConditionTrue, false, map[string]string{"liqo.io/type": "virtual-node"}), false},
		"not seen yet": {new(corev1.Node), false},
	} {
		if got := takesPods(c.node); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestParseQuota(t *testing.T) {
	for text, want := range map[string]corev1.ResourceList{
		"cpu=8,memory=32Gi": list("cpu", "8", "memory", "32Gi"), " cpu=0 ": list("cpu", "0"), "example.org/gpu=2, cpu=500m": list("example.org/gpu", "2", "cpu", "500m"),
		"": nil, "cpu": nil, "cpu=-1": nil, "cpu=much": nil, "=1": nil, "cpu=1,": nil,
	} {
		got, err := parseQuota(text)
		if diff := cmp.Diff(want, got, sameAmounts); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %s", text, err, diff)
		}
	}
}
