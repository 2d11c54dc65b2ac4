package dropped

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Kept is how many packets are kept of each reason and direction, and how many of
	// them in a burst.
	Kept = 16
	// interval is the time between two packets of one reason beyond the burst.
	interval = int64(time.Second) / 4
)

// Sample are the packets that were kept. New makes one.
type Sample struct {
	number atomic.Uint64
	cells  []cell
}

// cell is one reason and direction.
type cell struct {
	// free is when the budget will be full again, on the clock of the packet path
	// (the virtual scheduling algorithm, ITU-T I.371 annex A).
	free atomic.Int64

	mu      sync.Mutex // the packet path only tries it
	packets [Kept]Packet
	n       int // packets kept so far
}

// New returns a Sample for so many kinds of drops, which the caller numbers from 0.
func New(kinds int) *Sample { return &Sample{cells: make([]cell, kinds)} }

// Wants tells whether a packet of a kind is kept now, in nanoseconds of a clock that
// does not run backwards, and counts it if so.
func (s *Sample) Wants(kind int, now int64) bool {
	c := &s.cells[kind]
	free := c.free.Load()
	return free-now <= (Kept-1)*interval && c.free.CompareAndSwap(free, max(free, now)+interval)
}

// Keep keeps p, which gets its number.
func (s *Sample) Keep(kind int, p *Packet) {
	c := &s.cells[kind]
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	kept := &c.packets[c.n%Kept]
	*kept = *p
	kept.Number = s.number.Add(1)
	c.n++
}

// After returns the packets whose number is higher than number, in their order.
func (s *Sample) After(number uint64) (out []Packet) {
	// A number is given while the cell is locked: what has one up to here is there.
	last := s.number.Load()
	if last <= number {
		return nil
	}
	for i := range s.cells {
		c := &s.cells[i]
		c.mu.Lock()
		for _, p := range c.packets[:min(c.n, Kept)] {
			if p.Number > number && p.Number <= last {
				out = append(out, p)
			}
		}
		c.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Packet) int { return cmp.Compare(a.Number, b.Number) })
	return out
}
