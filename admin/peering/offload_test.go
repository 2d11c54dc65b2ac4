package peering

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/progress"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

func TestSelector(t *testing.T) {
	r := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	for _, tt := range []struct {
		text string
		want []corev1.NodeSelectorRequirement // nil: refused
	}{
		{"region=eu", []corev1.NodeSelectorRequirement{r("region", corev1.NodeSelectorOpIn, "eu")}},
		{"region!=eu", []corev1.NodeSelectorRequirement{r("region", corev1.NodeSelectorOpNotIn, "eu")}},
		{"region in (us, eu),gpu", []corev1.NodeSelectorRequirement{r("gpu", corev1.NodeSelectorOpExists), r("region", corev1.NodeSelectorOpIn, "eu", "us")}},
		{"!gpu,cores>7", []corev1.NodeSelectorRequirement{r("cores", corev1.NodeSelectorOpGt, "7"), r("gpu", corev1.NodeSelectorOpDoesNotExist)}},
		{"", nil},
		{"a b", nil},
	} {
		got, err := Selector(tt.text)
		if diff := cmp.Diff(tt.want, got.MatchExpressions); diff != "" || (err == nil) != (tt.want != nil) {
			t.Errorf("%q: %v (-want +got)\n%s", tt.text, err, diff)
		}
	}
}

func TestUnoffloading(t *testing.T) {
	o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}}
	says := func(want string) {
		t.Helper()
		if diff := cmp.Diff(want, strings.Join(unoffloading(o), "\n")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	says("  no other cluster has a namespace for it")
	ready := func(reason string) offloadingv1beta1.RemoteNamespaceConditions {
		return offloadingv1beta1.RemoteNamespaceConditions{{Type: offloadingv1beta1.NamespaceOffloadingRequired}, {Type: offloadingv1beta1.NamespaceReady, Reason: reason}}
	}
	o.Status.RemoteNamespaceName = "shop-rome"
	o.Status.RemoteNamespacesConditions = map[string]offloadingv1beta1.RemoteNamespaceConditions{
		"milan": ready(offloadingv1beta1.ReasonNamespaceCreated), "naples": ready(offloadingv1beta1.ReasonCreationLoopBackOff),
		"paris": ready("")[:1], "turin": ready(offloadingv1beta1.ReasonCreating),
	}
	says(`  cluster milan deletes its namespace shop-rome, with everything in it
  cluster turin deletes its namespace shop-rome, with everything in it
  pods that run there end; their controllers, such as Deployments, create new ones, which run in this cluster only`)
}

func TestOffloaded(t *testing.T) {
	type condition = offloadingv1beta1.RemoteNamespaceCondition
	required := func(status corev1.ConditionStatus, reason, message string) condition {
		return condition{Type: offloadingv1beta1.NamespaceOffloadingRequired, Status: status, Reason: reason, Message: message}
	}
	ready := func(status corev1.ConditionStatus, reason, message string) condition {
		return condition{Type: offloadingv1beta1.NamespaceReady, Status: status, Reason: reason, Message: message}
	}
	var (
		selected = required(corev1.ConditionTrue, offloadingv1beta1.ReasonClusterSelected, "it is selected")
		others   = required(corev1.ConditionFalse, offloadingv1beta1.ReasonClusterNotSelected, "it is not selected")
		there    = ready(corev1.ConditionTrue, offloadingv1beta1.ReasonNamespaceCreated, "it is there")
		making   = ready(corev1.ConditionFalse, offloadingv1beta1.ReasonCreating, "it is being made")
		refused  = ready(corev1.ConditionFalse, offloadingv1beta1.ReasonCreationLoopBackOff, "it is in the way")
		off      = ready(corev1.ConditionFalse, offloadingv1beta1.ReasonPodAdmissionMissing, "pods stay off")
	)
	const (
		inMilan = `Namespace "demo" is offloaded to cluster milan, as "demo-rome"`
		success = "Offloading completed successfully"
	)
	for _, tt := range []struct {
		name          string
		phase         offloadingv1beta1.OffloadingPhase
		generation    int64
		milan, naples []condition
		told          []string // in this order
		missing, fail string
	}{
		{name: "nobody has looked", missing: "no controller"},
		{name: "somebody looked at the version before", phase: offloadingv1beta1.OffloadingReady, generation: 1, missing: "no controller"},
		{name: "ready", phase: offloadingv1beta1.OffloadingReady, generation: 2, milan: []condition{selected, there}, naples: []condition{others}, told: []string{inMilan, success}},
		{name: "there is no virtual node", phase: offloadingv1beta1.OffloadingNoClusterSelected, generation: 2,
			told: []string{"WARN Offloading completed, but no cluster was selected: there is no virtual node: create one with 'liqoctl peer' or 'liqoctl create virtualnode'"}},
		{name: "none is selected", phase: offloadingv1beta1.OffloadingNoClusterSelected, generation: 2, milan: []condition{others},
			told: []string{"WARN Offloading completed, but no cluster was selected: cluster milan: it is not selected"}},
		{name: "on the way", phase: offloadingv1beta1.OffloadingInProgress, generation: 2, milan: []condition{selected, making}, naples: []condition{selected, there}, missing: "cluster milan: it is being made"},
		{name: "some failed", phase: offloadingv1beta1.OffloadingSomeFailed, generation: 2, milan: []condition{selected, refused}, naples: []condition{selected, there},
			fail: "offloading of namespace demo, SomeFailed: cluster milan: it is in the way"},
		{name: "all failed", phase: offloadingv1beta1.OffloadingAllFailed, generation: 2, milan: []condition{selected, refused},
			fail: "offloading of namespace demo, AllFailed: cluster milan: it is in the way"},
		{name: "the API server changes no pods", phase: offloadingv1beta1.OffloadingInProgress, generation: 2, milan: []condition{selected, off},
			told: []string{"WARN cluster milan: pods stay off", success}},
		{name: "the API server changes no pods, and a namespace is not there yet", phase: offloadingv1beta1.OffloadingInProgress, generation: 2,
			milan: []condition{selected, off}, naples: []condition{selected, making}, missing: "cluster naples: it is being made"},
		{name: "an earlier one", phase: offloadingv1beta1.OffloadingTerminating, generation: 2, missing: "the NamespaceOffloading is being deleted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &offloadingv1beta1.NamespaceOffloading{
				ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "offloading", Generation: 2},
				Status: offloadingv1beta1.NamespaceOffloadingStatus{
					OffloadingPhase: tt.phase, ObservedGeneration: tt.generation, RemoteNamespaceName: "demo-rome",
					RemoteNamespacesConditions: map[string]offloadingv1beta1.RemoteNamespaceConditions{"milan": tt.milan, "naples": tt.naples},
				},
			}
			events, missing, err := offloaded(o)
			var told []string
			for _, e := range events {
				if e.Kind == progress.Warning {
					e.Text = "WARN " + e.Text
				}
				told = append(told, e.Text)
			}
			if diff := cmp.Diff(tt.told, told); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if !strings.HasPrefix(missing, tt.missing) || (missing == "") != (tt.missing == "") || errText(err) != tt.fail {
				t.Errorf("missing %q, error %v", missing, err)
			}
		})
	}
}

func TestMappedStill(t *testing.T) {
	m := offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	if got := mappedStill([]offloadingv1beta1.NamespaceMap{m}, "demo"); got != "" {
		t.Errorf("nothing: %q", got)
	}
	m.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{"demo": {Phase: offloadingv1beta1.MappingTerminating}}
	if got := mappedStill([]offloadingv1beta1.NamespaceMap{m}, "demo"); !strings.Contains(got, "milan") {
		t.Errorf("going: %q", got)
	}
	if got := mappedStill([]offloadingv1beta1.NamespaceMap{m}, "other"); got != "" {
		t.Errorf("another one: %q", got)
	}
}
