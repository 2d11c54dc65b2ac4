package fabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/node/tunlink"
	"github.com/sluice-net/sluice/objects/manifests"
)

// DefaultPort is the UDP port of the tunnels.
const DefaultPort = 6091

// Host is the node's network. *hostnet.Conn implements it.
type Host interface {
	Read() (hostnet.Actual, error)
	Apply(hostnet.Plan) error
	// Watch blocks until ctx ends. Its first event says that everything may have
	// changed.
	Watch(context.Context, func(hostnet.Event)) error
	Path(gateway netip.Addr, port uint16) (hostnet.Path, error)
	Networks() ([]hostnet.Network, error)
	Detours(links []hostnet.Link, pods []netip.Prefix) ([]hostnet.Detour, error)
	Probe() []hostnet.KindSupport
	Left(hostnet.Predecessor) (hostnet.Left, error)
}

// Ends are the tunnels of links that are TUN devices. *tunlink.Endpoint
// implements it.
type Ends interface {
	Apply([]tunlink.Tunnel) error
	Run(context.Context) error
	Status() tunlink.Status
}

// Feed is where the objects come from: a manifests.Directory, or an API server.
type Feed interface {
	// Read returns the objects as they are now. When their digest is known, the
	// digest alone. An error is of type manifests.Problems, or manifests.Waiting
	// while not every list was read completely yet.
	Read(known manifests.Digest) (manifests.Reading, error)
	// Watch calls changed whenever Read may return something else, until ctx
	// ends. Spurious calls are normal.
	Watch(ctx context.Context, changed func())
}

// Reserver is a Feed that knows of prefixes that no tunnel may take. It calls
// changed of Watch when it knows of others.
type Reserver interface {
	Reserved() []Reserved
}

// Options are what a Runner is built from.
type Options struct {
	// NodeName is the InternalNode that this node is.
	NodeName string
	// Link is the kind of links, or LinkAuto, which is also what empty means.
	Link string
	// Port is the UDP port of the tunnels; zero: DefaultPort.
	Port uint16
	// RulePriority is that of hostnet.Desired.
	RulePriority uint32
	// HideAll is that of hostnet.Translation.
	HideAll bool
	// Reserved are prefixes that no tunnel may take.
	Reserved []Reserved
	// TakeOver says that this agent takes the place of Liqo's, which made the
	// nftables tables LiqoTables.
	TakeOver   bool
	LiqoTables []string
	// Host is the network of this node.
	Host Host
	// Ends serve links that are TUN devices; nil: there can be none.
	Ends Ends
	// Dir is the manifests directory, unless there are Feed and Reporter.
	Dir string
	// Feed and Reporter take the place of a directory: they are those of a cluster.
	Feed     Feed
	Reporter Reporter
	// Logger gets changes of state. Nil: slog.Default().
	Logger *slog.Logger
}

// Runner keeps the network of a node equal to the objects of a feed. Nothing is
// removed when it ends: what is in the kernel works without it.
type Runner struct {
	options   Options
	inCluster bool
	feed      Feed
	reporter  Reporter
	host      Host
	log       *slog.Logger
	diff      func(hostnet.Desired, hostnet.Actual) hostnet.Plan // hostnet.Diff
	sampler   sampler
	kick      chan struct{} // one slot: there are events

	// Owned by the caller of Load, then by Run.
	due      schedule
	rest     time.Time        // no event is looked at before
	judged   manifests.Digest // of the state judged last, for good or for bad; zero: judge again
	gateways []netip.Addr     // those whose paths matter
	ways     ways
	choice   LinkChoice
	noKind   error                   // why there is no choice
	failed   map[hostnet.Kind]string // kinds of which no link could be made
	actual   hostnet.Actual          // as read last
	plan     Plan                    // what to go by; zero until planned
	planned  bool
	fresh    bool // plan was not put in force yet
	dirty    bool // the kernel may differ from plan
	failures failures
	open     map[string]bool           // steps that could not be done
	attached map[string]tunlink.Tunnel // in force at Ends, by device
	contest  contest
	liqo     liqo
	hints    manifests.Problems // what keeps packets from passing
	detours  manifests.Problems // rules of others that take them elsewhere
	// detourFailed says that the last look for such rules failed, which was logged.
	detourFailed bool
	silent       map[string]bool // links whose gateway does not answer
	backoff      time.Duration
	reported     string // the last error of the reporter; empty: none

	mu     sync.Mutex
	events events
	state  State // without what is sampled
	view   view  // what samples are compared with
}

// events is what has happened since the last look.
type events struct {
	objects bool
	host    hostnet.Event
}

// schedule says when to look at what; zero: no need.
type schedule struct {
	objects, ours, paths, retry, sample, liqo time.Time
}

const (
	// oursSettle is how long a change of what is ours waits for others: a tool
	// that removes a link makes a burst of notifications.
	oursSettle = 50 * time.Millisecond
	// pathsSettle is the same for what is not ours. On a busy node links and
	// routes of others come and go all the time.
	pathsSettle = 500 * time.Millisecond
	// restFactor bounds what looking costs, as a part of one processor. Beyond
	// maxRest people wait.
	restFactor, maxRest = 4, 5 * time.Second
	// firstRetry and maxRetry lie between attempts of what has failed.
	firstRetry, maxRetry = time.Second, 30 * time.Second
	// sampleInterval is how often counters are read without being asked for, so
	// that "last seen" is true, and so that a notification that never came does
	// not matter for long.
	sampleInterval = 15 * time.Second
)

// New builds a Runner. Errors are for the person who set the options.
func New(o Options) (*Runner, error) {
	o.Port = cmp.Or(o.Port, DefaultPort)
	o.Link = cmp.Or(o.Link, LinkAuto)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.NodeName == "":
		return nil, errors.New("--node-name is required: the InternalNode that this node is")
	case (o.Feed == nil) != (o.Reporter == nil), (o.Feed == nil) == (o.Dir == ""):
		return nil, errors.New("either a directory of manifests or an API server is needed")
	case o.Link == string(hostnet.KindTUN) && o.Ends == nil:
		return nil, errors.New("--link=tun needs the agent's own end of the tunnels")
	}
	if err := badLink(o.Link); err != nil {
		return nil, err
	}
	r := &Runner{
		options: o, inCluster: o.Feed != nil, feed: o.Feed, reporter: o.Reporter, host: o.Host, log: o.Logger, diff: hostnet.Diff,
		kick: make(chan struct{}, 1), attached: make(map[string]tunlink.Tunnel), sampler: sampler{host: o.Host, ends: o.Ends},
	}
	if !r.inCluster {
		r.feed = manifests.Directory{Path: o.Dir, Reader: reader, Degraded: func(err error) { r.log.Warn("no file events, polling instead", "error", err) }}
		r.reporter = &directoryReporter{dir: o.Dir}
	}
	r.state = State{Node: o.NodeName, Port: o.Port, Link: LinkChoice{Forced: o.Link != LinkAuto}}
	return r, nil
}

// reader is what this program is as a reader of manifests.
var reader = manifests.Reader{Name: "the node agent", Kinds: []string{
	"InternalFabric", "InternalNode", "GeneveTunnel", "Configuration", "GatewayServer", "GatewayClient", "IP", "Network",
}}

// Load judges the objects for the first time, without any effect but that TUN
// devices that are there are attached to. Its error, of
// type manifests.Problems but for what is wrong with the node itself, is
// complete: every problem of every file.
func (r *Runner) Load() error {
	if err := r.begin(); err != nil {
		return err
	}
	if r.noKind != nil {
		return r.noKind
	}
	reading, err := r.feed.Read(manifests.Digest{})
	if err != nil {
		return err
	}
	plan, err := r.build(reading.Objects)
	if reading.Heavy {
		reading.Objects = manifests.Objects{}
		debug.FreeOSMemory()
	}
	r.warn(append(reading.Warnings, plan.Warnings...))
	if err != nil {
		return err
	}
	r.judged = reading.Digest
	r.adopt(plan, reading.Warnings)
	return nil
}

// begin looks at what is there, and takes up TUN devices before anything that
// takes time: without us they carry nothing.
func (r *Runner) begin() (err error) {
	if r.actual, err = r.host.Read(); err != nil {
		return fmt.Errorf("read the network of this node: %w", err)
	}
	r.resume()
	r.choose()
	return nil
}

// Run follows objects and kernel until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before waiting
	ended := make(chan error, 1)
	wg.Go(func() { r.feed.Watch(ctx, func() { r.notify(events{objects: true}) }) })
	wg.Go(func() { r.watchHost(ctx) })
	if r.options.Ends != nil {
		wg.Go(func() { ended <- r.options.Ends.Run(ctx) })
	}
	defer r.reporter.Close()
	if r.choice.Kind == "" && r.noKind == nil {
		if err := r.begin(); err != nil {
			return err
		}
	}
	now := time.Now()
	r.due.objects, r.due.sample = now, now.Add(sampleInterval)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("serve the tunnels of TUN devices: %w", err)
		case <-r.kick:
			r.scheduleEvents(time.Now())
		case <-timer.C:
			r.runDue(time.Now())
		}
		timer.Reset(time.Until(r.due.next()))
	}
}

// watchHost passes on what happens in the kernel. Without notifications the
// samples find what has changed, only later.
func (r *Runner) watchHost(ctx context.Context) {
	pause, said := firstRetry, ""
	for {
		err := r.host.Watch(ctx, func(e hostnet.Event) { r.notify(events{host: e}) })
		if ctx.Err() != nil {
			return
		}
		if text := fmt.Sprint(err); text != said {
			r.log.Warn("notifications of the kernel have stopped, opening them again", "error", err)
			said = text
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, maxRetry)
	}
}

// notify records events and wakes Run. Any goroutine may call it; it does not block.
func (r *Runner) notify(e events) {
	r.mu.Lock()
	r.events.objects = r.events.objects || e.objects
	r.events.host.Ours = r.events.host.Ours || e.host.Ours
	r.events.host.Paths = r.events.host.Paths || e.host.Paths
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default: // it has not looked since the last time
	}
}

// scheduleEvents sets when to handle what has happened. More events of the same kind
// do not postpone what is scheduled already.
func (r *Runner) scheduleEvents(now time.Time) {
	r.mu.Lock()
	e := r.events
	r.events = events{}
	r.mu.Unlock()
	soon := func(at *time.Time, happened bool, settle time.Duration) {
		if happened && at.IsZero() {
			if *at = now.Add(settle); at.Before(r.rest) {
				*at = r.rest
			}
		}
	}
	soon(&r.due.objects, e.objects, 0) // the feed has waited for more
	soon(&r.due.ours, e.host.Ours, oursSettle)
	soon(&r.due.paths, e.host.Paths, pathsSettle)
}

// next is the time of the next look.
func (s schedule) next() time.Time {
	next := s.sample
	for _, at := range []time.Time{s.objects, s.ours, s.paths, s.retry, s.liqo} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// clearIfDue reports whether the time has come, and if so, resets it.
func clearIfDue(at *time.Time, now time.Time) bool {
	if at.IsZero() || at.After(now) {
		return false
	}
	*at = time.Time{}
	return true
}

// runDue does what is due at now.
func (r *Runner) runDue(now time.Time) {
	objects, paths := clearIfDue(&r.due.objects, now), clearIfDue(&r.due.paths, now)
	ours, retry := clearIfDue(&r.due.ours, now), clearIfDue(&r.due.retry, now)
	if clearIfDue(&r.due.sample, now) {
		r.due.sample = r.sample()
		ours = ours || r.drifted()
	}
	if retry {
		r.retryKinds()
	}
	if objects || paths || retry {
		r.follow(paths || retry)
	}
	// What failed may succeed now: a link that was in the way may be gone.
	r.dirty = r.dirty || ours || retry || paths && len(r.failures) > 0
	switch {
	case r.planned && r.dirty:
		r.enforce(now)
	case r.dirty:
		r.actual, r.dirty = r.sampler.take(0).actual, false
		r.resume()
	}
	if r.options.TakeOver && (clearIfDue(&r.due.liqo, now) || objects || paths || retry) {
		r.takeOver(now)
	}
	if r.contest.settled(now) {
		r.log.Info("nobody changes what is ours any more")
	}
	r.hint()
	r.publish()
	r.report(now)
	r.rest = time.Now().Add(min(restFactor*time.Since(now), maxRest))
}
