package virtualkubelet_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// While a namespace is being removed at the provider, Kubernetes deletes its pods before their ShadowPods. What is said here of
// pods follows, a pod that is gone there may go here, and nothing is made there again.
func TestNamespaceEnds(t *testing.T) {
	s := newScene(t)
	stays, goes, ends := s.bind("shop", "stays"), s.bind("shop", "goes"), s.bind("shop", "ends")
	there := map[string]*corev1.Pod{}
	for i, p := range []*corev1.Pod{stays, goes, ends} {
		there[p.Name] = s.play(s.shadow(p), []string{"10.243.3.7", "10.243.3.8", "10.243.3.9"}[i])
		s.pod(p, "is ready", podReady(corev1.ConditionTrue, ""))
	}
	m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}}
	controlplanetest.EditStatus(t, s.rome, m, func(m *offloadingv1beta1.NamespaceMap) {
		m.Status.CurrentMapping["shop"] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "shop-rome", Phase: offloadingv1beta1.MappingTerminating}
	})
	remove := func(name string) {
		t.Helper()
		if err := s.milan.Client.Delete(t.Context(), there[name], client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	remove("goes")
	s.pod(goes, "is not ready, as it is gone there", podReady(corev1.ConditionFalse, "OffloadedPodMissing"))
	controlplanetest.EditStatus(t, s.milan, there["stays"], func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })
	s.pod(stays, "is as ready as it is there", podReady(corev1.ConditionFalse, ""))

	if err := s.rome.Client.Delete(t.Context(), ends); err != nil {
		t.Fatal(err)
	}
	controlplanetest.EditStatus(t, s.milan, there["stays"], func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue })
	s.pod(stays, "is ready, after the other was looked at", podReady(corev1.ConditionTrue, ""))
	s.pod(ends, "waits for its end there", runs)
	remove("ends")
	s.gone(s.rome, ends)
	var list corev1.PodList
	if err := s.milan.Client.List(t.Context(), &list, client.InNamespace("shop-rome")); err != nil || len(list.Items) != 1 || list.Items[0].Name != "stays" {
		t.Errorf("the provider has %d pods: %v, %v", len(list.Items), list.Items, err)
	}
}
