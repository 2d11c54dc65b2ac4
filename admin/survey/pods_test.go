package survey

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/reflection"
)

func TestPlace(t *testing.T) {
	pod := func(namespace, name, node string, labels map[string]string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.71.0.9", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
	}
	waiting := pod("shop", "waiting", "", nil)
	waiting.Status = corev1.PodStatus{Phase: corev1.PodPending}
	forNaples := map[string]string{offloadingv1beta1.LabelManagedBy: offloadingv1beta1.ManagedByShadowPod, offloadingv1beta1.LabelOrigin: "naples"}
	f := podFacts{
		own:       "rome",
		virtual:   []offloadingv1beta1.VirtualNode{{ObjectMeta: metav1.ObjectMeta{Name: "north"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}}},
		offloaded: []offloadingv1beta1.NamespaceOffloading{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Status: offloadingv1beta1.NamespaceOffloadingStatus{RemoteNamespaceName: "shop-rome"}}},
		namespaces: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{
			Name: "bank-naples", Annotations: map[string]string{offloadingv1beta1.AnnotationOriginalName: "bank"},
		}}},
		pods: []corev1.Pod{
			waiting, pod("shop", "away", "north", nil), pod("shop", "here", "worker-1", nil), pod("own", "lost", "north", nil),
			pod("bank-naples", "guest", "worker-2", forNaples), pod("gone-naples", "late", "", forNaples),
		},
	}
	type row struct{ namespace, name, from, in, node, other string }
	var got []row
	for _, p := range f.place() {
		got = append(got, row{p.Namespace, p.Name, p.From, p.In, p.Node, p.OtherNamespace})
		if ready := p.Name != "waiting"; p.Ready != ready || (p.Reason == "") != ready || (p.IP != "") != ready {
			t.Errorf("%+v", p)
		}
	}
	want := []row{
		{"bank-naples", "guest", "naples", "rome", "worker-2", "bank"},
		{"gone-naples", "late", "naples", "", "", ""},
		{"own", "lost", "rome", "milan", "north", ""},
		{"shop", "away", "rome", "milan", "north", "shop-rome"},
		{"shop", "here", "rome", "rome", "worker-1", ""},
		{"shop", "waiting", "rome", "", "", ""},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPendingReason: of a pod that waits at a provider the newest warning says why; a reason that its status has comes first.
func TestPendingReason(t *testing.T) {
	at := func(minute int) metav1.Time { return metav1.NewTime(time.Unix(int64(60*minute), 0)) }
	pod := func(name string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1"}, Spec: corev1.PodSpec{NodeName: "north"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	}
	event := func(name, uid string, minute int, reason, message string) corev1.Event {
		return corev1.Event{LastTimestamp: at(minute), Reason: reason, Message: message, InvolvedObject: corev1.ObjectReference{Namespace: "shop", Name: name, UID: types.UID(uid)}}
	}
	known := pod("known")
	known.Status.Reason = "FailedReflection"
	lost := pod("lost") // it ran, and the provider does not make it again
	lost.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reflection.ReasonRecreating}}}}
	resized := pod("resized")
	resized.Status.Phase, resized.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "no room"},
	}
	infeasible, failed := *resized.DeepCopy(), *resized.DeepCopy()
	infeasible.Name, infeasible.Status.Conditions[1].Reason = "infeasible", corev1.PodReasonInfeasible
	failed.Name, failed.Status.Conditions[1].Type, failed.Status.Conditions[1].Reason = "failed", corev1.PodResizeInProgress, corev1.PodReasonError
	done := *resized.DeepCopy()
	done.Name, done.Status.Conditions[1].Status = "done", corev1.ConditionFalse
	elsewhere := pod("refused")
	elsewhere.Namespace, elsewhere.Status.Phase = "well", corev1.PodSucceeded
	f := podFacts{
		pods: []corev1.Pod{pod("refused"), known, lost, pod("quiet"), resized, infeasible, failed, done, elsewhere},
		events: []corev1.Event{
			event("refused", "1", 2, "QuotaExceeded", "cpu: 3 of 2"), event("refused", "1", 1, "PodRefused", "spec.hostNetwork"),
			event("refused", "of an earlier pod", 3, "Cordoned", ""), event("known", "1", 3, "Other", "which counts less"), event("lost", "1", 3, "Cordoned", "the Tenant"),
		},
	}
	if got := f.unexplained(); !slices.Equal(got, []string{"shop"}) {
		t.Errorf("events are read of %q", got)
	}
	got := map[string]string{}
	for _, p := range f.place() {
		got[p.Namespace+"/"+p.Name] = p.Reason
	}
	want := map[string]string{
		"shop/lost":    "container web waits (OffloadedPodMissing) (Cordoned: the Tenant)",
		"shop/refused": "phase Pending (QuotaExceeded: cpu: 3 of 2)", "shop/known": "phase Pending (FailedReflection)", "shop/quiet": "phase Pending", "well/refused": "succeeded",
		"shop/resized": "it is ready, and its resize is not done (Deferred: no room)", "shop/done": "",
		"shop/infeasible": "it is ready, and its resize is not done (Infeasible: no room)", "shop/failed": "it is ready, and its resize is not done (Error: no room)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEventsOfPods: events are asked for once for a namespace, and only where a pod needs them; who may not read them has the
// rest.
func TestEventsOfPods(t *testing.T) {
	labels := map[string]string{networkingv1beta1.LabelShadowPod: networkingv1beta1.LabelTrue}
	pod := func(namespace, name string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Status: corev1.PodStatus{Phase: phase}}
	}
	refused := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, Type: corev1.EventTypeWarning, Reason: "PodRefused", Message: "spec.hostNetwork",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "a"}}
	id := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-clusterid-configmap", Labels: map[string]string{"app.kubernetes.io/name": "clusterid-configmap"}}, Data: map[string]string{"CLUSTER_ID": "rome"}}
	for _, forbidden := range []bool{false, true} {
		var asked []string
		c := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(pod("shop", "a", corev1.PodPending), pod("shop", "b", corev1.PodPending), pod("bank", "c", corev1.PodSucceeded), refused, id).
			WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
				events, ok := list.(*corev1.EventList)
				if !ok {
					return c.List(ctx, list, o...)
				}
				all := client.ListOptions{}
				all.ApplyOptions(o)
				asked = append(asked, all.Namespace+" "+all.FieldSelector.String())
				if forbidden {
					return apierrors.NewForbidden(corev1.Resource("events"), "", nil)
				}
				events.Items = []corev1.Event{*refused}
				return nil
			}}).Build()
		pods, err := OffloadedPods(t.Context(), &access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}, Client: c}, "")
		if err != nil || len(pods) != 3 {
			t.Fatalf("%v, %+v", err, pods)
		}
		want := "phase Pending (PodRefused: spec.hostNetwork)"
		if forbidden {
			want = "phase Pending"
		}
		if pods[1].Name != "a" || pods[1].Reason != want || pods[2].Reason != "phase Pending" {
			t.Errorf("forbidden %v: %+v", forbidden, pods)
		}
		if len(asked) != 1 || !strings.HasPrefix(asked[0], "shop ") || !strings.Contains(asked[0], "involvedObject.kind=Pod") || !strings.Contains(asked[0], "type=Warning") {
			t.Errorf("asked for %q", asked)
		}
	}
}
