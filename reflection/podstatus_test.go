package reflection

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func cidrs(texts []string) (c networkingv1beta1.CIDRs) {
	c.List = []networkingv1beta1.CIDR{}
	for _, t := range texts {
		c.List = append(c.List, networkingv1beta1.CIDR(t))
	}
	return c
}

func configuration(spec, status []string) *networkingv1beta1.Configuration {
	c := &networkingv1beta1.Configuration{}
	c.Namespace, c.Name = "liqo-tenant-milan", "milan"
	c.Spec.Remote.CIDR.Pod = cidrs(spec)
	if status != nil {
		c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs(status)}}
	}
	return c
}

func milan(t testing.TB) Addresses {
	a, err := NewAddresses(configuration([]string{"10.243.0.0/16", "fd00:243::/64"}, []string{"10.71.0.0/16", "fd00:71::/64"}))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAddresses(t *testing.T) {
	a := milan(t)
	for there, here := range map[string]string{
		"10.243.1.7": "10.71.1.7", "::ffff:10.243.1.7": "10.71.1.7", "fd00:243::9": "fd00:71::9", "10.244.0.1": "", "fd00:1::1": "", "8.8.8.8": "",
	} {
		got, ok := a.Here(netip.MustParseAddr(there))
		if ok != (here != "") || ok && got.String() != here {
			t.Errorf("%s is %s, %t; want %q", there, got, ok, here)
		}
	}
	for name, c := range map[string]struct {
		spec, status []string
		want         string
	}{
		"no answer":      {[]string{"10.0.0.0/16"}, nil, "the Configuration liqo-tenant-milan/milan has no remapped CIDRs yet"},
		"another number": {[]string{"10.0.0.0/16"}, []string{}, "the Configuration liqo-tenant-milan/milan has 0 pod CIDRs in its status, and 1 in its spec"},
		"another length": {[]string{"10.0.0.0/16"}, []string{"10.1.0.0/24"}, "the Configuration liqo-tenant-milan/milan remaps the pod CIDR 10.0.0.0/16 to 10.1.0.0/24, which is of another size or family"},
		"another family": {[]string{"10.0.0.0/16"}, []string{"fd00::/16"}, "the Configuration liqo-tenant-milan/milan remaps the pod CIDR 10.0.0.0/16 to fd00::/16, which is of another size or family"},
	} {
		if _, err := NewAddresses(configuration(c.spec, c.status)); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRemapped(t *testing.T) {
	for _, tt := range [][3]string{
		{"10.243.2.20", "10.71.0.0/16", "10.71.2.20"}, {"10.243.2.21", "10.71.8.0/22", "10.71.10.21"}, {"10.1.2.3", "10.9.9.9/32", "10.9.9.9"},
		{"fd00:1::20", "fd00:71::/48", "fd00:71::20"}, {"10.1.2.3", "fd00::/48", "invalid IP"},
	} {
		if got := Remapped(netip.MustParseAddr(tt[0]), netip.MustParsePrefix(tt[1])); got.String() != tt[2] {
			t.Errorf("%s in %s: %s, want %s", tt[0], tt[1], got, tt[2])
		}
	}
}

// FuzzAddresses: the host bits stay, the network bits are those of the prefix here, and what is in no CIDR is nobody.
func FuzzAddresses(f *testing.F) {
	f.Add([]byte{10, 243, 1, 2}, uint8(16))
	f.Add(make([]byte, 16), uint8(63))
	f.Fuzz(func(t *testing.T, b []byte, bits uint8) {
		a, ok := netip.AddrFromSlice(b)
		a = a.Unmap()
		if !ok || int(bits) > a.BitLen() {
			return
		}
		there := netip.PrefixFrom(a, int(bits)).Masked()
		other := netip.MustParseAddr("10.71.85.170")
		if a.Is6() {
			other = netip.MustParseAddr("fd00:71:aaaa:5555:aaaa:5555:aaaa:5555")
		}
		here := netip.PrefixFrom(other, int(bits)).Masked()
		if here.Addr().IsUnspecified() {
			return // as short as no CIDR is
		}
		to := Addresses{remaps: []remap{{there, here}}}
		back := Addresses{remaps: []remap{{here, there}}}
		is, ok := to.Here(a)
		if !ok || !here.Contains(is) {
			t.Fatalf("%s in %s is %s", a, there, is)
		}
		if again, ok := back.Here(is); !ok || again != a {
			t.Errorf("%s comes back as %s", a, again)
		}
	})
}

var (
	early = metav1.NewTime(time.Unix(1000, 0))
	late  = metav1.NewTime(time.Unix(2000, 0))
)

func running(id string, restarts int32) corev1.PodStatus {
	return corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.243.0.7", PodIPs: []corev1.PodIP{{IP: "10.243.0.7"}, {IP: "fd00:243::7"}}, HostIP: "192.0.2.1",
		HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}}, QOSClass: corev1.PodQOSGuaranteed, NominatedNodeName: "x", StartTime: &early,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Reason: "remote"},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: early},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: early},
			{Type: "example.org/injected", Status: corev1.ConditionTrue},
		},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "web", Ready: true, Started: new(true), ContainerID: id, RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: early}}},
			{Name: "injected"},
		},
	}
}

func local(gates ...string) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}}}
	p.Generation = 3
	p.Status = corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: early}},
	}
	for _, g := range gates {
		p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: corev1.PodConditionType(g)})
	}
	return p
}

func options(t testing.TB) StatusOptions {
	return StatusOptions{Addresses: milan(t), HostIP: netip.MustParseAddr("10.0.0.5"), Now: late}
}

func TestPodStatus(t *testing.T) {
	compare(t, "testdata/status.running.yaml", PodStatus(local(), &corev1.Pod{Status: running("a", 2)}, options(t)))
	compare(t, "testdata/status.gate.yaml", PodStatus(local("example.org/lb"), &corev1.Pod{Status: running("a", 2)}, options(t)).Conditions)
	gone := local()
	gone.Status = PodStatus(gone, &corev1.Pod{Status: running("a", 2)}, options(t))
	compare(t, "testdata/status.missing.yaml", PodStatus(gone, nil, options(t)))

	t.Run("before there is a pod nothing changes", func(t *testing.T) {
		if diff := cmp.Diff(local().Status, PodStatus(local(), nil, options(t))); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("before a kubelet has the pod nothing changes", func(t *testing.T) {
		there := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}}}
		if diff := cmp.Diff(local().Status, PodStatus(local(), there, options(t))); diff != "" {
			t.Error(diff)
		}
		there.Status.StartTime = &early
		if got := PodStatus(local(), there, options(t)); got.StartTime == nil || got.HostIP == "" {
			t.Errorf("when it has: %+v", got)
		}
	})
	t.Run("the provider says why there is no pod", func(t *testing.T) {
		o := options(t)
		o.Reason, o.Message = Why("Quota\x1b[2JExceeded", strings.Repeat("m", 2000))
		if o.Reason != "Quota [2JExceeded" || len(o.Message) > maxText {
			t.Fatalf("%q, %d bytes", o.Reason, len(o.Message))
		}
		never, ran := local(), local()
		ran.Status = PodStatus(ran, &corev1.Pod{Status: running("a", 2)}, o)
		if s := ran.Status; s.Reason != "" || s.Message != "" {
			t.Errorf("one that runs: %s: %s", s.Reason, s.Message)
		}
		never.Status, ran.Status = PodStatus(never, nil, o), PodStatus(ran, nil, o)
		for name, s := range map[string]corev1.PodStatus{"never ran": never.Status, "ran": ran.Status} {
			if s.Phase != corev1.PodPending || s.Reason != o.Reason || s.Message != o.Message {
				t.Errorf("%s: %s, %s: %s", name, s.Phase, s.Reason, s.Message)
			}
			for _, c := range s.ContainerStatuses { // kubectl shows this one
				if w := c.State.Waiting; w == nil || w.Reason != o.Reason || w.Message != o.Message {
					t.Errorf("%s: container %s: %+v", name, c.Name, c.State)
				}
			}
		}
		if got := PodStatus(ran, nil, options(t)); got.Reason != "" || got.Message != "" || got.ContainerStatuses[0].State.Waiting.Reason != ReasonRecreating {
			t.Errorf("and then no more: %+v", got)
		}
	})
	t.Run("the same again", func(t *testing.T) {
		p := local("example.org/lb")
		there := &corev1.Pod{Status: running("a", 2)}
		p.Status = PodStatus(p, there, options(t))
		o := options(t)
		o.Now = metav1.NewTime(time.Unix(3000, 0))
		if diff := cmp.Diff(p.Status, PodStatus(p, there, o)); diff != "" {
			t.Errorf("changes without reason:\n%s", diff)
		}
		p.Status = PodStatus(p, nil, o)
		o.Now = metav1.NewTime(time.Unix(4000, 0))
		if diff := cmp.Diff(p.Status, PodStatus(p, nil, o)); diff != "" {
			t.Errorf("missing, changes without reason:\n%s", diff)
		}
	})
	t.Run("what has ended stays", func(t *testing.T) {
		for _, end := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
			p := local()
			p.Status.Phase = end
			if got := PodStatus(p, &corev1.Pod{Status: running("a", 0)}, options(t)); got.Phase != end {
				t.Errorf("%s becomes %s", end, got.Phase)
			}
		}
	})
	t.Run("ended and removed", func(t *testing.T) {
		for end, want := range map[corev1.PodPhase]struct {
			code   int32
			reason string
		}{corev1.PodSucceeded: {0, "PodCompleted"}, corev1.PodFailed: {137, "PodFailed"}} {
			o := options(t)
			p := local()
			p.Status = PodStatus(p, &corev1.Pod{Status: running("a", 2)}, o)
			o.Ended = end
			p.Status = PodStatus(p, nil, o)
			if p.Status.Phase != end || len(p.Status.ContainerStatuses) != len(p.Spec.Containers) || p.Status.ContainerStatuses[0].RestartCount != 2 {
				t.Fatalf("%s: %+v", end, p.Status)
			}
			for _, c := range p.Status.ContainerStatuses {
				if e := c.State.Terminated; c.Ready || e == nil || e.ExitCode != want.code || e.Reason != ReasonUnknown || c.State.Running != nil {
					t.Errorf("%s: %+v", end, c)
				}
			}
			if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason == want.reason
			}) {
				t.Errorf("%s: %+v", end, p.Status.Conditions)
			}
		}
		o := options(t)
		o.Ended = "Hostile"
		if got := PodStatus(local(), nil, o); got.Phase == o.Ended {
			t.Errorf("%+v", got)
		}
	})
	t.Run("deleted at the provider alone it has not ended", func(t *testing.T) {
		p, there := local(), &corev1.Pod{Status: running("a", 2)}
		p.Status = PodStatus(p, there, options(t))
		there.DeletionTimestamp, there.Status.Phase = &late, corev1.PodFailed
		if got := PodStatus(p, there, options(t)); got.Phase != corev1.PodPending || got.PodIP != "" {
			t.Errorf("%+v", got)
		}
		p.DeletionTimestamp = &late
		if got := PodStatus(p, there, options(t)); got.Phase != corev1.PodFailed {
			t.Errorf("deleted here as well it is %s", got.Phase)
		}
	})
	t.Run("waits for resources that the provider has not asked its kubelet for", func(t *testing.T) {
		pending := func(p *corev1.Pod) (got []corev1.PodCondition) {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodResizePending {
					got = append(got, c)
				}
			}
			return got
		}
		p, there, o := local(), &corev1.Pod{Status: running("a", 2)}, options(t)
		there.Annotations = map[string]string{AnnotationFollowed: "12ab" + SuffixResizing}
		p.Status = PodStatus(p, there, o)
		first := pending(p)
		if len(first) != 1 || first[0].Status != corev1.ConditionTrue || first[0].Reason != corev1.PodReasonDeferred || !first[0].LastTransitionTime.Equal(&o.Now) {
			t.Fatalf("%+v", first)
		}
		o.Now = metav1.NewTime(time.Unix(3000, 0))
		if diff := cmp.Diff(p.Status, PodStatus(p, there, o)); diff != "" {
			t.Errorf("changes without reason:\n%s", diff)
		}
		if held := HeldPod(there); !cmp.Equal(PodStatus(p, there, o), PodStatus(p, held, o)) {
			t.Error("not by what is held of the pod")
		}
		there.Status.Conditions = append(there.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible})
		p.Status = PodStatus(p, there, o)
		if got := pending(p); len(got) != 1 || got[0].Reason != corev1.PodReasonInfeasible {
			t.Errorf("the kubelet knows better: %+v", got)
		}
		there.Annotations[AnnotationFollowed] = "12ab"
		there.Status.Conditions = running("a", 2).Conditions
		p.Status = PodStatus(p, there, o)
		if got := pending(p); len(got) != 0 {
			t.Errorf("it has them: %+v", got)
		}
	})
	t.Run("not ready while the provider is away", func(t *testing.T) {
		p, there := local("example.org/lb"), &corev1.Pod{Status: running("a", 2)}
		o := options(t)
		p.Status = PodStatus(p, there, o)
		o.Away = "it does not answer"
		p.Status = PodStatus(p, there, o)
		for _, c := range p.Status.Conditions {
			if want := (corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: ReasonAway, Message: o.Away, LastTransitionTime: late, ObservedGeneration: 3}); c.Type == corev1.PodReady && c != want {
				t.Errorf("%+v", c)
			}
		}
		if p.Status.Phase != corev1.PodRunning || !p.Status.ContainerStatuses[0].Ready {
			t.Errorf("%+v", p.Status)
		}
	})
	t.Run("a resize", func(t *testing.T) {
		list := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
		p, there := local(), &corev1.Pod{Status: running("a", 2)}
		there.Status.Conditions = append(there.Status.Conditions,
			corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "Node didn't have enough resource: cpu", LastTransitionTime: early, ObservedGeneration: 7},
			corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, LastTransitionTime: early})
		there.Status.AllocatedResources, there.Status.Resources = list("1"), &corev1.ResourceRequirements{Requests: list("1")}
		there.Status.ContainerStatuses[0].AllocatedResources = list("1")
		there.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: list("1"), Limits: list("2")}
		p.Status = PodStatus(p, there, options(t))
		resizes := func() (all []corev1.PodCondition) {
			for _, c := range p.Status.Conditions {
				if strings.HasPrefix(string(c.Type), "PodResize") {
					all = append(all, c)
				}
			}
			return all
		}
		if diff := cmp.Diff([]corev1.PodCondition{
			{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "Node didn't have enough resource: cpu", LastTransitionTime: early, ObservedGeneration: 3},
			{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, LastTransitionTime: early, ObservedGeneration: 3},
		}, resizes()); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		c := p.Status.ContainerStatuses[0]
		if diff := cmp.Diff([]any{list("1"), &corev1.ResourceRequirements{Requests: list("1")}, list("1"), &corev1.ResourceRequirements{Requests: list("1"), Limits: list("2")}},
			[]any{p.Status.AllocatedResources, p.Status.Resources, c.AllocatedResources, c.Resources}); diff != "" {
			t.Errorf("resources (-want +got):\n%s", diff)
		}
		pending := p.DeepCopy()
		p.Status = PodStatus(p, &corev1.Pod{Status: running("a", 2)}, options(t))
		if left := resizes(); len(left) > 0 {
			t.Errorf("when it is done: %+v", left)
		}
		p = pending
		p.Status = PodStatus(p, nil, options(t))
		if left := resizes(); len(left) > 0 {
			t.Errorf("when another pod takes its place: %+v", left)
		}
	})
	t.Run("no address of nobody", func(t *testing.T) {
		o := options(t)
		o.Addresses = Addresses{}
		if got := PodStatus(local(), &corev1.Pod{Status: running("a", 0)}, o); got.PodIP != "" || got.PodIPs != nil {
			t.Errorf("%s, %v", got.PodIP, got.PodIPs)
		}
	})
}

// The count of restarts goes on when another pod takes the place of the one at the provider.
func TestRestarts(t *testing.T) {
	p := local()
	for i, step := range []struct {
		id    string
		count int32
		want  int32
	}{{"", 0, 0}, {"a", 0, 0}, {"a", 0, 0}, {"b", 1, 1}, {"c", 2, 2}, {"", 0, 3}, {"d", 0, 3}, {"e", 1, 4}, {"f", 0, 5}, {"f", -7, 5}} {
		p.Status = PodStatus(p, &corev1.Pod{Status: running(step.id, step.count)}, options(t))
		if got := p.Status.ContainerStatuses[0].RestartCount; got != step.want {
			t.Fatalf("step %d: %d restarts, want %d", i, got, step.want)
		}
	}
	// A pod that has just been made has no containers.
	p.Status = PodStatus(p, &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}, options(t))
	if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].Ready || c[0].State.Waiting == nil {
		t.Errorf("before it has containers: %+v", c)
	}
	p.Status = PodStatus(p, &corev1.Pod{Status: running("g", 0)}, options(t))
	if got := p.Status.ContainerStatuses[0].RestartCount; got != 6 {
		t.Errorf("%d restarts, want 6", got)
	}
}

// FuzzPodStatus: whatever the provider says, the status here has only known conditions, containers of the pod, bounded
// valid text, and addresses of the peering.
func FuzzPodStatus(f *testing.F) {
	f.Add("Running", "10.243.0.7", "fd00:243::7", "Ready", "True", "web", "why", int32(3))
	f.Add("Unknown", "127.0.0.1", "fe80::1%eth0", "x", "", "", "\xff", int32(-1))
	f.Fuzz(func(t *testing.T, phase, ip, second, kind, status, container, text string, restarts int32) {
		there := &corev1.Pod{Status: corev1.PodStatus{
			Phase: corev1.PodPhase(phase), PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}, {IP: second}, {IP: ip}}, Reason: text, Message: strings.Repeat(text, 100),
			Conditions: []corev1.PodCondition{{Type: corev1.PodConditionType(kind), Status: corev1.ConditionStatus(status), Reason: text, Message: text}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: container, RestartCount: restarts, ContainerID: text,
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: text, Message: text}}}},
		}}
		got := PodStatus(local(), there, options(t))
		for _, ip := range got.PodIPs {
			a := netip.MustParseAddr(ip.IP)
			if !netip.MustParsePrefix("10.71.0.0/16").Contains(a) && !netip.MustParsePrefix("fd00:71::/64").Contains(a) {
				t.Errorf("address %s", a)
			}
		}
		if len(got.PodIPs) > 2 || len(got.Conditions) > 2 || len(got.ContainerStatuses) > 1 || len(got.Message) > maxText || !utf8.ValidString(got.Message) {
			t.Errorf("%+v", got)
		}
		for _, c := range got.ContainerStatuses {
			if c.Name != "web" || c.RestartCount < 0 || len(c.ContainerID) > maxText {
				t.Errorf("%+v", c)
			}
		}
	})
}
