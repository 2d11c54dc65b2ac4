package resourceslice

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/controlplane/objectname"
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

// TestCapacity decides on slice new of cluster rome, on a node with 16 cpu.
func TestCapacity(t *testing.T) {
	node := func(name string, cordoned bool) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: cordoned},
			Status: corev1.NodeStatus{Allocatable: list("cpu", "16"), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
	}
	pod := func(on, cpu string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", GenerateName: "p-", Labels: labels},
			Spec:       corev1.PodSpec{NodeName: on, Containers: []corev1.Container{container(cpu, false)}},
		}
	}
	// offloaded is a pod as the controller makes it of a ShadowPod.
	offloaded := func(cpu, slice, consumer string) *corev1.Pod {
		return pod("n", cpu, map[string]string{"liqo.io/managed-by": "shadowpod", "liqo.io/creator-user": objectname.Shorten(credentials.SliceSubject(slice, consumer).CommonName, 63)})
	}
	slice := func(name, consumer, cpu string, status authv1beta1.ResourceSliceConditionStatus) *authv1beta1.ResourceSlice {
		return &authv1beta1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "tenant-" + consumer, Name: name, UID: types.UID(consumer + "/" + name),
				Labels: map[string]string{"liqo.io/replicated": "true", "liqo.io/originID": consumer},
			},
			Spec: authv1beta1.ResourceSliceSpec{ConsumerClusterID: new(authv1beta1.ClusterID(consumer))},
			Status: authv1beta1.ResourceSliceStatus{
				Resources: list("cpu", cpu), Conditions: []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.SliceResources, Status: status}},
			},
		}
	}
	const accepted, denied = authv1beta1.SliceAccepted, authv1beta1.SliceDenied
	long := strings.Repeat("s", 60) // its user does not fit a label
	for _, c := range []struct {
		name                     string
		objects                  []client.Object
		requested, granted, left string
	}{
		{"nothing", nil, "0", "0", "16"},
		{"pods of this cluster", []client.Object{pod("n", "2", nil), pod("", "1", nil), pod("cordoned", "4", nil)}, "3", "0", "13"},
		{"a pod within a grant", []client.Object{slice("one", "rome", "8", accepted), offloaded("3", "one", "rome"), pod("n", "2", nil)}, "2", "8", "6"},
		{"two", []client.Object{slice("one", "rome", "8", accepted), offloaded("3", "one", "rome"), offloaded("4", "one", "rome")}, "0", "8", "8"},
		{"a slice with a long name", []client.Object{slice(long, "rome", "8", accepted), offloaded("3", long, "rome")}, "0", "8", "8"},
		{"more than the grant, which was lowered", []client.Object{slice("one", "rome", "1", accepted), offloaded("3", "one", "rome")}, "2", "1", "13"},
		{"the grant was taken back", []client.Object{slice("one", "rome", "8", denied), offloaded("3", "one", "rome")}, "3", "0", "13"},
		{"the slice is gone", []client.Object{offloaded("3", "one", "rome")}, "3", "0", "13"},
		{"a slice of that name of another consumer", []client.Object{slice("one", "paris", "8", accepted), offloaded("3", "one", "rome")}, "3", "8", "5"},
		{"pods of the slice itself, which asks for more", []client.Object{slice("new", "rome", "4", accepted), offloaded("3", "new", "rome")}, "0", "0", "16"},
		{"a pod that only looks like it", []client.Object{slice("one", "rome", "8", accepted), pod("n", "2", map[string]string{"liqo.io/creator-user": credentials.SliceSubject("one", "rome").CommonName})}, "2", "8", "6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(node("n", false), node("cordoned", true)).Build()
			for i, o := range c.objects {
				if o.GetName() == "" {
					o.SetName(fmt.Sprint("p-", i))
				}
				if err := reader.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			got, err := (&provider{Reader: reader}).capacity(t.Context(), slice("new", "rome", "4", denied))
			if err != nil {
				t.Fatal(err)
			}
			requested, granted, left := got.requested["cpu"], got.granted["cpu"], got.left("cpu")
			if diff := cmp.Diff([]string{c.requested, c.granted, c.left}, []string{requested.String(), granted.String(), left.String()}); diff != "" {
				t.Errorf("requested, granted, left (-want +got)\n%s", diff)
			}
		})
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
