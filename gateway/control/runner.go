package control

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/health"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/tunnel"
)

// Forwarder is the data plane as this package needs it. *dataplane.Forwarder
// implements it.
type Forwarder interface {
	// Apply replaces the configuration as a whole or not at all.
	Apply(dataplane.Config) error
	// ListenUDP opens a socket on one of the gateway's own addresses.
	ListenUDP(netip.AddrPort) (net.PacketConn, error)
	// Handshake asks the peer for a new session, if its address is known.
	Handshake() bool
	// Unconfirmed says that another gateway may lead, and for how long the peer may be
	// silent until nothing is sent that would take it from that one; zero: none may.
	Unconfirmed(silence time.Duration)
	// ReleaseHandshake lets a handshake begin that was kept back before a moment.
	ReleaseHandshake(before time.Time)
	// SetUsable says by which of several tunnels packets may go; nil: there is one.
	SetUsable([]bool)
	// Tunnel tells how the tunnel to the peer fares.
	Tunnel() tunnel.Stats
}

// Options are what a Runner is built from.
type Options struct {
	// Dir is the manifests directory, unless there are Feed and Reporter.
	Dir string
	// Feed and Reporter take the place of a directory.
	Feed     Feed
	Reporter Reporter
	// Gateway is which gateway this is, where that is known before its objects
	// are.
	Gateway Gateway
	// StandBy makes the Runner start without the lead: see SetLeading.
	StandBy bool
	// Unconfirmed tells whether another gateway may lead, although this one does. Nil: none
	// may.
	Unconfirmed func() bool
	// NodePort is the UDP port of the node tunnels, which the objects must not
	// ask for; zero: not known.
	NodePort uint16
	// Sources is dataplane.Config.Sources: no object says it.
	Sources dataplane.SourceCheck
	// Ping is how the peer is watched.
	Ping Ping
	// Path has packets made as large as the path to the peer carries, up to the MTU of the
	// objects. Nil: they are as large as that.
	Path Path
	// Logger gets changes of state and what is wrong with the objects. Nil:
	// slog.Default().
	Logger *slog.Logger
	// OnExported gets the ExportedServices whenever files are put in force. Nil: nobody asks.
	OnExported func([]*networkingv1beta1.ExportedService)
	// OnLatency gets the measured round trips to the peer. Nil: nobody asks.
	OnLatency func(clusterID string, roundTrip time.Duration)
}

// Ping are the settings of the health ping. Zero means the default of
// health.Config.
type Ping struct {
	Interval       time.Duration
	LossThreshold  int
	UpdateInterval time.Duration
}

// EndpointError is why the socket towards the peer cannot be opened, in words.
// From a Forwarder's Apply it is reported with the place of the port.
type EndpointError struct{ Cause error }

// Error is the cause.
func (e EndpointError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e EndpointError) Unwrap() error { return e.Cause }

// Runner keeps a data plane equal to the objects of a feed, and the Connection
// equal to what the tunnel does. Load checks the objects without any effect,
// Start applies them, Run follows their changes. Without Load, Run applies the
// first state that can be applied.
type Runner struct {
	options  Options
	feed     Feed
	reporter Reporter
	log      *slog.Logger
	roles    chan struct{} // one slot: the role has changed
	synced   chan struct{} // closed when Run has read all objects once
	path     pathFacts

	// Owned by the caller of Load and Start, then by Run.
	forwarder  Forwarder
	judged     manifests.Digest // of the state judged last, for good or for bad; zero: judge again
	desired    Desired          // in force, whatever the role; without a Gateway: nothing yet
	missed     bool             // the data plane is not what desired and the role ask for
	readAt     time.Time
	rest       time.Time // no change is looked at before
	handshaken bool      // since the role was taken, a handshake was begun, or none has to be
	begun      uint64    // handshakes before the role was taken

	mu      sync.Mutex
	standBy bool
	state   State
}

// New builds a Runner.
func New(o Options) *Runner {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	r := &Runner{options: o, feed: o.Feed, reporter: o.Reporter, log: o.Logger, roles: make(chan struct{}, 1), synced: make(chan struct{}), standBy: o.StandBy, handshaken: true}
	r.path.changed = make(chan struct{}, 1)
	r.state.Gateway = o.Gateway
	if r.feed == nil {
		r.feed = directory{manifests.Directory{Path: o.Dir, Reader: reader, Degraded: func(err error) {
			r.log.Warn("no file events, polling instead", "error", err)
		}}}
		r.reporter = &connectionFile{dir: o.Dir, interval: o.Ping.UpdateInterval}
	}
	return r
}

// Load reads the objects for the first time. Its error, of type
// manifests.Problems, is complete: every problem of every file. Where there are
// errors of form, the meaning is not judged: its errors would only follow from
// them. Of a refused state only the warnings are returned.
func (r *Runner) Load() (Desired, error) {
	reading, err := r.feed.Read(manifests.Digest{})
	if err != nil {
		return Desired{Warnings: reading.Warnings}, err
	}
	d, err := r.build(reading)
	if err != nil {
		return d, err
	}
	r.judged, r.desired = reading.Digest, d
	return d, nil
}

// build turns what was read into what is desired.
func (r *Runner) build(reading Reading) (Desired, error) {
	reading.Objects.NodePort = r.options.NodePort
	if c := reading.Objects.Cluster; c != nil {
		c.InForce = r.desired.DataPlane
	}
	d, err := Build(reading.Objects)
	d.Warnings = append(reading.Warnings, d.Warnings...)
	d.DataPlane.Sources, d.Kept = r.options.Sources, reading.Kept
	if reading.Heavy {
		reading.Objects = Objects{}
		debug.FreeOSMemory()
	}
	return d, err
}

// Start applies what Load found.
func (r *Runner) Start(f Forwarder) error {
	r.forwarder = f
	if err := r.apply(r.desired); err != nil {
		return err
	}
	r.inForce(r.desired, true)
	return nil
}

// Attach says which data plane Run works on, where there was no Start.
func (r *Runner) Attach(f Forwarder) { r.forwarder = f }

// SetLeading tells the Runner whether its gateway carries the traffic or stands
// by for another one that does. Standing by it follows the objects all the
// same, but its data plane forwards nothing, has no peer, and is not reported.
// It may be called at any time.
func (r *Runner) SetLeading(lead bool) {
	r.mu.Lock()
	changed := r.standBy == lead
	r.standBy = !lead
	r.mu.Unlock()
	if !changed {
		return
	}
	select {
	case r.roles <- struct{}{}:
	default: // it has not looked since the last time
	}
}

// AskedInVain tells the Runner that the API server did not answer whether this gateway
// leads. It may be called when Run runs.
func (r *Runner) AskedInVain(since time.Time) { r.forwarder.ReleaseHandshake(since) }

// unconfirmed tells the data plane whether another gateway may lead, and returns it.
func (r *Runner) unconfirmed() (is bool) {
	if r.options.Unconfirmed == nil {
		return false
	}
	var silence time.Duration
	if is = !r.standsBy() && r.options.Unconfirmed(); is {
		// Each end sends a ping that often, and the other one answers. One may be lost.
		silence = 3 * cmp.Or(r.options.Ping.Interval, health.DefaultInterval) / 2
	}
	r.forwarder.Unconfirmed(silence)
	return is
}

// Synced is closed when Run has read all objects once, and what follows from them
// is in force: a replica that took the lead earlier would interrupt the traffic.
func (r *Runner) Synced() <-chan struct{} { return r.synced }

func (r *Runner) standsBy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.standBy
}

// apply hands d to the data plane.
func (r *Runner) apply(d Desired) error {
	c := d.DataPlane
	if r.standsBy() {
		c = passive(c)
	}
	err := r.forwarder.Apply(c)
	var endpoint EndpointError
	if errors.As(err, &endpoint) {
		p := d.Endpoint
		p.Reason = endpoint.Error()
		return manifests.Problems{p.Masked()}
	}
	return err
}

// passive is what a gateway does that stands by: nothing, but with its key, so
// that it can be told apart from one that has none.
func passive(c dataplane.Config) dataplane.Config {
	standing := dataplane.Config{MTU: c.MTU}
	standing.Tunnel.PrivateKey = c.Tunnel.PrivateKey
	return standing
}

// healthInterval is how often the tunnel's health is looked at: fast enough to
// show a change of state within a second.
const healthInterval = 500 * time.Millisecond

// Run follows the objects and the tunnel until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan struct{}, 1) // full: a look is due already
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before waiting
	wg.Go(func() {
		r.feed.Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	})
	if r.options.Path != nil {
		f := follower{runner: r, path: r.options.Path}
		wg.Go(func() { f.run(ctx) })
	}
	p := r.newProbe(ctx)
	defer p.end()
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	rested := time.NewTimer(0) // once at the start, for a feed that was never read
	defer rested.Stop()
	synced := sync.OnceFunc(func() { close(r.synced) })
	for {
		p.step(r.desired, time.Now())
		if r.judged != (manifests.Digest{}) {
			synced()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			rested.Reset(time.Until(r.rest))
		case <-rested.C:
			r.reload()
		case <-r.roles:
			r.takeRole()
		case <-tick.C:
			if r.judged == (manifests.Digest{}) && time.Since(r.readAt) >= retryAfter {
				r.reload()
			}
		}
	}
}

const (
	// retryAfter is when a state is judged again whose refusal may have a cause
	// outside of the objects, such as a port in use.
	retryAfter = 5 * time.Second
	// restFactor bounds what following the objects costs, as a part of one
	// processor: after a change that took 200 ms to apply, with a hundred
	// thousand routes, the next waits for 800 ms.
	restFactor = 4
)

// reload judges the objects if they differ from those judged last. What is wrong
// with them is logged and kept for State; what is in force stays in force.
func (r *Runner) reload() {
	r.readAt = time.Now()
	defer func() { r.rest = time.Now().Add(restFactor * time.Since(r.readAt)) }()
	reading, err := r.feed.Read(r.judged)
	if err == nil && reading.Digest == r.judged && r.judged != (manifests.Digest{}) {
		return
	}
	r.judged = reading.Digest
	d := Desired{Warnings: reading.Warnings}
	if err == nil {
		d, err = r.build(reading)
	}
	if err == nil && reading.Accepted != nil {
		defer func() {
			if r.judged == reading.Digest {
				reading.Accepted()
			}
		}()
	}
	if err == nil && reading.Objects.Cluster != nil && r.isInForce(d) {
		r.desired = d
		r.confirm(d)
		return
	}
	if err == nil {
		if err = r.apply(d); err == nil {
			r.missed = false
		} else {
			r.judged = manifests.Digest{} // the cause may lie outside of the objects
		}
	}
	var waiting manifests.Waiting
	switch {
	case errors.As(err, &waiting):
		r.wait(waiting, d.Warnings)
	case err != nil:
		r.refuse(err, d.Warnings)
	default:
		// Pods come and go; everything else is worth a line.
		loud := reading.Objects.Cluster == nil || !sameButRoutes(d.DataPlane, r.desired.DataPlane)
		r.desired = d
		r.inForce(d, loud)
	}
}

// takeRole makes the data plane what the role asks for. Nothing else waits for
// it, so an error may wait for the next look.
func (r *Runner) takeRole() {
	if r.desired.Gateway.Kind == "" {
		return // what comes first will be applied in this role
	}
	r.unconfirmed()
	if err := r.apply(r.desired); err != nil {
		r.judged, r.missed = manifests.Digest{}, true
		r.refuse(err, nil)
		return
	}
	r.missed = false
	role := r.State().Role
	r.log.Info("role taken", "role", role)
	if role == RoleActive {
		r.begun = r.forwarder.Tunnel().TxInitiations
		r.handshaken = r.forwarder.Handshake() // the peer still has the session of the one before
	}
}
