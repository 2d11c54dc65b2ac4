package capture

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// MaxCaptures bounds the captures that are under way at once, and with them what
// they cost in memory and on the packet path.
const MaxCaptures = 2

// ErrTooMany says that MaxCaptures are under way.
var ErrTooMany = errors.New("two captures are under way already: wait for one to end, or end it")

// Set holds the captures that are under way. The zero Set is empty.
type Set struct {
	active atomic.Pointer[Active] // nil: none

	mu      sync.Mutex
	started uint64
	ended   Counts // of the captures that were removed
}

// Active are the captures of a Set at one moment.
type Active struct {
	points   Points
	captures []*Capture
}

// Active returns what the packet path shows packets to, nil while there is nobody.
func (s *Set) Active() *Active { return s.active.Load() }

// Wants tells whether somebody looks at a point.
func (t *Active) Wants(p Point) bool { return t.points.Has(p) }

// Offer shows p to everybody who looks at its point.
func (t *Active) Offer(p *Packet) {
	for _, c := range t.captures {
		c.offer(p)
	}
}

// Points returns all points that somebody looks at.
func (s *Set) Points() Points {
	if t := s.active.Load(); t != nil {
		return t.points
	}
	return 0
}

// Add puts a capture under way. The error is ErrTooMany.
func (s *Set) Add(c *Capture) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.capturesLocked()
	if len(now) >= MaxCaptures {
		return ErrTooMany
	}
	s.started++
	s.storeLocked(append(slices.Clip(now), c))
	return nil
}

// Remove ends a capture. A packet that is on its way through the packet path at
// that moment may still be shown to it.
func (s *Set) Remove(c *Capture) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.capturesLocked()
	if !slices.Contains(now, c) {
		return
	}
	s.ended.add(c.total())
	s.storeLocked(slices.DeleteFunc(slices.Clone(now), func(o *Capture) bool { return o == c }))
}

func (s *Set) capturesLocked() []*Capture {
	if t := s.active.Load(); t != nil {
		return t.captures
	}
	return nil
}

func (s *Set) storeLocked(cs []*Capture) {
	if len(cs) == 0 {
		s.active.Store(nil)
		return
	}
	t := &Active{captures: cs}
	for _, c := range cs {
		t.points |= c.points
	}
	s.active.Store(t)
}

// Status is what captures have done so far, ended ones included.
type Status struct {
	Running int    `json:"running"`
	Started uint64 `json:"started"`
	Packets uint64 `json:"packets"` // captured
	Lost    uint64 `json:"lost"`    // not captured for want of room
}

// Status returns what captures have done so far.
func (s *Set) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, all := s.capturesLocked(), s.ended
	for _, c := range now {
		all.add(c.total())
	}
	return Status{Running: len(now), Started: s.started, Packets: all.Matched - all.Lost, Lost: all.Lost}
}

func (c *Capture) total() (all Counts) {
	for p := range NumPoints {
		all.add(c.Counts(p))
	}
	return all
}

func (c *Counts) add(o Counts) {
	c.Seen += o.Seen
	c.Matched += o.Matched
	c.Lost += o.Lost
}
