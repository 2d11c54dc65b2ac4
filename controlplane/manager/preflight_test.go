package manager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reviewer is an API server that answers no question about rights before a channel
// is closed.
type reviewer struct {
	client.Client
	open   chan struct{}
	answer func(authorizationv1.ResourceAttributes) (allowed bool, err error)

	mu    sync.Mutex
	asked []authorizationv1.ResourceAttributes
}

// Create implements client.Client.
func (r *reviewer) Create(_ context.Context, o client.Object, _ ...client.CreateOption) (err error) {
	review := o.(*authorizationv1.SelfSubjectAccessReview)
	attributes := *review.Spec.ResourceAttributes
	r.mu.Lock()
	r.asked = append(r.asked, attributes)
	r.mu.Unlock()
	<-r.open
	review.Status.Allowed, err = r.answer(attributes)
	return err
}

// TestAllowed: all rights are asked for before any answer is needed, and what is denied
// is told as a whole.
func TestAllowed(t *testing.T) {
	resources := make([]schema.GroupVersionResource, 30)
	for i := range resources {
		resources[i] = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "kind" + string(rune('a'+i))}
	}
	o := Options{LiqoNamespace: "liqo", LeaderElection: new(LeaderElection)}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "selfsubjectaccessreviews"}, "", nil)
	for _, tt := range []struct {
		name   string
		answer func(authorizationv1.ResourceAttributes) (bool, error)
		want   []string // in the error; none: there is no error
	}{
		{"all are allowed", func(authorizationv1.ResourceAttributes) (bool, error) { return true, nil }, nil},
		{"two are denied", func(a authorizationv1.ResourceAttributes) (bool, error) {
			return a.Resource != "configmaps", nil
		}, []string{"create configmaps", "get configmaps"}},
		{"nobody may ask", func(authorizationv1.ResourceAttributes) (bool, error) { return false, forbidden }, nil},
		{"one question fails", func(a authorizationv1.ResourceAttributes) (bool, error) {
			if a.Resource == "leases" && a.Verb == "update" {
				return false, errors.New("connection lost")
			}
			return true, nil
		}, []string{"ask for rights: connection lost"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &reviewer{open: make(chan struct{}), answer: tt.answer}
				result := make(chan error, 1)
				go func() { result <- allowed(t.Context(), r, o, resources) }()
				synctest.Wait()
				wanted := rights(o, resources)
				r.mu.Lock()
				for _, a := range wanted {
					if !slices.Contains(r.asked, a) {
						t.Errorf("%s is not asked for while others wait", describe(a))
					}
				}
				if len(r.asked) != len(wanted) {
					t.Errorf("%d questions wait, want %d", len(r.asked), len(wanted))
				}
				r.mu.Unlock()
				close(r.open)
				err := <-result
				if (err != nil) != (len(tt.want) > 0) {
					t.Fatal(err)
				}
				for _, want := range tt.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v\nwant %q", err, want)
					}
				}
			})
		})
	}
}
