package controlplanetest

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patience is how long Eventually waits: long for a machine that is busy with
// other tests, and never waited out by a test that passes.
const Patience = 60 * time.Second

// Eventually calls check until it returns nil, and fails the test with its last
// error when patience runs out.
func Eventually(tb testing.TB, what string, check func(ctx context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("%s: not within %v: %v", what, Patience, err)
		case <-time.After(pause):
		}
	}
}

// Get reads an object as administrator, past every cache.
func (c *Cluster) Get(ctx context.Context, namespace, name string, into client.Object) error {
	return c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
}
