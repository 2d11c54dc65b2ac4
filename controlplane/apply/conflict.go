package apply

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// conflictRetry is when to look again after a conflict: the cache has the newer
// version by then.
const conflictRetry = 100 * time.Millisecond

// RequeueOnConflict returns a reconciler that looks again when r met a conflict, instead
// of reporting an error. Several controllers write to one status and each fails
// when another was faster, so conflicts belong to every day; whoever watches
// errors would be woken by each new peering.
func RequeueOnConflict[R comparable](r reconcile.TypedReconciler[R]) reconcile.TypedReconciler[R] {
	return reconcile.TypedFunc[R](func(ctx context.Context, request R) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, request)
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: conflictRetry}, nil
		}
		if err != nil {
			return reconcile.Result{}, err // the queue decides when to look again
		}
		return result, nil
	})
}
