package release

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// TestOffloadedPodsAreNoWitnesses: a pod on a virtual node has an address that says nothing of the pod CIDR here.
func TestOffloadedPodsAreNoWitnesses(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{networkingv1beta1.LabelNodeType: networkingv1beta1.NodeTypeVirtual}}}
	pod := func(name, node, address string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: address}}},
		}
	}
	c := fake.NewClientBuilder().WithObjects(node, pod("here", "rome-1", "10.243.0.5"), pod("there", "milan", "10.71.1.5")).Build()
	g := gatherer{Cluster: &access.Cluster{Client: c}}
	if err := g.pods(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(g.facts.Pods) != 1 || g.facts.Pods[0].Pod.Name != "here" {
		t.Errorf("%+v", g.facts.Pods)
	}
}
