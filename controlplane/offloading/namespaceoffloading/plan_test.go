package namespaceoffloading_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/namespaceoffloading"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
)

// said returns what conditions say: "milan: OffloadingRequired=True ClusterSelected, ...".
func said(s offloadingv1beta1.NamespaceOffloadingStatus) map[string][]string {
	m := map[string][]string{}
	for id, conditions := range s.RemoteNamespacesConditions {
		for _, c := range conditions {
			m[id] = append(m[id], fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
		}
	}
	return m
}

func TestBuild(t *testing.T) {
	const (
		required, notRequired, invalid = "OffloadingRequired=True ClusterSelected", "OffloadingRequired=False ClusterNotSelected", "OffloadingRequired=False ClusterSelectorInvalid"
		ready, creating, backOff       = "Ready=True NamespaceCreated", "Ready=False Creating", "Ready=False CreationLoopBackOff"
		terminating, unadmitted        = "Ready=False Terminating", "Ready=False PodAdmissionMissing"
	)
	// provider is a cluster of a region whose NamespaceMap says name and phase; no phase: nothing, "none": there is no map.
	provider := func(region, name string, phase offloadingv1beta1.MappingPhase) namespaceoffloading.Provider {
		p := namespaceoffloading.Provider{Nodes: []placement.Node{{Name: "n", Labels: map[string]string{"region": region}}}, Map: new(offloadingv1beta1.NamespaceMap)}
		switch phase {
		case "none":
			p.Map = nil
		case "":
		default:
			p.Map.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{"demo": {RemoteNamespace: name, Phase: phase}}
		}
		return p
	}
	const accepted, looping, going = offloadingv1beta1.MappingAccepted, offloadingv1beta1.MappingCreationLoopBackOff, offloadingv1beta1.MappingTerminating
	in := func(operator corev1.NodeSelectorOperator, regions ...string) corev1.NodeSelector {
		return corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "region", Operator: operator, Values: regions}}}}}
	}
	type providers = map[string]namespaceoffloading.Provider
	for _, tt := range []struct {
		name      string
		providers providers
		change    func(*namespaceoffloading.Facts)
		phase     offloadingv1beta1.OffloadingPhase
		want      map[string][]string
	}{
		{"no provider", nil, nil, offloadingv1beta1.OffloadingNoClusterSelected, map[string][]string{}},
		{"one that is ready", providers{"milan": provider("eu", "demo-rome", accepted)}, nil, offloadingv1beta1.OffloadingReady, map[string][]string{"milan": {required, ready}}},
		{"one without a map", providers{"milan": provider("eu", "", "none")}, nil, offloadingv1beta1.OffloadingInProgress, map[string][]string{"milan": {required, creating}}},
		{"one that has not answered", providers{"milan": provider("eu", "", "")}, nil, offloadingv1beta1.OffloadingInProgress, map[string][]string{"milan": {required, creating}}},
		{"one that answers about another name", providers{"milan": provider("eu", "demo-other", accepted)}, nil, offloadingv1beta1.OffloadingInProgress, map[string][]string{"milan": {required, creating}}},
		{"one that says a word nobody knows", providers{"milan": provider("eu", "demo-rome", "Sleeping")}, nil, offloadingv1beta1.OffloadingInProgress, map[string][]string{"milan": {required, creating}}},
		{"one that removes it", providers{"milan": provider("eu", "demo-rome", going)}, nil, offloadingv1beta1.OffloadingInProgress, map[string][]string{"milan": {required, terminating}}},
		{"one that cannot", providers{"milan": provider("eu", "demo-rome", looping)}, nil, offloadingv1beta1.OffloadingAllFailed, map[string][]string{"milan": {required, backOff}}},
		{
			"one of two that cannot",
			providers{"milan": provider("eu", "demo-rome", looping), "paris": provider("eu", "demo-rome", accepted)}, nil,
			offloadingv1beta1.OffloadingSomeFailed, map[string][]string{"milan": {required, backOff}, "paris": {required, ready}},
		},
		{
			"one of two that has not answered",
			providers{"milan": provider("eu", "", ""), "paris": provider("eu", "demo-rome", accepted)}, nil,
			offloadingv1beta1.OffloadingInProgress, map[string][]string{"milan": {required, creating}, "paris": {required, ready}},
		},
		{
			"one of two is selected",
			providers{"milan": provider("eu", "demo-rome", accepted), "dallas": provider("us", "", "")},
			func(f *namespaceoffloading.Facts) {
				f.Offloading.Spec.ClusterSelector = in(corev1.NodeSelectorOpIn, "eu")
			},
			offloadingv1beta1.OffloadingReady, map[string][]string{"milan": {required, ready}, "dallas": {notRequired}},
		},
		{
			"one that is selected no more",
			providers{"dallas": provider("us", "demo-rome", accepted)},
			func(f *namespaceoffloading.Facts) {
				f.Offloading.Spec.ClusterSelector = in(corev1.NodeSelectorOpIn, "eu")
			},
			offloadingv1beta1.OffloadingNoClusterSelected, map[string][]string{"dallas": {notRequired, terminating}},
		},
		{
			"a selector that means nothing",
			providers{"milan": provider("eu", "", "")},
			func(f *namespaceoffloading.Facts) { f.Offloading.Spec.ClusterSelector = in("Like", "e") },
			offloadingv1beta1.OffloadingNoClusterSelected, map[string][]string{"milan": {invalid}},
		},
		{
			"it is being deleted",
			providers{"milan": provider("eu", "demo-rome", going)},
			func(f *namespaceoffloading.Facts) { f.Offloading.DeletionTimestamp = &f.Now },
			offloadingv1beta1.OffloadingTerminating, map[string][]string{"milan": {notRequired, terminating}},
		},
		{
			"a namespace that is never offloaded",
			providers{"milan": provider("eu", "", "")},
			func(f *namespaceoffloading.Facts) { f.Kept = "it is never offloaded" },
			offloadingv1beta1.OffloadingNoClusterSelected, map[string][]string{"milan": {"OffloadingRequired=False NamespaceReserved"}},
		},
		{
			"a namespace that was offloaded, and never should have been",
			providers{"milan": provider("eu", "demo-rome", accepted)},
			func(f *namespaceoffloading.Facts) { f.Kept = "it is never offloaded" },
			offloadingv1beta1.OffloadingNoClusterSelected, map[string][]string{"milan": {"OffloadingRequired=False NamespaceReserved", terminating}},
		},
		{
			"pods are not changed",
			providers{"milan": provider("eu", "demo-rome", accepted)},
			func(f *namespaceoffloading.Facts) { f.Admits = false },
			offloadingv1beta1.OffloadingInProgress, map[string][]string{"milan": {required, unadmitted}},
		},
		{
			"pods are not changed, and need not be",
			providers{"milan": provider("eu", "demo-rome", accepted)},
			func(f *namespaceoffloading.Facts) {
				f.Admits, f.Offloading.Spec.PodOffloadingStrategy = false, offloadingv1beta1.LocalPodOffloadingStrategy
			},
			offloadingv1beta1.OffloadingReady, map[string][]string{"milan": {required, ready}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := namespaceoffloading.Facts{
				Offloading: &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "offloading", Generation: 7}},
				Own:        "rome", Providers: tt.providers, Admits: true, Now: metav1.NewTime(time.Unix(100, 0)),
			}
			if tt.change != nil {
				tt.change(&f)
			}
			got := namespaceoffloading.Build(f)
			if diff := cmp.Diff(tt.want, said(got)); diff != "" || got.OffloadingPhase != tt.phase || got.RemoteNamespaceName != "demo-rome" || got.ObservedGeneration != 7 {
				t.Errorf("phase %s, name %s, generation %d; conditions (-want +got)\n%s", got.OffloadingPhase, got.RemoteNamespaceName, got.ObservedGeneration, diff)
			}
			for id, conditions := range got.RemoteNamespacesConditions {
				for _, c := range conditions {
					if c.Message == "" {
						t.Errorf("%s: %s has no message", id, c.Type)
					}
				}
			}
		})
	}
}

// TestBuildReason: the provider's reason is told as it gives it, but for what could steer a terminal, and only so much of it.
func TestBuildReason(t *testing.T) {
	for message, want := range map[string]string{
		"":                                  "Its administrator can find out",
		"the consumer has 100 namespaces":   "cannot be created: the consumer has 100 namespaces",
		"\x1b[2Jno":                         "cannot be created:  [2Jno",
		strings.Repeat("because ", 100_000): "...",
	} {
		m := new(offloadingv1beta1.NamespaceMap)
		m.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{"demo": {RemoteNamespace: "demo-rome", Phase: offloadingv1beta1.MappingCreationLoopBackOff, Message: message}}
		s := namespaceoffloading.Build(namespaceoffloading.Facts{
			Offloading: &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "offloading"}}, Own: "rome", Admits: true,
			Providers: map[string]namespaceoffloading.Provider{"milan": {Nodes: []placement.Node{{Name: "milan"}}, Map: m}},
		})
		got := s.RemoteNamespacesConditions["milan"][1].Message
		if !strings.HasSuffix(got, want) || len(got) > 400 {
			t.Errorf("%.40q: %q", message, got)
		}
	}
}

// TestBuildDates guards that a condition keeps the time since when it is as it is.
func TestBuildDates(t *testing.T) {
	o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "offloading"}}
	m := new(offloadingv1beta1.NamespaceMap)
	at := func(seconds int64) offloadingv1beta1.NamespaceOffloadingStatus {
		return namespaceoffloading.Build(namespaceoffloading.Facts{
			Offloading: o, Own: "rome", Admits: true, Now: metav1.NewTime(time.Unix(seconds, 0)),
			Providers: map[string]namespaceoffloading.Provider{"milan": {Nodes: []placement.Node{{Name: "milan"}}, Map: m}},
		})
	}
	o.Status = at(1)
	m.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{"demo": {RemoteNamespace: "demo-rome", Phase: offloadingv1beta1.MappingAccepted}}
	for _, c := range at(2).RemoteNamespacesConditions["milan"] {
		want := map[offloadingv1beta1.RemoteNamespaceConditionType]int64{offloadingv1beta1.NamespaceOffloadingRequired: 1, offloadingv1beta1.NamespaceReady: 2}[c.Type]
		if c.LastTransitionTime.Unix() != want {
			t.Errorf("%s: since %d, want %d", c.Type, c.LastTransitionTime.Unix(), want)
		}
	}
}
