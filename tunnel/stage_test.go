package tunnel

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestStage: batches are worked on one at a time and in order, the large ones beside the loop.
func TestStage(t *testing.T) {
	for _, apart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var done []int
			working := false
			s := newStage(apart, func(batch int) {
				if working {
					t.Error("two at a time")
				}
				working = true
				time.Sleep(time.Second)
				working = false
				done = append(done, batch)
			})
			begun := time.Now()
			for i, large := range []bool{true, true, false, true} {
				if underWay := s.take(i, large); underWay != (apart && large) {
					t.Errorf("apart %v, batch %d: under way is %v", apart, i, underWay)
				} else if !underWay && len(done) != i+1 {
					t.Errorf("apart %v: done are %v after batch %d", apart, done, i)
				}
				time.Sleep(time.Second) // the loop makes the next one
			}
			s.close()
			if want := []int{0, 1, 2, 3}; !slices.Equal(done, want) {
				t.Errorf("apart %v: %v", apart, done)
			}
			want := 8 * time.Second
			if apart {
				want -= 3 * time.Second // while the three large ones were worked on, the loop was, too
			}
			if took := time.Since(begun); took != want {
				t.Errorf("apart %v: it took %v, want %v", apart, took, want)
			}
		})
	}
}
