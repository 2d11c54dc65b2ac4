package gatewaysync

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/dataplane"
)

// Forwarder is the data plane as this package needs it. *dataplane.Forwarder
// implements it.
type Forwarder interface {
	// Apply replaces the configuration as a whole or not at all.
	Apply(dataplane.Config) error
	// ListenUDP opens a socket on one of the gateway's own addresses.
	ListenUDP(netip.AddrPort) (net.PacketConn, error)
}

// Options are what a Runner is built from.
type Options struct {
	// Dir is the manifests directory.
	Dir string
	// NodePort is the UDP port of the node tunnels, which the manifests must not
	// ask for; zero: not known.
	NodePort uint16
	// StrictSource is dataplane.Config.StrictSource: no object says it.
	StrictSource bool
	// Logger gets changes of state and what is wrong with the manifests. Nil:
	// slog.Default().
	Logger *slog.Logger
	// OnLatency gets the measured round trips to the peer. Nil: nobody asks.
	OnLatency func(clusterID string, roundTrip time.Duration)
}

// EndpointError is why the socket towards the peer cannot be opened, in words.
// From a Forwarder's Apply it is reported with the place of the port.
type EndpointError struct{ Cause error }

// Error is the cause.
func (e EndpointError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e EndpointError) Unwrap() error { return e.Cause }

// Runner keeps a data plane equal to a directory of manifests, and the
// Connection in that directory equal to what the tunnel does. Load checks the
// manifests without any effect, Start applies them, Run follows their changes.
type Runner struct {
	options Options
	log     *slog.Logger

	// Owned by the caller of Load and Start, then by Run.
	forwarder Forwarder
	judged    Digest  // of the files judged last, for good or for bad; zero: judge again
	desired   Desired // in force

	mu    sync.Mutex
	state State
}

// New builds a Runner.
func New(o Options) *Runner {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Runner{options: o, log: o.Logger}
}

// Load reads the manifests for the first time. Its error, of type Problems, is
// complete: every problem of every file. Of a refused state only the warnings
// are returned.
func (r *Runner) Load() (Desired, error) {
	files, err := ReadFiles(r.options.Dir)
	if err != nil {
		return Desired{}, err
	}
	d, err := r.build(files)
	if err != nil {
		return d, err
	}
	r.judged, r.desired = files.Digest, d
	return d, nil
}

// muchText is what leaves enough garbage behind to be worth a collection: YAML
// takes some thirty times its length while it is decoded, and the next cycle of
// an idle gateway may be minutes away.
const muchText = 256 << 10

func (r *Runner) build(files Files) (Desired, error) {
	d, err := files.build(r.options.NodePort)
	d.DataPlane.StrictSource = r.options.StrictSource
	if files.size() > muchText {
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
	r.inForce(r.desired)
	return nil
}

// apply hands d to the data plane.
func (r *Runner) apply(d Desired) error {
	err := r.forwarder.Apply(d.DataPlane)
	var endpoint EndpointError
	if errors.As(err, &endpoint) {
		p := d.Endpoint
		p.Reason = endpoint.Error()
		return Problems{p.masked()}
	}
	return err
}

// healthInterval is how often the tunnel's health is looked at: fast enough to
// show a change of state within a second.
const healthInterval = time.Second

// Run follows the manifests and the tunnel until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan struct{}, 1) // full: a look is due already
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before waiting
	wg.Go(func() {
		notify := func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		Watch(ctx, r.options.Dir, notify, func(err error) {
			r.log.Warn("no file events, polling instead", "error", err)
		})
	})
	p := r.newProbe(ctx)
	defer p.end()
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		p.step(r.desired, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			r.reload()
		case <-tick.C:
		}
	}
}

// reload judges the files if they differ from those judged last. What is wrong
// with them is logged and kept for State; what is in force stays in force.
func (r *Runner) reload() {
	files, err := ReadFiles(r.options.Dir)
	if err != nil {
		r.judged = Digest{}
		r.refuse(err, nil)
		return
	}
	if files.Digest == r.judged {
		return
	}
	r.judged = files.Digest
	d, err := r.build(files)
	if err != nil {
		r.refuse(err, d.Warnings)
		return
	}
	if err := r.apply(d); err != nil {
		// The cause may lie outside the files, such as a port in use, and go
		// away: try again at the next look.
		r.judged = Digest{}
		r.refuse(err, d.Warnings)
		return
	}
	r.desired = d
	r.inForce(d)
}

// inForce records that a state was applied.
func (r *Runner) inForce(d Desired) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warn(d.Warnings)
	r.state.Gateway, r.state.Warnings, r.state.Endpoint = d.Gateway, d.Warnings, d.DataPlane.Tunnel.Endpoint
	r.state.Refused, r.state.RefusedWarnings, r.state.RefusedAt = nil, nil, time.Time{}
	r.state.Generation++
	r.state.AppliedAt = time.Now()
	r.log.Info("configuration applied", "generation", r.state.Generation,
		"gateway", d.Gateway.Kind+" "+d.Gateway.Name, "peer", d.Gateway.ClusterID,
		"nodes", len(d.DataPlane.Nodes), "routes", len(d.DataPlane.Routes), "mtu", d.DataPlane.MTU)
}

// warn logs the warnings that are new. The caller holds the lock.
func (r *Runner) warn(warnings Problems) {
	for _, w := range warnings {
		if !slices.Contains(r.state.Warnings, w) && !slices.Contains(r.state.RefusedWarnings, w) {
			r.log.Warn("manifest", problemAttrs(w)...)
		}
	}
}

// refuse records why a state was not applied. The same reasons again are not
// worth a second line.
func (r *Runner) refuse(err error, warnings Problems) {
	problems := problemsOf(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warn(warnings)
	r.state.RefusedWarnings = warnings
	if slices.Equal(problems, r.state.Refused) {
		return
	}
	r.state.Refused, r.state.RefusedAt = problems, time.Now()
	r.state.ReloadErrors++
	for _, p := range problems {
		r.log.Error("manifest", problemAttrs(p)...)
	}
	r.log.Error("configuration refused, the old one stays in force", "problems", len(problems), "generation", r.state.Generation)
}

// problemsOf turns any error into problems.
func problemsOf(err error) Problems {
	var ps Problems
	if errors.As(err, &ps) {
		return ps
	}
	return Problems{Problem{Reason: err.Error()}.masked()}
}

func problemAttrs(p Problem) (attrs []any) {
	if p.File != "" {
		attrs = append(attrs, "file", p.File)
	}
	if p.Line > 0 {
		attrs = append(attrs, "line", p.Line)
	}
	if p.Object != "" {
		attrs = append(attrs, "object", p.Object)
	}
	if p.Field != "" {
		attrs = append(attrs, "field", p.Field)
	}
	return append(attrs, "reason", p.Reason)
}

func (r *Runner) connectionPath() string {
	return filepath.Join(r.options.Dir, StatusDir, ConnectionFile)
}
