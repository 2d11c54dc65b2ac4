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
