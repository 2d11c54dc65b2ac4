package access

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestParallel(t *testing.T) {
	odd := errors.New("odd")
	for _, tt := range []struct {
		things, answers []int
		errs            []error
		atOnce          int
		lasts           time.Duration
	}{
		{[]int{}, []int{}, []error{}, 0, 0},
		{[]int{1, 2, 3, 4}, []int{10, 20, 30, 40}, []error{odd, nil, odd, nil}, 4, time.Second},
		{[]int{1, 2, 3, 4}, []int{10, 20, 30, 40}, []error{odd, nil, odd, nil}, 2, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			answers, errs := Parallel(tt.things, tt.atOnce, func(n int) (int, error) {
				time.Sleep(time.Second)
				if n%2 == 1 {
					return 10 * n, odd
				}
				return 10 * n, nil
			})
			if !slices.Equal(answers, tt.answers) || !slices.Equal(errs, tt.errs) || time.Since(began) != tt.lasts {
				t.Errorf("%d at once: answers %v, errors %v in %v", tt.atOnce, answers, errs, time.Since(began))
			}
		})
	}
}

func TestTogether(t *testing.T) {
	refused := errors.New("refused")
	var seen atomic.Int32
	errs := Together([]int32{1, 2, 4}, func(n int32) error {
		seen.Add(n)
		if n == 2 {
			return refused
		}
		return nil
	})
	if want := []error{nil, refused, nil}; !slices.Equal(errs, want) || seen.Load() != 7 {
		t.Errorf("errors %v, saw %d", errs, seen.Load())
	}
}
