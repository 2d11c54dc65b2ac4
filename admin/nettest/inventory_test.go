package nettest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/peering"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestTranslate(t *testing.T) {
	two := append(remap("10.0.0.0/17", "172.16.0.0/17"), remap("fd00::/60", "fd77:0:0:40::/60")...)
	for _, test := range []struct{ there, want string }{
		{"10.0.127.255", "172.16.127.255"},
		{"10.0.0.0", "172.16.0.0"},
		{"10.0.128.0", "invalid IP"},
		{"fd00:0:0:f:1::2", "fd77::4f:1:0:0:2"},
		{"fd00:0:0:10::1", "invalid IP"},
	} {
		if got := peering.Translate(two, addr(test.there)); got.String() != test.want {
			t.Errorf("%s: %s, want %s", test.there, got, test.want)
		}
	}
}

func TestViewOf(t *testing.T) {
	cidrs := func(text ...string) (c networkingv1beta1.CIDRs) {
		for _, s := range text {
			c.List = append(c.List, networkingv1beta1.CIDR(s))
		}
		return c
	}
	config := func(spec, status networkingv1beta1.CIDRs) *networkingv1beta1.Configuration {
		c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "milan", Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: "milan"}}}
		c.Spec.Remote.CIDR.Pod, c.Spec.Remote.CIDR.External = spec, cidrs("10.70.0.0/16")
		c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: status, External: cidrs("10.72.0.0/16")}}
		return c
	}
	undecided := config(cidrs("10.0.0.0/16"), cidrs("10.1.0.0/16"))
	undecided.Status.Remote = nil
	for _, test := range []struct {
		name string
		c    *networkingv1beta1.Configuration
		want []peering.Remap
		err  string
	}{
		{"two CIDRs", config(cidrs("10.0.0.0/16", "10.2.0.0/24"), cidrs("10.1.0.0/16", "10.3.0.0/24")), append(remap("10.0.0.0/16", "10.1.0.0/16"), remap("10.2.0.0/24", "10.3.0.0/24")...), ""},
		{"no status", undecided, nil, "the status of Configuration t/milan has no CIDRs yet"},
		{"a status that is behind", config(cidrs("10.0.0.0/16", "10.2.0.0/24"), cidrs("10.1.0.0/16")), nil, "its status has 1 CIDRs, its spec 2"},
		{"another length", config(cidrs("10.0.0.0/16"), cidrs("10.1.0.0/17")), nil, "10.0.0.0/16 cannot be remapped to 10.1.0.0/17"},
		{"no CIDR", config(cidrs("ten"), cidrs("10.1.0.0/17")), nil, "read Configuration t/milan: element 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v, err := viewOf(test.c)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			if err != nil {
				return
			}
			want := View{ID: "milan", Configuration: "t/milan", Pod: test.want, External: remap("10.70.0.0/16", "10.72.0.0/16")}
			if diff := cmp.Diff(want, v, cmpopts.EquateComparable(peering.Remap{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if v.unknownSource() != addr("10.72.0.0") {
				t.Errorf("unknown source %s", v.unknownSource())
			}
		})
	}
}

func TestBesides(t *testing.T) {
	for image, want := range map[string]string{
		"sluice.local/controller:unknown":                "sluice.local/prober:unknown",
		"registry.example:5000/x/controller:v1@sha256:0": "registry.example:5000/x/prober:v1",
		"registry.example:5000/x/controller":             "registry.example:5000/x/prober",
		"controller":                                     "prober",
		"other/my-controller:1":                          "",
		"sluice.local/gateway:unknown":                   "",
	} {
		if got := besides(image); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}

func TestNodeOf(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "n"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"},
		{Type: corev1.NodeExternalIP, Address: "192.0.2.1"},
	}
	want := Node{Name: "n", InternalIP: addr("10.0.0.1"), ExternalIP: addr("192.0.2.1"), ControlPlane: true}
	if got := nodeOf(n); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestCause(t *testing.T) {
	for message, want := range map[string]string{
		"":                       "",
		"Back-off pulling image": "Back-off pulling image",
		`failed to pull and unpack image "docker.io/sluice/prober:v9": failed to resolve reference "docker.io/sluice/prober:v9": failed to do request: Head "https://registry-1.docker.io/v2/sluice/prober/manifests/v9": dial tcp: lookup registry-1.docker.io: no such host` + "\nmore": `Head "https://registry-1.docker.io/v2/sluice/prober/manifests/v9": dial tcp: lookup registry-1.docker.io: no such host`,
	} {
		if got := cause(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

func TestReady(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
		p.Spec.NodeName, p.Spec.Containers = "n1", []corev1.Container{{Image: "i"}}
		p.Status.PodIP = "10.0.0.1"
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		change(&p)
		return p
	}
	waits := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Image: "i", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	pods := []corev1.Pod{
		pod("well", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue }),
		pod("going", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }),
		pod("old", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "before" }),
		pod("new", func(*corev1.Pod) {}),
		pod("starting", waits("ContainerCreating", "")),
		pod("pulling", waits("ImagePullBackOff", "not found\nand more")),
		pod("never", waits("ErrImageNeverPull", "")),
		pod("crashing", waits("CrashLoopBackOff", "back-off")),
		pod("homeless", func(p *corev1.Pod) {
			p.Spec.NodeName = ""
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available"}}
		}),
	}
	got, missing := ready(pods, "i")
	if diff := cmp.Diff([]Prober{{Namespace, "well", "n1", addr("10.0.0.1")}}, got, cmpopts.EquateComparable(Prober{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	want := []string{
		"pod new on node n1 is starting",
		"pod starting on node n1 is starting",
		"pod pulling on node n1 cannot pull image i (not found): check the name and whether the node can reach the registry, or name another image with --image",
		"pod never on node n1 cannot use image i (ErrImageNeverPull): load it onto the node, or name another with --image",
		"pod crashing on node n1 is waiting: CrashLoopBackOff back-off",
		"pod homeless is not scheduled: 0/2 nodes are available",
	}
	if diff := cmp.Diff(want, missing); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
