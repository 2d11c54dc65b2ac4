package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/health"
	"github.com/sluice-net/sluice/dataplane/plpmtu"
)

// probe runs the health pings of the peering in force and keeps the Connection.
// It belongs to the goroutine in Run.
type probe struct {
	runner  *Runner
	ctx     context.Context
	pingers []*pinger // of each tunnel, the first one first
	usable  []bool    // what the data plane was told last

	observed      time.Time // timestamp of the last latency that was passed on
	lastHandshake time.Time // when a handshake was last requested
	failed        string    // the last error that was logged; empty: all is well
	turns         turns     // of the peer's handshakes
	unconfirmed   bool      // tunnel.Stats.Unconfirmed, as it was logged
}

func (r *Runner) newProbe(ctx context.Context) *probe {
	return &probe{runner: r, ctx: ctx}
}

// step does what is due: twice a second, and after a change of the objects or of
// the role.
func (p *probe) step(d Desired, now time.Time) {
	if p.runner.standsBy() {
		p.unconfirmed = false
		p.stop() // the peer is another's, and so is the Connection
		p.runner.path.set(plpmtu.Facts{})
		p.runner.reporter.Withdraw()
		p.runner.record(Peer{LatencyText: health.FormatLatency(0)})
		return
	}
	unconfirmed := p.runner.unconfirmed()
	p.note(errors.Join(p.follow(d), p.report(d, unconfirmed, now)))
}

// follow has the ping of each tunnel run.
func (p *probe) follow(d Desired) (err error) {
	c := &d.DataPlane
	if !c.TunnelAddr.IsValid() {
		return nil // nothing is in force yet
	}
	all := append([]dataplane.TunnelEnds{{Own: c.TunnelAddr, Peer: c.PeerTunnelAddr}}, c.Further...)
	for i := len(p.pingers); i > len(all); i-- {
		p.pingers[i-1].stop()
		p.pingers = p.pingers[:i-1]
	}
	for i, ends := range all {
		if i == len(p.pingers) {
			p.pingers = append(p.pingers, &pinger{runner: p.runner})
		}
		err = errors.Join(err, p.pingers[i].follow(p.ctx, target{d.Gateway.ClusterID, ends.Own, ends.Peer, c.MTU}))
	}
	return err
}

// stop ends the pings and waits for it.
func (p *probe) stop() {
	for _, ping := range p.pingers {
		ping.stop()
	}
	p.pingers = nil
	p.use(nil)
}

// end stops the ping and says so: a Connection that a gateway left as Connected
// would tell a lie for as long as no other gateway comes.
func (p *probe) end() {
	p.stop()
	if now := time.Now(); !p.runner.standsBy() {
		p.note(p.write(Peer{Value: networkingv1beta1.ConnectionError, LatencyText: health.FormatLatency(0), Timestamp: now}, now))
	}
	p.runner.reporter.Close()
}

// report brings state and Connection up to date.
func (p *probe) report(d Desired, unconfirmed bool, now time.Time) error {
	peer := Peer{Value: networkingv1beta1.Connecting, LatencyText: health.FormatLatency(0)}
	if len(p.pingers) > 0 && p.pingers[0].prober != nil {
		first, pings := p.pingers[0], p.results(now)
		usable, speaker := judgePings(pings)
		p.use(usable)
		s := pings[speaker].status
		peer = peerOf(s, first.target.mtu)
		tunnel := p.runner.forwarder.Tunnel()
		if p.runner.options.Path != nil {
			if peer.MTUMismatch != "" { // what the peer takes is kept to
				peer.MTU, peer.MTUMismatch = 0, ""
			}
			p.runner.path.set(plpmtu.Facts{
				Alive: s.Value == health.Connected, Endpoint: tunnel.Endpoint, Own: first.target.mtu, Peer: s.PeerMTU,
			})
		}
		if peer.Value == networkingv1beta1.ConnectionError {
			peer.Silence = silenceOf(d, tunnel, now)
		}
		answered := pings[0].answered
		peer.Lost = pings[0].lost
		peer.LeftOut = leftOutText(d.DataPlane.Tunnel, tunnel, pings)
		peer.Several = severalText(p.turns.observe(tunnel, now))
		if p.turns.observeReplaced(tunnel, now) && peer.Several == "" {
			peer.Several = replacedText
		}
		p.noteUnconfirmed(tunnel.Unconfirmed)
		// What is lost may be lost to another gateway. The tunnel knows in a moment, and keeps
		// back what it is asked for then.
		if !unconfirmed || tunnel.Unconfirmed {
			p.renewSession(answered, now)
		}
		if f := p.runner.options.OnLatency; f != nil && s.Latency > 0 && s.Timestamp.After(p.observed) {
			p.observed = s.Timestamp
			f(first.target.clusterID, s.Latency)
		}
	}
	return p.write(peer, now)
}

const (
	// lostPings are so many that it is no accident: the peer may have restarted,
	// and then the session with it is lost.
	lostPings = 2
	// askInterval is WireGuard's own between two attempts (paper section 6.2).
	askInterval = 5 * time.Second
)

// lost is how many pings in a row nobody has answered. The answer to the last of them may
// still be on its way.
func lost(silence, interval time.Duration) int { return int(max(0, silence-interval/4) / interval) }

// renewSession asks for a new session when the peer has not answered for a while.
// WireGuard would wait for 15 seconds.
func (p *probe) renewSession(answered bool, now time.Time) {
	first := p.pingers[0]
	lost := lost(now.Sub(first.lastAnswer), first.interval())
	if answered && !p.runner.handshaken {
		// A server may have been found by a handshake of the peer. By one of its own the
		// peer knows that it came after the one before (see tunnel.Tunnel.ReleaseHandshake).
		p.runner.handshaken = p.runner.forwarder.Tunnel().TxInitiations > p.runner.begun || p.runner.forwarder.Handshake()
	}
	if lost < lostPings || now.Sub(p.lastHandshake) < askInterval {
		return
	}
	p.lastHandshake = now
	if p.runner.forwarder.Handshake() {
		p.runner.log.Debug("peer does not answer, asked for a new session", "heard", now.Sub(first.lastAnswer).Round(time.Millisecond))
	}
}

// write puts the peer's health where others read it.
func (p *probe) write(peer Peer, now time.Time) error {
	report := p.runner.record(peer)
	report.Time = now
	return p.runner.reporter.Report(report)
}

// noteUnconfirmed logs that it is not known whether this gateway leads, and the end of that.
func (p *probe) noteUnconfirmed(is bool) {
	switch {
	case is && !p.unconfirmed:
		p.runner.log.Warn("neither the API server nor the peer says that this gateway still leads: it sends pings only")
	case !is && p.unconfirmed:
		p.runner.log.Info("this gateway leads")
	}
	p.unconfirmed = is
}

// note logs an error once, and its end.
func (p *probe) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == p.failed {
		return
	}
	p.failed = text
	if err != nil {
		p.runner.log.Warn("connection status is not kept up to date", "error", err)
	}
}

// peerOf puts what the prober found into words.
func peerOf(s health.Status, mtu int) Peer {
	p := Peer{
		Value: networkingv1beta1.ConnectionValue(s.Value), Latency: s.Latency,
		LatencyText: health.FormatLatency(s.Latency), Timestamp: s.Timestamp, MTU: s.PeerMTU,
	}
	if p.MTU != 0 && p.MTU != mtu {
		p.MTUMismatch = fmt.Sprintf("the peer's MTU is %d, ours %d: large packets get lost in one direction; give both gateways the same spec.mtu", p.MTU, mtu)
	}
	return p
}

// record keeps the peer's health for State. The prober logs its changes.
func (r *Runner) record(peer Peer) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if peer.MTUMismatch != "" && peer.MTUMismatch != r.state.Peer.MTUMismatch {
		r.log.Warn("MTU mismatch", "reason", peer.MTUMismatch)
	}
	if peer.LeftOut != r.state.Peer.LeftOut {
		if peer.LeftOut != "" {
			r.log.Warn("tunnels are left out", "reason", peer.LeftOut)
		} else {
			r.log.Info("all tunnels carry packets")
		}
	}
	if peer.Several != "" && r.state.Peer.Several == "" {
		r.log.Warn("several peers", "reason", peer.Several)
	}
	r.state.Peer = peer
	return Report{
		Gateway: r.state.Gateway, Peer: peer, Generation: r.state.Generation,
		Refused: r.state.Refused, Ignored: r.state.Ignored, Missing: r.desired.Missing, Kept: r.desired.Kept, Firewall: r.desired.Firewall,
	}
}
