package gatewaydeploy

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// pod is a pod that runs at 10.0.0.<length of its name>, with marks: active, ready,
// terminating, pending, failed, newer.
func pod(name, node string, marks ...string) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, CreationTimestamp: metav1.Unix(1000, 0)},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0." + name},
	}
	for _, m := range marks {
		switch m {
		case "active":
			p.Labels[networkingv1beta1.LabelActive] = "true"
		case "ready":
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		case "terminating":
			p.DeletionTimestamp = new(metav1.Unix(2000, 0))
		case "pending":
			p.Status.Phase, p.Status.PodIP = corev1.PodPending, ""
		case "failed":
			p.Status.Phase = corev1.PodFailed
		case "newer":
			p.CreationTimestamp = metav1.NewTime(p.CreationTimestamp.Add(time.Minute))
		}
	}
	return p
}

func heldBy(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &name}}
}

func TestActive(t *testing.T) {
	several := func(f *Facts) { f.Gateway.deployment.Spec.Replicas = new(int32(2)) }
	led := func(name string) func(*Facts) {
		return func(f *Facts) {
			*f.Gateway.internalEndpoint = &networkingv1beta1.InternalEndpoint{IP: networkingv1beta1.Address("10.0.0." + name), Node: "n"}
		}
	}
	held := func(name string, gone bool) func(*Facts) {
		return func(f *Facts) { several(f); f.Lease, f.HolderGone = heldBy(name), gone }
	}
	alone := func(*Facts) {}
	for _, row := range []struct {
		name           string
		facts          func(*Facts)
		pods           []corev1.Pod
		want           string
		label, unlabel []string
		release        bool
	}{
		{name: "no pod", facts: alone},
		{name: "one pod with the mark", facts: alone, pods: []corev1.Pod{pod("1", "n", "active")}, want: "1"},
		{name: "one pod that was not given the mark", facts: alone, pods: []corev1.Pod{pod("1", "n")}, want: "1", label: []string{"1"}},
		{name: "a pod that starts", facts: alone, pods: []corev1.Pod{pod("1", "n", "active", "pending")}},
		{name: "the old one terminates, the new one starts", facts: led("1"), pods: []corev1.Pod{pod("1", "n", "active", "terminating"), pod("2", "n", "active", "pending")}},
		{name: "the old one terminates, the new one runs", facts: led("1"),
			pods: []corev1.Pod{pod("1", "n", "active", "terminating"), pod("2", "n", "active")}, want: "2", unlabel: []string{"1"}},
		{name: "the new one runs before the old one ends", facts: led("1"),
			pods: []corev1.Pod{pod("1", "n", "active"), pod("2", "n", "active", "ready", "newer")}, want: "1", unlabel: []string{"2"}},
		{name: "two, none of which led: the ready one", facts: alone, pods: []corev1.Pod{pod("1", "n", "active"), pod("2", "n", "active", "ready")}, want: "2", unlabel: []string{"1"}},
		{name: "two alike: the one with the mark", facts: alone, pods: []corev1.Pod{pod("1", "n"), pod("2", "n", "active")}, want: "2"},
		{name: "two alike: the older one", facts: alone, pods: []corev1.Pod{pod("1", "n", "newer"), pod("2", "n")}, want: "2", label: []string{"2"}},
		{name: "a pod that failed keeps what nobody reads", facts: alone, pods: []corev1.Pod{pod("1", "n", "active", "failed"), pod("2", "n", "active")}, want: "2"},

		{name: "several, not yet elected", facts: several, pods: []corev1.Pod{pod("1", "n"), pod("2", "n")}},
		{name: "several, elected", facts: held("2", false), pods: []corev1.Pod{pod("1", "n"), pod("2", "n")}, want: "2", label: []string{"2"}},
		{name: "several, another one elected", facts: held("2", false), pods: []corev1.Pod{pod("1", "n", "active"), pod("2", "n")}, want: "2", label: []string{"2"}, unlabel: []string{"1"}},
		{name: "the holder terminates: until it lets go", facts: held("1", false), pods: []corev1.Pod{pod("1", "n", "active", "terminating"), pod("2", "n")}},
		{name: "the holder is gone", facts: held("1", true), pods: []corev1.Pod{pod("2", "n")}, release: true},
		{name: "the holder failed", facts: held("1", true), pods: []corev1.Pod{pod("1", "n", "active", "failed"), pod("2", "n")}, release: true},
		{name: "the holder is not seen yet", facts: held("3", false), pods: []corev1.Pod{pod("1", "n"), pod("2", "n")}},
		{name: "a holder with the mark of its process", facts: held("2_0f9c", false), pods: []corev1.Pod{pod("1", "n"), pod("2", "n")}, want: "2", label: []string{"2"}},
		{name: "one replica, as long as the leader of several lives", facts: func(f *Facts) { f.Lease = heldBy("1") },
			pods: []corev1.Pod{pod("1", "n", "active"), pod("2", "n", "active")}, want: "1", unlabel: []string{"2"}},
		{name: "one replica, after the leader of several", facts: func(f *Facts) { f.Lease, f.HolderGone = heldBy("1"), true },
			pods: []corev1.Pod{pod("2", "n")}, want: "2", label: []string{"2"}, release: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := serverFacts()
			row.facts(&f)
			f.Pods = row.pods
			p := Build(f)
			got := ""
			if l := f.leader(); l != nil {
				got = l.Name
			}
			if got != row.want {
				t.Errorf("leader %q, want %q", got, row.want)
			}
			f.HolderRestarts = true
			if p := Build(f); p.Recheck == 0 || p.Recheck > restartPatience {
				t.Errorf("a holder that is restarted is looked at again after %v", p.Recheck)
			}
			if !slices.Equal(p.Label, row.label) || !slices.Equal(p.Unlabel, row.unlabel) || p.ReleaseLease != row.release {
				t.Errorf("label %v, unlabel %v, release %v", p.Label, p.Unlabel, p.ReleaseLease)
			}
		})
	}
}

// A container that is down is started again; another pod is faster.
func TestStoppedHolder(t *testing.T) {
	down := corev1.ContainerState{Waiting: new(corev1.ContainerStateWaiting)}
	ended := func(ago time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(time.Now().Add(-ago))}}
	}
	up := corev1.ContainerState{Running: new(corev1.ContainerStateRunning)}
	in := func(p corev1.Pod, s corev1.ContainerState) corev1.Pod {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "gateway", State: s}}
		return p
	}
	for _, tt := range []struct {
		name          string
		holder, other corev1.Pod
		want          bool
	}{
		{"it runs", in(pod("1", "n"), up), in(pod("2", "n", "ready"), up), false},
		{"another one is ready", in(pod("1", "n"), down), in(pod("2", "n", "ready"), up), true},
		{"it has just ended, and is being started again", in(pod("1", "n"), ended(0)), in(pod("2", "n", "ready"), up), false},
		{"it has ended, and was not started again", in(pod("1", "n"), ended(time.Minute)), in(pod("2", "n", "ready"), up), true},
		{"another one is not ready", in(pod("1", "n"), down), in(pod("2", "n"), up), false},
		{"another one is down as well", in(pod("1", "n"), down), in(pod("2", "n", "ready"), down), false},
		{"another one ends", in(pod("1", "n"), down), in(pod("2", "n", "ready", "terminating"), up), false},
	} {
		f := Facts{Pods: []corev1.Pod{tt.holder, tt.other}, Lease: heldBy("1")}
		if err := new(reconciler).gatherHolder(t.Context(), &f); err != nil || f.HolderGone != tt.want {
			t.Errorf("%s: gone is %v (%v)", tt.name, f.HolderGone, err)
		}
	}
}
