package reflection

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/golden"
)

// compare compares what a test has made with a file.
func compare(t *testing.T, path string, o any) {
	t.Helper()
	got, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, path, string(got))
}

func read(t *testing.T, path string, o any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, o); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

var homeAPI = APIAccess{Address: netip.MustParseAddr("10.70.0.9"), Port: "6443"}

func podOptions(name string) PodOptions {
	o := toMilan
	o.API = homeAPI
	switch name {
	case "no-api":
		o.API = APIAccess{}
	case "patched":
		o.Patch = Patch{
			Filter:       Filter{Labels: []string{"private"}, Annotations: []string{"private.example.org/*"}},
			NodeSelector: map[string]string{"pool": "guests"}, RuntimeClassName: "gvisor",
			Tolerations: []corev1.Toleration{{Key: "guests", Operator: corev1.TolerationOpExists}},
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "gpu", Operator: corev1.NodeSelectorOpDoesNotExist}}}}}},
		}
	default:
		o.Patch.Filter = DefaultFilter
	}
	return o
}

func TestPodGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/pod/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			var pod corev1.Pod
			read(t, file, &pod)
			before := pod.DeepCopy()
			o := podOptions(name)
			shadow, err := ShadowPod(&pod, o)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, strings.Replace(file, ".in.", ".out.", 1), struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
				Spec     corev1.PodSpec    `json:"spec"`
				Tokens   []Token           `json:"tokens"`
			}{shadow.ObjectMeta, shadow.Spec.Pod, o.API.Tokens(&pod)})
			if diff := cmp.Diff(before, &pod); diff != "" {
				t.Errorf("the pod here was changed:\n%s", diff)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	volume := func(s corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: s}}}
	}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"network of the node": {corev1.PodSpec{HostNetwork: true},
			"the pod cannot run on a virtual node: spec.hostNetwork asks for the network of a node, and the virtual node has none"},
		"a directory of the node": {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
			"the pod cannot run on a virtual node: spec.volumes[0] (data) is a hostPath, a directory of a node, and the virtual node has none"},
		"a claim": {volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}),
			"the pod cannot run on a virtual node: spec.volumes[0] (data) needs a PersistentVolume, which is not offloaded: use a volume that needs none, or run the pod on another node"},
		"a file server": {volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "10.0.0.1"}}),
			"the pod cannot run on a virtual node: spec.volumes[0] (data) is a storage that only this cluster knows: an offloaded pod can have configMap, secret, emptyDir, downwardAPI, projected and image volumes"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ShadowPod(&corev1.Pod{Spec: c.spec}, toMilan); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// FuzzPodSpec: no pod of another cluster's user breaks anything, asks for the host, or has a token that is worth
// something at the provider.
func FuzzPodSpec(f *testing.F) {
	for _, name := range []string{"simple", "patched", "remote-api"} {
		text, err := os.ReadFile("testdata/pod/" + name + ".in.yaml")
		if err != nil {
			f.Fatal(err)
		}
		seed, err := yaml.YAMLToJSON(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var pod corev1.Pod
		if json.Unmarshal(text, &pod) != nil {
			return
		}
		o := podOptions("simple")
		shadow, err := ShadowPod(&pod, o)
		if err != nil {
			return
		}
		spec := shadow.Spec.Pod
		remote := pod.Annotations[offloadingv1beta1.AnnotationAPIServerSupport] == accessRemote
		if spec.HostNetwork || spec.HostPID || spec.HostIPC || spec.NodeName != "" || *spec.AutomountServiceAccountToken || spec.ServiceAccountName != "" && !remote {
			t.Errorf("the host, a node or an account: %+v", spec)
		}
		keys := map[string]bool{namespaceKey: true}
		for _, token := range o.API.Tokens(&pod) {
			keys[token.Key] = true
		}
		for _, v := range spec.Volumes {
			if v.HostPath != nil {
				t.Error("a directory of the host")
			}
			if v.Projected == nil || remote {
				continue
			}
			for _, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil {
					t.Error("a token of the provider")
				}
			}
		}
		if !o.Peering.Ours(shadow.Labels) || shadow.Namespace != o.Namespace || shadow.Name != pod.Name {
			t.Errorf("metadata %+v", shadow.ObjectMeta)
		}
	})
}

// TestMergedKeys has constraints as an API server keeps them: it has merged into the selector what the keys stand for, and
// refuses a pod in which that was done already.
func TestMergedKeys(t *testing.T) {
	in := func(key, value string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}}
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}, MatchExpressions: []metav1.LabelSelectorRequirement{in("pod-template-hash", "1"), in("tenant", "a")}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web"}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
			{TopologyKey: "zone", LabelSelector: selector, MatchLabelKeys: []string{"pod-template-hash", "color"}}, {TopologyKey: "host", MatchLabelKeys: []string{"color"}},
		},
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: selector, MatchLabelKeys: []string{"pod-template-hash"}, MismatchLabelKeys: []string{"tenant"}}},
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: selector, MatchLabelKeys: []string{"tenant"}}}},
		}},
	}}
	pod.Annotations = map[string]string{"liqo.io/anti-affinity-preset": "propagate"}
	before := pod.DeepCopy()
	got, err := ShadowPod(pod, PodOptions{Namespace: "shop-rome"})
	if err != nil {
		t.Fatal(err)
	}
	want := pod.DeepCopy().Spec
	want.TopologySpreadConstraints[0].MatchLabelKeys = []string{"color"}
	want.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].MatchLabelKeys = nil
	want.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].MismatchLabelKeys = nil
	want.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.MatchLabelKeys = nil
	if diff := cmp.Diff(want.TopologySpreadConstraints, got.Spec.Pod.TopologySpreadConstraints); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want.Affinity, got.Spec.Pod.Affinity); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the pod itself has changed\n%s", diff)
	}
}
