package apply

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// RemoveFinalizers removes finalizers from live, and writes that if there were any.
// The controllers set none: another implementation may have left them, and nothing
// would ever remove them. It fails with a conflict if live is not the newest version;
// an object that is gone is no error.
func RemoveFinalizers(ctx context.Context, c client.Client, live client.Object, names ...string) error {
	before, ok := live.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no client.Object", live)
	}
	removed := false
	for _, name := range names {
		removed = controllerutil.RemoveFinalizer(live, name) || removed
	}
	if !removed {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(c.Patch(ctx, live, patch)); err != nil {
		return fmt.Errorf("remove finalizers of %T %s: %w", live, client.ObjectKeyFromObject(live), err)
	}
	return nil
}
