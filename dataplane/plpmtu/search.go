package plpmtu

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Times and counts. RFC 8899 section 5.1 has those of its timers.
const (
	// MaxProbes of a size lost one after the other mean that it does not pass.
	MaxProbes = 3
	// ConfirmInterval lies between two probes of the size in use. With MaxTimeout and
	// MaxProbes it bounds how long a black hole stays: 4 seconds and a round trip.
	ConfirmInterval = time.Second
	// RaiseInterval is how long a result holds before larger sizes are tried again.
	RaiseInterval = 10 * time.Minute
	// MinTimeout and MaxTimeout bound how long an answer is waited for: four round
	// trips.
	MinTimeout = 500 * time.Millisecond
	MaxTimeout = time.Second
)

const (
	// Base is what is in use until more is known to pass.
	Base = 1340
	// MinSize is what every link carries (RFC 8200 section 5).
	MinSize = 1280
	// smallSize is that of a probe which passes wherever anything does.
	smallSize = 100
	// granularity is what WireGuard pads packets to: sizes in between are no other on
	// the wire.
	granularity = 16
)

// usual are the sizes that fit common links, the largest first: Ethernet of 9000 and
// 1500 bytes, PPPoE, over IPv4 and IPv6.
var usual = [...]int{8928, 8912, 1440, 1424, 1408}

// Facts are what is known of a path without a probe.
type Facts struct {
	// Alive: the peer answers pings of any size.
	Alive bool
	// Endpoint is the peer's. Another one means another path.
	Endpoint netip.AddrPort
	// Own is the largest packet of our own links, Peer that of the peer's, 0 if it
	// does not tell.
	Own, Peer int
	// Route is the largest packet that leaves this host in one piece, by its routes
	// and by what routers have told it; 0 if that is not known.
	Route int
}

// limit is the largest size that is worth a probe.
func (f Facts) limit() int {
	if f.Peer == 0 { // one that does not search, and whose nodes may take no more
		return min(f.Own, Base)
	}
	l := min(f.Own, f.Peer)
	if f.Route > 0 && f.Route < l {
		l = f.Route &^ (granularity - 1)
	}
	return min(f.Own, max(l, MinSize))
}

// Phase is where a Search is.
type Phase uint8

// The phases of a Search.
const (
	Disabled   Phase = iota // the peer does not answer, or there is nothing to find
	Confirming              // does Base pass?
	Searching               // what else passes?
	Complete                // what passes is known, and confirmed again and again
	Failed                  // not even Base passes in one piece
)

var phaseNames = [...]string{"disabled", "confirming", "searching", "complete", "failed"}

// String returns the phase's name.
func (p Phase) String() string { return phaseNames[p] }

// MarshalText returns the phase's name.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a phase's name.
func (p *Phase) UnmarshalText(b []byte) error {
	i := slices.Index(phaseNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("%q is none of %v", b, phaseNames)
	}
	*p = Phase(i)
	return nil
}

// Step is what is to be done now.
type Step struct {
	// Size is how large packets may be.
	Size int
	// DontFragment: they leave in one piece or not at all.
	DontFragment bool
	// Probe is the size of a probe to send, 0 for none.
	Probe int
	// Next is when to ask again at the latest.
	Next time.Time
}

// Search finds out what a path carries. The zero value is ready; it is not safe for
// concurrent use.
type Search struct {
	facts  Facts
	phase  Phase
	since  time.Time // of the phase
	size   int       // in use
	tooBig int       // the lowest that does not pass, or one more than the limit

	probe     int // the one that was sent last
	sent      time.Time
	out       bool      // and may still be answered
	confirmed time.Time // when size last passed
	missing   int       // probes of size since
	trying    int       // a size above it, and how many probes of it are lost
	lost      int
	roundTrip time.Duration
	// asked: before the last probe of Confirming there was a small one. passes: it was answered.
	asked, passes bool
}

// Phase is where the Search is.
func (s *Search) Phase() Phase { return s.phase }

// Step takes what is known now, and says what to do.
//
//	the peer is away, or no more than Base is asked for    Disabled
//	it is back, or at another endpoint                     Confirming, with Base
//	the limit falls below the size in use                  the limit is in use, at once
//	the limit rises                                        Searching
func (s *Search) Step(now time.Time, f Facts) Step {
	before, limit := s.facts, f.limit()
	s.facts = f
	switch {
	case !f.Alive || limit <= min(Base, f.Own):
		s.enter(Disabled, now)
	case s.phase == Disabled, f.Endpoint != before.Endpoint:
		s.enter(Confirming, now)
	case limit < before.limit():
		s.tooBig = min(s.tooBig, limit+1)
		s.size = min(s.size, limit)
	case limit > before.limit() && s.phase == Complete:
		s.enter(Searching, now)
	case limit > before.limit() && s.phase == Searching:
		s.tooBig = limit + 1
	}
	if s.out && now.Sub(s.sent) >= s.timeout() {
		s.timedOut(now)
	}
	step := Step{Probe: s.next(now)}
	if step.Probe > 0 {
		s.probe, s.sent, s.out = step.Probe, now, true
	}
	step.Size, step.DontFragment = s.inUse(), s.phase != Disabled && s.phase != Failed
	step.Next = s.nextTime(now)
	return step
}

// Answered takes the answer to a probe of that size, which came after roundTrip.
func (s *Search) Answered(now time.Time, size int, roundTrip time.Duration) {
	if s.phase == Disabled {
		return
	}
	s.roundTrip = roundTrip
	s.out = s.out && size != s.probe
	missed := s.missing > 0
	switch {
	case size == smallSize:
		s.passes = s.asked
		return
	case size == s.size:
	case size == s.trying && size > s.size && size < s.tooBig:
		s.size = size
	default:
		return // of another phase
	}
	s.confirmed, s.missing = now, 0
	switch {
	case s.phase == Confirming:
		s.enter(Searching, now)
	case s.phase == Failed && missed: // nothing had passed: that says nothing of sizes
		s.enter(Confirming, now)
	}
}

// inUse is how large packets may be.
func (s *Search) inUse() int {
	if s.phase == Disabled {
		return min(s.facts.limit(), Base)
	}
	return s.size
}

// enter begins a phase. What is out belongs to the one before.
func (s *Search) enter(p Phase, now time.Time) {
	if p == Disabled && s.phase == Disabled {
		return
	}
	s.phase, s.since = p, now
	s.out, s.missing, s.trying, s.lost = false, 0, 0, 0
	s.asked, s.passes = false, false
	switch p {
	case Confirming, Failed:
		s.size = min(Base, s.facts.Own)
	case Searching:
		s.tooBig = s.facts.limit() + 1
	}
}

// timedOut: the probe that was out is not answered.
func (s *Search) timedOut(now time.Time) {
	s.out = false
	if s.probe == smallSize {
		return
	}
	if s.probe != s.size {
		if s.lost++; s.lost >= MaxProbes && s.probe == s.trying {
			s.tooBig = min(s.tooBig, s.probe)
		}
		return
	}
	s.missing++
	switch {
	case s.phase == Failed || s.missing < MaxProbes:
	case s.phase == Confirming:
		passes := s.passes
		s.enter(Failed, now)
		if !passes { // nothing does, and that says nothing of sizes
			s.missing = 1
		}
	default:
		s.enter(Confirming, now)
	}
}

// next is the size of the probe that is due, 0 for none.
func (s *Search) next(now time.Time) int {
	due := now.Sub(s.confirmed) >= ConfirmInterval
	switch {
	case s.out:
		return 0
	case s.phase == Confirming && s.missing == MaxProbes-1 && !s.asked:
		s.asked = true
		return smallSize
	case s.phase == Confirming:
		return s.size
	case s.phase == Failed && now.Sub(s.since) >= RaiseInterval:
		s.enter(Confirming, now)
		return s.size
	case s.phase == Failed && s.unheard() && now.Sub(s.sent) >= ConfirmInterval:
		return s.size
	case s.phase == Disabled || s.phase == Failed:
		return 0
	case due:
		return s.size
	case s.phase == Complete && now.Sub(s.since) >= RaiseInterval:
		s.enter(Searching, now)
	}
	if s.phase == Complete {
		return 0
	}
	c := candidate(s.size, s.tooBig, s.facts.limit())
	if c == 0 {
		s.enter(Complete, now)
		return 0
	}
	if c != s.trying {
		s.trying, s.lost = c, 0
	}
	return c
}

// unheard: no probe of this phase was answered. One that was, in pieces, is all that
// Failed can learn for a while; without one, nothing passes at all.
func (s *Search) unheard() bool { return s.confirmed.Before(s.since) }

// nextTime is when Step has something to do without a new fact.
func (s *Search) nextTime(now time.Time) time.Time {
	switch {
	case s.phase == Disabled:
		return now.Add(RaiseInterval)
	case s.out:
		return s.sent.Add(s.timeout())
	case s.phase == Failed && s.unheard():
		return s.sent.Add(ConfirmInterval)
	case s.phase == Failed:
		return s.since.Add(RaiseInterval)
	}
	return s.confirmed.Add(ConfirmInterval)
}

// timeout is how long an answer is waited for.
func (s *Search) timeout() time.Duration {
	if s.roundTrip == 0 {
		return MaxTimeout
	}
	return min(max(4*s.roundTrip, MinTimeout), MaxTimeout)
}

// candidate is the next size to try between one that passes and one that does not: the
// limit first, then what common links carry, then the middle. 0: there is none.
func candidate(passes, tooBig, limit int) int {
	if tooBig > limit && limit > passes {
		return limit
	}
	for _, size := range usual {
		if size > passes && size < tooBig {
			return size
		}
	}
	if size := (passes + tooBig) / 2 &^ (granularity - 1); size > passes {
		return size
	}
	return 0
}
