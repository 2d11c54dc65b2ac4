package gatewaysync

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane/health"
)

// target is what the health ping depends on; another one needs another prober.
type target struct {
	clusterID   string
	local, peer netip.Addr
	mtu         int
}

func (t target) config() health.Config {
	return health.Config{ClusterID: t.clusterID, Peer: netip.AddrPortFrom(t.peer, health.Port), MTU: t.mtu}
}

// probe runs the health ping of the peering in force and keeps the Connection.
// It belongs to the goroutine in Run.
type probe struct {
	runner *Runner
	ctx    context.Context
	file   connectionFile
	target target
	prober *health.Prober // nil: none could be started
	cancel context.CancelFunc
	wg     sync.WaitGroup

	observed time.Time // timestamp of the last latency that was passed on
	failed   string    // the last error that was logged; empty: all is well
}

func (r *Runner) newProbe(ctx context.Context) *probe {
	return &probe{runner: r, ctx: ctx, cancel: func() {}, file: connectionFile{path: r.connectionPath()}}
}

// step does what is due: every second, and after a change of the manifests.
func (p *probe) step(d Desired, now time.Time) {
	p.note(errors.Join(p.follow(d), p.report(now)))
}

// follow starts the ping, and starts it anew when the peering has changed.
func (p *probe) follow(d Desired) error {
	c := &d.DataPlane
	t := target{d.Gateway.ClusterID, c.TunnelAddr, c.PeerTunnelAddr, c.MTU}
	switch {
	case p.prober != nil && t == p.target:
		return nil
	case p.prober != nil && t.local == p.target.local:
		// On the same address the ping goes on, and the Connection with it.
		p.target = t
		return p.prober.Apply(t.config())
	}
	p.stop()
	if err := p.start(t); err != nil {
		return fmt.Errorf("start the health ping: %w", err)
	}
	return nil
}

func (p *probe) start(t target) error {
	prober, err := health.New(t.config(), health.Options{Logger: p.runner.log})
	if err != nil {
		return err
	}
	conn, err := p.runner.forwarder.ListenUDP(netip.AddrPortFrom(t.local, health.Port))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(p.ctx)
	p.target, p.prober, p.cancel = t, prober, cancel
	p.wg.Go(func() {
		defer conn.Close()
		if err := prober.Run(ctx, conn); err != nil && ctx.Err() == nil {
			p.runner.log.Error("health ping ended", "error", err)
		}
	})
	return nil
}

// stop ends the ping and waits for it.
func (p *probe) stop() {
	p.cancel()
	p.wg.Wait()
	p.prober = nil
}

// end stops the ping and says so: a Connection that a gateway left as Connected
// would tell a lie for as long as no other gateway comes.
func (p *probe) end() {
	p.stop()
	now := time.Now()
	p.note(p.write(Peer{Value: networkingv1beta1.ConnectionError, LatencyText: health.FormatLatency(0), Timestamp: now}, now))
}

// report brings state and Connection up to date.
func (p *probe) report(now time.Time) error {
	peer := Peer{Value: networkingv1beta1.Connecting, LatencyText: health.FormatLatency(0)}
	if p.prober != nil {
		s := p.prober.Status()
		peer = peerOf(s, p.target.mtu)
		if f := p.runner.options.OnLatency; f != nil && s.Latency > 0 && s.Timestamp.After(p.observed) {
			p.observed = s.Timestamp
			f(p.target.clusterID, s.Latency)
		}
	}
	return p.write(peer, now)
}

// write puts the peer's health where others read it.
func (p *probe) write(peer Peer, now time.Time) error {
	gateway := p.runner.record(peer)
	status := networkingv1beta1.ConnectionStatus{
		Value:   peer.Value,
		Latency: networkingv1beta1.ConnectionLatency{Value: peer.LatencyText, Timestamp: metav1.NewTime(peer.Timestamp.UTC())},
	}
	_, err := p.file.update(connectionOf(gateway, status), now)
	return err
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
func (r *Runner) record(peer Peer) Gateway {
	r.mu.Lock()
	defer r.mu.Unlock()
	if peer.MTUMismatch != "" && peer.MTUMismatch != r.state.Peer.MTUMismatch {
		r.log.Warn("MTU mismatch", "reason", peer.MTUMismatch)
	}
	r.state.Peer = peer
	return r.state.Gateway
}
