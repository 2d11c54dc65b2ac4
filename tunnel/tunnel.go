package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/sluice-net/sluice/underlay"
)

// Reader is a source of packets to the peer. One goroutine at a time calls it.
type Reader interface {
	// ReadPackets waits for packets to the peer and puts the i-th into
	// bufs[i][offset:offset+sizes[i]]. It must not exchange the elements of bufs.
	// The first own of the n packets come from the gateway's own addresses and are
	// admitted even when nothing else is. A size of 0 is skipped. Any error ends
	// the tunnel; os.ErrClosed is the one for an orderly end.
	ReadPackets(bufs [][]byte, sizes []int, offset int) (n, own int, err error)
}

// Writer is a sink of packets from the peer. One goroutine at a time calls it.
type Writer interface {
	// WritePackets takes packets from the peer, the i-th in bufs[i][offset:]. They
	// are the caller's again when it returns; until then it may change them, and
	// use up to offset bytes in front and whatever capacity is behind. ecn[i] is the
	// ECN field of the header outside (RFC 6040); nil: not known. turn waits until
	// the WritePackets of all earlier packets, by other Writers, have returned: what has to
	// keep their order comes after it.
	WritePackets(bufs [][]byte, ecn []uint8, offset int, turn func())
}

// Overlay is the data plane as the tunnel sees it: a source and a sink of the packets
// inside the tunnel. Both may run at once.
type Overlay interface {
	Reader
	Writer
}

// Socket is a batched UDP socket; *underlay.Conn is one. WriteBatch is called by several
// goroutines at the same time.
type Socket interface {
	ReadBatch(bufs [][]byte, sizes []int, from []underlay.Origin) (n int, err error)
	WriteBatch(datagrams []underlay.Datagram) (sent int, err error)
	LocalAddr() netip.AddrPort
	Close() error
}

// Options are the parts of a Tunnel that do not change.
type Options struct {
	// Overlay is the data plane. It must be set.
	Overlay Overlay
	// Readers are read besides the Overlay, each by a goroutine of its own that seals and
	// sends what it reads: several processors share the work. The order of packets is kept
	// for each of them. There may be MaxReaders.
	Readers []Reader
	// Writers are written to besides the Overlay, each by a goroutine of its own that opens
	// what it writes: several processors share the work if there is much of it.
	Writers []Writer
	// Further returns where the packets of a further tunnel go, by a number from 0 that no
	// other tunnel has which runs, and the same Writer again for the same number. Nil: a
	// Config has no further tunnels.
	Further func(number int) Writer
	// Listen opens the UDP socket; port 0 means any. It must be set.
	Listen func(port uint16) (Socket, error)
	// Logger is for changes of state and for what wireguard-go reports: its errors
	// as warnings, the rest at debug level. Nil: silent.
	Logger *slog.Logger
	// OnDrop is shown some of what the tunnel drops, besides what Observe shows, without
	// the time: one of several that are read at once. Several goroutines call it at the same
	// time; none of them should have to wait. Nil: nobody looks.
	OnDrop func(Observation)
	// Resolve looks up the host of an endpoint. Nil: the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
}

// state is where in its life a Tunnel is.
type state uint8

const (
	built state = iota
	running
	stopped
)

// Tunnel is the WireGuard tunnel to one peer gateway.
type Tunnel struct {
	opts    Options
	log     *slog.Logger
	egress  *egress
	ingress *ingressAccount
	bind    *bind
	tun     *tunDevice
	dev     atomic.Pointer[device.Device] // nil before Run
	changed chan struct{}                 // sent to by Apply, received by followEndpoint; one slot, never closed
	keys    chan struct{}                 // sent to by wakeKeys, received by followKeys; one slot, never closed

	mu     sync.Mutex
	state  state
	config Config // the last that was applied; the zero value before the first
	port   uint16 // Config.ListenPort of the socket in use or prepared
	up     bool   // the device has a configuration and its socket
	// unknown: wireguard-go has no configuration yet, or refused a part of one, so
	// that the next is set from scratch.
	unknown bool
	// succession is under way while the peer has two keys.
	succession succession
	// peerSince is when the peer got its present key.
	peerSince time.Time
	// strangers are those to begin a handshake with.
	strangers []PublicKey
	greeting  greeting
	// lookupError is that of Stats.
	lookupError string

	further further
}

// New returns a Tunnel that is not configured. It opens nothing.
func New(o Options) (*Tunnel, error) {
	if o.Overlay == nil || o.Listen == nil {
		return nil, errors.New("tunnel: Overlay and Listen must be set")
	}
	if len(o.Readers) > MaxReaders {
		return nil, fmt.Errorf("tunnel: %d Readers, the most are %d", len(o.Readers), MaxReaders)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnDrop == nil {
		o.OnDrop = func(Observation) {}
	}
	if o.Resolve == nil {
		o.Resolve = systemResolve
	}
	t := &Tunnel{
		opts:    o,
		log:     o.Logger,
		egress:  newEgress(o),
		ingress: new(ingressAccount),
		tun:     newTunDevice(),
		changed: make(chan struct{}, 1),
		keys:    make(chan struct{}, 1),
		unknown: true,
		further: further{changed: make(chan struct{}, 1)},
	}
	t.bind = newBind(o, t.egress, t.ingress, t.noteHandshake)
	return t, nil
}

// Apply makes the tunnel what c says, by the smallest change that does it, and
// is safe at any time before Run returns; afterwards the error is net.ErrClosed.
// When c is not valid, or its listen port cannot be had, nothing has changed. The
// endpoint moves only when c.Endpoint differs from the last one applied. Further tunnels
// follow while it runs; one whose port cannot be had is left out, and tried again.
func (t *Tunnel) Apply(c Config) error {
	next, err := c.normalize()
	if err != nil {
		return err
	}
	if len(next.Further) > 0 && t.opts.Further == nil {
		return errors.New("further tunnels: there is nowhere to write what they receive")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == stopped {
		return fmt.Errorf("apply: %w", net.ErrClosed)
	}
	t.releasePort(next.ListenPort)
	if err := t.relisten(next.ListenPort); err != nil {
		return err
	}
	if t.state == running {
		if err := t.configure(next); err != nil {
			return err
		}
	}
	t.config = next
	select {
	case t.changed <- struct{}{}:
	default: // the follower has not seen the last change yet
	}
	t.further.wake()
	return nil
}

// relisten opens a socket on another port than the present one and, when
// running, exchanges them. The new one is open before the old one closes, so
// that failing costs nothing. The caller holds mu.
func (t *Tunnel) relisten(port uint16) error {
	if present := t.bind.port(); present != 0 && (port == t.port || port == present) {
		t.port = port
		return nil
	}
	s, err := t.opts.Listen(port)
	if err != nil {
		return fmt.Errorf("listen on UDP port %d: %w", port, err)
	}
	actual := s.LocalAddr().Port()
	if err := t.bind.prepare(s); err != nil {
		return fmt.Errorf("listen on UDP port %d: %w", port, err)
	}
	t.port = port
	if !t.up {
		return nil // it opens the socket when it goes up
	}
	dev := t.dev.Load()
	if err := dev.IpcSet(uapiListenPort(actual)); err != nil {
		return fmt.Errorf("listen on UDP port %d: %w", port, err)
	}
	// The peer learns the new port from the next message it gets.
	dev.SendKeepalivesToPeersWithCurrentKeypair()
	t.log.Info("listen port changed", "port", actual)
	return nil
}

// configure brings the device from t.config to next. The caller holds mu.
func (t *Tunnel) configure(next Config) error {
	var old *target
	if !t.unknown {
		o := t.succession.target(t.config)
		old = &o
	}
	dev := t.dev.Load()
	t.tun.setMTU(next.MTU)
	s, want := t.succeed(dev, old, next)
	if text := uapiDiff(old, want); text != "" {
		t.unknown = true
		if err := dev.IpcSet(text); err != nil {
			return fmt.Errorf("configure WireGuard: %w", err)
		}
	}
	t.succession = s
	if old == nil || old.PrivateKey != want.PrivateKey || old.PeerKey != want.PeerKey {
		t.greeting = greeting{}
	}
	if old == nil || old.holder() != want.holder() {
		t.peerSince = time.Now()
		t.egress.reset()
		t.ingress.reset()
	}
	if strangers := strangers(old, want); len(strangers) > 0 {
		t.strangers = append(t.strangers, strangers...)
		t.greeting = newGreeting(want.PrivateKey.Public(), strangers, t.egress.roundTrip(), time.Now())
		t.wakeKeys()
	}
	if _, ok := literalEndpoint(next.Endpoint); ok && !next.PeerKey.IsZero() {
		t.egress.setReachable()
	}
	if err := dev.Up(); err != nil { // does nothing when it is up
		return fmt.Errorf("start WireGuard: %w", err)
	}
	t.unknown, t.up = false, true
	return nil
}

// Run works until ctx ends, and then returns nil, or until the Overlay fails. It
// runs once. When it returns everything is closed.
func (t *Tunnel) Run(ctx context.Context) error {
	dev, err := t.start()
	if dev == nil {
		return err
	}
	return t.serve(ctx, dev, err)
}

// serve is Run from the start of the device on, of which err is the error.
func (t *Tunnel) serve(ctx context.Context, dev *device.Device, err error) error {
	if err == nil {
		err = t.carry(ctx, dev)
	}
	t.bind.shutdown()
	t.mu.Lock()
	t.state = stopped
	t.mu.Unlock()
	dev.Close()
	<-dev.Wait()
	return err
}

// start makes the device and gives it the configuration, if there is one. It
// returns no device when there is nothing to stop.
func (t *Tunnel) start() (*device.Device, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != built {
		return nil, errors.New("tunnel: Run or Close was called before")
	}
	t.state = running
	dev := device.NewDevice(t.tun, t.bind, newDeviceLogger(t.log))
	t.egress.useDevice(dev)
	t.dev.Store(dev)
	t.bind.receive = func(s *openSocket) { newInbound(t.bind, s).run(dev) }
	if t.config.PrivateKey.IsZero() {
		return dev, nil // Apply will configure it
	}
	return dev, t.configure(t.config)
}

// carry carries packets to the peer, and keeps its endpoint and keys right, until ctx ends
// or reading from the Overlay fails.
func (t *Tunnel) carry(ctx context.Context, dev *device.Device) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { t.followEndpoint(ctx) })
	wg.Go(func() { t.followKeys(ctx) })
	wg.Go(func() { t.followCallers(ctx) })
	wg.Go(func() { t.followClock(ctx) })
	wg.Go(func() { t.followFurther(ctx) })
	wg.Go(func() { t.egress.release(ctx, dev) })
	failed := make(chan error, len(t.egress.loops))
	for _, l := range t.egress.loops {
		wg.Go(func() { failed <- l.run(ctx) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	// Before waiting: what is blocked in the socket may hold locks that the
	// follower, an Apply or the device wait for.
	t.bind.shutdown()
	t.egress.closeRead()
	wg.Wait()
	if outer.Err() != nil && errors.Is(err, os.ErrClosed) {
		return nil // its owner closed the overlay for the same reason that ends us
	}
	return err
}

// Close releases a Tunnel that was applied and will not run. It does nothing to
// one that runs: ending the context of Run is the way to end that.
func (t *Tunnel) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == built {
		t.state = stopped
		t.bind.shutdown()
	}
	return nil
}

// Stats returns what the tunnel has done so far. It may be called at any time.
func (t *Tunnel) Stats() Stats {
	var s Stats
	t.egress.addTo(&s)
	t.ingress.addTo(&s)
	s.Waiting = t.egress.waiting.len()
	t.mu.Lock()
	s.Self, s.Peer, s.FormerPeer, s.LookupError = t.config.PrivateKey.Public(), t.config.PeerKey, t.succession.former, t.lookupError
	t.mu.Unlock()
	s.ListenPort = t.bind.port()
	peer := readPeerStats(t.dev.Load(), s.Peer)
	s.Endpoint, s.LastHandshake = peer.Endpoint, peer.LastHandshake
	s.RxBytes, s.TxBytes = peer.RxBytes, peer.TxBytes
	t.addFurther(&s)
	return s
}
