package mirror

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// node is an InternalNode of some age.
func node(name, version string, age time.Duration) *networkingv1beta1.InternalNode {
	return &networkingv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: version, CreationTimestamp: metav1.NewTime(noon.Add(-age)),
		Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}}
}

func TestStore(t *testing.T) {
	changes := 0
	s := NewStore[networkingv1beta1.InternalNode]()
	s.Changed = func() { changes++ }
	changed := func(what string, want bool, f func() error) {
		t.Helper()
		changes = 0
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if (changes > 0) != want {
			t.Errorf("%s: told of %d changes", what, changes)
		}
	}
	if _, synced := s.Size(); synced {
		t.Error("synced before the first list")
	}
	changed("the list", true, func() error {
		return s.Replace([]any{node("young", "1", time.Minute), node("b", "1", time.Hour), node("a", "1", time.Hour)}, "1")
	})
	changed("the same again", false, func() error { return s.Update(node("a", "2", time.Hour)) })
	changed("an object that changed", true, func() error {
		n := node("a", "3", time.Hour)
		n.Status.NodeIP.Local = "192.0.2.1"
		return s.Update(n)
	})
	changed("one that is being deleted", true, func() error {
		n := node("b", "4", time.Hour)
		n.DeletionTimestamp = new(metav1.NewTime(noon))
		return s.Update(n)
	})
	changed("its end", false, func() error { return s.Delete(node("b", "5", time.Hour)) })
	changed("a new one", true, func() error { return s.Add(node("c", "6", 0)) })
	var names []string
	for _, n := range s.List() {
		names = append(names, n.Name)
		if n.Annotations != nil || n.ManagedFields != nil {
			t.Errorf("%s holds what nobody reads", n.Name)
		}
	}
	if diff := cmp.Diff([]string{"a", "young", "c"}, names); diff != "" {
		t.Errorf("objects, the oldest first (-want +got):\n%s", diff)
	}
	if err := s.Add("something else"); err == nil {
		t.Error("took an object of another kind")
	}
}

// What a write was answered with counts where the watch has not told of anything
// later.
func TestStoreWrote(t *testing.T) {
	for name, tt := range map[string]struct {
		there, written string // versions; empty: not there
		want           string
	}{
		"before the watch":                    {"9", "10", "10"},
		"as the watch":                        {"10", "10", "10"},
		"after the watch told of a later one": {"11", "10", "11"},
		"after it was deleted":                {"", "10", ""},
		"versions that cannot be compared":    {"old", "new", "old"},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewStore[networkingv1beta1.InternalNode]()
			if tt.there != "" {
				if err := s.Add(node("a", tt.there, time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			told := false
			s.Changed = func() { told = true }
			n := node("a", tt.written, time.Hour)
			n.Status.NodeIP.Local = "192.0.2.1"
			s.Wrote(n)
			var got string
			if live := s.Only(); live != nil {
				got = live.ResourceVersion
			}
			if changed := tt.want == tt.written && tt.there != tt.written; got != tt.want || told != changed {
				t.Errorf("there is %q, want %q; told: %v, want %v", got, tt.want, told, changed)
			}
		})
	}
}
