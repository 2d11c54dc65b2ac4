package tunnel

import (
	"time"

	"github.com/sluice-net/sluice/underlay"
)

// This file bounds what a flood of handshakes costs. Only the MACs of an initiation tell it
// from noise, and each that wireguard-go looks at costs hashes and, under load, a cookie
// reply. So initiations above a limit are dropped unseen. Those from the address at which the
// peer was last heard count apart: a flood from other addresses does not keep it from renewing
// its session. A peer at a new address gets through by chance, and asks again every 5 s.

const (
	// quotaSize bounds the initiations of one quotaWindow: 20 000 per second. It is more than
	// what makes wireguard-go demand cookies (QueueHandshakeSize / 8), as it would not notice
	// a smaller flood, and each initiation then costs operations on the curve.
	quotaSize   = 400
	quotaWindow = 20 * time.Millisecond
)

// quota counts initiations from one kind of source. It belongs to who is in accept.
type quota struct {
	end  time.Time // of the window
	left int       // initiations that may still come in it
}

// admits counts an initiation.
func (q *quota) admits(now time.Time) bool {
	if !now.Before(q.end) {
		q.end, q.left = now.Add(quotaWindow), quotaSize
	}
	if q.left == 0 {
		return false
	}
	q.left--
	return true
}

// quotas are those of a socket.
type quotas struct{ ofPeer, ofOthers quota }

// limit gives a negative size, which pass skips, to initiations above the limit. It returns how many, and the place of one.
func (r *receiver) limit(bufs [][]byte, sizes []int) (place, n int) {
	var now time.Time
	for i, b := range bufs {
		if sizes[i] < 0 || !isInitiation(b[:sizes[i]]) {
			continue
		}
		if now.IsZero() {
			now = time.Now()
		}
		from := &r.quotas.ofOthers
		if r.isPeer(r.from[i]) {
			from = &r.quotas.ofPeer
		}
		if !from.admits(now) {
			sizes[i] = -1
			place = i
			n++
		}
	}
	return place, n
}

// isPeer tells whether a datagram has the address at which the peer was last heard.
func (r *receiver) isPeer(from underlay.Origin) bool {
	return r.sources.last != nil && r.sources.last.addr.Addr() == from.Addr.Addr().Unmap()
}
