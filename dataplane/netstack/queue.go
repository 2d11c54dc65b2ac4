package netstack

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// recordHeader is the length prefix of a packet in a queue's arena.
const recordHeader = 4

// queue is a bounded queue of packets between any number of senders and one
// receiver. Senders copy into an arena; the receiver swaps the whole arena for
// an empty one, so that the lock is taken once per batch on its side.
type queue struct {
	limit  int           // bytes, record headers included
	ready  chan struct{} // capacity 1: the arena went from empty to not empty
	closed chan struct{}
	sent   atomic.Uint64
	drops  atomic.Uint64

	mu    sync.Mutex
	arena []byte
	shut  bool
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, ready: make(chan struct{}, 1), closed: make(chan struct{})}
}

// push copies one packet in. It reports false, and counts a drop, when the
// queue is full or closed.
func (q *queue) push(pkt []byte) bool {
	q.mu.Lock()
	dst := q.reserveLocked(len(pkt))
	copy(dst, pkt)
	q.mu.Unlock()
	return q.account(dst != nil)
}

// pushBuffer is push for a packet that gVisor holds in pieces.
func (q *queue) pushBuffer(pkt *stack.PacketBuffer) bool {
	size := pkt.Size()
	views, skip := pkt.AsViewList()
	q.mu.Lock()
	dst := q.reserveLocked(size)
	ok := dst != nil
	for v := views.Front(); v != nil && len(dst) > 0; v = v.Next() {
		s := v.AsSlice()
		if skip >= len(s) { // unused room for headers
			skip -= len(s)
			continue
		}
		dst = dst[copy(dst, s[skip:]):]
		skip = 0
	}
	q.mu.Unlock()
	return q.account(ok)
}

// reserveLocked appends an empty record of n bytes and returns its body, or nil
// when it does not fit. q.mu must be held.
func (q *queue) reserveLocked(n int) []byte {
	old := len(q.arena)
	if q.shut || n == 0 || old+recordHeader+n > q.limit {
		return nil
	}
	if old == 0 {
		select {
		case q.ready <- struct{}{}:
		default: // the receiver has not looked since the last time
		}
	}
	q.arena = slices.Grow(q.arena, recordHeader+n)[:old+recordHeader+n]
	binary.NativeEndian.PutUint32(q.arena[old:], uint32(n))
	return q.arena[old+recordHeader:]
}

func (q *queue) account(ok bool) bool {
	if ok {
		q.sent.Add(1)
	} else {
		q.drops.Add(1)
	}
	return ok
}

// take exchanges the arena for spare, whose content is no longer needed.
func (q *queue) take(spare []byte) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := q.arena
	q.arena = spare[:0]
	return batch
}

// drain hands every packet to f, in order, until ctx ends or the queue is
// closed. The slice is valid during the call only.
func (q *queue) drain(ctx context.Context, f func(pkt []byte)) {
	var batch []byte
	for ctx.Err() == nil {
		batch = q.take(batch)
		for b := batch; len(b) > 0; {
			n := int(binary.NativeEndian.Uint32(b)) + recordHeader
			f(b[recordHeader:n:n])
			b = b[n:]
		}
		if len(batch) > 0 {
			continue // more may have come meanwhile
		}
		select {
		case <-q.ready:
		case <-q.closed:
			return
		case <-ctx.Done():
		}
	}
}

// close makes drain return and later pushes fail. Packets still queued are
// forgotten.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut {
		return
	}
	q.shut, q.arena = true, nil
	close(q.closed)
}
