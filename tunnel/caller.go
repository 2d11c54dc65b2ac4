package tunnel

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// This file finds the peer of a gateway that has just started and is told no
// endpoint: a server. The peer still has its session with the gateway before and
// goes on sending by it, for 15 seconds and more before WireGuard asks for another
// (paper section 6.2). What it sends cannot be read, but tells where it may be: we
// begin a handshake there.
//
// Nobody else than the peer can complete that, so a stranger who sends something
// like a message of a session gets a few initiations at most, and the peer is
// found as without this file. Once it has been heard nothing of this happens any
// more.

// callPause is the time between two attempts at most, and firstCallPause that after
// the first, also the first in a while; it doubles with each. A gateway that was
// replaced may pass on what the peer sends (cmd/gateway/relay.go) and end at the
// wrong moment: the next messages come from elsewhere, and should not have to wait.
// callAgain is the time before the same address is tried again, which others,
// who may be the peer, use. WireGuard itself repeats what is lost after
// REKEY_TIMEOUT, 5 s (paper section 6.1).
const (
	firstCallPause = 500 * time.Millisecond
	callPause      = 5 * time.Second
	callAgain      = 3 * callPause
)

// noteCaller remembers, if it is of use, where the last message of no session came
// from. It never waits.
func (b *bind) noteCaller(from netip.AddrPort) {
	if b.egress.peerSeen.Load() {
		return
	}
	select {
	case <-b.callers: // one who has been tried must not stand in the way of another
	default:
	}
	select {
	case b.callers <- unmap(from):
	default: // another receiver, of the socket before, was faster
	}
}

// followCallers begins handshakes with those who call until ctx ends.
func (t *Tunnel) followCallers(ctx context.Context) {
	var last netip.AddrPort
	var called time.Time
	pause := firstCallPause
	for {
		select {
		case <-ctx.Done():
			return
		case from := <-t.bind.callers:
			if from == last && time.Since(called) < callAgain {
				continue
			}
			if time.Since(called) > callAgain {
				pause = firstCallPause
			}
			if key, ok := t.callBack(from, last); ok && t.greet(key) {
				t.log.Info("asking for a new session where messages of a former one come from", "endpoint", from)
				last, called = from, time.Now()
				sleep(ctx.Done(), pause)
				pause = min(2*pause, callPause)
			}
		}
	}
}

// callBack takes an address for the peer's if nothing better is known. last is the
// one that was called before, if any.
func (t *Tunnel) callBack(from, last netip.AddrPort) (PublicKey, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := t.config.PeerKey
	if t.state != running || !t.up || t.unknown || key.IsZero() || t.config.Endpoint != "" || !t.succession.former.IsZero() {
		return key, false
	}
	dev := t.dev.Load()
	peer, err := readPeerStats(dev, key)
	if err != nil || !peer.LastHandshake.IsZero() || !usable(from) {
		return key, false
	}
	if err := dev.IpcSet(uapiEndpoint(key, from)); err != nil {
		t.log.Warn("setting the peer's endpoint failed", "endpoint", from, "error", err)
		return key, false
	}
	if p := dev.LookupPeer(device.NoisePublicKey(key)); p != nil && last.IsValid() && last != from {
		p.ForgetInitiation() // it may have gone to where the peer is not
	}
	return key, true
}

// usable tells whether a peer can be at an address.
func usable(a netip.AddrPort) bool {
	ip := net.IP(a.Addr().AsSlice())
	return a.Port() != 0 && (ip.IsGlobalUnicast() || ip.IsLoopback() || ip.IsLinkLocalUnicast())
}
