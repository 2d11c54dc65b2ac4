package tunnel

import (
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// lastBatch is the batch that was last handed to wireguard-go. A buffer of it that
// is still in its place when the next batch is read was not taken: wireguard-go
// puts a new buffer in the place of each that it takes.
type lastBatch struct {
	ids [BatchSize]uintptr
	n   int
}

func (t *lastBatch) put(i int, id uintptr) { t.ids[i], t.n = id, i+1 }

// strikeUntaken removes the buffers that were not taken from the ledger. It
// returns how many there were, and the place of one of them, -1 for none.
// From last to first, so that the ledger's end shrinks with it.
func (t *lastBatch) strikeUntaken(l *ledger, bufs [][]byte) (untaken uint64, place int) {
	place = -1
	for i := min(t.n, len(bufs)) - 1; i >= 0; i-- {
		if id := t.ids[i]; id != 0 && id == identity(bufs[i]) {
			l.strike(id)
			untaken++
			place = i
		}
	}
	t.n = 0
	return untaken, place
}

// egressAccount counts the packets between tun.Device.Read and Bind.Send.
type egressAccount struct {
	waiter
	ledger       ledger
	lastBatch    lastBatch
	lastSent     time.Time
	lastReceived time.Time
	lastProbe    time.Time
	waited       time.Duration
	sending      int
	reachable    bool
	held         bool
	drops        [dropReasons]uint64
	noPeer       uint64 // not taken: no peer has the destination in its allowed IPs
	flushed      uint64 // taken, but never sent
	sent         uint64
	handshakes   handshakeCounts
	lead         lead
	// unconfirmed: it is not known whether this gateway leads. Apart from mu, as readers ask for each batch.
	unconfirmed atomic.Bool
	// peerSeen: something of the peer was decrypted. Apart from mu, because receivers ask, too.
	peerSeen atomic.Bool
}

func newEgressAccount(max int) *egressAccount {
	return &egressAccount{waiter: newWaiter(), ledger: newLedger(max)}
}

func (a *egressAccount) factsLocked() egressFacts {
	return egressFacts{
		Now: time.Now(), LastSent: a.lastSent, LastReceived: a.lastReceived, LastProbe: a.lastProbe, Waited: a.waited,
		InFlight: a.ledger.len(), Max: a.ledger.max, Sending: a.sending > 0, Reachable: a.reachable, Held: a.held,
	}
}

// admit waits until a batch may be read into bufs, and says what of it will be
// admitted. os.ErrClosed after close. It returns the place in the batch before of a
// packet that no peer claims, -1 for none.
func (a *egressAccount) admit(bufs [][]byte) (g grant, unclaimed int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	untaken, unclaimed := a.lastBatch.strikeUntaken(&a.ledger, bufs)
	a.noPeer += untaken
	for !a.closed {
		g := decideEgress(a.factsLocked())
		if g.Wait == 0 {
			return g, unclaimed, nil
		}
		a.sleepLocked(g.Wait)
		a.waited += g.Wait
	}
	return grant{}, -1, os.ErrClosed
}

// take enters the packets that were read, own of them the gateway's own and
// first. A packet that is not admitted gets size 0, which wireguard-go skips.
func (a *egressAccount) take(g grant, bufs [][]byte, sizes []int, own int) taken {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := taken{refused: -1}
	f := a.factsLocked()
	// Reading may have taken long. A session that came up in the meantime counts;
	// one that went away does not, or the first burst after a pause would suffer.
	if g.Credits < len(bufs) {
		if now := decideEgress(f); now.Wait == 0 && now.Credits > g.Credits {
			g = now
		}
	}
	for i := range bufs {
		if sizes[i] < 1 {
			a.lastBatch.put(i, 0)
			continue
		}
		switch {
		case g.Credits > 0:
			g.Credits--
		case i < own && g.Own > 0:
			g.Own--
			a.lastProbe = f.Now
		case g.Probe > 0:
			g.Probe--
			a.lastProbe = f.Now
		default:
			if out.refused < 0 {
				out.refused, out.size = i, sizes[i]
			}
			sizes[i] = 0
			a.lastBatch.put(i, 0)
			a.drops[g.Reason]++
			continue
		}
		id := identity(bufs[i])
		a.ledger.enter(id)
		a.lastBatch.put(i, id)
		out.admitted++
	}
	out.why = g.Reason
	return out
}

// taken is what became of a batch of packets.
type taken struct {
	admitted int
	// refused is the place of the first that was not admitted, -1 for none, and size
	// the size that it had. Why is the same for all of them.
	refused, size int
	why           dropReason
}

// sendStarts is called before transport messages go to the socket.
func (a *egressAccount) sendStarts() {
	a.mu.Lock()
	a.sending++
	a.mu.Unlock()
}

// sendEnds is called when they have gone: data of them carry a packet, last is
// the last that does.
func (a *egressAccount) sendEnds(last []byte, data int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sending--
	a.lastSent, a.waited = time.Now(), 0
	a.reachable = true
	if data > 0 {
		a.sent += uint64(data)
		if removed := a.ledger.settle(identity(last), data); removed > data {
			a.flushed += uint64(removed - data)
		}
	}
	a.signalLocked()
}

// noteReceived is called when packets of the peer have been decrypted: it has a session
// with us, which may be all that is known about a session it began.
func (a *egressAccount) noteReceived() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastReceived = time.Now()
	a.reachable = true
	a.peerSeen.Store(true)
}

// heard returns when packets of the peer were last delivered.
func (a *egressAccount) heard() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lastReceived
}

// packetsSent returns how many packets have been sent.
func (a *egressAccount) packetsSent() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent
}

// hold keeps packets where they are, and lets them through again.
func (a *egressAccount) hold(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held, a.waited = on, 0
	a.signalLocked()
}

// setReachable says that the peer has an endpoint now.
func (a *egressAccount) setReachable() {
	a.mu.Lock()
	a.reachable = true
	a.mu.Unlock()
}

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
	a.reachable = true
}

// counted is the handshake messages that were sent.
func (a *egressAccount) counted() handshakeCounts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handshakes
}

// dropFormerPackets forgets what waits for a session by the peer's former key, now that
// there is one by another key. While packets are being sent nothing waits.
func (a *egressAccount) dropFormerPackets() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.lastSent) < provenFor/4 {
		return
	}
	a.flushed += uint64(a.ledger.reset())
	a.waited = 0
	a.signalLocked()
}

// reset forgets everything about a peer that was removed.
func (a *egressAccount) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushed += uint64(a.ledger.reset())
	a.lastSent, a.lastReceived, a.lastProbe = time.Time{}, time.Time{}, time.Time{}
	a.waited, a.reachable = 0, false
	a.lead = lead{silence: a.lead.silence, began: time.Now()}
	a.peerSeen.Store(false)
	a.signalLocked()
}

// ingressAccount counts the messages between the ReceiveFunc and
// tun.Device.Write.
type ingressAccount struct {
	waiter
	ledger    ledger
	lastBatch lastBatch
	waited    time.Duration
	writing   bool
	unknown   uint64 // not taken: for no session of ours, or an expired one
	rejected  uint64 // taken, but never delivered
	forgotten uint64 // struck out as rejected, but perhaps only late
	delivered uint64
	malformed uint64
	// handshakeLimit counts initiations above the limit.
	handshakeLimit uint64
	handshakes     handshakeCounts
	errors         uint64
	lastReplaced   time.Time // when something came by a session that the peer had before; zero: never
}

func newIngressAccount(max int) *ingressAccount {
	return &ingressAccount{waiter: newWaiter(), ledger: newLedger(max)}
}

// counted is the handshake messages that came, or what looks like them.
func (a *ingressAccount) counted() handshakeCounts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handshakes
}

// admit waits until a batch may be received into bufs. net.ErrClosed after close.
// It returns the place in the batch before of a message of no session of ours, -1
// for none.
func (a *ingressAccount) admit(bufs [][]byte) (stranger int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	untaken, stranger := a.lastBatch.strikeUntaken(&a.ledger, bufs)
	a.unknown += untaken
	for !a.closed {
		wait, forget := decideIngress(ingressFacts{
			Waited: a.waited, InFlight: a.ledger.len(), Max: a.ledger.max, Want: len(bufs), Writing: a.writing,
		})
		if forget {
			a.rejected += a.forgotten
			a.forgotten = uint64(a.ledger.reset())
		}
		if wait == 0 {
			a.waited = 0
			return stranger, nil
		}
		a.sleepLocked(wait)
		a.waited += wait
	}
	return -1, net.ErrClosed
}

// take enters the messages of a batch that carry packets, and gives size 0, which
// wireguard-go skips, to what cannot be a WireGuard message. It returns the place and
// the size of one of the latter, -1 for none.
func (a *ingressAccount) take(bufs [][]byte, sizes []int) (malformed, size int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	malformed = -1
	for i := range bufs {
		a.lastBatch.put(i, 0)
		if sizes[i] < 0 {
			sizes[i] = 0 // opened
			continue
		}
		switch classify(bufs[i][:sizes[i]]) {
		case messageData:
			id := identity(bufs[i])
			a.ledger.enter(id)
			a.lastBatch.put(i, id)
		case messageHandshake:
			a.handshakes.add(bufs[i])
		case messageMalformed:
			malformed, size = i, sizes[i]
			sizes[i] = 0
			a.malformed++
		case messageKeepalive:
		}
	}
	return malformed, size
}

// limited counts initiations above the limit.
func (a *ingressAccount) limited(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handshakeLimit += uint64(n)
}

// opened counts what was opened where it was read.
func (a *ingressAccount) opened(r device.Received) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unknown += uint64(r.Unknown)
	a.rejected += uint64(r.Rejected)
	if r.Replaced > 0 {
		a.lastReplaced = time.Now()
	}
}

// writeStarts is called before decrypted packets go to the data plane.
func (a *ingressAccount) writeStarts() {
	a.mu.Lock()
	a.writing = true
	a.mu.Unlock()
}

// writeEnds is called when the data plane is done with n packets, the last of
// which has the identity last.
func (a *ingressAccount) writeEnds(last uintptr, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writing = false
	a.delivered += uint64(n)
	if removed := a.ledger.settle(last, n); removed >= n {
		// What is older than these packets will not come any more.
		a.rejected += uint64(removed-n) + a.forgotten
		a.forgotten = 0
	} else {
		a.forgotten -= min(uint64(n-removed), a.forgotten)
	}
	a.waited = 0
	a.signalLocked()
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
	defer a.mu.Unlock()
	a.rejected += uint64(a.ledger.reset())
	a.lastReplaced = time.Time{}
	a.signalLocked()
}
