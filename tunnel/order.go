package tunnel

import (
	"sync"
	"sync/atomic"
)

// order has those who carry batches do something one after another, in the order of the
// numbers of their batches, which begin with 0. Whose turn it is already neither waits nor
// wakes anybody.
type order struct {
	next    atomic.Uint64 // the batch whose turn it is
	waiting atomic.Int32
	mu      sync.Mutex
	turn    *sync.Cond // next has changed; of mu
}

func newOrder() *order {
	o := new(order)
	o.turn = sync.NewCond(&o.mu)
	return o
}

// await waits for the turn of a batch.
func (o *order) await(batch uint64) {
	if o.next.Load() == batch {
		return
	}
	// Counted before looking again: pass changes next before it looks who waits.
	o.waiting.Add(1)
	o.mu.Lock()
	for o.next.Load() != batch {
		o.turn.Wait()
	}
	o.mu.Unlock()
	o.waiting.Add(-1)
}

// pass ends the turn that there is.
func (o *order) pass() {
	o.next.Add(1)
	if o.waiting.Load() == 0 {
		return
	}
	o.mu.Lock() // who has looked waits by now
	o.turn.Broadcast()
	o.mu.Unlock()
	hurry()
}

// hurry has another thread run the goroutine that was just woken. The runtime keeps that for
// this thread, and lets others have it only after a pause (runqgrab, runtime/proc.go), which is
// about as long as the work on a batch. One more goroutine pushes it out of that place.
func hurry() { go nothing() }

func nothing() {}
