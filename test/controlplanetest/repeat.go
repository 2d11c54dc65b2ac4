package controlplanetest

import (
	"context"
	"testing"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/controlplane/kinds"
)

// Repeat does something again and again until the test ends, with a pause in between.
func Repeat(tb testing.TB, pause time.Duration, do func(ctx context.Context)) {
	tb.Helper()
	repeat(tb, pause, nil, do)
}

// Follow does something whenever an object of these kinds has changed, until the test
// ends. What failed is done again after a second.
func (c *Cluster) Follow(tb testing.TB, do func(ctx context.Context), of ...client.Object) {
	tb.Helper()
	objects, err := cache.New(c.Config, cache.Options{Scheme: kinds.Scheme()})
	if err != nil {
		tb.Fatal(err)
	}
	changed := make(chan struct{}, 1)
	wake := func(any) {
		select {
		case changed <- struct{}{}:
		default: // it will look anyhow
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	for _, o := range of {
		i, err := objects.GetInformer(ctx, o)
		if err == nil {
			_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }, DeleteFunc: wake})
		}
		if err != nil {
			cancel()
			tb.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = objects.Start(ctx) // its end is that of ctx
	}()
	tb.Cleanup(func() { cancel(); <-done })
	repeat(tb, time.Second, changed, do)
}

// repeat pauses for less when woken.
func repeat(tb testing.TB, pause time.Duration, woken <-chan struct{}, do func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	tb.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			do(ctx)
			select {
			case <-ctx.Done():
			case <-woken:
			case <-time.After(pause):
			}
		}
	}()
}
