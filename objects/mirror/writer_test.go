package mirror

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWriter(t *testing.T) {
	const absent = AbsentError("there is no object yet")
	away := errors.New("away")
	tests := []struct {
		name    string
		results []error // of the writes one after the other; nil: wrote
		wakes   int     // further ones, at once
		want    []time.Duration
	}{
		{"one wake, one write", nil, 0, []time.Duration{0}},
		{"many wakes, a second between two writes", nil, 10, []time.Duration{0, time.Second}},
		{"failures, with growing pauses until it works", []error{away, away, away, away, nil}, 0,
			[]time.Duration{0, 2 * time.Second, 6 * time.Second, 11 * time.Second, 16 * time.Second}},
		{"nothing to write into: whoever sees it come wakes", []error{absent}, 0, []time.Duration{0}},
		{"nothing to write into, but woken", []error{absent, absent, nil}, 1, []time.Duration{0, time.Second}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var at []time.Duration
				began := make(chan struct{}, 100)
				w := NewWriter(func(ctx context.Context, last bool) (bool, error) {
					if _, bounded := ctx.Deadline(); !bounded || last {
						t.Errorf("a write that may take for ever, or the last one: %v", last)
					}
					at = append(at, time.Since(start))
					began <- struct{}{}
					if n := len(at); n <= len(tt.results) && tt.results[n-1] != nil {
						return false, tt.results[n-1]
					}
					return true, nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { w.Run(ctx); close(done) }()
				w.Wake()
				<-began
				for range tt.wakes {
					w.Wake()
				}
				time.Sleep(time.Minute)
				cancel()
				<-done
				if diff := cmp.Diff(tt.want, at); diff != "" {
					t.Errorf("times of the writes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// What there is nothing to write of is no reason to wait.
func TestWriterLooksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looked := make(chan struct{})
		w := NewWriter(func(context.Context, bool) (bool, error) {
			looked <- struct{}{}
			return false, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		start := time.Now()
		for range 100 {
			w.Wake()
			<-looked
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("took %v", d)
		}
		cancel()
		<-done
	})
}

func TestWriterLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := NewWriter(func(ctx context.Context, last bool) (bool, error) {
			<-ctx.Done() // the API server does not answer
			if !last {
				t.Error("not the last one")
			}
			return false, ctx.Err()
		})
		w.Last()
		if d := time.Since(start); d != LastTimeout {
			t.Errorf("the process waited for %v, want %v", d, LastTimeout)
		}
	})
}
