package replication

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var between = peer{consumer: "rome", provider: "milan", here: "milan-here", there: "rome-there"}

func object(t *testing.T, text string) unstructured.Unstructured {
	t.Helper()
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

const original = `
apiVersion: authentication.liqo.io/v1beta1
kind: ResourceSlice
metadata:
  name: milan
  namespace: milan-here
  uid: "1"
  resourceVersion: "7"
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: "2"}]
  finalizers: [example.org/x]
  labels: {liqo.io/replication: "true", liqo.io/remoteID: milan, liqo.io/remote-cluster-id: milan, liqo.io/managed: "true", team: network}
  annotations: {liqo.io/create-virtual-node: "true", kubectl.kubernetes.io/last-applied-configuration: "{}", networking.liqo.io/applied-hash: x, liqo.io/cordon: "true"}
spec: {class: default, consumerClusterID: rome}
status: {resources: {cpu: "1000"}}
`

// TestCopy: what crosses is the spec, and labels and annotations that mean something there. No owner, no finalizer, no
// status.
func TestCopy(t *testing.T) {
	s := object(t, original)
	want := object(t, `
apiVersion: authentication.liqo.io/v1beta1
kind: ResourceSlice
metadata:
  name: milan
  namespace: rome-there
  labels: {liqo.io/replication: "false", liqo.io/replicated: "true", liqo.io/originID: rome, liqo.io/remoteID: milan, liqo.io/remote-cluster-id: rome, team: network}
  annotations: {liqo.io/create-virtual-node: "true"}
spec: {class: default, consumerClusterID: rome}
`)
	if diff := cmp.Diff(want.Object, between.copyOf(&s).Object); diff != "" {
		t.Error(diff)
	}
}

func names(of []*unstructured.Unstructured) (names []string) {
	for _, o := range of {
		names = append(names, o.GetNamespace()+"/"+o.GetName())
	}
	return names
}

func TestCompare(t *testing.T) {
	here := object(t, original)
	copied := *between.copyOf(&here)
	change := func(o unstructured.Unstructured, f func(*unstructured.Unstructured)) unstructured.Unstructured {
		o = *o.DeepCopy()
		f(&o)
		return o
	}
	unnamed := change(here, func(o *unstructured.Unstructured) {
		unstructured.RemoveNestedField(o.Object, "spec", "consumerClusterID")
	})
	going := func(o *unstructured.Unstructured) {
		o.Object["metadata"].(map[string]any)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	for _, c := range []struct {
		name          string
		here, there   []unstructured.Unstructured
		write, remove []string
		answers       int
	}{
		{name: "nothing"},
		{name: "a new one", here: []unstructured.Unstructured{here}, write: []string{"rome-there/milan"}},
		{name: "nobody has said yet who asks", here: []unstructured.Unstructured{unnamed}},
		{name: "it is not said any more", here: []unstructured.Unstructured{unnamed}, there: []unstructured.Unstructured{copied}, write: []string{"rome-there/milan"}, answers: 1},
		{name: "another kind says nothing of it", here: []unstructured.Unstructured{change(unnamed, func(o *unstructured.Unstructured) { o.SetKind("NamespaceMap") })}, write: []string{"rome-there/milan"}},
		{name: "on both sides", here: []unstructured.Unstructured{here}, there: []unstructured.Unstructured{copied}, write: []string{"rome-there/milan"}, answers: 1},
		{name: "deleted here, perhaps long ago", there: []unstructured.Unstructured{copied}, remove: []string{"rome-there/milan"}},
		{name: "being deleted here", here: []unstructured.Unstructured{change(here, going)}, there: []unstructured.Unstructured{copied}, remove: []string{"rome-there/milan"}},
		{name: "being deleted there", there: []unstructured.Unstructured{change(copied, going)}},
		{name: "of another origin", there: []unstructured.Unstructured{change(copied, func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"liqo.io/replicated": "true", "liqo.io/originID": "naples"})
		})}},
		{name: "of nobody: a server may answer what it likes", there: []unstructured.Unstructured{change(copied, func(o *unstructured.Unstructured) { o.SetLabels(nil) })}},
		{name: "of another namespace", there: []unstructured.Unstructured{change(copied, func(o *unstructured.Unstructured) { o.SetNamespace("kube-system") })}},
		{name: "a copy that came to us is not copied on", here: []unstructured.Unstructured{change(here, func(o *unstructured.Unstructured) {
			l := o.GetLabels()
			l["liqo.io/replicated"] = "true"
			o.SetLabels(l)
		})}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := between.compare(c.here, c.there)
			if diff := cmp.Diff(c.write, names(d.write)); diff != "" {
				t.Errorf("write: %s", diff)
			}
			if diff := cmp.Diff(c.remove, names(d.remove)); diff != "" {
				t.Errorf("remove: %s", diff)
			}
			if len(d.answers) != c.answers {
				t.Errorf("%d answers", len(d.answers))
			}
		})
	}
}
