package main

import (
	"cmp"
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/gateway/services"
)

const (
	// minProbe is an echo request without payload.
	minProbe = 28
	// smallProbe fits everywhere.
	smallProbe = 100
	// usualLimit is what fits through an Ethernet of 1500 bytes over IPv4.
	usualLimit = 1440
	// highestLimit is what fits through jumbo frames: more is only tried when
	// somebody asks for it.
	highestLimit = 8940
	// probeInterval lies between two pings of the same size.
	probeInterval = 50 * time.Millisecond
	// searchTries is how many packets must get lost for a size to be too large.
	searchTries = 3
	// minPatience is how long the search waits for an answer on a fast path.
	minPatience = 250 * time.Millisecond
)

// prober does what a probeRequest asks for.
type prober struct {
	ping    func(ctx context.Context, size int) (time.Duration, error)
	request probeRequest
}

// run fills in what a report says of the pings, up to the end of ctx.
func (p prober) run(ctx context.Context, r *probeReport) {
	sizes := p.request.Sizes
	if len(sizes) == 0 {
		sizes = []int{min(smallProbe, r.MTU), r.MTU}
	}
	r.Pings = make([]pingReport, len(sizes))
	var wg sync.WaitGroup
	for i, size := range sizes { // at the same time, as each may wait in vain
		wg.Go(func() { r.Pings[i] = p.measure(ctx, size) })
	}
	wg.Wait()
	slowest, answered := time.Duration(0), false
	for _, ping := range r.Pings {
		slowest, answered = max(slowest, ping.Max), answered || ping.Received > 0
	}
	r.Limit = cmp.Or(p.request.Limit, limitOf(r))
	if !answered {
		return // and a smaller packet would hardly be answered either
	}
	patience := min(p.request.Timeout, max(minPatience, 4*slowest))
	r.Largest = largest(min(r.MTU, r.Limit), r.Limit, func(size int) bool { return p.passes(ctx, size, patience) })
}

// limitOf is how far up the search goes unless somebody says: to what the path
// takes, and at least to the MTU.
func limitOf(r *probeReport) int {
	limit := usualLimit
	if r.Path.Inner > 0 {
		limit = min(r.Path.Inner, highestLimit)
	}
	return max(limit, r.MTU)
}

// measure pings with packets of one size.
func (p prober) measure(ctx context.Context, size int) pingReport {
	r := pingReport{Size: size}
	times := make([]time.Duration, p.request.Count) // zero: lost
	var wg sync.WaitGroup
	for i := range times {
		if i > 0 && !services.Pause(ctx, probeInterval) {
			break
		}
		r.Sent++
		wg.Go(func() { times[i] = p.once(ctx, size, p.request.Timeout) })
	}
	wg.Wait()
	var sum time.Duration
	for _, t := range times {
		if t == 0 {
			continue
		}
		r.Received++
		sum += t
		r.Max = max(r.Max, t)
		if r.Min == 0 || t < r.Min {
			r.Min = t
		}
	}
	if r.Received > 0 {
		r.Avg = sum / time.Duration(r.Received)
	}
	return r
}

// once sends one packet and returns the time until its answer, zero if there is
// none.
func (p prober) once(ctx context.Context, size int, patience time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rtt, err := p.ping(ctx, size)
	if err != nil {
		return 0
	}
	return rtt
}

// passes tells whether a packet of this size arrives, by the first answer to one
// of several.
func (p prober) passes(ctx context.Context, size int, patience time.Duration) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan bool, searchTries)
	for range searchTries {
		go func() { answers <- p.once(ctx, size, patience) > 0 }()
	}
	passes := false
	for range searchTries {
		if <-answers {
			passes = true
			cancel()
		}
	}
	return passes
}

// largest finds the largest size up to limit that passes, zero if none does. It
// asks for the one that is expected to pass first.
func largest(expected, limit int, passes func(size int) bool) int {
	low, high := 0, limit+1 // passes, does not pass
	for _, size := range []int{expected, limit} {
		if size <= low || size >= high {
			continue
		}
		if !passes(size) {
			high = size
			break
		}
		low = size
	}
	if low == 0 && high > minProbe {
		if !passes(minProbe) {
			return 0
		}
		low = minProbe
	}
	for high-low > 1 {
		if size := low + (high-low)/2; passes(size) {
			low = size
		} else {
			high = size
		}
	}
	return low
}

// pathOf is what this host knows of the way to the peer's endpoint.
func pathOf(endpoint netip.AddrPort) probePathMTU {
	mtu := pathMTU(endpoint)
	if mtu == 0 {
		return probePathMTU{}
	}
	// Outer IP and UDP, then WireGuard's header and tag (paper section 5.4.6).
	overhead := 20 + 8 + 16 + 16
	if endpoint.Addr().Is6() {
		overhead += 20
	}
	return probePathMTU{MTU: mtu, Inner: max(0, min(mtu-overhead, dataplane.MaxMTU))}
}
