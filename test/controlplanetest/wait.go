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
	checkTimeout = 15 * time.Second
)

// Eventually calls check until it returns nil, and fails the test with its last
// error when patience runs out. A machine that stood still for a while is not
// taken for a program that did: no more counts than what was asked for.
func Eventually(tb testing.TB, what string, check func(ctx context.Context) error) {
	tb.Helper()
	waited := time.Duration(0)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout) // not of the test: a Cleanup waits too
		err := check(ctx)
		cancel()
		if err == nil {
			return
		}
		if waited += min(time.Since(began), checkTimeout); waited >= Patience {
			tb.Fatalf("%s: not within %v: %v", what, Patience, err)
		}
		time.Sleep(pause)
		waited += pause
	}
}

// Get reads an object as administrator, past every cache.
func (c *Cluster) Get(ctx context.Context, namespace, name string, into client.Object) error {
	return c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
}
