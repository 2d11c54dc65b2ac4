package tunnel

import (
	"bytes"
	"context"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// This file replaces keys without a pause. To WireGuard another key is another
// peer: to exchange one for the other ends the session, and its next attempt comes
// five seconds later. But the peer cannot take its new key at the very moment in
// which we hear of it. So for a while we know it by both:
//
//	                     former key          configured key
//	just configured      carries traffic     is greeted, and awaited
//	heard from           drains              carries traffic
//	a second later       removed             carries traffic
//
// Whoever comes first, our new configuration or the peer's new private key, there
// is always a pair of keys by which both sides know each other.

const (
	// formerLife is how long the former key is honoured while nothing is heard
	// from the configured one: as long as a session lives (paper section 6.1), and
	// enough for a kubelet, which may take two minutes to show a pod its new key.
	formerLife = 180 * time.Second
	// formerRest is for how long the former peer stays without traffic, so that
	// what it has queued is sent.
	formerRest = time.Second
	// keyCheck is how often the configured key is looked for. A peer that begins
	// is noticed earlier, by the response that it is sent.
	keyCheck = 25 * time.Millisecond
	// greetAgain is how long a gateway waits for an answer by new keys before it asks again;
	// it doubles with each attempt. The peer may hear of our key a moment later. Or it has
	// begun a handshake at the same time, and then each gives up its own for the other's: so
	// that they do not try again in step, the one with the smaller public key waits
	// greetPatience times as long. After so many greetings WireGuard's own attempts remain,
	// 5 seconds apart.
	//
	// An attempt gives up the one before, whose answer then comes in vain, or makes a session
	// that the other side has given up. So where the round trip of handshakes is known,
	// the pause is greetTrips times as long at least.
	greetAgain    = 500 * time.Millisecond
	greetPatience = 4
	greetTrips    = 1.5
	greetings     = 4
	// crossTime is how long after our own an initiation of the peer can be one that crosses
	// it: the round-trip time of a very long path.
	crossTime = time.Second
)

// succession is the time in which the peer has two keys. The zero value is all
// other times.
type succession struct {
	former PublicKey
	since  time.Time
	rx     uint64    // bytes received by the configured key before
	moved  time.Time // since when traffic goes by the configured key, zero: it does not
}

// next decides what comes now, and after how long to ask again. rx are the bytes
// received by the configured key.
func (s succession) next(rx uint64, now time.Time) (succession, time.Duration) {
	switch {
	case s.former.IsZero():
		return s, idleCheck
	case s.moved.IsZero() && (rx > s.rx || now.Sub(s.since) >= formerLife):
		s.moved = now
		return s, formerRest
	case s.moved.IsZero():
		return s, keyCheck
	case now.Sub(s.moved) < formerRest:
		return s, s.moved.Add(formerRest).Sub(now)
	}
	return succession{}, idleCheck
}

// target is what the device should be.
type target struct {
	Config
	// Former is the key that the peer had; zero: there is none to be honoured.
	Former PublicKey
	// Moved says that traffic goes by PeerKey although there is a Former.
	Moved bool
	// Found is where the peer is, for a PeerKey that is new. Not valid: at Endpoint.
	Found netip.AddrPort
}

// holder is the key by which traffic goes.
func (t *target) holder() PublicKey {
	if t.Former.IsZero() || t.Moved {
		return t.PeerKey
	}
	return t.Former
}

// target is a configuration during a succession.
func (s succession) target(c Config) target {
	return target{Config: c, Former: s.former, Moved: !s.moved.IsZero()}
}

// succeed returns by which keys the peer is known from now on, and what the device
// should be. Only a session that lives is worth to be kept. The caller holds mu.
func (t *Tunnel) succeed(dev *device.Device, old *target, next Config) (succession, target) {
	switch {
	case old == nil || next.PeerKey.IsZero() || old.PeerKey.IsZero():
		return succession{}, target{Config: next}
	case next.PeerKey == old.PeerKey:
		return t.succession, t.succession.target(next)
	case next.PeerKey == old.holder(): // back to what never stopped working
		return succession{}, target{Config: next}
	}
	now := time.Now()
	holder, stranger := readPeerStats(dev, old.holder()), readPeerStats(dev, next.PeerKey) // of a stranger nothing is known
	var s succession
	if now.Sub(holder.LastHandshake) < sessionLife {
		s = succession{former: old.holder(), since: now, rx: stranger.RxBytes}
	}
	want := s.target(next)
	if old.Endpoint == next.Endpoint { // it is where it was
		want.Found = holder.Endpoint
	}
	return s, want
}

// strangers are the peers that have to hear of the keys in want: one that has a
// new key itself, and all of them if the new key is ours. They may be waiting for
// it, and WireGuard itself tries again only after five seconds.
func strangers(old *target, want target) (keys []PublicKey) {
	switch {
	case old == nil || want.PeerKey.IsZero():
	case old.PrivateKey != want.PrivateKey && !want.Former.IsZero():
		keys = append(keys, want.PeerKey, want.Former)
	case old.PrivateKey != want.PrivateKey, old.PeerKey != want.PeerKey && !want.Former.IsZero():
		keys = append(keys, want.PeerKey)
	}
	return keys
}

// exchange is when the holder of a key was sent the last initiation and the last response;
// zero: never.
type exchange struct {
	key                  PublicKey
	initiation, response time.Time
}

// crossed tells whether we have answered an initiation of the peer while our own was on
// the way, by which both are lost. sent is what that peer was sent, and established is when
// the session in use was made: had ours been answered, it would be later. What came from
// the network says nothing, as anybody can send something that looks like a response.
func crossed(sent exchange, established time.Time) bool {
	at := sent.initiation
	return !at.IsZero() && sent.response.After(at) && sent.response.Sub(at) < crossTime && established.Before(at)
}

// greeting is how strangers, and a peer whose handshake crossed ours, are greeted until one
// of them has answered. The zero value greets nobody.
type greeting struct {
	since time.Time
	to    []greeted
}

// greeted is a key that is greeted.
type greeted struct {
	key   PublicKey
	due   time.Time
	pause time.Duration // after the next
	sent  int
}

// newGreeting begins with the second attempt. The first is WireGuard's. trip is how long a round
// trip takes; zero: it is not known.
func newGreeting(own PublicKey, keys []PublicKey, trip time.Duration, now time.Time) greeting {
	g := greeting{since: now}
	for _, key := range keys {
		pause := max(greetAgain, time.Duration(greetTrips*float64(trip)))
		if bytes.Compare(own[:], key[:]) < 0 {
			pause *= greetPatience
		}
		g.to = append(g.to, greeted{key: key, due: now.Add(pause), pause: 2 * pause})
	}
	return g
}

// keys are those that are greeted.
func (g greeting) keys() (keys []PublicKey) {
	for _, to := range g.to {
		keys = append(keys, to.key)
	}
	return keys
}

// next returns whom to greet now, what comes after that, and when to come again. answered is
// when the last session with one of them was made.
func (g greeting) next(answered, now time.Time) (greet []PublicKey, after greeting, due time.Time) {
	if answered.After(g.since) {
		return nil, greeting{}, due
	}
	after.since = g.since
	for _, to := range g.to {
		if !now.Before(to.due) {
			if to.sent++; to.sent > greetings {
				continue
			}
			to.due, to.pause = now.Add(to.pause), 2*to.pause
			greet = append(greet, to.key)
		}
		if due.IsZero() || to.due.Before(due) {
			due = to.due
		}
		after.to = append(after.to, to)
	}
	return greet, after, due
}

// noteHandshake enters a handshake message that is being sent, and has followKeys look.
func (t *Tunnel) noteHandshake(message []byte) {
	if dev := t.dev.Load(); dev != nil {
		if peer, key := dev.PeerOf(message); peer != nil {
			t.egress.noteExchange(PublicKey(key), message, peer.RoundTrip(t.egress.exchanged(PublicKey(key)).initiation))
		}
	}
	t.wakeKeys()
}

// wakeKeys makes followKeys look.
func (t *Tunnel) wakeKeys() {
	select {
	case t.keys <- struct{}{}:
	default: // it has not looked since the last time
	}
}

// followKeys works on successions until ctx ends.
func (t *Tunnel) followKeys(ctx context.Context) {
	timer := time.NewTimer(idleCheck)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.keys:
		case <-timer.C:
		}
		now := time.Now()
		first, wait := t.followKeysStep(now)
		again, due := t.greetStep(now)
		for _, key := range first {
			t.greet(key)
		}
		for _, key := range again {
			t.greetAgain(key)
		}
		timer.Reset(min(wait, due))
	}
}

// greetStep returns whom to greet once more, and when to come again.
func (t *Tunnel) greetStep(now time.Time) (greet []PublicKey, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.up || t.unknown {
		return nil, idleCheck
	}
	if len(t.greeting.to) == 0 {
		want := t.succession.target(t.config)
		for _, p := range want.peers() {
			if sent := t.egress.exchanged(p.key); crossed(sent, t.established(p.key)) {
				t.greeting = newGreeting(want.PrivateKey.Public(), []PublicKey{p.key}, t.egress.roundTrip(), now)
				t.greeting.since = sent.initiation // our response may have made a session
			}
		}
	}
	if len(t.greeting.to) == 0 {
		return nil, idleCheck
	}
	var due time.Time
	greet, t.greeting, due = t.greeting.next(t.established(t.greeting.keys()...), now)
	if len(t.greeting.to) == 0 {
		return greet, idleCheck
	}
	return greet, due.Sub(now)
}

// established is when the last session by one of the keys was made; zero: none was. The
// caller holds mu.
func (t *Tunnel) established(keys ...PublicKey) (last time.Time) {
	for _, key := range keys {
		if at := readPeerStats(t.dev.Load(), key).LastHandshake; at.After(last) {
			last = at
		}
	}
	return last
}

// followKeysStep does what is due, and returns which peers to begin a handshake
// with and when to come again.
func (t *Tunnel) followKeysStep(now time.Time) (greet []PublicKey, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	greet, t.strangers = t.strangers, nil
	if t.succession.former.IsZero() || !t.up || t.unknown {
		return greet, idleCheck
	}
	dev := t.dev.Load()
	peer := readPeerStats(dev, t.config.PeerKey)
	next, wait := t.succession.next(peer.RxBytes, now)
	if next == t.succession {
		return greet, wait
	}
	old := t.succession.target(t.config)
	if err := dev.IpcSet(uapiDiff(&old, next.target(t.config))); err != nil {
		t.log.Error("taking the peer's new key into use failed", "error", err)
		t.unknown = true // the next configuration begins from scratch
		return greet, idleCheck
	}
	began := t.succession
	t.succession = next
	if next.former.IsZero() {
		return greet, wait
	}
	t.egress.sessionBegins() // for what waited for one by the former key
	if peer.RxBytes > began.rx {
		t.log.Info("the peer uses its new key")
	} else {
		t.log.Warn("the peer has not used its new key, and the former one is honoured no longer")
	}
	return greet, wait
}

// greetAgain sends one more beginning of a handshake, before WireGuard itself would. It gives
// up the one before, so it does nothing where the message would not leave.
func (t *Tunnel) greetAgain(key PublicKey) {
	peer := t.reachable(key)
	if peer == nil || t.egress.mutes() {
		return
	}
	message, err := peer.Initiation()
	if err != nil {
		t.log.Warn("making a handshake initiation failed", "error", err)
		return
	}
	_ = peer.SendBuffers([][]byte{message}) // an error means what a lost message means
}

// greet begins a handshake with a peer, if it is known where it is. The caller
// does not hold mu: sending may block.
func (t *Tunnel) greet(key PublicKey) (asked bool) {
	peer := t.reachable(key)
	if peer == nil {
		return false
	}
	// An error is logged by wireguard-go, and means what a lost message means.
	_ = peer.SendHandshakeInitiation(false)
	return true
}

// reachable returns the peer with a key; nil: it was replaced, or it is not known where it is.
func (t *Tunnel) reachable(key PublicKey) *device.Peer {
	dev := t.dev.Load()
	if !readPeerStats(dev, key).Endpoint.IsValid() {
		return nil
	}
	return dev.LookupPeer(device.NoisePublicKey(key))
}
