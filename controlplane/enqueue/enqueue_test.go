package enqueue_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sluice-net/sluice/controlplane/enqueue"
)

// broken is a cache that is being stopped.
type broken struct{ client.Reader }

func (broken) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("stopped")
}

func TestEach(t *testing.T) {
	object := func(namespace, name string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	c := fake.NewClientBuilder().WithObjects(object("a", "x"), object("a", "y"), object("b", "x")).Build()
	got := enqueue.Each(t.Context(), c, new(corev1.ConfigMapList), client.ObjectKeyFromObject, client.InNamespace("a"))
	want := []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: "a", Name: "x"}}, {NamespacedName: client.ObjectKey{Namespace: "a", Name: "y"}}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := enqueue.Each(t.Context(), broken{}, new(corev1.ConfigMapList), client.ObjectKeyFromObject); len(got) > 0 {
		t.Errorf("of a broken cache: %v", got)
	}
}

func TestWhen(t *testing.T) {
	p := enqueue.When(func(before, now *corev1.ConfigMap) bool { return before.Data["a"] != now.Data["a"] })
	a := func(v string) client.Object { return &corev1.ConfigMap{Data: map[string]string{"a": v}} }
	for _, tt := range []struct {
		name        string
		before, now client.Object
		want        bool
	}{
		{"differs", a("1"), a("2"), true},
		{"is the same", a("1"), a("1"), false},
		{"is of another kind", a("1"), new(corev1.Secret), true},
	} {
		if got := p.Update(event.UpdateEvent{ObjectOld: tt.before, ObjectNew: tt.now}); got != tt.want {
			t.Errorf("what %s: got %v", tt.name, got)
		}
	}
	if !p.Create(event.CreateEvent{Object: a("1")}) || !p.Delete(event.DeleteEvent{Object: a("1")}) {
		t.Error("what comes or goes does not pass")
	}
}
