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
			if got := scheduling.Tolerate(o, "", tt.nodes); got != tt.want {
				t.Errorf("%v", got)
			}
			if scheduling.Tolerate(o, "it is kept", tt.nodes) {
				t.Error("also in a namespace that is kept here")
			}
			now := metav1.Now()
			o.DeletionTimestamp = &now
			if scheduling.Tolerate(o, "", tt.nodes) {
				t.Error("also while it is being deleted")
			}
		})
	}
}

// claimed is a volume that needs a PersistentVolume, own one whose claim the pod brings.
var (
	claimed = corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}
	own     = corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: new(corev1.EphemeralVolumeSource)}}
)

func TestHopeless(t *testing.T) {
	const both, remote = offloadingv1beta1.LocalAndRemotePodOffloadingStrategy, offloadingv1beta1.RemotePodOffloadingStrategy
	tolerates := []corev1.Toleration{scheduling.Added}
	for _, tt := range []struct {
		name     string
		strategy offloadingv1beta1.PodOffloadingStrategy
		spec     corev1.PodSpec
		want     bool
	}{
		{"a claim", remote, corev1.PodSpec{Tolerations: tolerates, Volumes: []corev1.Volume{claimed}}, true},
		{"a claim of its own", remote, corev1.PodSpec{Tolerations: tolerates, Volumes: []corev1.Volume{own}}, true},
		{"no claim", remote, corev1.PodSpec{Tolerations: tolerates}, false},
		{"a claim, and a node", remote, corev1.PodSpec{Tolerations: tolerates, Volumes: []corev1.Volume{claimed}, NodeName: "milan"}, false},
		{"a claim; made before its namespace was offloaded", remote, corev1.PodSpec{Volumes: []corev1.Volume{claimed}}, false},
		{"a claim; it may run here", both, corev1.PodSpec{Tolerations: tolerates, Volumes: []corev1.Volume{claimed}}, false},
		{"a claim, by node selector", both, corev1.PodSpec{NodeSelector: map[string]string{"liqo.io/type": "virtual-node"}, Volumes: []corev1.Volume{claimed}}, true},
		{"a claim, by the selector of another node", both, corev1.PodSpec{Tolerations: tolerates, NodeSelector: map[string]string{"zone": "a"}, Volumes: []corev1.Volume{claimed}}, false},
		{"a claim, by runtime class", both, corev1.PodSpec{RuntimeClassName: new("liqo"), Volumes: []corev1.Volume{claimed}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: "offloading"}}
			o.Spec.PodOffloadingStrategy = tt.strategy
			if got := scheduling.Hopeless(&corev1.Pod{Spec: tt.spec, Status: corev1.PodStatus{Phase: corev1.PodPending}}, o, ""); got != tt.want {
				t.Errorf("%v", got)
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
		{"needs a volume", func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{claimed} }, false},
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
