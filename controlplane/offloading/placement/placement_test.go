package placement_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
)

func TestRemoteName(t *testing.T) {
	long := strings.Repeat("n", 60)
	for _, tt := range []struct {
		name, namespace, own string
		strategy             offloadingv1beta1.NamespaceMappingStrategy
		want                 string
	}{
		{"default", "demo", "rome", offloadingv1beta1.DefaultNameMappingStrategy, "demo-rome"},
		{"not said", "demo", "rome", "", "demo-rome"},
		{"the same", "demo", "rome", offloadingv1beta1.EnforceSameNameMappingStrategy, "demo"},
		{"selected", "demo", "rome", offloadingv1beta1.SelectedNameMappingStrategy, "chosen"},
		{"as long as can be", strings.Repeat("n", 58), "rome", offloadingv1beta1.DefaultNameMappingStrategy, strings.Repeat("n", 58) + "-rome"},
		{"too long", long, "rome", offloadingv1beta1.DefaultNameMappingStrategy, strings.Repeat("n", 54) + "-48e30487"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &offloadingv1beta1.NamespaceOffloading{
				ObjectMeta: metav1.ObjectMeta{Namespace: tt.namespace},
				Spec:       offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: tt.strategy, RemoteNamespaceName: "chosen"},
			}
			got := placement.RemoteName(o, tt.own)
			if got != tt.want || len(validation.IsDNS1123Label(got)) > 0 {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestSelects(t *testing.T) {
	node := placement.Node{Name: "milan", Labels: map[string]string{"region": "eu", "cores": "8"}}
	r := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	labels := func(rs ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: rs}
	}
	fields := func(rs ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: rs}
	}
	for _, tt := range []struct {
		name  string
		terms []corev1.NodeSelectorTerm
		want  bool
		err   string
	}{
		{"nothing said", nil, true, ""},
		{"an empty list", []corev1.NodeSelectorTerm{}, true, ""},
		{"an empty term", []corev1.NodeSelectorTerm{{}}, false, ""},
		{"in", []corev1.NodeSelectorTerm{labels(r("region", corev1.NodeSelectorOpIn, "us", "eu"))}, true, ""},
		{"not in", []corev1.NodeSelectorTerm{labels(r("region", corev1.NodeSelectorOpNotIn, "eu"))}, false, ""},
		{"not in, without the label", []corev1.NodeSelectorTerm{labels(r("zone", corev1.NodeSelectorOpNotIn, "eu"))}, true, ""},
		{"exists", []corev1.NodeSelectorTerm{labels(r("region", corev1.NodeSelectorOpExists))}, true, ""},
		{"does not exist", []corev1.NodeSelectorTerm{labels(r("region", corev1.NodeSelectorOpDoesNotExist))}, false, ""},
		{"more than", []corev1.NodeSelectorTerm{labels(r("cores", corev1.NodeSelectorOpGt, "7"))}, true, ""},
		{"less than", []corev1.NodeSelectorTerm{labels(r("cores", corev1.NodeSelectorOpLt, "8"))}, false, ""},
		{"all of a term", []corev1.NodeSelectorTerm{labels(r("region", corev1.NodeSelectorOpExists), r("zone", corev1.NodeSelectorOpExists))}, false, ""},
		{"one of several terms", []corev1.NodeSelectorTerm{{}, labels(r("zone", corev1.NodeSelectorOpExists)), labels(r("region", corev1.NodeSelectorOpExists))}, true, ""},
		{"its name", []corev1.NodeSelectorTerm{fields(r("metadata.name", corev1.NodeSelectorOpIn, "milan"))}, true, ""},
		{"another name", []corev1.NodeSelectorTerm{fields(r("metadata.name", corev1.NodeSelectorOpNotIn, "milan"))}, false, ""},
		{"another field", []corev1.NodeSelectorTerm{fields(r("spec.x", corev1.NodeSelectorOpIn, "milan"))}, false, `nodeSelectorTerms[0]: matchFields: there is no field "spec.x"`},
		{"no operator", []corev1.NodeSelectorTerm{labels(r("region", "Like", "e"))}, false, `there is no operator "Like"`},
		{"no number", []corev1.NodeSelectorTerm{labels(r("region", corev1.NodeSelectorOpExists)), labels(r("cores", corev1.NodeSelectorOpGt, "many"))}, false, "nodeSelectorTerms[1]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := placement.Selects(corev1.NodeSelector{NodeSelectorTerms: tt.terms}, node)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestNodeOf guards that a selector selects the same before and after the Node is there.
func TestNodeOf(t *testing.T) {
	v := &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Name: "milan"},
		Spec: offloadingv1beta1.VirtualNodeSpec{
			ClusterID: "milan-id", Labels: map[string]string{"region": "eu"}, StorageClasses: []offloadingv1beta1.StorageClass{{StorageClassName: "fast"}},
		},
	}
	want := map[string]string{"region": "eu", "liqo.io/remote-cluster-id": "milan-id", "liqo.io/type": "virtual-node", "storage.liqo.io/available": "true"}
	for _, tt := range []struct {
		name  string
		nodes []corev1.Node
		want  map[string]string
	}{
		{"no Node", nil, want},
		{"a Node of that name that is another one", []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{"x": "y"}}}}, want},
		{"its Node", []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{"liqo.io/remote-cluster-id": "milan-id"}}}}, map[string]string{"liqo.io/remote-cluster-id": "milan-id"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := placement.NodeOf(v, tt.nodes)
			if len(got.Labels) != len(tt.want) {
				t.Errorf("%v", got)
			}
			for key, value := range tt.want {
				if got.Labels[key] != value {
					t.Errorf("%s=%s", key, got.Labels[key])
				}
			}
		})
	}
}

func TestOnlyVirtual(t *testing.T) {
	in := func(values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "region", Operator: corev1.NodeSelectorOpExists}, {Key: "liqo.io/type", Operator: corev1.NodeSelectorOpIn, Values: values},
		}}
	}
	terms := func(terms ...corev1.NodeSelectorTerm) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}}
	}
	for _, tt := range []struct {
		name string
		spec corev1.PodSpec
		want bool
	}{
		{"any node", corev1.PodSpec{}, false},
		{"by runtime class", corev1.PodSpec{RuntimeClassName: new("liqo")}, true},
		{"another runtime class", corev1.PodSpec{RuntimeClassName: new("gvisor")}, false},
		{"by node selector", corev1.PodSpec{NodeSelector: map[string]string{"liqo.io/type": "virtual-node"}}, true},
		{"another node selector", corev1.PodSpec{NodeSelector: map[string]string{"liqo.io/type": "other"}}, false},
		{"another affinity", corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}}, false},
		{"each term says so", terms(in("virtual-node"), in("virtual-node")), true},
		{"one term does not", terms(in("virtual-node"), corev1.NodeSelectorTerm{}), false},
		{"or another node", terms(in("virtual-node", "other")), false},
	} {
		if got := placement.OnlyVirtual(&corev1.Pod{Spec: tt.spec}); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
