package survey

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

func TestPlace(t *testing.T) {
	pod := func(namespace, name, node string, labels map[string]string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.71.0.9", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
	}
	waiting := pod("shop", "waiting", "", nil)
	waiting.Status = corev1.PodStatus{Phase: corev1.PodPending}
	forNaples := map[string]string{offloadingv1beta1.LabelManagedBy: offloadingv1beta1.ManagedByShadowPod, offloadingv1beta1.LabelOrigin: "naples"}
	f := podFacts{
		own:       "rome",
		virtual:   []offloadingv1beta1.VirtualNode{{ObjectMeta: metav1.ObjectMeta{Name: "north"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}}},
		offloaded: []offloadingv1beta1.NamespaceOffloading{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Status: offloadingv1beta1.NamespaceOffloadingStatus{RemoteNamespaceName: "shop-rome"}}},
		namespaces: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{
			Name: "bank-naples", Annotations: map[string]string{offloadingv1beta1.AnnotationOriginalName: "bank"},
		}}},
		pods: []corev1.Pod{
			waiting, pod("shop", "away", "north", nil), pod("shop", "here", "worker-1", nil), pod("own", "lost", "north", nil),
			pod("bank-naples", "guest", "worker-2", forNaples), pod("gone-naples", "late", "", forNaples),
		},
	}
	type row struct{ namespace, name, from, in, node, other string }
	var got []row
	for _, p := range f.place() {
		got = append(got, row{p.Namespace, p.Name, p.From, p.In, p.Node, p.OtherNamespace})
		if ready := p.Name != "waiting"; p.Ready != ready || (p.Reason == "") != ready || (p.IP != "") != ready {
			t.Errorf("%+v", p)
		}
	}
	want := []row{
		{"bank-naples", "guest", "naples", "rome", "worker-2", "bank"},
		{"gone-naples", "late", "naples", "", "", ""},
		{"own", "lost", "rome", "milan", "north", ""},
		{"shop", "away", "rome", "milan", "north", "shop-rome"},
		{"shop", "here", "rome", "rome", "worker-1", ""},
		{"shop", "waiting", "rome", "", "", ""},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
