package offloading_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// install applies what the chart installs with offloading.enabled.
func install(t *testing.T, c *controlplanetest.Cluster) {
	t.Helper()
	for _, folder := range []string{"authentication", "offloading"} {
		files, err := fs.ReadDir(deploy.Manifests(), folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			c.ApplyManifest(t, folder, f.Name())
		}
	}
}

func requires(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func term(expressions ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: expressions}
}

var (
	virtual  = requires("liqo.io/type", corev1.NodeSelectorOpIn, "virtual-node")
	physical = requires("liqo.io/type", corev1.NodeSelectorOpNotIn, "virtual-node")
	eu       = requires("region", corev1.NodeSelectorOpIn, "eu")
	gpu      = requires("gpu", corev1.NodeSelectorOpExists)
	ssd      = requires("disk", corev1.NodeSelectorOpNotIn, "hdd", "tape")
	big      = requires("cores", corev1.NodeSelectorOpGt, "7")
)

// onNode is a term that names a node.
func onNode(name string, expressions ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: expressions, MatchFields: []corev1.NodeSelectorRequirement{requires("metadata.name", corev1.NodeSelectorOpIn, name)}}
}

// TestAdmission makes pods in namespaces of every strategy and looks at what the API server made of them.
func TestAdmission(t *testing.T) {
	c := controlplanetest.Start(t)
	install(t, c)
	admitting(t, c)
	type terms []corev1.NodeSelectorTerm
	const local, remote, both = offloadingv1beta1.LocalPodOffloadingStrategy, offloadingv1beta1.RemotePodOffloadingStrategy, offloadingv1beta1.LocalAndRemotePodOffloadingStrategy
	for i, tt := range []struct {
		name     string
		strategy offloadingv1beta1.PodOffloadingStrategy
		selector terms
		own      terms
		want     terms
		spared   bool // no toleration either
	}{
		{"local", local, terms{term(eu)}, terms{term(gpu)}, terms{term(gpu)}, true},
		{"both, all clusters", both, nil, nil, nil, false},
		{"both, all clusters, a pod with terms", both, terms{}, terms{term(gpu), term(ssd)}, terms{term(gpu), term(ssd)}, false},
		{"both, one selected", both, terms{term(eu)}, nil, terms{term(eu), term(physical)}, false},
		{"both, two selected, a pod with two terms", both, terms{term(eu), onNode("milan")}, terms{term(gpu, ssd), term(big)}, terms{
			term(gpu, ssd, eu), onNode("milan", gpu, ssd), term(gpu, ssd, physical), term(big, eu), onNode("milan", big), term(big, physical),
		}, false},
		{"remote, all clusters", remote, nil, nil, terms{term(virtual)}, false},
		{"remote, all clusters, a pod with terms", remote, nil, terms{term(gpu), onNode("rome")}, terms{term(gpu, virtual), onNode("rome", virtual)}, false},
		{"remote, two selected", remote, terms{term(eu, gpu), onNode("milan")}, nil, terms{term(eu, gpu, virtual), onNode("milan", virtual)}, false},
		{"remote, two selected, a pod with two terms", remote, terms{term(eu), term(gpu)}, terms{term(ssd), term(big)}, terms{
			term(ssd, eu, virtual), term(ssd, gpu, virtual), term(big, eu, virtual), term(big, gpu, virtual),
		}, false},
		{"terms that match nothing go on to match nothing", remote, terms{{}, term(eu)}, terms{{}, term(gpu)}, terms{{}, {}, {}, term(gpu, eu, virtual)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := fmt.Sprint("offloaded-", i)
			c.Namespace(t, ns, map[string]string{"liqo.io/scheduling-enabled": "true"})
			c.Create(t, &offloadingv1beta1.NamespaceOffloading{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "offloading"},
				Spec:       offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: tt.strategy, ClusterSelector: corev1.NodeSelector{NodeSelectorTerms: tt.selector}},
			})
			preferred := []corev1.PreferredSchedulingTerm{{Weight: 3, Preference: term(big)}}
			for _, shape := range []struct {
				name   string
				change func(*corev1.PodSpec)
			}{
				{"with nothing", func(*corev1.PodSpec) {}},
				{"with tolerations", func(s *corev1.PodSpec) {
					s.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
				}},
				{"with affinity of pods", func(s *corev1.PodSpec) {
					s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}}}
				}},
				{"with preferences", func(s *corev1.PodSpec) {
					s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}}
					s.NodeSelector = map[string]string{"a": "b"}
				}},
			} {
				p := pod(ns, shape.change)
				if tt.own != nil {
					if p.Spec.Affinity == nil {
						p.Spec.Affinity = new(corev1.Affinity)
					}
					if p.Spec.Affinity.NodeAffinity == nil {
						p.Spec.Affinity.NodeAffinity = new(corev1.NodeAffinity)
					}
					p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: tt.own}
				}
				want := p.DeepCopy()
				if !tt.spared {
					want.Spec.Tolerations = append(want.Spec.Tolerations, added)
				}
				if tt.want != nil {
					if want.Spec.Affinity == nil {
						want.Spec.Affinity = new(corev1.Affinity)
					}
					if want.Spec.Affinity.NodeAffinity == nil {
						want.Spec.Affinity.NodeAffinity = new(corev1.NodeAffinity)
					}
					want.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: tt.want}
				}
				c.Create(t, p)
				got := withoutDefaults(p.Spec.Tolerations)
				if diff := cmp.Diff(want.Spec.Tolerations, got); diff != "" {
					t.Errorf("%s: tolerations (-want +got):\n%s", shape.name, diff)
				}
				if diff := cmp.Diff(want.Spec.Affinity, p.Spec.Affinity); diff != "" {
					t.Errorf("%s: affinity (-want +got):\n%s", shape.name, diff)
				}
				if diff := cmp.Diff(want.Spec.NodeSelector, p.Spec.NodeSelector); diff != "" {
					t.Errorf("%s: nodeSelector (-want +got):\n%s", shape.name, diff)
				}
			}
		})
	}
}

// TestVolumes makes pods that need a PersistentVolume, in each way there is. Where they may run here they are left alone, and
// where they may not an Event says why they run nowhere.
func TestVolumes(t *testing.T) {
	c := consumer(t)
	admitting(t, c)
	run(t, c)
	c.Create(t, tenant("milan"))
	c.Create(t, virtualNode("milan", "milan", "eu"))
	claim := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
	}
	volume := func(source corev1.VolumeSource) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}} }
	}
	claimed := volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})
	brought := volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim}}})
	// As the controller of a StatefulSet makes it of volumeClaimTemplates.
	templated := volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}})
	for ns, strategy := range map[string]offloadingv1beta1.PodOffloadingStrategy{
		"there": offloadingv1beta1.RemotePodOffloadingStrategy, "anywhere": offloadingv1beta1.LocalAndRemotePodOffloadingStrategy,
	} {
		c.Namespace(t, ns, map[string]string{"liqo.io/scheduling-enabled": "true"})
		c.Create(t, offloadingOf(ns, func(s *offloadingv1beta1.NamespaceOffloadingSpec) { s.PodOffloadingStrategy = strategy }))
		// The scheduling policy of a namespace is known when a pod without volumes is changed.
		controlplanetest.Eventually(t, "pods of "+ns+" are changed", func(ctx context.Context) error {
			p := pod(ns, func(*corev1.PodSpec) {})
			if err := c.Client.Create(ctx, p, client.DryRunAll); err != nil || len(withoutDefaults(p.Spec.Tolerations)) == 0 {
				return fmt.Errorf("%v, %v", err, p.Spec.Tolerations)
			}
			return nil
		})
		for _, o := range []client.Object{pod(ns, claimed), pod(ns, brought), pod(ns, templated)} {
			c.Create(t, o)
		}
		s := &site{Cluster: c, t: t}
		var pods corev1.PodList
		controlplanetest.Eventually(t, "there are three pods", func(ctx context.Context) error {
			if err := c.Client.List(ctx, &pods, client.InNamespace(ns)); err != nil || len(pods.Items) != 3 {
				return fmt.Errorf("%d, %v", len(pods.Items), err)
			}
			return nil
		})
		for i := range pods.Items {
			p := &pods.Items[i]
			if remote := strategy == offloadingv1beta1.RemotePodOffloadingStrategy; remote {
				s.Event(t, ns, p.Name, "FailedReflection", "spec.volumes[0] (data) needs a PersistentVolume, which is not offloaded")
			} else if got := withoutDefaults(p.Spec.Tolerations); len(got) > 0 || p.Spec.Affinity != nil {
				t.Errorf("%s, which may run here, tolerates %v, affinity %v", p.Name, got, p.Spec.Affinity)
			}
			if p.Spec.NodeName != "" {
				t.Errorf("%s is on %s", p.Name, p.Spec.NodeName)
			}
		}
	}
	only := pod("anywhere", func(s *corev1.PodSpec) {
		claimed(s)
		s.NodeSelector = map[string]string{"liqo.io/type": "virtual-node"}
	})
	c.Create(t, only)
	(&site{Cluster: c, t: t}).Event(t, "anywhere", only.Name, "FailedReflection", "spec.volumes[0] (data) needs a PersistentVolume, which is not offloaded")
}

// added is what pods tolerate that may run on virtual nodes.
var added = corev1.Toleration{Key: "virtual-node.liqo.io/not-allowed", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}

// withoutDefaults leaves out the tolerations that an API server gives to every pod.
func withoutDefaults(all []corev1.Toleration) (kept []corev1.Toleration) {
	for _, t := range all {
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			kept = append(kept, t)
		}
	}
	return kept
}

// TestAdmissionSpares makes pods that are to stay as they are.
func TestAdmissionSpares(t *testing.T) {
	c := controlplanetest.Start(t)
	install(t, c)
	admitting(t, c)
	remote := func(ns string) *offloadingv1beta1.NamespaceOffloading {
		return &offloadingv1beta1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "offloading"},
			Spec:       offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.RemotePodOffloadingStrategy},
		}
	}
	for _, tt := range []struct {
		name    string
		labels  map[string]string
		offload bool
		change  func(*corev1.PodSpec)
	}{
		{"a namespace without the label", nil, true, func(*corev1.PodSpec) {}},
		{"a namespace with another label", map[string]string{"liqo.io/scheduling-enabled": "false"}, true, func(*corev1.PodSpec) {}},
		{"a namespace with the label only", map[string]string{"liqo.io/scheduling-enabled": "true"}, false, func(*corev1.PodSpec) {}},
		{"a pod of the runtime class", map[string]string{"liqo.io/scheduling-enabled": "true"}, true, func(s *corev1.PodSpec) { s.RuntimeClassName = new("liqo") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := strings.ReplaceAll(strings.ToLower(tt.name), " ", "-")
			c.Namespace(t, ns, tt.labels)
			if tt.offload {
				c.Create(t, remote(ns))
			}
			p := pod(ns, tt.change)
			c.Create(t, p)
			var want []corev1.Toleration
			if p.Spec.RuntimeClassName != nil {
				want = []corev1.Toleration{added} // of the runtime class itself
				if p.Spec.NodeSelector["liqo.io/type"] != "virtual-node" {
					t.Errorf("the runtime class selects %v", p.Spec.NodeSelector)
				}
			}
			if diff := cmp.Diff(want, withoutDefaults(p.Spec.Tolerations)); diff != "" || p.Spec.Affinity != nil {
				t.Errorf("affinity %v, tolerations (-want +got):\n%s", p.Spec.Affinity, diff)
			}
		})
	}
}

func pod(namespace string, change func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "p-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.org/c"}}},
	}
	change(&p.Spec)
	return p
}

// admitting waits until the API server applies the policy.
func admitting(t *testing.T, c *controlplanetest.Cluster) {
	t.Helper()
	c.Namespace(t, "admitting", map[string]string{"liqo.io/scheduling-enabled": "true"})
	c.Create(t, &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "admitting", Name: "offloading"}})
	controlplanetest.Eventually(t, "the API server changes pods", func(ctx context.Context) error {
		p := pod("admitting", func(*corev1.PodSpec) {})
		if err := c.Client.Create(ctx, p, client.DryRunAll); err != nil {
			return err
		}
		if len(withoutDefaults(p.Spec.Tolerations)) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
}
