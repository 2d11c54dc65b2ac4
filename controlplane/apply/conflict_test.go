package apply_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-net/sluice/controlplane/apply"
)

func TestRequeueOnConflict(t *testing.T) {
	conflict := fmt.Errorf("write status: %w", apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("newer")))
	broken := errors.New("connection refused")
	for _, test := range []struct {
		name   string
		err    error
		result time.Duration
		again  bool
		want   error
	}{
		{"all is well", nil, 0, false, nil},
		{"to be looked at later", nil, time.Hour, true, nil},
		{"a conflict is looked at again", conflict, time.Hour, true, nil},
		{"an error is the queue's business", broken, time.Hour, false, broken},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := apply.RequeueOnConflict(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{RequeueAfter: test.result}, test.err
			}))
			got, err := r.Reconcile(t.Context(), reconcile.Request{})
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) || (got.RequeueAfter > 0) != test.again {
				t.Errorf("%+v, %v", got, err)
			}
			if test.err != nil && got.RequeueAfter == test.result {
				t.Errorf("waits for %v after %v", got.RequeueAfter, test.err)
			}
		})
	}
}
