package tunnel

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// drops counts by reason.
type drops [dropReasons]uint64

// egressAccount is what is known of the way to the peer, and counts.
type egressAccount struct {
	mu           sync.Mutex
	lastReceived time.Time
	drops        drops
	handshakes   handshakeCounts
	exchanges    [2]exchange   // of the two keys to which handshake messages were sent last
	trip         time.Duration // the shortest round trip of a handshake; zero: not known
	lead         lead
	// sent and reachable are apart from mu, because every loop has them for each batch.
	sent      atomic.Uint64
	reachable atomic.Bool
	// unconfirmed: it is not known whether this gateway leads. Apart from mu, as readers ask for each batch.
	unconfirmed atomic.Bool
	// peerSeen: something of the peer was decrypted. Apart from mu, because receivers ask, too.
	peerSeen atomic.Bool
}

// countDrops adds what was dropped of a batch.
func (a *egressAccount) countDrops(dropped *drops) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for reason, n := range dropped {
		a.drops[reason] += n
	}
}

// countSent is called when messages of a session have gone, which carry so many packets.
func (a *egressAccount) countSent(packets int) {
	a.setReachable()
	a.sent.Add(uint64(packets))
}

// noteReceived is called when packets of the peer have been decrypted: it has a session
// with us, which may be all that is known about a session it began.
func (a *egressAccount) noteReceived() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastReceived = time.Now()
	a.setReachable()
	a.peerSeen.Store(true)
}

// receivedAt returns when packets of the peer were last delivered.
func (a *egressAccount) receivedAt() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lastReceived
}

// packetsSent returns how many packets have been sent.
func (a *egressAccount) packetsSent() uint64 { return a.sent.Load() }

// setReachable says that the peer has an endpoint now.
func (a *egressAccount) setReachable() {
	if !a.reachable.Load() { // or the loops would take the cache line from each other
		a.reachable.Store(true)
	}
}

// isReachable tells whether the peer has an endpoint.
func (a *egressAccount) isReachable() bool { return a.reachable.Load() }

// countHandshake counts a handshake message that goes to whoever may be the peer.
func (a *egressAccount) countHandshake(m []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handshakes.add(m)
}

// sendHandshake is called before handshake messages go to the socket.
func (a *egressAccount) sendHandshake(bufs [][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range bufs {
		a.handshakes.add(m)
	}
	// Only a peer with an endpoint is sent a handshake. (A cookie reply goes to
	// whoever asked.)
	a.setReachable()
}

// exchanged is when the holder of a key was sent handshake messages.
func (a *egressAccount) exchanged(key PublicKey) exchange {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.exchanges {
		if e.key == key {
			return e
		}
	}
	return exchange{key: key}
}

// roundTrip is how long a handshake with the peer was under way at least; zero: that is not known.
func (a *egressAccount) roundTrip() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.trip
}

// mostTrip is what a round trip can take at most: after that WireGuard begins another handshake.
const mostTrip = 5 * time.Second

// noteExchange enters a handshake message that goes to the holder of a key, and how long the
// handshake of the session in use was under way.
func (a *egressAccount) noteExchange(key PublicKey, m []byte, trip time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if trip > 0 && trip < mostTrip && (a.trip == 0 || trip < a.trip) {
		a.trip = trip // a machine that stands still for a moment makes the path no longer
	}
	if a.exchanges[0].key != key {
		a.exchanges[0], a.exchanges[1] = a.exchanges[1], a.exchanges[0]
		if a.exchanges[0].key != key {
			a.exchanges[0] = exchange{key: key}
		}
	}
	switch binary.LittleEndian.Uint32(m) {
	case typeInitiation:
		a.exchanges[0].initiation = time.Now()
	case typeResponse:
		a.exchanges[0].response = time.Now()
	}
}

// reset forgets everything about a peer that was removed, for whom so many packets waited.
func (a *egressAccount) reset(waiting int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drops[dropFlushed] += uint64(waiting)
	a.lastReceived = time.Time{}
	a.reachable.Store(false)
	a.exchanges, a.trip = [2]exchange{}, 0
	a.lead = lead{silence: a.lead.silence, began: time.Now()}
	a.peerSeen.Store(false)
}

// ingressAccount counts what comes from the socket.
type ingressAccount struct {
	mu           sync.Mutex
	packets      uint64 // delivered
	drops        drops
	handshakes   handshakeCounts
	errors       uint64
	lastReplaced time.Time // when something came by a session that the peer had before; zero: never
}

// countDrops adds datagrams that were dropped.
func (a *ingressAccount) countDrops(reason dropReason, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drops[reason] += uint64(n)
}

// countHandshake counts what looks like a handshake message.
func (a *ingressAccount) countHandshake(m []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handshakes.add(m)
}

// countOpened counts what became of the data messages of a batch, of which so many packets
// were delivered.
func (a *ingressAccount) countOpened(r device.Received, packets int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.packets += uint64(packets)
	a.drops[dropUnknownSession] += uint64(r.Unknown)
	a.drops[dropRejected] += uint64(r.Rejected)
	if r.Replaced > 0 {
		a.lastReplaced = time.Now()
	}
}

// failed counts an error of the socket.
func (a *ingressAccount) failed() {
	a.mu.Lock()
	a.errors++
	a.mu.Unlock()
}

// reset forgets everything about a peer that was removed.
func (a *ingressAccount) reset() {
	a.mu.Lock()
	a.lastReplaced = time.Time{}
	a.mu.Unlock()
}
