package doctor

import (
	"time"

	"github.com/sluice-net/sluice/admin/survey"
)

// traffic is what a gateway's WireGuard did between the two times it was asked.
type traffic struct {
	txInitiations, rxInitiations uint64
	txResponses, rxResponses     uint64
	txBytes, rxBytes             uint64
	strange                      uint64 // messages of no session that is known
}

// trafficOf is the difference of two reports. A gateway that was started in
// between, or whose peer was replaced, has counted from zero.
func trafficOf(before, after *survey.GatewayReport) traffic {
	b, a := before.DataPlane.Tunnel, after.DataPlane.Tunnel
	if !before.Started.Equal(after.Started) {
		b = survey.TunnelStats{}
	}
	since := func(b, a uint64) uint64 {
		if a < b {
			return a
		}
		return a - b
	}
	return traffic{
		txInitiations: since(b.TxInitiations, a.TxInitiations), rxInitiations: since(b.RxInitiations, a.RxInitiations),
		txResponses: since(b.TxResponses, a.TxResponses), rxResponses: since(b.RxResponses, a.RxResponses),
		txBytes: since(b.TxBytes, a.TxBytes), rxBytes: since(b.RxBytes, a.RxBytes),
		strange: since(b.DropUnknownSession, a.DropUnknownSession) + since(b.DropRejected, a.DropRejected),
	}
}

// sent tells whether the gateway sent anything to the peer, received whether
// anything came that may be the peer's.
func (t traffic) sent() bool     { return t.txBytes > 0 || t.txInitiations > 0 || t.txResponses > 0 }
func (t traffic) received() bool { return t.rxBytes > 0 || t.rxInitiations > 0 || t.rxResponses > 0 }

// sessionLife is how long a WireGuard session is valid (paper section 6.1).
const sessionLife = 180 * time.Second

// session tells whether the gateway has a session with the peer, by its own clock.
func session(r *survey.GatewayReport) bool {
	last := r.DataPlane.Tunnel.LastHandshake
	return !last.IsZero() && r.Time.Sub(last) < sessionLife
}

// asked tells whether the gateway of an end told something at both times.
func (e *end) asked() bool { return e != nil && e.before != nil && e.after != nil }

// traffic is what the gateway of an end that was asked did.
func (e *end) traffic() traffic { return trafficOf(e.before, e.after) }
