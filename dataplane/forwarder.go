package dataplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/dataplane/capture"
	"github.com/sluice-net/sluice/dataplane/dropped"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// Underlay is the socket towards the nodes. *underlay.Conn implements it.
type Underlay interface {
	WaitMessages(bufs [][]byte, ms []underlay.Message) (n int, err error)
	WriteBatch(datagrams []underlay.Datagram) (sent int, err error)
	TryWriteBatch(datagrams []underlay.Datagram) (sent int, err error)
	Wake()
	LocalAddr() netip.AddrPort
	Stats() underlay.Stats
	Close() error
}

// Options are what a Forwarder is built from and cannot change later.
type Options struct {
	// Underlays are the sockets towards the nodes, all of one address: see
	// underlay.ListenShared. Each is read by a goroutine of its own, which carries what it
	// reads to the peer; the first one also sends what is for the nodes. As many goroutines
	// carry what comes from the peer, if there is much of it. There is one at least. The
	// Forwarder closes them at the end of Run.
	Underlays []Underlay
	// NodePort is the UDP port that nodes receive on. Zero: geneve.DefaultPort.
	NodePort uint16
	// Tunnel opens the sockets towards the peer.
	Tunnel tunnel.Options
	// MaxFlows bounds each flow table. Zero: DefaultMaxFlows.
	MaxFlows int
	// Logger gets state changes. Nil: slog.Default().
	Logger *slog.Logger
}

// Forwarder is the data plane of one gateway: the node tunnels, the translation
// and the WireGuard tunnel to the peer, joined. Build it with New, give it its
// first configuration with Apply, then let it Run; Apply is safe at any time.
type Forwarder struct {
	underlay Underlay // of loops[0]
	// loops and ingressLoops are one for each of Options.Underlays.
	loops        []*egressLoop
	ingressLoops []*ingressLoop
	// further are ingress loops of further tunnels, by number, and are kept when a tunnel
	// is not: see ingressOf.
	further struct {
		sync.Mutex
		loops []*ingressLoop
	}
	nodePort uint16
	tunnel   *tunnel.Tunnel
	stack    *netstack.Stack
	log      *slog.Logger
	start    time.Time
	clock    func() int64 // nanoseconds since start, that never run backwards

	snap atomic.Pointer[snapshot]
	// flows are those that local senders open behind the unknown source, and podFlows
	// those that the peer opens through IP objects: it cannot fill the table of others.
	flows, podFlows *flowTable
	pathMTUs        pathMTUs
	closed          atomic.Bool
	// own is what the gateway's stack has to say to the peer, errors the ICMP errors: see send.
	own, errors chan []byte
	// applied wakes upkeep, so that new nodes are probed at once. One slot:
	// sent to by Apply, received by upkeep, never closed.
	applied chan struct{}

	egressErrors, ingressErrors *errorBudget

	// Owned by the stack's goroutine.
	fromOwn *nodeWriter
	// Owned by the goroutine in Run.
	probes *nodeWriter

	pinged   atomic.Int32 // the place of the tunnel that PingPeer goes by; 0: the first one
	captures capture.Set
	dropped  *dropped.Sample
	locals   atomic.Pointer[locals] // set before the first capture

	mu     sync.Mutex
	states map[string]*nodeState // by node and VNI; kept over changes
	path   int                   // what SetPathMTU said; 0: nothing
}

// counters count one direction.
type counters struct {
	verdicts [numVerdicts]atomic.Uint64

	packets, bytes, repaired, segmented, fragmented, fallback atomic.Uint64
}

// forwarded counts the received packets of a batch that were forwarded, and what they became: at
// once, as an atomic addition takes as long as a stage.
func (c *counters) forwarded(received, packets, bytes int) {
	c.verdicts[Forwarded].Add(uint64(received))
	c.packets.Add(uint64(packets))
	c.bytes.Add(uint64(bytes))
}

// ownStackBytes bounds the queues of the gateway's own stack, which carries pings
// and diagnostics: a flood of them must not grow the process.
const ownStackBytes = 256 << 10

// ownTCPBuffer bounds what a TCP connection of the gateway itself has on its way: less than own has room for, so that a
// connection at full speed loses none of its packets there, and no pings.
const ownTCPBuffer = 48 << 10

// New builds a Forwarder that drops everything until the first Apply.
func New(o Options) (*Forwarder, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.NodePort == 0 {
		o.NodePort = geneve.DefaultPort
	}
	if o.MaxFlows == 0 {
		o.MaxFlows = DefaultMaxFlows
	}
	if len(o.Underlays) == 0 {
		return nil, errors.New("dataplane: Underlays must be set")
	}
	stack, err := netstack.New(netstack.Config{MTU: DefaultMTU, QueueBytes: ownStackBytes, TCPBuffer: ownTCPBuffer, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("build stack: %w", err)
	}
	f := &Forwarder{
		underlay: o.Underlays[0],
		nodePort: o.NodePort,
		stack:    stack,
		log:      o.Logger,
		start:    time.Now(),
		flows:    newFlowTable(o.MaxFlows),
		podFlows: newFlowTable(o.MaxFlows),
		own:      make(chan []byte, ownQueueLen),
		errors:   make(chan []byte, ownQueueLen),
		applied:  make(chan struct{}, 1),
		states:   make(map[string]*nodeState),
		dropped:  newDropSample(),

		egressErrors: newErrorBudget(), ingressErrors: newErrorBudget(),
	}
	f.clock = func() int64 { return int64(time.Since(f.start)) }
	// What ingress has to wait for must not hold up egress. All of this is asked for, or sent,
	// again.
	f.fromOwn, f.probes = newNodeWriter(f, 0, f.underlay.TryWriteBatch), newNodeWriter(f, 0, f.underlay.TryWriteBatch)
	for i, u := range o.Underlays {
		l := newEgressLoop(f, i, u)
		in := newIngressLoop(f, i, f.underlay)
		f.loops, f.ingressLoops = append(f.loops, l), append(f.ingressLoops, in)
		if i > 0 {
			o.Tunnel.Readers, o.Tunnel.Writers = append(o.Tunnel.Readers, l), append(o.Tunnel.Writers, in)
		}
	}
	f.pathMTUs.sent.seed = maphash.MakeSeed()
	f.snap.Store(&snapshot{})
	o.Tunnel.Overlay, o.Tunnel.OnDrop, o.Tunnel.Further = f, f.keepTunnel, f.ingressOf
	if f.tunnel, err = tunnel.New(o.Tunnel); err != nil {
		stack.Close()
		return nil, fmt.Errorf("build tunnel: %w", err)
	}
	return f, nil
}

// Apply replaces the configuration. It either takes effect as a whole or, with
// an error, not at all. No packet is lost over it.
func (f *Forwarder) Apply(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg.MTU = cmp.Or(cfg.MTU, DefaultMTU)
	cfg.Tunnel.MTU = cfg.MTU
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.forgetStates() // also those that a refused configuration would need
	s, err := newSnapshot(cfg, f.nodePort, len(f.loops), f.states, f.snap.Load().filter)
	if err != nil {
		return err
	}
	s.pathMTU = pathMTUOf(cfg, f.path)
	stack, err := f.stack.Prepare(s.pathMTU, ownAddresses(cfg))
	if err != nil {
		return fmt.Errorf("own stack: %w", err)
	}
	// The last that can refuse, and it has changed nothing then.
	if err := f.tunnel.Apply(cfg.Tunnel); err != nil {
		stack.Cancel()
		return fmt.Errorf("tunnel: %w", err)
	}
	stack.Commit()
	f.snap.Store(s)
	select {
	case f.applied <- struct{}{}:
	default: // it has not looked since the last time
	}
	return nil
}

// SetPathMTU says how large packets the path to the peer carries: none that leaves is
// larger, whatever the Config's MTU, which remains what nodes send and take. Zero ends
// that. Apply leaves it in force. No packet is lost over it: TCP segments that were made
// for another size are cut.
func (f *Forwarder) SetPathMTU(size int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.snap.Load()
	s := *before
	s.pathMTU = pathMTUOf(s.cfg, size)
	if s.tunnels == nil || s.pathMTU == before.pathMTU {
		f.path = size // for the next Apply
		return nil
	}
	stack, err := f.stack.Prepare(s.pathMTU, ownAddresses(s.cfg))
	if err != nil {
		return fmt.Errorf("own stack: %w", err)
	}
	stack.Commit()
	f.path = size
	f.snap.Store(&s)
	return nil
}

// pathMTUOf is the size of packets for the peer: at least what a Config may ask for.
func pathMTUOf(cfg Config, path int) int {
	if path == 0 {
		return cfg.MTU
	}
	return min(cfg.MTU, max(path, MinMTUIPv6))
}

// ingressOf returns the ingress loop of a number, for a further tunnel. It sends by a socket that
// the first tunnel does not send by, if there is one.
func (f *Forwarder) ingressOf(number int) tunnel.Writer {
	f.further.Lock()
	defer f.further.Unlock()
	for len(f.further.loops) <= number {
		socket := (len(f.further.loops) + 1) % len(f.loops)
		f.further.loops = append(f.further.loops, newIngressLoop(f, socket, f.loops[socket].socket))
	}
	return f.further.loops[number]
}

// SetUsable says by which tunnels packets may go: see tunnel.Tunnel. PingPeer goes by the first
// of them.
func (f *Forwarder) SetUsable(usable []bool) {
	f.pinged.Store(int32(max(0, slices.Index(usable, true))))
	f.tunnel.SetUsable(usable)
}

// forgetStates drops what is known about nodes that are not configured. The caller
// holds mu.
func (f *Forwarder) forgetStates() {
	s := f.snap.Load()
	for id, st := range f.states {
		if !slices.ContainsFunc(s.nodes, func(t *nodeTunnel) bool { return t.state == st }) {
			delete(f.states, id)
		}
	}
}

func ownAddresses(cfg Config) []netip.Addr {
	own := slices.Clone(cfg.Internal)
	for _, e := range cfg.tunnelEnds() {
		if e.Own.IsValid() {
			own = append(own, e.Own)
		}
	}
	return own
}

// Run forwards packets until parent ends or something breaks, and returns the
// first cause. Everything is closed when it returns.
func (f *Forwarder) Run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var wg sync.WaitGroup
	run := func(what string, fn func(context.Context) error) {
		wg.Go(func() {
			if err := fn(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	run("stack", func(ctx context.Context) error { return f.stack.Run(ctx, f.fromStack) })
	run("tunnel", f.tunnel.Run)
	run("upkeep", f.upkeep)
	<-ctx.Done()
	f.CloseRead()
	wg.Wait()
	f.stack.Close()
	var closeErr error
	for _, l := range f.loops {
		closeErr = errors.Join(closeErr, l.socket.Close())
	}
	if parent.Err() == nil {
		return context.Cause(ctx)
	}
	return closeErr
}

// CloseRead makes ReadPackets return os.ErrClosed, now and from now on, for every loop.
func (f *Forwarder) CloseRead() {
	f.closed.Store(true)
	for _, l := range f.loops {
		l.socket.Wake()
	}
}

// upkeepInterval is how often expired flows are swept and nodes are probed.
const upkeepInterval = neighbor.ProbeInterval

// upkeep does what no packet triggers.
func (f *Forwarder) upkeep(ctx context.Context) error {
	tick := time.NewTicker(upkeepInterval)
	defer tick.Stop()
	for {
		f.upkeepAt(f.clock())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-f.applied:
		}
	}
}

// upkeepAt is one round of upkeep.
func (f *Forwarder) upkeepAt(now int64) {
	s := f.snap.Load()
	for _, t := range s.nodes {
		for _, e := range t.probes(now) {
			f.probes.probe(s, t, e)
		}
	}
	f.probes.flush()
	f.pathMTUs.sweep(now)
	if f.captures.Active() != nil {
		f.findLocals()
	}
	alive := func(node string) bool { return s.byName[node] != nil }
	f.flows.sweep(now, alive)
	f.podFlows.sweep(now, alive)
}

// ListenUDP opens a UDP socket on one of the gateway's own addresses.
func (f *Forwarder) ListenUDP(a netip.AddrPort) (net.PacketConn, error) { return f.stack.ListenUDP(a) }

// ListenTCP opens a TCP listener on one of the gateway's own addresses.
func (f *Forwarder) ListenTCP(a netip.AddrPort) (net.Listener, error) { return f.stack.ListenTCP(a) }

// DialTCP opens a TCP connection from one of the gateway's own addresses.
func (f *Forwarder) DialTCP(ctx context.Context, laddr, raddr netip.AddrPort) (net.Conn, error) {
	return f.stack.DialTCP(ctx, laddr, raddr)
}

// Ping sends one ICMP echo request from the gateway's own addresses and returns
// the round-trip time.
func (f *Forwarder) Ping(ctx context.Context, dst netip.Addr) (time.Duration, error) {
	const size = 56 // as ping(8)
	return f.stack.PingFrom(ctx, f.snap.Load().peerEnds[dst], dst, size, false)
}

// Handshake asks the peer for a new session now, if its address is known: see
// tunnel.Tunnel.Handshake.
func (f *Forwarder) Handshake() bool { return f.tunnel.Handshake() }

// Unconfirmed says that another gateway with the same key may lead: see tunnel.Tunnel.
func (f *Forwarder) Unconfirmed(silence time.Duration) { f.tunnel.Unconfirmed(silence) }

// ReleaseHandshake lets a handshake begin that was kept back: see tunnel.Tunnel.
func (f *Forwarder) ReleaseHandshake(before time.Time) { f.tunnel.ReleaseHandshake(before) }

// Tunnel returns what the tunnel to the peer is doing now.
func (f *Forwarder) Tunnel() tunnel.Stats { return f.tunnel.Stats() }

// Status returns what the data plane is doing now.
func (f *Forwarder) Status() Status {
	s := f.snap.Load()
	st := Status{
		Configured: s.tunnels != nil, MTU: s.cfg.MTU, PathMTU: s.pathMTU,
		Tunnel:   f.tunnel.Stats(),
		Internal: s.cfg.Internal, TunnelAddr: s.cfg.TunnelAddr,
		Remote: s.cfg.Remote, LocalPods: s.cfg.LocalPods, External: s.cfg.LocalExternal,
		Addresses: s.cfg.Addresses, Routes: s.cfg.Routes, Sources: s.cfg.Sources, Filter: s.filter.Status(),
		Flows: f.flows.status(), PodFlows: f.podFlows.status(),
		Ingress:  newDirectionStatus(),
		Sockets:  map[string]SocketStatus{"geneve": f.socketStatus()},
		Captures: f.captures.Status(),
	}
	st.Egress = newDirectionStatus()
	for _, l := range f.loops {
		l.count.addTo(&st.Egress)
	}
	f.further.Lock()
	further := slices.Clone(f.further.loops)
	f.further.Unlock()
	for _, l := range append(further, f.ingressLoops...) {
		l.count.addTo(&st.Ingress)
	}
	for _, t := range s.nodes {
		st.Nodes = append(st.Nodes, t.status(f.start))
	}
	return st
}

// socketStatus describes the sockets towards the nodes as one.
func (f *Forwarder) socketStatus() SocketStatus {
	stats := f.underlay.Stats()
	for _, l := range f.loops[1:] {
		stats = stats.Plus(l.socket.Stats())
	}
	return SocketStatus{f.underlay.LocalAddr(), len(f.loops), stats}
}

func newDirectionStatus() DirectionStatus { return DirectionStatus{Verdicts: make(map[string]uint64)} }

// addTo adds the counters to those in d.
func (c *counters) addTo(d *DirectionStatus) {
	d.Packets += c.packets.Load()
	d.Bytes += c.bytes.Load()
	d.Repaired += c.repaired.Load()
	d.Segmented += c.segmented.Load()
	d.Fragmented += c.fragmented.Load()
	d.Fallback += c.fallback.Load()
	for v := range c.verdicts {
		if n := c.verdicts[v].Load(); n > 0 {
			d.Verdicts[Verdict(v).String()] += n
		}
	}
}
