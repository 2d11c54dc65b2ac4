package tunnel

import (
	"bytes"
	"context"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// This file replaces keys without a pause. To WireGuard another key is another
// peer: to exchange one for the other ends the session, and the next attempt may
// come only after five seconds. But the peer cannot take its new key at the very
// moment in which we hear of it. So for a while we know it by both:
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
	greetAgain    = 500 * time.Millisecond
	greetPatience = 4
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
	// Of a stranger nothing is known, and of no peer where there is an error.
	now := time.Now()
	holder, _ := readPeerStats(dev, old.holder())
	stranger, _ := readPeerStats(dev, next.PeerKey)
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
// it, and WireGuard does not try again for five seconds.
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

// crossed tells whether we have answered an initiation of the peer while our own was on
// the way, by which both are lost. sent and got are the handshake messages of each way, and
// established is when the session in use was made.
func crossed(sent, got handshakeCounts, established time.Time) bool {
	at := sent.lastInitiation
	return !at.IsZero() && sent.lastResponse.After(at) && sent.lastResponse.Sub(at) < crossTime &&
		got.lastResponse.Before(at) && established.Before(at)
}

// greeting is how strangers, and a peer whose handshake crossed ours, are greeted until one
// of them has answered. The zero value greets nobody.
type greeting struct {
	keys  []PublicKey
	since time.Time
	due   time.Time
	pause time.Duration // after the next
	sent  int
}

// newGreeting begins with the second attempt. The first is WireGuard's.
func newGreeting(own, peer PublicKey, keys []PublicKey, now time.Time) greeting {
	pause := greetAgain
	if bytes.Compare(own[:], peer[:]) < 0 {
		pause *= greetPatience
	}
	return greeting{keys: keys, since: now, due: now.Add(pause), pause: 2 * pause}
}

// next returns whom to greet now, and what comes after that. answered is when the last
// session with one of them was made.
func (g greeting) next(answered, now time.Time) (greet []PublicKey, after greeting) {
	switch {
	case answered.After(g.since):
		return nil, greeting{}
	case now.Before(g.due):
		return nil, g
	}
	if g.sent++; g.sent > greetings {
		return nil, greeting{}
	}
	g.due, g.pause = now.Add(g.pause), 2*g.pause
	return g.keys, g
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
	if len(t.greeting.keys) == 0 {
		want := t.succession.target(t.config)
		peer := want.holder()
		if sent, got := t.egress.counted(), t.ingress.counted(); !peer.IsZero() && crossed(sent, got, t.established(peer)) {
			t.greeting = newGreeting(want.PrivateKey.Public(), peer, []PublicKey{peer}, now)
			t.greeting.since = sent.lastInitiation // our response may have made a session
		}
	}
	if len(t.greeting.keys) == 0 {
		return nil, idleCheck
	}
	greet, t.greeting = t.greeting.next(t.established(t.greeting.keys...), now)
	if len(t.greeting.keys) == 0 {
		return greet, idleCheck
	}
	return greet, t.greeting.due.Sub(now)
}

// established is when the last session by one of the keys was made; zero: none was. The
// caller holds mu.
func (t *Tunnel) established(keys ...PublicKey) (last time.Time) {
	for _, key := range keys {
		if peer, err := readPeerStats(t.dev.Load(), key); err == nil && peer.LastHandshake.After(last) {
			last = peer.LastHandshake
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
	peer, err := readPeerStats(dev, t.config.PeerKey)
	if err != nil {
		t.log.Warn("reading the peer's state failed", "error", err)
		return greet, lookupFast
	}
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

// greetAgain sends one more beginning of a handshake, before WireGuard itself would.
func (t *Tunnel) greetAgain(key PublicKey) {
	peer := t.dev.Load().LookupPeer(device.NoisePublicKey(key))
	if peer == nil {
		return // replaced since
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
	dev := t.dev.Load()
	if p, err := readPeerStats(dev, key); err != nil || !p.Endpoint.IsValid() {
		return false
	}
	peer := dev.LookupPeer(device.NoisePublicKey(key))
	if peer == nil {
		return false // replaced since
	}
	// An error is logged by wireguard-go, and means what a lost message means.
	_ = peer.SendHandshakeInitiation(false)
	return true
}
