package namespacemap_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/namespacemap"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
)

func TestBuild(t *testing.T) {
	offloading := func(namespace string, change func(*offloadingv1beta1.NamespaceOffloading)) offloadingv1beta1.NamespaceOffloading {
		o := offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "offloading"}}
		if change != nil {
			change(&o)
		}
		return o
	}
	region := func(operator corev1.NodeSelectorOperator, values ...string) func(*offloadingv1beta1.NamespaceOffloading) {
		return func(o *offloadingv1beta1.NamespaceOffloading) {
			o.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "region", Operator: operator, Values: values}}}}
		}
	}
	now := metav1.Now()
	got := namespacemap.Build(namespacemap.Facts{
		Own:   "rome",
		Nodes: []placement.Node{{Name: "a", Labels: map[string]string{"region": "us"}}, {Name: "b", Labels: map[string]string{"region": "eu"}}},
		Offloadings: []offloadingv1beta1.NamespaceOffloading{
			offloading("everywhere", nil),
			offloading("one-of-its-nodes", region(corev1.NodeSelectorOpIn, "eu")),
			offloading("elsewhere", region(corev1.NodeSelectorOpIn, "asia")),
			offloading("means-nothing", region("Like", "e")),
			offloading("another-name", func(o *offloadingv1beta1.NamespaceOffloading) { o.Name = "second" }),
			offloading("going", func(o *offloadingv1beta1.NamespaceOffloading) { o.DeletionTimestamp = &now }),
			offloading("local", func(o *offloadingv1beta1.NamespaceOffloading) {
				o.Spec.PodOffloadingStrategy = offloadingv1beta1.LocalPodOffloadingStrategy // Services are reflected all the same
			}),
			offloading("same", func(o *offloadingv1beta1.NamespaceOffloading) {
				o.Spec.NamespaceMappingStrategy = offloadingv1beta1.EnforceSameNameMappingStrategy
			}),
			offloading("kept", nil),
		},
		Kept: func(namespace string) string {
			if namespace == "kept" {
				return "it is never offloaded"
			}
			return ""
		},
	})
	want := map[string]string{"everywhere": "everywhere-rome", "one-of-its-nodes": "one-of-its-nodes-rome", "local": "local-rome", "same": "same"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
