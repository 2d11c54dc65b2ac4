package tunnel

import (
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/sluice-net/sluice/underlay"
)

// This file gets along with a peer whose clock was set back, or whose gateway was replaced
// by one on a machine with an earlier clock. WireGuard takes an initiation only if its
// timestamp is after that of every one before (paper section 5.1), so that nobody can
// repeat an older one. Until its clock has caught up, such a peer cannot begin a
// handshake. But it can answer one, so we begin it, where its initiation came from.
//
// Somebody who repeats an older initiation of the peer draws the same, which nobody but the
// peer can answer: the peer's endpoint is what the response comes from. It is one datagram,
// as long as the one that it answers. How often one is sent is limited as for callers of no
// session (callBacks), with a window that begins again when it is over.
//
// Where both clocks were set back, both must catch up.

// A peer that is heard from elsewhere needs no session there. What asks for one may be a
// gateway with the peer's key that was cut off while another one took its place, and which
// claims an earlier time (see ReleaseHandshake). So it is judged again after heardPause, and answered
// if the peer was silent since.

// heardPause is longer than a peer's gateway is silent as a rule: it sends pings and answers
// ours, each every two seconds.
const heardPause = 2500 * time.Millisecond

// clockPause is the time between two initiations that are looked at. Looking takes two
// operations on the curve, about 0.1 ms, and strangers can ask for it.
const clockPause = 50 * time.Millisecond

// received is an initiation, and where it came from.
type received struct {
	from    endpoint
	message [initiationLen]byte
	late    bool // it was looked at before
}

// noteInitiation remembers an initiation for followClock. It never waits.
func (b *bind) noteInitiation(from underlay.Origin, message []byte) {
	r := received{from: endpoint{unmap(from.Addr), from.Local}}
	copy(r.message[:], message)
	select {
	case <-b.initiations: // the last one counts: the peer sends it again
	default:
	}
	select {
	case b.initiations <- r:
	default: // another receiver, of the socket before, was faster
	}
}

// isInitiation tells whether a datagram has type and length of an initiation.
func isInitiation(b []byte) bool {
	return len(b) == initiationLen && binary.LittleEndian.Uint32(b) == typeInitiation
}

// followClock begins handshakes with a peer whose clock is behind, until ctx ends.
func (t *Tunnel) followClock(ctx context.Context) {
	var c callBacks
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-t.bind.initiations:
			pause := clockPause
			if now := time.Now(); t.answerOutdated(&c, &r, now) {
				pause = c.note(r.from.addr, now)
			}
			sleep(ctx.Done(), pause)
		}
	}
}

// answerOutdated begins a handshake where an outdated initiation came from, if it is time.
func (t *Tunnel) answerOutdated(c *callBacks, r *received, now time.Time) bool {
	dev := t.device()
	if dev == nil || !usable(r.from.addr) {
		return false
	}
	peer := dev.Outdated(r.message[:])
	if peer == nil {
		return false
	}
	if t.heardElsewhere(r.from.addr, now) {
		if again := *r; !r.late {
			again.late = true
			time.AfterFunc(heardPause, func() {
				select {
				case t.bind.initiations <- again:
				default: // there is another one
				}
			})
		}
		return false
	}
	if now.Sub(c.since) >= callWindow {
		c.begin(now)
	}
	if !c.due(r.from.addr, now) {
		return false
	}
	message, err := peer.Initiation()
	if err != nil {
		t.log.Warn("making a handshake initiation failed", "error", err)
		return false
	}
	t.log.Warn("the peer's clock was set back, or somebody repeats an older handshake: asking for a session", "endpoint", r.from.addr)
	t.bind.call(message, &r.from)
	return true
}

// heardElsewhere tells whether the peer was heard a moment ago, and is not at an address.
func (t *Tunnel) heardElsewhere(addr netip.AddrPort, now time.Time) bool {
	if now.Sub(t.egress.receivedAt()) >= heardPause {
		return false
	}
	t.mu.Lock()
	key := t.config.PeerKey
	t.mu.Unlock()
	return readPeerStats(t.dev.Load(), key).Endpoint != addr
}

// device returns the device if it is configured and runs, nil if not.
func (t *Tunnel) device() *device.Device {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != running || !t.up || t.unknown {
		return nil
	}
	return t.dev.Load()
}
