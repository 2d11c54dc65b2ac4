package shadowpod

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/reflection"
)

func amounts(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func named(name string) types.NamespacedName { return types.NamespacedName{Namespace: "n", Name: name} }

func TestLedger(t *testing.T) {
	hard := amounts("cpu", "2", "pods", "3")
	live := map[string]bool{"q": true, "other": true}
	take := func(l *ledger, name, user string, amount corev1.ResourceList) string {
		short, _, known := l.take(named(name), account{"rome", user}, live, amount, hard)
		if known {
			return "known"
		}
		return short
	}
	l := newLedger()
	for _, step := range []struct {
		name, user, amount string
		want               string
	}{
		{"a", "q", "1500m", ""},
		{"b", "q", "600m", "600m of cpu are asked for; of 2, which are granted, other pods have 1500m"},
		{"b", "other", "2", ""},
		{"c", "q", "500m", ""},
		{"c", "q", "1m", "known"},
		{"d", "q", "1m", "of 2, which are granted, other pods have 2"},
	} {
		if got := take(l, step.name, step.user, amounts("cpu", step.amount, "pods", "1")); !strings.Contains(got, step.want) || (step.want == "") != (got == "") {
			t.Errorf("%s takes %s of %s: %q, want %q", step.name, step.amount, step.user, got, step.want)
		}
	}
	if got := take(l, "g", "q", amounts("nvidia.com/gpu", "1")); !strings.Contains(got, "nothing is granted") {
		t.Errorf("what is not granted: %q", got)
	}
	if l.forget(named("a"), "another") {
		t.Error("a pod of another UID is forgotten")
	}
	l.observe(named("a"), "1", "7", account{"rome", "q"}, amounts("cpu", "1", "pods", "1"))
	if got := take(l, "d", "q", amounts("cpu", "500m")); got != "" {
		t.Errorf("what a smaller pod leaves: %q", got)
	}
	for name, uid := range map[string]types.UID{"a": "1", "b": "", "c": "", "d": ""} {
		if !l.forget(named(name), uid) {
			t.Errorf("%s did not count", name)
		}
	}
	if len(l.pods)+len(l.used) > 0 {
		t.Errorf("left: %v %v", l.pods, l.used)
	}
}

// TestLedgerOfRenamed: a consumer that deletes its slice and makes another one has no more than the new one grants.
func TestLedgerOfRenamed(t *testing.T) {
	l := newLedger()
	l.observe(named("old"), "1", "7", account{"rome", "old"}, amounts("cpu", "1500m"))
	l.observe(named("theirs"), "2", "7", account{"naples", "gone"}, amounts("cpu", "2"))
	take := func(name, cpu string, live ...string) string {
		users := map[string]bool{}
		for _, user := range live {
			users[user] = true
		}
		short, _, _ := l.take(named(name), account{"rome", "new"}, users, amounts("cpu", cpu), amounts("cpu", "2"))
		return short
	}
	if got, want := take("a", "600m", "new"), "other pods have 1500m, 1500m of it those of ResourceSlices that are gone"; !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := take("b", "500m", "new"); got != "" {
		t.Errorf("what is left beside the old pods: %q", got)
	}
	if got := take("c", "1500m", "new", "old"); got != "" {
		t.Errorf("while the old slice is granted as well: %q", got)
	}
	l.forget(named("c"), "")
	l.forget(named("old"), "1")
	if got := take("d", "1500m", "new"); got != "" {
		t.Errorf("after the old pods have ended: %q", got)
	}
}

func TestLive(t *testing.T) {
	slice := func(name, uid string) authv1beta1.ResourceSlice {
		return authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	}
	quota := func(name, uid string) offloadingv1beta1.Quota {
		q := offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if s := slice(name, uid); uid != "" {
			q.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&s, authv1beta1.GroupVersion.WithKind("ResourceSlice"))}
		}
		return q
	}
	goes, ending := slice("goes", "3"), quota("ending", "")
	goes.DeletionTimestamp, ending.DeletionTimestamp = new(metav1.Now()), new(metav1.Now())
	var got []string
	for _, q := range live([]offloadingv1beta1.Quota{
		quota("granted", "1"), quota("gone", "2"), quota("goes", "3"), quota("made-again", "4"), quota("of-the-administrator", ""), ending,
	}, []authv1beta1.ResourceSlice{slice("granted", "1"), goes, slice("made-again", "5")}) {
		got = append(got, q.Name)
	}
	if diff := cmp.Diff([]string{"granted", "of-the-administrator"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestClosed: what is told of a cordon names what the provider's commands name, and not the user of a certificate.
func TestClosed(t *testing.T) {
	s := authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "milan", UID: "1"}}
	q := &offloadingv1beta1.Quota{Spec: offloadingv1beta1.QuotaSpec{User: "milan-a8a4", Cordoned: new(true)}}
	const without = "the provider has cordoned user milan-a8a4 or its Tenant: it gets no more pods or resources"
	if reason, why := closed(q, "rome"); reason != reasonCordoned || why != without {
		t.Error(reason, why)
	}
	q.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&s, authv1beta1.GroupVersion.WithKind("ResourceSlice"))}
	const want = "the provider has cordoned ResourceSlice milan of cluster rome or its Tenant: it gets no more pods or resources"
	if reason, why := closed(q, "rome"); reason != reasonCordoned || why != want {
		t.Error(reason, why)
	}
	q.Spec.Cordoned = nil
	if reason, why := closed(q, "rome"); reason+why != "" {
		t.Error(reason, why)
	}
}

// TestLedgerAtOnce: many pods at the same time get what there is, and not more.
func TestLedgerAtOnce(t *testing.T) {
	l := newLedger()
	var got sync.Map
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			name := named(fmt.Sprint(i))
			if short, _, _ := l.take(name, account{user: "q"}, nil, amounts("cpu", "100m"), amounts("cpu", "5")); short == "" {
				got.Store(name, true)
			}
		})
	}
	all.Wait()
	if n := len(maps.Collect(got.Range)); n != 50 {
		t.Errorf("%d pods, want 50", n)
	}
}

func TestPodOf(t *testing.T) {
	s := &raw{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop-rome", Name: "web", UID: "1", Finalizers: []string{"theirs.com/x"},
		Labels: map[string]string{
			"app": "web", "offloading.liqo.io/nodename": "milan", "liqo.io/managed-by": "nobody", "liqo.io/managed": "true",
			"networking.liqo.io/component": "gateway", "liqo.io/remote-cluster-id": "naples", "liqo.io/creator-user": "admin", "offloading.liqo.io/origin": "naples",
		},
		Annotations: map[string]string{"note": "x", "offloading.liqo.io/origin-uid": "7", "liqo.io/managed-by-namespace-map": "a/b", "k8s.v1.cni.cncf.io/networks": "host", "cni.projectcalico.org/podIP": "10.0.0.1", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
	}}
	spec, err := read([]byte(`{"containers":[{"name":"a","image":"b"}],"nodeSelector":{"zone":"a","pool":"mine"},"automountServiceAccountToken":true,"serviceAccountName":"default",
"tolerations":[{"operator":"Exists"},{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"},{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":30}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got := podOf(s, spec, placement.Consumer{ID: "rome", Tenant: "liqo-tenant-rome"}, &offloadingv1beta1.Quota{Spec: offloadingv1beta1.QuotaSpec{User: "milan-1"}}, map[string]string{"pool": "tenants"})
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-rome", Name: "web",
			Labels: map[string]string{
				"app": "web", "offloading.liqo.io/nodename": "milan", "liqo.io/managed-by": "shadowpod", "liqo.io/remote-cluster-id": "rome",
				"offloading.liqo.io/origin": "rome", "liqo.io/creator-user": "milan-1",
			},
			Annotations:     map[string]string{"note": "x", "offloading.liqo.io/origin-uid": "7", reflection.AnnotationFollowed: digest(s), annotationMetadata: metadataOf(s).String(), annotationResources: resourcesOf(spec)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "offloading.liqo.io/v1beta1", Kind: "ShadowPod", Name: "web", UID: "1", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "a", Image: "b"}}, NodeSelector: map[string]string{"zone": "a", "pool": "tenants"},
			AutomountServiceAccountToken: new(false),
			Tolerations:                  []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(30))}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPhaseOf(t *testing.T) {
	now := metav1.Now()
	for _, tt := range []struct {
		name      string
		had, now  corev1.PodPhase
		deletion  *metav1.Time
		wantPhase corev1.PodPhase
	}{
		{"it runs", "Pending", "Running", nil, "Running"},
		{"it has ended", "Running", "Succeeded", nil, "Succeeded"},
		{"it is deleted, and still runs", "Running", "Running", &now, "Running"},
		{"its deletion has ended it", "Running", "Failed", &now, "Pending"},
		{"the same, without an error", "Running", "Succeeded", &now, "Pending"},
		{"it is deleted after its end", "Succeeded", "Succeeded", &now, "Succeeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, p := new(raw), new(corev1.Pod)
			s.Status.Phase, p.Status.Phase, p.DeletionTimestamp = tt.had, tt.now, tt.deletion
			if got := phaseOf(s, p); got != tt.wantPhase {
				t.Errorf("%s, want %s", got, tt.wantPhase)
			}
		})
	}
}

// TestPhaseAfter has a Pod of some age, by a clock that may be another one.
func TestPhaseAfter(t *testing.T) {
	for _, tt := range []struct {
		name     string
		had, now corev1.PodPhase
		age      time.Duration
		waits    bool
	}{
		{"it has just been made", "", "Pending", 0, true},
		{"it runs already", "", "Running", time.Second, true},
		{"it was made in the future", "", "Running", -time.Hour, false},
		{"it was made a moment ahead", "", "Running", -time.Second, false},
		{"it has been pending for long", "", "Pending", time.Minute, false},
		{"it has ended at once", "", "Failed", 0, false},
		{"it waited for room", "Pending", "Running", 0, false},
	} {
		s, p := new(raw), new(corev1.Pod)
		s.Status.Phase, p.Status.Phase, p.CreationTimestamp = tt.had, tt.now, metav1.NewTime(time.Now().Add(-tt.age))
		if got := phaseAfter(s, p); (got > 0) != tt.waits || got > starting {
			t.Errorf("%s: told after %v", tt.name, got)
		}
	}
}

// TestFollow changes what may change of a living pod, and some of what may not.
func TestFollow(t *testing.T) {
	within := func(key string, seconds *int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: "Exists", Effect: "NoExecute", TolerationSeconds: seconds}
	}
	pod := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i", Image: "i:1"}}, Containers: []corev1.Container{{Name: "a", Image: "a:1", Command: []string{"run"}}, {Name: "sidecar", Image: "s"}},
		ActiveDeadlineSeconds: new(int64(50)), NodeName: "n",
		Tolerations: []corev1.Toleration{within("node.kubernetes.io/not-ready", new(int64(300))), within("node.kubernetes.io/unreachable", new(int64(300)))},
	}
	setMutable(&pod, &corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i", Image: "i:2"}}, Containers: []corev1.Container{{Name: "new", Image: "n"}, {Name: "a", Image: "a:2", Command: []string{"other"}}},
		ActiveDeadlineSeconds: new(int64(20)), Hostname: "h",
		Tolerations: []corev1.Toleration{within("node.kubernetes.io/not-ready", new(int64(30))), within("node-role.kubernetes.io/control-plane", nil)},
	})
	want := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i", Image: "i:2"}}, Containers: []corev1.Container{{Name: "a", Image: "a:2", Command: []string{"run"}}, {Name: "sidecar", Image: "s"}},
		ActiveDeadlineSeconds: new(int64(20)), NodeName: "n",
		Tolerations: []corev1.Toleration{within("node.kubernetes.io/not-ready", new(int64(30))), within("node.kubernetes.io/unreachable", new(int64(300)))},
	}
	if diff := cmp.Diff(want, pod); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	setMutable(&pod, &corev1.PodSpec{})
	if diff := cmp.Diff(want, pod); diff != "" {
		t.Errorf("nothing is taken back (-want +got):\n%s", diff)
	}
}

// TestRelabel changes labels and annotations of a ShadowPod step by step, and those of the Pod beside them.
func TestRelabel(t *testing.T) {
	type m = map[string]string
	s := &raw{ObjectMeta: metav1.ObjectMeta{Labels: m{"app": "web", "tier": "1"}, Annotations: m{"note": "x"}}}
	p := podOf(s, &corev1.PodSpec{}, placement.Consumer{ID: "rome"}, &offloadingv1beta1.Quota{}, nil)
	for _, tt := range []struct {
		name                string
		here                func() // what somebody of this cluster writes
		labels, annotations m      // of the ShadowPod
		want, wantNotes     m
	}{
		{"nothing", nil, m{"app": "web", "tier": "1"}, m{"note": "x"}, m{"app": "web", "tier": "1"}, m{"note": "x"}},
		{"one changes, one goes, one comes", nil, m{"app": "shop", "new": "n"}, m{"other": "y"}, m{"app": "shop", "new": "n"}, m{"other": "y"}},
		{"what this cluster adds stays", func() { p.Labels["own"], p.Annotations["plugin"] = "1", "10.0.0.1" },
			m{"app": "shop"}, m{"other": "y"}, m{"app": "shop", "own": "1"}, m{"other": "y", "plugin": "10.0.0.1"}},
		{"it is not taken over", nil, m{"app": "shop", "own": "2"}, m{"other": "y", "plugin": "10.0.0.2"}, m{"app": "shop", "own": "1"}, m{"other": "y", "plugin": "10.0.0.1"}},
		{"nor by the same value", nil, m{"app": "shop", "own": "1"}, m{"other": "y", "plugin": "10.0.0.1"}, m{"app": "shop", "own": "1"}, m{"other": "y", "plugin": "10.0.0.1"}},
		{"and another one then", nil, m{"app": "shop", "own": "2"}, m{"other": "y", "plugin": "10.0.0.2"}, m{"app": "shop", "own": "1"}, m{"other": "y", "plugin": "10.0.0.1"}},
		{"nor taken away", nil, m{"app": "shop"}, nil, m{"app": "shop", "own": "1"}, m{"plugin": "10.0.0.1"}},
		{"what this cluster changes stays", func() { p.Labels["app"] = "mine" }, m{"app": "bank"}, nil, m{"app": "mine", "own": "1"}, m{"plugin": "10.0.0.1"}},
		{"what is for this cluster to say", nil, m{"app": "bank", "liqo.io/managed-by": "nobody", "liqo.io/remote-cluster-id": "naples"},
			m{"liqo.io/shadowpod-spec": "1", "k8s.v1.cni.cncf.io/networks": "host"}, m{"app": "mine", "own": "1"}, m{"plugin": "10.0.0.1"}},
	} {
		if tt.here != nil {
			tt.here()
		}
		s.Labels, s.Annotations = tt.labels, tt.annotations
		relabel(p, s)
		if diff := cmp.Diff(tt.want, kept(p.Labels)); diff != "" {
			t.Errorf("%s: labels (-want +got)\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(tt.wantNotes, kept(p.Annotations)); diff != "" {
			t.Errorf("%s: annotations (-want +got)\n%s", tt.name, diff)
		}
		if p.Labels["liqo.io/managed-by"] != "shadowpod" || p.Labels["liqo.io/remote-cluster-id"] != "rome" || p.Annotations[reflection.AnnotationFollowed] == "1" {
			t.Errorf("%s: %+v", tt.name, p.ObjectMeta)
		}
	}
}

// FuzzRead reads anything: what passes has no identity, node or priority of the provider's choice.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{`{}`, `{"containers":"a"}`, `{"nodeName":"n"}`, `{"containers":[{"name":"a"}]}`, `{},"metadata":{"namespace":"kube-system"}`, `{"ofTheYear2030":1}`, `null`, `{"activeDeadlineSeconds":1e99}`, `{"serviceAccountName":"x"}`, `{"priority":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		spec, err := read(b)
		if err != nil {
			return
		}
		s := &raw{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}
		p := podOf(s, spec, placement.Consumer{ID: "rome", Tenant: "t"}, &offloadingv1beta1.Quota{Spec: offloadingv1beta1.QuotaSpec{User: "u"}}, nil)
		if p.Namespace != "n" || p.Spec.NodeName != "" || p.Spec.ServiceAccountName != "" || p.Spec.Priority != nil || p.Spec.PriorityClassName != "" ||
			*p.Spec.AutomountServiceAccountToken || p.Spec.RuntimeClassName != nil || len(p.Spec.EphemeralContainers) > 0 {
			t.Errorf("%s: %+v", b, p)
		}
	})
}
