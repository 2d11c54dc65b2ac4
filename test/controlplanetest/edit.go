package controlplanetest

import (
	"context"
	"testing"

	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Edit reads the object that o names, has change edit it, and writes it, again
// from the start when a controller wrote in between. It leaves what was written
// in o.
func Edit[T client.Object](tb testing.TB, c *Cluster, o T, change func(T)) {
	tb.Helper()
	edit(tb, c, o, change, func(ctx context.Context) error { return c.Client.Update(ctx, o) })
}

// EditStatus is Edit for what the status subresource takes.
func EditStatus[T client.Object](tb testing.TB, c *Cluster, o T, change func(T)) {
	tb.Helper()
	edit(tb, c, o, change, func(ctx context.Context) error { return c.Client.Status().Update(ctx, o) })
}

func edit[T client.Object](tb testing.TB, c *Cluster, o T, change func(T), write func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience) // also in a Cleanup, where the test's own is over
	defer cancel()
	key := client.ObjectKeyFromObject(o)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Client.Get(ctx, key, o); err != nil {
			return err
		}
		change(o)
		return write(ctx)
	})
	if err != nil {
		tb.Fatalf("edit %T %s: %v", o, key, err)
	}
}
