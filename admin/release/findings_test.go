package release

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// faultyCluster is one without an API server.
func faultyCluster(faults interceptor.Funcs, objects ...client.Object) *access.Cluster {
	c := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(objects...).WithInterceptorFuncs(faults).Build()
	return &access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}, Client: c}
}

// TestEvents: those of other objects, and those from before the wait, are not told.
func TestEvents(t *testing.T) {
	meta := func(name, uid string, owner types.UID) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "liqo", Name: name, UID: types.UID(uid)}
		if owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x", UID: owner, Controller: new(true)}}
		}
		return m
	}
	labelled := meta("of-a-trial", "labelled", "")
	labelled.Labels = map[string]string{labelName: "liqo-controller"}
	c := faultyCluster(interceptor.Funcs{},
		&appsv1.Deployment{ObjectMeta: meta("liqo-controller", "deployment", "")}, &appsv1.ReplicaSet{ObjectMeta: meta("liqo-controller-6f", "replicas", "deployment")},
		&corev1.Pod{ObjectMeta: meta("liqo-controller-6f-x", "pod", "replicas")}, &appsv1.DaemonSet{ObjectMeta: labelled},
		&appsv1.Deployment{ObjectMeta: meta("liqo-controller-manager", "liqos", "")}, &appsv1.ReplicaSet{ObjectMeta: meta("liqo-controller-manager-7d", "liqos-replicas", "liqos")},
		&corev1.Pod{ObjectMeta: meta("liqo-controller-manager-7d-x", "liqos-pod", "liqos-replicas")})
	about := programObjects(t.Context(), c, "liqo", "liqo-controller")
	if diff := cmp.Diff(map[types.UID]bool{"deployment": true, "replicas": true, "pod": true, "labelled": true}, about); diff != "" {
		t.Errorf("objects (-want +got)\n%s", diff)
	}
	event := func(uid, version, about, reason string) corev1.Event {
		e := corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: "why", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: about, UID: types.UID(about)}}
		e.UID, e.ResourceVersion = types.UID(uid), version
		return e
	}
	before := eventList{event("1", "10", "pod", "Old"), event("2", "11", "pod", "Repeated")}
	now := eventList{event("1", "10", "pod", "Old"), event("2", "20", "pod", "Repeated"), event("3", "21", "liqos-pod", "Foreign"), event("4", "22", "pod", "New"), event("5", "23", "pod", "BackOff")}
	if diff := cmp.Diff([]string{"event of Pod pod: Repeated: why", "event of Pod pod: New: why"}, now.told(about, before.versions())); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
}

// TestWhatKeeps: whoever has no time left is told within a bound.
func TestWhatKeeps(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := faultyCluster(interceptor.Funcs{Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
		if _, bound := ctx.Deadline(); !bound || ctx.Err() != nil {
			t.Errorf("bound %v, %v", bound, ctx.Err())
		}
		o.(*corev1.Namespace).Status.Conditions = []corev1.NamespaceCondition{{Status: corev1.ConditionTrue, Message: "an API service does not answer"}}
		return nil
	}})
	if got := (&Removal{cluster: c}).whatKeeps(ctx, single("v1", "Namespace", "", "liqo")); got != "finalizers []; an API service does not answer" {
		t.Errorf("%q", got)
	}
}

// TestLeftOnNodesRetries: when all is done, an API server that gives no answer is asked again, and is no failure in the end.
func TestLeftOnNodesRetries(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults int
		want   progress.Kind
	}{{"a bad moment", 1, progress.Done}, {"no answer any more", 1 << 30, progress.Warning}} {
		faults := tt.faults
		c := faultyCluster(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
			if faults--; faults >= 0 {
				return apierrors.NewServiceUnavailable("a bad moment")
			}
			return c.List(ctx, l, o...)
		}})
		var last progress.Event
		err := (&TakeOver{Plan: &Plan{cluster: c}}).leftOnNodes(t.Context(), func(e progress.Event) { last = e })
		if err != nil || last.Kind != tt.want {
			t.Errorf("%s: %+v, %v", tt.name, last, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	c := faultyCluster(interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	if err := (&TakeOver{Plan: &Plan{cluster: c}}).leftOnNodes(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("when the time is over: %v", err)
	}
}

// TestNoSuchPolicies: a cluster that knows no admission policies has none, and whoever adopts needs the right to look.
func TestNoSuchPolicies(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{{&meta.NoKindMatchError{}, true}, {apierrors.NewNotFound(corev1.Resource("pods"), "p"), true}, {apierrors.NewForbidden(corev1.Resource("pods"), "p", nil), false}} {
		c := faultyCluster(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return fmt.Errorf("get: %w", tt.err)
		}})
		if there, err := (&Removal{cluster: c}).policies(t.Context()); (err == nil) != tt.want || len(there) > 0 {
			t.Errorf("%v: %v, %v", tt.err, there, err)
		}
	}
	for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		want, found := access.Permission{Verb: "get", Group: "admissionregistration.k8s.io", Resource: resource}, false
		for _, p := range adoptionRights("liqo") {
			found = found || p == want
		}
		if !found {
			t.Errorf("an adoption does not ask for %s", want)
		}
	}
}
