package tunnel

import (
	"bytes"
	"math"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// This file keeps a gateway from taking its peer from another one with the same key. One
// of several replicas leads, and where that is agreed cannot always be asked. A leader
// that was cut off may have a successor, which has the session now. A handshake of the
// former leader would take it back, and to a peer with stock WireGuard any message leads
// its packets away. So a leader of whom nobody says that it still leads goes by whether
// it hears the peer, which speaks with one of them: see decideUnconfirmed.

// leadFacts is everything that what a gateway may send depends on.
type leadFacts struct {
	Silence time.Duration // how long the peer may be silent; zero: it is known that we lead
	Quiet   time.Duration // how long it has been silent
	Session time.Time     // when the session in use was made; zero: there is none
	Now     time.Time
}

// permit is what a gateway may send.
type permit uint8

const (
	permitAll   permit = iota
	permitPings        // its own packets, in the session that it has; no handshake
	permitAsk          // its own packets, and a handshake where ReleaseHandshake says so
)

// decideUnconfirmed decides what may be sent.
//
//	known to lead   peer heard   session        packets   handshakes
//	yes             -            -              all       all
//	no              lately       -              all       all
//	no              no           lives          own       none
//	no              no           none           own       one at a time, by ReleaseHandshake
//
// A peer that has the session still answers the health ping in it, and so ends the
// silence. Where there is a successor it answers that one. A new session counts as being
// heard: the peer has made it with us.
func decideUnconfirmed(f leadFacts) permit {
	switch {
	case f.Quiet < f.Silence || f.Silence == 0, f.Now.Sub(f.Session) < f.Silence:
		return permitAll
	case f.Now.Sub(f.Session) < sessionLife:
		return permitPings
	}
	return permitAsk
}

// keptLife is how long the beginning of a handshake is of use that was kept back: WireGuard
// makes another one after REKEY_TIMEOUT (paper section 6.1).
const keptLife = 5 * time.Second

// keptInitiation is the beginning of a handshake that was kept back. Without a message
// there is none.
type keptInitiation struct {
	at      time.Time
	to      *endpoint
	message []byte
}

// lead is what is known of the lead. It belongs to the egressAccount and its lock.
type lead struct {
	silence  time.Duration
	session  time.Time
	quiet    time.Duration // how long the peer had been silent at the last look
	looked   time.Time     // when that was
	kept     keptInitiation
	began    time.Time // when the last handshake was begun that was not kept back, or the peer was configured
	released int       // how many ReleaseHandshake has begun since then
}

// Unconfirmed says that another gateway with this key may have taken the lead, and for how
// long the peer may be silent until only what decideUnconfirmed permits is sent. Zero says
// that this gateway leads. It is to be called twice a second or so, as it looks at the
// session, too.
func (t *Tunnel) Unconfirmed(silence time.Duration) {
	for _, f := range t.runningFurther(true) {
		f.Unconfirmed(silence)
	}
	if silence == 0 && !t.egress.unconfirmed.Load() {
		return
	}
	var session time.Time
	if peer := t.holder(); peer != nil {
		session = peer.Established()
	}
	t.egress.setLead(silence, session)
	if silence == 0 {
		t.ReleaseHandshake(time.Now())
	}
}

// ReleaseHandshake begins a handshake if one was kept back before a moment. It is for a gateway that has
// asked in vain whether it leads: where nobody can be asked there must be a session, too.
//
// A gateway that had a session claims no later time than that of its last handshake. A
// successor has begun one since, and by that the peer knows who came last.
func (t *Tunnel) ReleaseHandshake(before time.Time) {
	for _, f := range t.runningFurther(true) {
		f.ReleaseHandshake(before)
	}
	kept, at := t.egress.takeKept(before)
	if kept.message == nil {
		return
	}
	if !at.IsZero() {
		peer := t.holder()
		if peer == nil {
			return
		}
		message, err := peer.InitiationAt(at)
		if err != nil {
			t.log.Warn("making a handshake initiation failed", "error", err)
			return
		}
		kept.message = message
	}
	t.bind.begin(kept.message, kept.to)
}

// holder is the peer by the key by which traffic goes; nil: there is none.
func (t *Tunnel) holder() *device.Peer {
	t.mu.Lock()
	now := t.succession.target(t.config)
	t.mu.Unlock()
	key, dev := now.holder(), t.dev.Load()
	if dev == nil || key.IsZero() {
		return nil
	}
	return dev.LookupPeer(device.NoisePublicKey(key))
}

// begin sends the beginning of a handshake.
func (b *bind) begin(initiation []byte, to *endpoint) {
	b.egress.countHandshake(initiation)
	b.onHandshake(initiation)
	_ = b.write([][]byte{initiation}, nil, to) // an error means what a lost message means
}

func (a *egressAccount) setLead(silence time.Duration, session time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	switch {
	case a.lead.silence == 0, !a.lastReceived.Before(a.lead.looked):
		a.lead.quiet = 0
	default:
		a.lead.quiet += min(now.Sub(a.lead.looked), lookLimit)
	}
	a.lead.silence, a.lead.session, a.lead.looked = silence, session, now
	a.unconfirmed.Store(silence > 0)
}

// lookLimit is how much of a peer's silence one look adds. A process that was stopped for a
// while has not listened meanwhile.
const lookLimit = time.Second

func (a *egressAccount) permitLocked() permit {
	quiet := a.lead.quiet
	switch {
	case a.lastReceived.IsZero():
		quiet = math.MaxInt64
	case !a.lastReceived.Before(a.lead.looked):
		quiet = 0
	}
	return decideUnconfirmed(leadFacts{Silence: a.lead.silence, Quiet: quiet, Session: a.lead.session, Now: time.Now()})
}

// mutes tells whether other packets than the gateway's own are withheld now.
func (a *egressAccount) mutes() bool {
	if !a.unconfirmed.Load() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.permitLocked() != permitAll
}

// keepBack keeps the beginning of a handshake, if it may not be sent now.
func (a *egressAccount) keepBack(initiation []byte, to *endpoint) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.permitLocked() == permitAll {
		a.lead.began, a.lead.released = time.Now(), 0
		return false
	}
	a.lead.kept = keptInitiation{time.Now(), to, bytes.Clone(initiation)}
	return true
}

const (
	// timestampStep lies between the times that two attempts claim, as a response may be lost:
	// more than what WireGuard rounds them by. timestampSteps bounds how much that is together.
	timestampStep  = 20 * time.Millisecond
	timestampSteps = 100
)

// takeKept returns what was kept back before a moment, if it may be sent, and the time that
// it has to claim, or somewhat later; zero: its own.
func (a *egressAccount) takeKept(before time.Time) (kept keptInitiation, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept, permit := a.lead.kept, a.permitLocked()
	if kept.at.After(before) || permit == permitPings {
		return keptInitiation{}, at
	}
	a.lead.kept = keptInitiation{}
	if time.Since(kept.at) >= keptLife || permit == permitAll && a.lead.silence > 0 { // the peer was heard since
		return keptInitiation{}, at
	}
	if permit == permitAsk && !a.lastReceived.IsZero() {
		a.lead.released = min(a.lead.released+1, timestampSteps)
		at = a.lead.began.Add(time.Duration(a.lead.released) * timestampStep)
	}
	return kept, at
}
