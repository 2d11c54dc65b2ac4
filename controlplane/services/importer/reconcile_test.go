package importer

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// namespaces are those of an API server that has nothing else: who asks for more panics.
type namespaces struct {
	client.Client
	t       *testing.T
	of      *Reconciler
	live    map[string]int // by peer
	created []string
}

// alone fails where others may count or create at the same time.
func (n *namespaces) alone() {
	if n.of.creating.TryLock() {
		n.of.creating.Unlock()
		n.t.Error("several workers count and create at the same time")
	}
}

// List implements [client.Reader].
func (n *namespaces) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	n.alone()
	var o client.ListOptions
	o.ApplyOptions(options)
	for peer, count := range n.live {
		if o.LabelSelector.Matches(labels.Set{"liqo.io/imported-from": peer}) {
			list.(*corev1.NamespaceList).Items = make([]corev1.Namespace, count)
		}
	}
	return nil
}

// Create implements [client.Writer].
func (n *namespaces) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	n.alone()
	n.created = append(n.created, o.GetName()+" of "+o.GetLabels()["liqo.io/imported-from"])
	return nil
}

// TestCreate: a namespace is created for the first peer that has not as many as it can have, by one worker at a time. Nothing
// is accepted before it is there.
func TestCreate(t *testing.T) {
	const most = networkingv1beta1.MaxCreatedNamespaces
	for _, tt := range []struct {
		name    string
		live    map[string]int
		created []string
		refused []string // reasons
	}{
		{"one is left", map[string]int{"rome": most - 1, "milan": most}, []string{"shop of rome"}, nil},
		{"one peer has all", map[string]int{"rome": most}, []string{"shop of milan"}, []string{"TooManyNamespaces"}},
		{"both have", map[string]int{"rome": most, "milan": most}, nil, []string{"TooManyNamespaces", "TooManyNamespaces"}},
	} {
		r := new(Reconciler)
		server := &namespaces{t: t, of: r, live: tt.live}
		r.Client, r.Reader = server, server
		f := facts(from(t, "rome", described(0, "10.243.1.2")), from(t, "milan", described(1, "10.243.1.3")))
		f.NamespaceMissing, f.Imports[0].Creates, f.Imports[1].Creates = true, true, true
		p, err := r.create(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.created, server.created); diff != "" {
			t.Errorf("%s: created (-want +got):\n%s", tt.name, diff)
		}
		var refused []string
		for _, c := range p.Accepted {
			if c.Status != metav1.ConditionTrue {
				refused = append(refused, c.Reason)
			}
		}
		if diff := cmp.Diff(tt.refused, refused); diff != "" {
			t.Errorf("%s: refused (-want +got):\n%s", tt.name, diff)
		}
		if len(refused) > 0 {
			continue
		}
		if err := r.tell(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, f, p); err != nil {
			t.Errorf("%s: told: %v", tt.name, err)
		}
	}
}
