package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// load is requests, each by a connection of its own.
type load struct {
	stop func()
	work sync.WaitGroup

	mu       sync.Mutex
	answers  map[string]int // by pod
	failures []error
}

// load is from all nodes of b.
func (s *sharing) load(t *testing.T) *load {
	t.Helper()
	at, err := address(t.Context(), s.b, shop, "web")
	if err != nil {
		t.Fatal(err)
	}
	return newLoad(t, s.clients(t, s.b, 2), at)
}

// newLoad has each of some pods ask again and again, until the load or the test ends.
func newLoad(t *testing.T, clients []*kubelab.Pod, at netip.AddrPort) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel, answers: map[string]int{}}
	t.Cleanup(func() { l.end() })
	for _, from := range clients {
		l.work.Go(func() {
			tick := time.NewTicker(pingPause)
			defer tick.Stop()
			for ctx.Err() == nil {
				// What is under way at the end is waited for: it is no failure.
				a, err := getAt(context.WithoutCancel(ctx), from, at)
				l.mu.Lock()
				if err != nil {
					l.failures = append(l.failures, fmt.Errorf("%s at %s: %w", from.Node.Name, time.Now().Format(time.TimeOnly), err))
				} else {
					l.answers[a.Pod]++
				}
				l.mu.Unlock()
				<-tick.C
			}
		})
	}
	return l
}

// end ends the requests, and returns the failures.
func (l *load) end() (answers map[string]int, failures []error) {
	l.stop()
	l.work.Wait()
	return l.answers, l.failures
}

// heardFrom waits until so many pods have answered.
func (l *load) heardFrom(t *testing.T, n int) {
	t.Helper()
	lab.Eventually(t, patience, fmt.Sprintf("%d pods have answered", n), func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.answers) < n {
			return fmt.Errorf("they are %v, failures %v", l.answers, errors.Join(l.failures...))
		}
		return nil
	})
}
