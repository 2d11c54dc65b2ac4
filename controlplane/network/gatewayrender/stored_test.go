package gatewayrender

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestStored: of what a template renders, only what is empty and what no object keeps is left out.
func TestStored(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).Build()}
	type object = map[string]any
	container := object{"name": "a", "image": "", "stdin": false, "ports": []any{}, "newer": "x", "newest": object{"deep": "", "b": int64(1)}}
	in := object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "p"},
		"spec": object{
			"containers": []any{container}, "hostPID": false, "gone": object{"deep": object{"empty": ""}},
			"volumes": []any{object{"name": "v", "emptyDir": object{}}}, "nodeSelector": object{"key": ""}, "later": true,
		},
	}
	want := object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "p"},
		"spec": object{
			"containers": []any{object{"name": "a", "newer": "x", "newest": object{"deep": "", "b": int64(1)}}},
			"volumes":    []any{object{"name": "v", "emptyDir": object{}}}, "nodeSelector": object{"key": ""}, "later": true,
		},
	}
	u := &unstructured.Unstructured{Object: in}
	before := u.DeepCopy()
	if got := r.stored(u).Object; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if !reflect.DeepEqual(u, before) {
		t.Error("what was given has changed")
	}
	unknown := &unstructured.Unstructured{Object: object{"apiVersion": "example.com/v1", "kind": "Other", "empty": ""}}
	if got := r.stored(unknown); got != unknown {
		t.Errorf("a kind that the scheme lacks: %v", got.Object)
	}
}
