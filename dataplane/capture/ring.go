package capture

import "sync/atomic"

// granule is the unit in which memory is given to records.
const granule = 64

// ring is a queue of byte records in a fixed piece of memory, with many writers
// and one reader. A writer reserves its space by one compare-and-swap, fills it,
// and publishes it; records come out in the order in which they were reserved. No
// record wraps around: what is left at the end is skipped.
type ring struct {
	memory []byte
	// published tells for the granule that a record begins in how many granules it
	// has, with skipped set where nothing is in them. Zero: not written yet.
	published []atomic.Uint32

	_    [64]byte
	head atomic.Uint64 // bytes reserved since the start; by writers
	_    [64 - 8]byte
	tail atomic.Uint64 // bytes freed since the start; by the reader
	_    [64 - 8]byte

	current uint64 // size of the record that the reader holds
}

const skipped = 1 << 31

// init gives the ring its memory: size is rounded up to a power of two.
func (r *ring) init(size int) {
	n := granule
	for n < size {
		n *= 2
	}
	r.memory = make([]byte, n)
	r.published = make([]atomic.Uint32, n/granule)
}

// reserve returns n bytes to be filled in and then published, or nil if there is
// no room for them.
func (r *ring) reserve(n int) (b []byte, at uint64) {
	size := (uint64(n) + granule - 1) &^ (granule - 1)
	capacity := uint64(len(r.memory))
	for {
		head := r.head.Load()
		at, skip := head&(capacity-1), uint64(0)
		if at+size > capacity {
			skip = capacity - at
		}
		// Signed, as the tail that is loaded may already be beyond this head.
		if int64(head+skip+size-r.tail.Load()) > int64(capacity) {
			return nil, 0
		}
		if !r.head.CompareAndSwap(head, head+skip+size) {
			continue
		}
		if skip > 0 {
			r.published[at/granule].Store(uint32(skip/granule) | skipped)
			at = 0
		}
		return r.memory[at : at+uint64(n)], at
	}
}

// publish gives the record that was reserved at a place to the reader.
func (r *ring) publish(at uint64, n int) {
	r.published[at/granule].Store(uint32((n + granule - 1) / granule))
}

// next frees the record that it returned before and returns the next, nil if
// there is none, or none that is complete.
func (r *ring) next() []byte {
	r.free(r.current)
	r.current = 0
	for {
		at := r.tail.Load() & uint64(len(r.memory)-1)
		n := r.published[at/granule].Load()
		size := uint64(n&^skipped) * granule
		switch {
		case n == 0:
			return nil
		case n&skipped != 0:
			r.free(size)
		default:
			r.current = size
			return r.memory[at : at+size]
		}
	}
}

// free gives the first size bytes back to the writers.
func (r *ring) free(size uint64) {
	if size == 0 {
		return
	}
	tail := r.tail.Load()
	r.published[tail&uint64(len(r.memory)-1)/granule].Store(0)
	r.tail.Store(tail + size)
}

// empty tells whether everything that was reserved has been read.
func (r *ring) empty() bool { return r.head.Load() == r.tail.Load()+r.current }
