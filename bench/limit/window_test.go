package limit

import (
	"math/rand/v2"
	"testing"
)

// windowLen is how much older than the newest a message may be at least.
const windowLen = (windowWords - 1) * wordBits

func TestWindow(t *testing.T) {
	type step struct {
		counter uint64
		want    bool
	}
	const last = rejectAfterMessages - 1
	for name, steps := range map[string][]step{
		"in order":          {{0, true}, {1, true}, {2, true}},
		"twice":             {{0, true}, {0, false}, {5, true}, {5, false}},
		"late":              {{100, true}, {99, true}, {0, true}, {99, false}},
		"a jump forgets":    {{1, true}, {1 << 40, true}, {1, false}, {1<<40 - 1, true}},
		"just young enough": {{windowLen, true}, {0, true}, {2*windowLen + 63, true}, {windowLen + 63, true}},
		"too old":           {{windowLen + 64, true}, {0, false}},
		"around the ring":   {{0, true}, {windowWords * wordBits, true}, {windowWords*wordBits + 1, true}},
		"the last ones":     {{last, true}, {last, false}, {last + 1, false}, {1<<64 - 1, false}, {last - 1, true}},
	} {
		var w window
		for i, s := range steps {
			if got := w.accept(s.counter); got != s.want {
				t.Errorf("%s: step %d: accept(%d) = %v, want %v", name, i, s.counter, got, s.want)
			}
		}
	}
}

// TestWindowAgainstMemory compares with something that remembers everything.
func TestWindowAgainstMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var w window
		seen, newest := map[uint64]bool{}, uint64(0)
		for range 20000 {
			counter := newest + r.Uint64N(100)
			switch r.IntN(10) {
			case 0:
				counter = newest + r.Uint64N(3*windowLen)
			case 1, 2, 3, 4:
				counter = newest - min(newest, r.Uint64N(2*windowLen))
			}
			got := w.accept(counter)
			switch {
			case seen[counter] && got:
				t.Fatalf("%d was accepted twice", counter)
			case !seen[counter] && counter+windowLen >= newest && !got:
				t.Fatalf("%d was refused; the newest is %d", counter, newest)
			}
			if got {
				seen[counter], newest = true, max(newest, counter)
			}
		}
	}
}
