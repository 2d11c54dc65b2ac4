package tunnel

import (
	"sync"
	"time"
	"unsafe"
)

// How packets are admitted when nothing proves that a session exists.
const (
	// unprovenLimit is how many packets may be inside wireguard-go while no
	// transport message has gone out or come in for provenFor. They trigger the handshake
	// and are sent when it completes. It is half of wireguard-go's staged queue
	// (128 batches), so that in a single outage they are not pushed out of it.
	unprovenLimit = 64
	// provenFor is how long a transport message proves that the next packets will
	// be sent too.
	provenFor = time.Second
	// egressTimeout is how long a reader waits, when all credits are taken, for
	// packets to move. They leave within microseconds while a session is usable, so
	// half a second without any means that there is none; it is enough for a
	// handshake over most networks too. The reader, and the nodes behind it, waits
	// for so long once per outage. Being wrong costs a few dropped packets.
	egressTimeout = 500 * time.Millisecond
	// egressPause and ingressPause are what the waits are made of. A process that was
	// stopped for a while (a paused machine, a starved one) must not find its
	// patience gone when it wakes, with everything it waited for ready to run; so
	// naps are counted, not the clock.
	egressPause  = 25 * time.Millisecond
	ingressPause = 5 * time.Millisecond
	// ownBurst is how many of the gateway's own packets per batch are admitted
	// beyond every limit: one ping per family and a spare. wireguard-go's staged
	// queue holds 128 batches, so what they can pile up is bounded too.
	ownBurst = 4
	// probeEvery is the pace of single packets admitted beyond the limit. They
	// make wireguard-go try another handshake after it has given up (WireGuard
	// paper section 6.4: after 90 s), and show whether credits were lost. It is
	// its own pace of attempts (REKEY_TIMEOUT).
	probeEvery = 5 * time.Second
	// sessionLife is how long a session is valid (WireGuard paper section 6.1,
	// REJECT_AFTER_TIME).
	sessionLife = 180 * time.Second
	// ingressTimeout is how long a receiver waits for messages to come out of
	// decryption before it takes them for messages that failed authentication,
	// of which the TUN side never hears. Decryption takes about a millisecond for
	// all that may be inside; a busy machine may need more. Only a flood of nothing
	// but forgeries for a live session, from someone who reads the traffic, is
	// slowed down by it: any authentic packet among them ends the wait.
	ingressTimeout = 50 * time.Millisecond
)

// creditShare is the part of a limit that must be free before a reader goes on:
// waiting for an eighth keeps batches large when the far end is the bottleneck.
const creditShare = 8

// dropReason says why egress packets were not admitted.
type dropReason uint8

const (
	dropNoEndpoint  dropReason = iota // the peer's key or address is not known yet
	dropNoSession                     // no session for longer than a session lives
	dropInFlight                      // there was a session lately, but nothing leaves
	dropUnconfirmed                   // perhaps another gateway leads, which has the session
	dropReasons
)

// egressFacts is everything the admission of egress packets depends on.
type egressFacts struct {
	Now          time.Time
	LastSent     time.Time     // when the last transport message went to the socket
	LastReceived time.Time     // when the last packets of the peer were delivered
	LastProbe    time.Time     // when a packet was last admitted beyond the limit
	Waited       time.Duration // for credits, since a message was last sent
	InFlight     int
	Max          int
	Sending      bool // a Send is under way: the socket is slow, not the session
	Reachable    bool // the peer has an endpoint
	Held         bool // the device is being configured
}

// grant is the answer: read and admit so many packets, or wait.
type grant struct {
	Credits int           // packets admitted
	Own     int           // own packets admitted beyond Credits
	Probe   int           // any packets admitted beyond Credits
	Wait    time.Duration // above zero: nothing now, ask again by then
	Reason  dropReason    // why the rest is dropped
}

// decideEgress decides about the next batch.
//
//	situation                                  credits            rest
//	the device is being configured             none               waits
//	no endpoint known                          none               dropped
//	a message passed within provenFor          up to Max          waits
//	none did                                   up to 64           waits
//	all taken, socket busy                     none               waits
//	all taken, nothing moves for a while       own, a probe       dropped
func decideEgress(f egressFacts) grant {
	if f.Held {
		return grant{Wait: egressPause}
	}
	proven := f.Sending || f.Now.Sub(f.LastSent) < provenFor || f.Now.Sub(f.LastReceived) < provenFor
	if !f.Reachable && !proven {
		return grant{Reason: dropNoEndpoint}
	}
	limit := f.Max
	if !proven {
		limit = min(limit, unprovenLimit)
	}
	free := max(limit-f.InFlight, 0)
	if free >= max(limit/creditShare, 1) {
		return grant{Credits: free, Reason: dropInFlight}
	}
	if f.Sending || f.Waited < egressTimeout {
		return grant{Wait: egressPause}
	}
	g := grant{Credits: free, Own: ownBurst, Reason: dropInFlight}
	if f.Now.Sub(f.LastSent) >= sessionLife {
		g.Reason = dropNoSession
	}
	if f.Now.Sub(f.LastProbe) >= probeEvery {
		g.Probe = 1
	}
	return g
}

// ingressFacts is everything the admission of ingress messages depends on.
type ingressFacts struct {
	Waited   time.Duration // for credits, since packets were last delivered
	InFlight int
	Max      int
	Want     int  // messages that the next batch may hold
	Writing  bool // the data plane has packets: it is slow, they are not lost
}

// decideIngress decides about the next batch: read, wait, or forget what is in
// flight and read. Forgetting is right when nothing comes out although nothing
// holds it up: then it failed authentication or was a replay.
func decideIngress(f ingressFacts) (wait time.Duration, forget bool) {
	switch {
	case f.Max-f.InFlight >= min(f.Want, f.Max):
		return 0, false
	case f.Writing || f.Waited < ingressTimeout:
		return ingressPause, false
	}
	return 0, true
}

// identity names a buffer by the address of its first byte. It is compared and
// never dereferenced, and it keeps no buffer alive, on purpose: the ledger
// outlives buffers that wireguard-go dropped.
func identity(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// ledger holds, in order, the buffers that wireguard-go has taken and not yet
// given back. The order is what makes it exact: wireguard-go keeps the packets of
// a peer in order, so that whatever was entered before a packet that comes out
// either came out already or was dropped inside. Not safe for concurrent use.
type ledger struct {
	slots      []uintptr // a ring; its length is a power of two
	head, tail uint64    // entries are slots[head:tail], modulo its length; 0 is struck out
	max        int
}

func newLedger(max int) ledger {
	n := 1
	for n < max {
		n *= 2
	}
	return ledger{slots: make([]uintptr, n), max: max}
}

func (l *ledger) slot(i uint64) *uintptr { return &l.slots[i&uint64(len(l.slots)-1)] }

func (l *ledger) len() int { return int(l.tail - l.head) }

// enter adds a buffer. A full ledger forgets its oldest entry: only packets
// admitted beyond the limit get there, and those push the oldest out of
// wireguard-go's staged queue as well.
func (l *ledger) enter(id uintptr) {
	if l.len() >= l.max {
		l.head++
		l.trim()
	}
	*l.slot(l.tail) = id
	l.tail++
}

// settle removes a buffer that came out and all entries before it, and returns
// how many there were, 0 when it is not in the ledger. batch is the number of
// buffers that came out together, this one being the last of them: when nothing
// was lost, that tells where it is. Otherwise the newest entry with its identity
// counts; an older one is from an earlier, lost use of the same buffer.
func (l *ledger) settle(id uintptr, batch int) int {
	if at := l.head + uint64(batch); batch > 0 && at <= l.tail && *l.slot(at - 1) == id {
		return l.removeTo(at)
	}
	for at := l.tail; at > l.head; at-- {
		if *l.slot(at - 1) == id {
			return l.removeTo(at)
		}
	}
	return 0
}

func (l *ledger) removeTo(at uint64) (removed int) {
	for ; l.head < at; l.head++ {
		if *l.slot(l.head) != 0 {
			removed++
		}
	}
	l.trim()
	return removed
}

// trim drops struck out slots from both ends; those in the middle go when their
// elders do.
func (l *ledger) trim() {
	for l.tail > l.head && *l.slot(l.tail - 1) == 0 {
		l.tail--
	}
	for l.tail > l.head && *l.slot(l.head) == 0 {
		l.head++
	}
}

// strike removes one buffer that was never taken.
func (l *ledger) strike(id uintptr) {
	for at := l.tail; at > l.head; at-- {
		if *l.slot(at - 1) != id {
			continue
		}
		*l.slot(at - 1) = 0
		l.trim()
		return
	}
}

func (l *ledger) reset() (removed int) { return l.removeTo(l.tail) }

// waiter lets the one reader of a direction sleep until the other end signals.
// mu is the lock of the account it belongs to.
type waiter struct {
	mu      sync.Mutex
	waiting bool
	closed  bool
	wake    chan struct{} // one slot: sent to by signalLocked, received by sleepLocked, never closed
	timer   *time.Timer   // reused, so that waiting does not allocate
}

func newWaiter() waiter {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return waiter{wake: make(chan struct{}, 1), timer: t}
}

func (w *waiter) sleepLocked(d time.Duration) {
	w.waiting = true
	w.mu.Unlock()
	w.timer.Reset(d)
	select {
	case <-w.wake:
	case <-w.timer.C:
	}
	w.timer.Stop()
	w.mu.Lock()
	w.waiting = false
}

func (w *waiter) signalLocked() {
	if !w.waiting {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // a signal is there already
	}
}

func (w *waiter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.signalLocked()
}
