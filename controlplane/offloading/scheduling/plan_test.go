package scheduling_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/controlplane/offloading/scheduling"
)

func TestTolerate(t *testing.T) {
	eu, us := placement.Node{Name: "milan", Labels: map[string]string{"region": "eu"}}, placement.Node{Name: "dallas", Labels: map[string]string{"region": "us"}}
	selector := func(operator corev1.NodeSelectorOperator) []corev1.NodeSelectorTerm {
		return []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "region", Operator: operator, Values: []string{"eu"}}}}}
	}
	const both, remote, local = offloadingv1beta1.LocalAndRemotePodOffloadingStrategy, offloadingv1beta1.RemotePodOffloadingStrategy, offloadingv1beta1.LocalPodOffloadingStrategy
	for _, tt := range []struct {
		name     string
		strategy offloadingv1beta1.PodOffloadingStrategy
		terms    []corev1.NodeSelectorTerm
		nodes    []placement.Node
		want     bool
	}{
		{"all nodes, both", both, nil, []placement.Node{eu, us}, true},
		{"all nodes, remote", remote, nil, []placement.Node{eu, us}, true},
		{"all nodes, local", local, nil, []placement.Node{eu, us}, false},
		{"some of the nodes", both, selector(corev1.NodeSelectorOpIn), []placement.Node{eu, us}, false},
		{"all of the nodes there are", both, selector(corev1.NodeSelectorOpIn), []placement.Node{eu}, true},
		{"a selector that means nothing", both, selector("Like"), []placement.Node{eu}, false},
		{"no node", both, nil, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: "offloading"}}
			o.Spec.PodOffloadingStrategy, o.Spec.ClusterSelector.NodeSelectorTerms = tt.strategy, tt.terms
			if got := scheduling.Tolerate(o, tt.nodes); got != tt.want {
				t.Errorf("%v", got)
			}
			now := metav1.Now()
			o.DeletionTimestamp = &now
			if scheduling.Tolerate(o, tt.nodes) {
				t.Error("also while it is being deleted")
			}
		})
	}
}

func TestWaits(t *testing.T) {
	now := metav1.Now()
	tolerating := func(t corev1.Toleration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "other"}, t} }
	}
	for _, tt := range []struct {
		name   string
		change func(*corev1.Pod)
		want   bool
	}{
		{"a waiting pod", func(*corev1.Pod) {}, true},
		{"on a node", func(p *corev1.Pod) { p.Spec.NodeName = "n" }, false},
		{"ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		{"going", func(p *corev1.Pod) { p.DeletionTimestamp = &now }, false},
		{"of the runtime class", func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("liqo") }, false},
		{"of another runtime class", func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("kata") }, true},
		{"tolerates", tolerating(scheduling.Added), false},
		{"tolerates the value", tolerating(corev1.Toleration{Key: "virtual-node.liqo.io/not-allowed", Value: "true"}), false},
		{"tolerates another value", tolerating(corev1.Toleration{Key: "virtual-node.liqo.io/not-allowed", Value: "no"}), true},
		{"tolerates another effect", tolerating(corev1.Toleration{Key: "virtual-node.liqo.io/not-allowed", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}), true},
		{"tolerates everything", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
			tt.change(p)
			if got := scheduling.Waits(p); got != tt.want {
				t.Errorf("%v", got)
			}
		})
	}
}
