package controlplanetest

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Patience is how long Eventually waits: long for a machine that is busy with
	// other tests, and never waited out by a test that passes.
	Patience = 60 * time.Second
	// checkTimeout is what one check gets of it.
	checkTimeout = 30 * time.Second
)

// Eventually calls check until it returns nil, and fails the test with its last
// error when patience runs out. A machine that stood still for a while is not
// taken for a program that did: no more counts than what was asked for.
func Eventually(tb testing.TB, what string, check func(ctx context.Context) error) {
	tb.Helper()
	eventually(tb, what, func() int { return 0 }, check)
}

// eventually is Eventually whose patience begins anew with each progress, for ten times as long at most.
func eventually(tb testing.TB, what string, progress func() int, check func(ctx context.Context) error) {
	tb.Helper()
	waited, all, last := time.Duration(0), time.Duration(0), progress()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout) // not of the test: a Cleanup waits too
		err := check(ctx)
		cancel()
		if err == nil {
			return
		}
		spent := min(time.Since(began), checkTimeout) + pause
		waited, all = waited+spent, all+spent
		if now := progress(); now != last && all < 10*Patience {
			waited, last = 0, now
		}
		if waited >= Patience {
			tb.Fatalf("%s: not within %v: %v", what, all.Round(time.Second), err)
		}
		time.Sleep(pause)
	}
}

// Get reads an object as administrator, past every cache.
func (c *Cluster) Get(ctx context.Context, namespace, name string, into client.Object) error {
	return c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
}
