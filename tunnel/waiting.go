package tunnel

import (
	"sync"
	"time"
)

const (
	// maxWaiting is how many packets wait for a session. They are for those that begin to
	// talk, whose first packets would be lost otherwise. The kernel keeps 128 (its
	// drivers/net/wireguard, MAX_STAGED_PACKETS).
	maxWaiting = 64
	// waitLimit is for how long a packet waits: as long as WireGuard tries to get a session
	// (paper section 6.4, REKEY_ATTEMPT_TIME).
	waitLimit = 90 * time.Second
)

// waiting holds the last packets that found no session, in order. Its memory is used again.
type waiting struct {
	mu    sync.Mutex
	slots [maxWaiting]waitingPacket // a ring
	first int
	n     int
	taken waitingPacket // the last that next returned
}

// waitingPacket is a packet with room for its message: sealFront in front, sealRoom behind.
type waitingPacket struct {
	buf   []byte
	size  int
	since time.Time
}

// push appends a copy of a packet. If there is no room the oldest goes, which drop is shown.
func (w *waiting) push(packet []byte, drop func(oldest []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == maxWaiting {
		oldest := &w.slots[w.first]
		drop(oldest.buf[sealFront : sealFront+oldest.size])
		w.drop()
	}
	p := &w.slots[(w.first+w.n)%maxWaiting]
	if need := sealFront + len(packet) + sealRoom; len(p.buf) < need {
		p.buf = make([]byte, need)
	}
	p.size, p.since = copy(p.buf[sealFront:], packet), time.Now()
	w.n++
}

// verdict is what becomes of the oldest packet.
type verdict uint8

const (
	stays  verdict = iota
	isSent         // by the caller
	isDropped
)

// next has judge decide about the oldest packet. One that is sent is returned: the caller
// has it until the next call. Without a packet the verdict is stays.
func (w *waiting) next(judge func(buf []byte, size int, since time.Time) verdict) (buf []byte, size int, v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == 0 {
		return nil, 0, stays
	}
	p := &w.slots[w.first]
	v = judge(p.buf, p.size, p.since)
	if v == isSent {
		*p, w.taken = w.taken, *p
	}
	if v != stays {
		w.drop()
	}
	return w.taken.buf, w.taken.size, v
}

// drop forgets the oldest packet. The caller holds mu.
func (w *waiting) drop() {
	w.first = (w.first + 1) % maxWaiting
	w.n--
}

// clear forgets all packets, and returns how many there were.
func (w *waiting) clear() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.n
	w.n = 0
	return n
}

// full tells whether the next packet displaces another one.
func (w *waiting) full() bool { return w.len() == maxWaiting }

// len returns how many packets wait.
func (w *waiting) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}
