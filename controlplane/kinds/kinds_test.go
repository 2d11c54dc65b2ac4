package kinds_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/controlplane/kinds"
)

func TestPod(t *testing.T) {
	full := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Labels: labels, Annotations: map[string]string{"a": "b"}},
			Spec:       corev1.PodSpec{NodeName: "node", HostNetwork: true, Containers: []corev1.Container{{Name: "c"}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, HostIP: "192.0.2.1",
				Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}
	}
	kept := func(labels map[string]string, conditions []corev1.PodCondition) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Labels: labels},
			Spec:       corev1.PodSpec{NodeName: "node", HostNetwork: true},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, Conditions: conditions,
			},
		}
	}
	gateway := map[string]string{"networking.liqo.io/component": "gateway", "networking.liqo.io/active": "true"}
	ownedBy := func(p *corev1.Pod, o metav1.OwnerReference) *corev1.Pod {
		p.OwnerReferences = []metav1.OwnerReference{o}
		return p
	}
	for _, test := range []struct {
		name     string
		in, want *corev1.Pod
	}{
		{"a pod of a ReplicaSet keeps no owner", ownedBy(full(nil), metav1.OwnerReference{Kind: "ReplicaSet", Name: "web", Controller: new(true)}), kept(nil, nil)},
		{"a pod of a DaemonSet keeps that it is one", ownedBy(full(nil), metav1.OwnerReference{Kind: "DaemonSet", Name: "cni", UID: "1", Controller: new(true)}),
			ownedBy(kept(nil, nil), metav1.OwnerReference{Kind: "DaemonSet", Controller: new(true)})},
		{"a user's pod is where it runs and its address", full(map[string]string{"app": "x"}), kept(nil, nil)},
		{"a gateway's pod keeps its labels and readiness", full(gateway), kept(gateway, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}})},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := kinds.Pod(test.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(test.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNodeHeartbeatIsNoChange(t *testing.T) {
	node := func(at time.Time) any {
		n, err := kinds.Node(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"liqo.io/type": "virtual-node"}},
			Status: corev1.NodeStatus{
				Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(at)}},
				Images:     []corev1.ContainerImage{{Names: []string{"x"}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := node(time.Unix(1, 0))
	if diff := cmp.Diff(first, node(time.Unix(2, 0))); diff != "" {
		t.Errorf("a heartbeat changes what is seen (-first +second):\n%s", diff)
	}
	if n := first.(*corev1.Node); len(n.Status.Addresses) != 1 || len(n.Labels) != 1 || len(n.Status.Images) != 0 {
		t.Errorf("kept %+v", n)
	}
}
