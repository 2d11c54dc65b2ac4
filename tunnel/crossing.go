package tunnel

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/sluice-net/sluice/underlay"
)

// This file settles handshakes that cross. When gateways without a session begin one at the
// same time, each takes the other's initiation and by that gives up its own: WireGuard has
// one handshake under way with a peer. Then neither response is of use, and both wait for
// REKEY_TIMEOUT, 5 s, or longer if they cross again.
//
// So the gateway with the larger public key keeps back an initiation that comes from where
// its own went a moment ago. The peer, which may be stock WireGuard, takes ours and answers
// it. Ours may have been lost, though, or the peer may refuse it (see clock.go): without an
// answer within crossTime it takes what it has kept back.

const (
	// crossTime is how long after our own an initiation of the peer can be one that crosses
	// it: the round-trip time of a very long path.
	crossTime = time.Second
	// crossAgain lies between two initiations that are kept back. While a key changes, both
	// gateways may see themselves as the one with the larger key: they take the next ones.
	crossAgain = 10 * time.Second
)

// initiated is the initiation that is under way. It belongs to the egressAccount and its
// lock.
type initiated struct {
	to      netip.AddrPort
	at      time.Time // zero: there is none, or it was answered
	crossed time.Time // when one of the peer was kept back because of ours
}

// noteInitiated says that an initiation goes to an address now.
func (a *egressAccount) noteInitiated(to netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.initiated.to, a.initiated.at = to, time.Now()
}

// noteAnswered says that a response came from an address. Whether it is the peer's does not
// matter: without an initiation of ours under way all are taken.
func (a *egressAccount) noteAnswered(from netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.initiated.to == from {
		a.initiated.at = time.Time{}
	}
}

// crosses tells whether an initiation from an address crosses ours. While the peer is
// heard there is a session, and time for another handshake.
func (a *egressAccount) crosses(from netip.AddrPort) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, i := time.Now(), &a.initiated
	if i.to != from || now.Sub(i.at) >= crossTime || now.Sub(i.crossed) < crossAgain || now.Sub(a.lastReceived) < heardPause {
		return false
	}
	i.crossed = now
	return true
}

// unanswered tells whether the last initiation that was sent was not answered.
func (a *egressAccount) unanswered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.initiated.at.IsZero()
}

// crossing is an initiation that is kept back.
type crossing struct {
	// prevails is what the function prevails says of the configuration.
	prevails atomic.Bool
	// due: the message is to be taken now. Apart from mu, as receivers ask for each batch.
	due atomic.Bool

	mu      sync.Mutex
	from    underlay.Origin
	message [initiationLen]byte
}

// prevails tells whether our handshake is the one that goes on when two cross.
func prevails(c Config) bool {
	own := c.PrivateKey.Public()
	return bytes.Compare(own[:], c.PeerKey[:]) > 0
}

// takes tells whether wireguard-go is to have a message that is of no session now. It never
// waits.
func (b *bind) takes(from underlay.Origin, message []byte) bool {
	switch {
	case isInitiation(message):
		b.noteInitiation(from, message)
		if b.crossing.prevails.Load() && b.egress.crosses(unmap(from.Addr)) {
			b.crossing.mu.Lock()
			defer b.crossing.mu.Unlock()
			b.crossing.from = from
			copy(b.crossing.message[:], message)
			time.AfterFunc(crossTime, b.endCrossing)
			return false
		}
	case len(message) == responseLen && binary.LittleEndian.Uint32(message) == typeResponse:
		b.egress.noteAnswered(unmap(from.Addr))
	}
	return true
}

// endCrossing has what was kept back taken, if our initiation was not answered.
func (b *bind) endCrossing() {
	s := b.socket()
	if s == nil || !b.egress.unanswered() {
		return
	}
	b.crossing.due.Store(true)
	s.Wake()
}

// takeCrossing receives what was kept back.
func (r *receiver) takeCrossing(buf []byte) (size int, from conn.Endpoint) {
	c := &r.crossing
	c.due.Store(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	return copy(buf, c.message[:]), r.sources.stranger(c.from)
}
