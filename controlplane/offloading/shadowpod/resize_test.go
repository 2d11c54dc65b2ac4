package shadowpod

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/requests"
	"github.com/sluice-net/sluice/reflection"
)

// sized are requests and limits of cpu; "": none.
func sized(requests, limits string) (r corev1.ResourceRequirements) {
	if requests != "" {
		r.Requests = amounts("cpu", requests)
	}
	if limits != "" {
		r.Limits = amounts("cpu", limits)
	}
	return r
}

// sizes is a spec of two containers.
func sizes(init, main corev1.ResourceRequirements) corev1.PodSpec {
	return corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i", Resources: init}}, Containers: []corev1.Container{{Name: "a", Image: "a", Resources: main}}}
}

// TestResized has a living pod follow the resources of its ShadowPod.
func TestResized(t *testing.T) {
	whole := func(s corev1.PodSpec, r corev1.ResourceRequirements) corev1.PodSpec {
		s.Resources = &r
		return s
	}
	wanted := sizes(sized("", ""), sized("2", "3"))
	for _, tt := range []struct {
		name       string
		has, wants corev1.PodSpec
		marks      marks
		want       *corev1.PodSpec // nil: it stays
	}{
		{"the same in other words", sizes(sized("", ""), sized("1", "2000m")), sizes(sized("", ""), sized("1000m", "2")), marks{}, nil},
		{"what this cluster adds stays", sizes(sized("1", "1"), sized("1", "2")), sizes(sized("", ""), sized("1", "")), marks{}, nil},
		{"more is requested", sizes(sized("1", ""), sized("1", "4")), sizes(sized("", ""), sized("1500m", "")), marks{}, new(sizes(sized("1", ""), sized("1500m", "4")))},
		{"a lower limit", sizes(sized("", ""), sized("1", "3")), sizes(sized("", ""), sized("1", "2")), marks{}, new(sizes(sized("", ""), sized("1", "2")))},
		{"of a container that starts the others", sizes(sized("1", ""), sized("", "")), sizes(sized("2", ""), sized("", "")), marks{}, new(sizes(sized("2", ""), sized("", "")))},
		{"of the pod as a whole", sizes(sized("", ""), sized("", "")), whole(sizes(sized("", ""), sized("", "")), sized("1", "")), marks{}, new(whole(sizes(sized("", ""), sized("", "")), sized("1", "")))},
		{"of a container that is not there", sizes(sized("", ""), sized("1", "")), corev1.PodSpec{Containers: []corev1.Container{{Name: "b", Resources: sized("2", "")}}}, marks{}, nil},
		{"nothing but resources", sizes(sized("", ""), sized("1", "")), corev1.PodSpec{Hostname: "h", Containers: []corev1.Container{{Name: "a", Image: "b", Resources: sized("2", ""),
			ResizePolicy: []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: "RestartContainer"}}}}}, marks{}, new(sizes(sized("", ""), sized("2", "")))},
		{"what this cluster has made of them stays", sizes(sized("", ""), sized("1", "3")), wanted, marks{"1", resourcesOf(&wanted)}, nil},
		{"unless the ShadowPod asks for others", sizes(sized("", ""), sized("1", "3")), wanted, marks{"1", "2"}, new(sizes(sized("", ""), sized("2", "3")))},
		{"or others were asked for, and it is not known whether they were set", sizes(sized("", ""), sized("1", "3")), wanted, marks{"1" + reflection.SuffixResizing, resourcesOf(&wanted)}, new(sizes(sized("", ""), sized("2", "3")))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			live := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: tt.has}
			if tt.marks != (marks{}) {
				tt.marks.put(live)
			}
			before := live.DeepCopy()
			var want *corev1.Pod
			if tt.want != nil {
				want = live.DeepCopy()
				want.Spec = *tt.want
			}
			if diff := cmp.Diff(want, resized(live, &tt.wants)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, live); diff != "" {
				t.Errorf("the pod of before is another (-want +got):\n%s", diff)
			}
		})
	}
}

// TestObstacle: what a Quota forbids whatever room it has.
func TestObstacle(t *testing.T) {
	quota := func(cordoned bool, e offloadingv1beta1.LimitsEnforcement) *offloadingv1beta1.Quota {
		return &offloadingv1beta1.Quota{Spec: offloadingv1beta1.QuotaSpec{User: "milan-1", Cordoned: &cordoned, LimitsEnforcement: e}}
	}
	for _, tt := range []struct {
		name   string
		more   bool
		quota  *offloadingv1beta1.Quota
		reason string
	}{
		{"less, and the slice is gone", false, nil, ""},
		{"less, and the slice is cordoned", false, quota(true, "None"), ""},
		{"more", true, quota(false, "None"), ""},
		{"more, and the slice is gone", true, nil, reasonNoQuota},
		{"more, and the slice is cordoned", true, quota(true, "None"), reasonCordoned},
		{"less than the limit, which has to be the request", false, quota(false, "Hard"), reasonNotResized},
	} {
		if reason, why := obstacle(new(sizes(sized("1", "2"), sized("1", "2"))), tt.more, tt.quota, "rome"); reason != tt.reason || (why == "") != (reason == "") {
			t.Errorf("%s: %q, %q; want %q", tt.name, reason, why, tt.reason)
		}
	}
}

func TestQuotaOf(t *testing.T) {
	long := strings.Repeat("a", 200)
	all := []offloadingv1beta1.Quota{{Spec: offloadingv1beta1.QuotaSpec{User: "milan-1"}}, {Spec: offloadingv1beta1.QuotaSpec{User: long}}}
	for user, want := range map[string]*offloadingv1beta1.Quota{"milan-1": &all[0], label(long): &all[1], "milan-2": nil, "": nil} {
		if got := quotaOf(user, all); got != want {
			t.Errorf("%q: %v", user, got)
		}
	}
}

// TestUnresized: what API servers answer to a resize.
func TestUnresized(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, tt := range []struct {
		name  string
		err   error
		why   string
		final bool
	}{
		{"it was done", nil, "", false},
		{"it is not known", errors.New("timeout"), "", false},
		{"the pod is gone", apierrors.NewNotFound(pods, "web"), "", false},
		{"the pod has changed", apierrors.NewConflict(pods, "web", errors.New("changed")), "", false},
		{"an API server that cannot", apierrors.NewGenericServerResponse(http.StatusNotFound, "PATCH", schema.GroupResource{}, "", "404 page not found", 0, true), "cannot resize pods in place", true},
		{"Kubernetes does not allow it", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), `Pod "web" is invalid`, true},
		{"a policy does not, for now", apierrors.NewForbidden(pods, "web", errors.New("node is full")), "node is full", false},
	} {
		why, final := unresized(tt.err)
		if (why == "") != (tt.why == "") || !strings.Contains(why, tt.why) || final != tt.final {
			t.Errorf("%s: %q, %t; want %q, %t", tt.name, why, final, tt.why, tt.final)
		}
	}
}

// TestLedgerOfResized resizes pods step by step. hard is cpu 2.
func TestLedgerOfResized(t *testing.T) {
	of, live, hard := account{"rome", "q"}, map[string]bool{"q": true}, amounts("cpu", "2")
	l := newLedger()
	l.observe(named("a"), "1", "10", of, amounts("cpu", "500m"))
	l.observe(named("b"), "2", "11", of, amounts("cpu", "1"))
	used := func(want string) {
		t.Helper()
		if got := l.used[of]["cpu"]; got.String() != want {
			t.Errorf("%s of cpu are used, want %s", got.String(), want)
		}
	}
	resize := func(name string, uid types.UID, cpu, want string) {
		t.Helper()
		short, known := l.resize(named(name), uid, live, amounts("cpu", cpu), hard)
		if short != want || !known {
			t.Errorf("%s to %s: %q, %t; want %q", name, cpu, short, known, want)
		}
	}
	resize("a", "1", "1500m", "1500m of cpu are asked for; of 2, which are granted, other pods have 1")
	used("1500m")
	resize("a", "1", "1", "")
	used("2") // while it is asked for
	resize("b", "2", "1100m", "1100m of cpu are asked for; of 2, which are granted, other pods have 1")
	l.observe(named("a"), "1", "10", of, amounts("cpu", "500m")) // a cache that does not know of it yet
	used("2")
	if !l.answered(named("a"), "1", "10", amounts("cpu", "500m")) {
		t.Error("what was refused gives back nothing")
	}
	used("1500m")
	resize("a", "1", "1", "")
	if l.answered(named("a"), "1", "20", amounts("cpu", "1")) {
		t.Error("what was done gives something back")
	}
	if l.observe(named("a"), "1", "15", of, amounts("cpu", "500m")) {
		t.Error("an earlier version gives something back")
	}
	used("2")
	// It is to have less, and the kubelet still gives it as much.
	resize("a", "1", "1", "")
	l.answered(named("a"), "1", "21", amounts("cpu", "1"))
	resize("b", "2", "1500m", "1500m of cpu are asked for; of 2, which are granted, other pods have 1")
	if !l.observe(named("a"), "1", "22", of, amounts("cpu", "500m")) {
		t.Error("what the kubelet has taken back gives back nothing")
	}
	resize("b", "2", "1500m", "")
	l.answered(named("b"), "2", "23", amounts("cpu", "1500m"))
	used("2")
	// Less is granted than before: what does not grow needs no room.
	hard = amounts("cpu", "1")
	resize("b", "2", "1200m", "")
	resize("b", "2", "1600m", "1600m of cpu are asked for; of 1, which are granted, other pods have 500m")
	l.observe(named("b"), "3", "5", of, amounts("cpu", "100m")) // another pod of the name
	used("600m")
	if _, known := l.resize(named("b"), "2", live, amounts("cpu", "1"), hard); known {
		t.Error("the pod of before is resized")
	}
	if l.answered(named("b"), "2", "30", amounts("cpu", "9")); !l.forget(named("a"), "1") || !l.forget(named("b"), "3") || len(l.pods)+len(l.used) > 0 {
		t.Errorf("left: %v %v", l.pods, l.used)
	}
}

// TestTrimPod: what is kept of a Pod counts as much as the Pod.
func TestTrimPod(t *testing.T) {
	p := &corev1.Pod{Spec: sizes(sized("1", ""), sized("2", "3"))}
	p.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	p.Status.AllocatedResources = amounts("memory", "1Gi")
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", AllocatedResources: amounts("cpu", "4")}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", Resources: new(sized("5", "6"))}}
	kept, err := trimPod(p)
	if err != nil {
		t.Fatal(err)
	}
	want := amounts("cpu", "9", "memory", "1Gi", "pods", "1")
	for what, o := range map[string]any{"the Pod": p, "what is kept": kept} {
		if diff := cmp.Diff(want, requests.OfPod(o.(*corev1.Pod))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}
