package services

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// A full set is some 5 MiB, MaxServiceSizeTotal at most. Of the former three pass at once, as after a few restarts, and then
	// one in twenty seconds: decoding that takes a hundredth of a processor.
	readBurst, readRate = 16 << 20, 256 << 10
	// A change of a Service is one frame.
	frameBurst, frameRate = 8 * 2000, 200
)

// bucket lets burst pass at once and rate a second from then on.
type bucket struct {
	burst, rate float64
	used        float64
	at          time.Time
}

// take takes n and tells how long to wait for it.
func (b *bucket) take(n int, now time.Time) time.Duration {
	b.used = max(0, b.used-now.Sub(b.at).Seconds()*b.rate) + float64(n)
	b.at = now
	return time.Duration(max(0, b.used-b.burst) / b.rate * float64(time.Second))
}

// Gather is how long changes gather after work that took so long, until it is done for them: a change arrives soon where
// there is little to do, and where there is much it may take half of a processor.
func Gather(took time.Duration) time.Duration {
	return min(max(10*time.Millisecond, took), 100*time.Millisecond)
}

// backoff is how long to wait after so many failures in a row, the first being 1.
func backoff(first, most time.Duration, failures int) time.Duration {
	d := most
	if shift := failures - 1; shift < 20 {
		d = min(first<<shift, most)
	}
	return d/2 + rand.N(d) // so that a thousand gateways do not ask at the same time
}

// Pause waits, and reports false if ctx ended meanwhile.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
