package survey

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

func TestOffloadedNamespaces(t *testing.T) {
	type conditions = offloadingv1beta1.RemoteNamespaceConditions
	required := func(status corev1.ConditionStatus) offloadingv1beta1.RemoteNamespaceCondition {
		return offloadingv1beta1.RemoteNamespaceCondition{Type: offloadingv1beta1.NamespaceOffloadingRequired, Status: status, Message: "selected " + string(status)}
	}
	ready := func(status corev1.ConditionStatus) offloadingv1beta1.RemoteNamespaceCondition {
		return offloadingv1beta1.RemoteNamespaceCondition{Type: offloadingv1beta1.NamespaceReady, Status: status, Message: "there " + string(status)}
	}
	of := func(namespace string, phase offloadingv1beta1.OffloadingPhase, clusters map[string]conditions) offloadingv1beta1.NamespaceOffloading {
		return offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Status: offloadingv1beta1.NamespaceOffloadingStatus{
			OffloadingPhase: phase, RemoteNamespaceName: namespace + "-rome", RemoteNamespacesConditions: clusters,
		}}
	}
	got := offloadedNamespaces([]offloadingv1beta1.NamespaceOffloading{
		of("shop", offloadingv1beta1.OffloadingSomeFailed, map[string]conditions{
			"naples": {required("True"), ready("False")}, "milan": {required("True"), ready("True")}, "paris": {required("False")},
		}),
		of("bank", offloadingv1beta1.OffloadingReady, map[string]conditions{"milan": {required("True"), ready("True")}, "paris": {required("False")}}),
		of("idle", offloadingv1beta1.OffloadingNoClusterSelected, map[string]conditions{"paris": {required("False")}}),
		of("lone", offloadingv1beta1.OffloadingNoClusterSelected, nil), of("new", "", nil),
	})
	want := []OffloadedNamespace{
		{"bank", "bank-rome", "Ready", nil},
		{"idle", "idle-rome", "NoClusterSelected", []string{"cluster paris: selected False"}},
		{"lone", "lone-rome", "NoClusterSelected", []string{"there is no virtual node"}},
		{"new", "new-rome", "", nil},
		{"shop", "shop-rome", "SomeFailed", []string{"cluster naples: there False"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
