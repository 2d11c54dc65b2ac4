package kubernetes

import (
	"math"
	"slices"
	"sync"
	"time"
)

// notable is the shortest silence that is remembered: what a busy machine does
// to processes that want to run every few milliseconds is shorter as a rule.
const notable = 25 * time.Millisecond

// arrivals remembers when nothing came.
type arrivals struct {
	mu       sync.Mutex
	last     time.Time
	silences []silence
}

// silence is a time in which nothing came.
type silence struct{ from, to time.Time }

func (a *arrivals) note(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.last) >= notable {
		a.silences = append(a.silences, silence{a.last, now})
	}
	a.last = now
}

// after tells whether something came after a moment.
func (a *arrivals) after(since time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last.After(since)
}

// longest is the length of the longest silence that was not over at a moment, one
// that goes on included. Zero: none worth remembering.
func (a *arrivals) longest(since time.Time) (longest time.Duration) {
	for _, s := range a.all(since) {
		longest = max(longest, s.to.Sub(s.from))
	}
	return longest
}

// all are the silences that were not over at a moment.
func (a *arrivals) all(since time.Time) []silence {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Clone(a.silences)
	if now := time.Now(); now.Sub(a.last) >= notable {
		all = append(all, silence{a.last, now})
	}
	return slices.DeleteFunc(all, func(s silence) bool { return !s.to.After(since) })
}

// series is durations of the same thing, measured again and again.
type series []time.Duration

// quantile is the smallest value that a share of the values does not exceed. Of
// few values the higher quantiles are the worst one.
func (s series) quantile(share float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

func (s series) p50() time.Duration   { return s.quantile(0.50) }
func (s series) p99() time.Duration   { return s.quantile(0.99) }
func (s series) worst() time.Duration { return s.quantile(1) }
