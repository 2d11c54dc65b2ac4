package tunnel

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/sluice-net/sluice/underlay"
)

// This file finds the peer of a gateway that has just started and is told no
// endpoint: a server. The peer still has its session with the gateway before and
// goes on sending by it, for 15 seconds and more before WireGuard asks for another
// (paper section 6.2). What it sends cannot be read, but tells where it may be: we
// send the beginning of a handshake there, which nobody else can answer. The peer's
// endpoint is what the response comes from.
//
// Anybody can send something like a message of a session, under any address. So
// that nobody gains by it, an initiation
//
//	is no larger than the message that it answers, and is sent once
//	goes to one address again only after callAgain, then twice that, and so on
//	goes to nobody within a pause after the one before, which grows to callPause
//	is sent only within callWindow, and no more once the peer has been heard
//
// which is less than forty to strangers altogether.

const (
	// callPause is the time between two calls at most, and firstCallPause that after
	// the first; it doubles with each. A gateway that was replaced may pass on what
	// the peer sends (cmd/gateway/relay.go) and end at the wrong moment: the next
	// messages come from elsewhere, and should not have to wait.
	firstCallPause = 500 * time.Millisecond
	callPause      = 5 * time.Second
	// callAgain is the time before the same address is called a second time, as its
	// message or its answer may have got lost: WireGuard's REKEY_TIMEOUT (paper
	// section 6.1). It doubles with each, for the sake of others who may be the peer.
	callAgain = 5 * time.Second
	// callWindow begins with the peer's key. Afterwards it cannot use a session of
	// before any more.
	callWindow = sessionLife
)

// noteCaller remembers, if it is of use, where a message of no session came from. It
// never waits.
func (b *bind) noteCaller(from underlay.Origin, size int) {
	if size < initiationLen || b.egress.peerSeen.Load() {
		return
	}
	select {
	case <-b.callers: // one who has been called must not stand in the way of another
	default:
	}
	select {
	case b.callers <- endpoint{unmap(from.Addr), from.Local}:
	default: // another receiver, of the socket before, was faster
	}
}

// callee is somebody who was called back.
type callee struct {
	last  time.Time
	again time.Duration // not before so long after last
}

// callBacks are the calls of one window.
type callBacks struct {
	since time.Time // the beginning of the window
	calls map[netip.AddrPort]callee
	pause time.Duration // after the next
}

// begin starts anew with another window.
func (c *callBacks) begin(since time.Time) {
	if !c.since.Equal(since) {
		*c = callBacks{since: since, calls: make(map[netip.AddrPort]callee), pause: firstCallPause}
	}
}

// due tells whether it is time for an address.
func (c *callBacks) due(a netip.AddrPort, now time.Time) bool {
	before, known := c.calls[a]
	return now.Sub(c.since) < callWindow && (!known || now.Sub(before.last) >= before.again)
}

// note enters a call, and returns for how long nobody is called.
func (c *callBacks) note(a netip.AddrPort, now time.Time) (pause time.Duration) {
	pause = c.pause
	c.pause = min(2*pause, callPause)
	c.calls[a] = callee{last: now, again: max(2*c.calls[a].again, callAgain)}
	return pause
}

// followCallers begins handshakes with those who call until ctx ends.
func (t *Tunnel) followCallers(ctx context.Context) {
	var c callBacks
	for {
		select {
		case <-ctx.Done():
			return
		case from := <-t.bind.callers:
			if t.callBack(&c, from) {
				sleep(ctx.Done(), c.note(from.addr, time.Now()))
			}
		}
	}
}

// callBack begins a handshake at an address if nothing better is known and it is time.
func (t *Tunnel) callBack(c *callBacks, to endpoint) bool {
	peer, since := t.wanted()
	if peer == nil || !usable(to.addr) {
		return false
	}
	c.begin(since)
	if !c.due(to.addr, time.Now()) {
		return false
	}
	message, err := peer.Initiation()
	if err != nil {
		t.log.Warn("making a handshake initiation failed", "error", err)
		return false
	}
	t.log.Info("asking for a new session where messages of a former one come from", "endpoint", to.addr)
	t.bind.call(message, &to)
	return true
}

// wanted returns the peer if it has to be looked for, and since when; nil: it has not.
func (t *Tunnel) wanted() (peer *device.Peer, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := t.config.PeerKey
	if t.state != running || !t.up || t.unknown || key.IsZero() || t.config.Endpoint != "" || !t.succession.former.IsZero() {
		return nil, since
	}
	dev := t.dev.Load()
	if !readPeerStats(dev, key).LastHandshake.IsZero() {
		return nil, since
	}
	return dev.LookupPeer(device.NoisePublicKey(key)), t.peerSince
}

// call sends an initiation to where the peer may be. Unlike by Send, the peer does not
// count as reachable by it.
func (b *bind) call(initiation []byte, to *endpoint) {
	if !b.egress.keepBack(initiation, to) {
		b.begin(initiation, to)
	}
}

// usable tells whether a peer can be at an address.
func usable(a netip.AddrPort) bool {
	ip := net.IP(a.Addr().AsSlice())
	return a.Port() != 0 && (ip.IsGlobalUnicast() || ip.IsLoopback() || ip.IsLinkLocalUnicast())
}
