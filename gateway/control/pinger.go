package control

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/dataplane/health"
	"github.com/sluice-net/sluice/tunnel"
)

// target is what the health ping depends on; another one needs another prober.
type target struct {
	clusterID   string
	local, peer netip.Addr
	mtu         int
}

func (t target) config(p Ping) health.Config {
	return health.Config{
		ClusterID: t.clusterID, Peer: netip.AddrPortFrom(t.peer, health.Port), MTU: t.mtu,
		Interval: p.Interval, Threshold: p.LossThreshold, UpdateInterval: p.UpdateInterval,
	}
}

// pinger runs the health ping of one tunnel. It belongs to the goroutine in Run.
type pinger struct {
	runner *Runner
	target target
	prober *health.Prober // nil: none could be started
	cancel context.CancelFunc
	wg     sync.WaitGroup

	lastAnswer time.Time // when the peer last answered, or the ping started
}

// follow starts the ping, and starts it anew when the tunnel has changed.
func (p *pinger) follow(ctx context.Context, t target) error {
	switch {
	case p.prober != nil && t == p.target:
		return nil
	case p.prober != nil && t.local == p.target.local:
		// On the same address the ping goes on, and the Connection with it.
		p.target = t
		return p.prober.Apply(t.config(p.runner.options.Ping))
	}
	p.stop()
	if err := p.start(ctx, t); err != nil {
		return fmt.Errorf("start the health ping: %w", err)
	}
	return nil
}

func (p *pinger) start(ctx context.Context, t target) error {
	prober, err := health.New(t.config(p.runner.options.Ping), health.Options{Logger: p.runner.log})
	if err != nil {
		return err
	}
	conn, err := p.runner.forwarder.ListenUDP(netip.AddrPortFrom(t.local, health.Port))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	p.target, p.prober, p.cancel, p.lastAnswer = t, prober, cancel, time.Now()
	p.wg.Go(func() {
		defer conn.Close()
		if err := prober.Run(ctx, conn); err != nil && ctx.Err() == nil {
			p.runner.log.Error("health ping ended", "error", err)
		}
	})
	return nil
}

// stop ends the ping and waits for it.
func (p *pinger) stop() {
	if p.cancel != nil {
		p.cancel()
	}
	p.wg.Wait()
	p.prober = nil
}

func (p *pinger) interval() time.Duration {
	return cmp.Or(p.runner.options.Ping.Interval, health.DefaultInterval)
}

// ping is what the ping of one tunnel says.
type ping struct {
	status health.Status
	// answered: there was an answer since the last look.
	answered bool
	// lost counts the pings in a row that nobody has answered.
	lost int
}

// result is what became of the ping. One that could not be started is not answered.
func (p *pinger) result(now time.Time) (seen ping) {
	if p.prober == nil {
		return ping{status: health.Status{Value: health.Error}, lost: lostPings}
	}
	seen.status = p.prober.Status()
	if seen.answered = seen.status.Value == health.Connected && seen.status.Timestamp.After(p.lastAnswer); seen.answered {
		p.lastAnswer = seen.status.Timestamp
	}
	seen.lost = lost(now.Sub(p.lastAnswer), p.interval())
	return seen
}

// results are those of the pings of all tunnels.
func (p *probe) results(now time.Time) (pings []ping) {
	for _, one := range p.pingers {
		pings = append(pings, one.result(now))
	}
	return pings
}

// judgePings decides by which tunnels packets may go, and the ping of which of them tells how
// the peer is: the first one that works, and if none does that of the first tunnel.
func judgePings(pings []ping) (usable []bool, speaker int) {
	for _, p := range pings {
		usable = append(usable, p.status.Value == health.Connected && p.lost < lostPings)
	}
	return usable, max(0, slices.Index(usable, true))
}

// use tells the data plane by which tunnels packets may go. It need not know of a single one.
func (p *probe) use(usable []bool) {
	if len(usable) == 1 {
		usable = nil
	}
	if !slices.Equal(usable, p.usable) {
		p.usable = usable
		p.runner.forwarder.SetUsable(usable)
	}
}

// leftOutText says which tunnels packets do not go by, while they go by others, and what to do.
// A tunnel that has just begun is waited for.
func leftOutText(c tunnel.Config, s tunnel.Stats, pings []ping) string {
	var out []string
	for i, p := range pings {
		name := tunnelName(c.Endpoint, c.ListenPort)
		if i > 0 && i <= len(c.Further) {
			name = tunnelName(c.Further[i-1].Endpoint, c.Further[i-1].ListenPort)
		}
		switch {
		case 0 < i && i <= len(s.Further) && s.Further[i-1].Problem != "":
			out = append(out, name+": "+s.Further[i-1].Problem)
		case p.lost >= lostPings:
			out = append(out, name+": no answer")
		}
	}
	if len(out) == 0 || len(out) == len(pings) {
		return ""
	}
	return fmt.Sprintf("%d of %d tunnels carry packets; %s. Both gateways need the same number of ports, and nothing between them may block one",
		len(pings)-len(out), len(pings), strings.Join(out, ", "))
}

// tunnelName is what tells a tunnel from others for people.
func tunnelName(endpoint string, port uint16) string {
	if endpoint != "" {
		return endpoint
	}
	return fmt.Sprintf("UDP port %d", port)
}
