package tunlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/underlay"
)

// Errors of Apply, in a TunnelError or by themselves.
var (
	// ErrNoDevice: the device of a tunnel does not exist.
	ErrNoDevice = errors.New("no such device")
	// ErrPortInUse: the UDP port belongs to another program or to tunnels of the kernel.
	ErrPortInUse = errors.New("the UDP port is in use")
	// ErrNotPermitted: a right is missing that the error names.
	ErrNotPermitted = errors.New("not permitted")
)

// TunnelError is about one tunnel.
type TunnelError struct {
	Device string
	Err    error
}

// Error names the device.
func (e *TunnelError) Error() string { return fmt.Sprintf("tunnel %s: %v", e.Device, e.Err) }

// Unwrap returns the cause.
func (e *TunnelError) Unwrap() error { return e.Err }

// maxQueues bounds Options.Queues: what one gateway and its tunnel to the peer
// can carry keeps less than that busy.
const maxQueues = 16

// Options are what an Endpoint is built from and cannot change later.
type Options struct {
	// Port is the UDP port at both ends. Zero: geneve.DefaultPort.
	Port uint16
	// Queues is the number of queues per device and of workers. Zero: one per
	// processor that the program may use, at most four.
	Queues int
	// GSO takes super-segments from the kernel and sends runs.
	GSO bool
	// GRO receives runs and gives super-segments to the kernel.
	GRO bool
	// Logger gets state changes. Nil: slog.Default().
	Logger *slog.Logger
}

// Endpoint is the node end of tunnels. Build it with New, give it its tunnels with
// Apply, then let it Run; Apply is safe at any time before Run returns.
type Endpoint struct {
	opts  Options
	log   *slog.Logger
	start time.Time

	snap  atomic.Pointer[snapshot]
	drops dropCounters // of datagrams that belong to no tunnel
	// waiting is how many bytes wait for gateways that are not known yet.
	waiting atomic.Int64
	// doubts wakes upkeep. One slot: sent to by Apply and workers, received by
	// upkeep, never closed.
	doubts chan struct{}

	mu      sync.Mutex
	ended   bool
	workers []*worker // made by the first Apply with a tunnel
	started int       // that many of them run
	running sync.WaitGroup
	devices map[string]*device
	conn    *underlay.Conn // nil while there is no tunnel
}

// snapshot is what receiving reads: built by Apply, immutable, swapped with one
// atomic store.
type snapshot struct {
	tunnels map[tunnelKey]*tunnel
	sorted  []*tunnel // by device
}

// New builds an Endpoint without tunnels.
func New(o Options) (*Endpoint, error) {
	if o.Queues < 0 || o.Queues > maxQueues {
		return nil, fmt.Errorf("queues: %d: want at most %d", o.Queues, maxQueues)
	}
	if o.Queues == 0 {
		o.Queues = min(runtime.GOMAXPROCS(0), 4)
	}
	if o.Port == 0 {
		o.Port = geneve.DefaultPort
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	e := &Endpoint{
		opts: o, log: o.Logger, start: time.Now(),
		doubts: make(chan struct{}, 1), devices: make(map[string]*device),
	}
	e.snap.Store(&snapshot{})
	return e, nil
}

// clock returns nanoseconds that never run backwards and are never zero.
func (e *Endpoint) clock() int64 { return int64(time.Since(e.start)) + 1 }

// wakeUpkeep makes upkeep look after the neighbors now.
func (e *Endpoint) wakeUpkeep() {
	select {
	case e.doubts <- struct{}{}:
	default: // it has not looked since the last time
	}
}

// Apply makes these the tunnels, no others. Devices and the socket are opened in
// the network namespace of the calling thread. What cannot be had is left out and
// named by a *TunnelError; everything else is in force. A device whose name
// means another one now is given up for that one.
func (e *Endpoint) Apply(ts []Tunnel) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return errors.New("the endpoint has ended")
	}
	wanted, errs := validated(ts)
	if len(wanted) > 0 {
		if err := e.open(); err != nil {
			return errors.Join(append(errs, err)...) // there is no tunnel yet
		}
	}
	devices := make(map[string]*device, len(wanted))
	for name := range wanted {
		d := e.devices[name]
		if d == nil || !d.usable() {
			var err error
			if d, err = openDevice(name, len(e.workers), e.opts.GSO); err != nil {
				errs = append(errs, &TunnelError{name, err})
				continue
			}
		}
		devices[name] = d
	}
	var stale []*device
	for name, d := range e.devices {
		if devices[name] != d {
			stale = append(stale, d)
		}
	}
	e.install(wanted, devices, stale)
	e.devices = devices
	if len(e.devices) == 0 {
		e.closeConn()
	}
	e.wakeUpkeep()
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// validated returns the tunnels that can be had, by device, and what is wrong with
// the others.
func validated(ts []Tunnel) (map[string]Tunnel, []error) {
	wanted, owners := make(map[string]Tunnel, len(ts)), make(map[tunnelKey]string, len(ts))
	var errs []error
	for _, t := range ts {
		key := tunnelKey{t.Gateway.Unmap(), t.VNI}
		err := t.Validate()
		if _, twice := wanted[t.Device]; err == nil && twice {
			err = errors.New("another tunnel has the same device")
		}
		if owner, twice := owners[key]; err == nil && twice {
			err = fmt.Errorf("gateway %v and VNI %d are those of %s", t.Gateway, t.VNI, owner)
		}
		if err != nil {
			errs = append(errs, &TunnelError{t.Device, err})
			continue
		}
		wanted[t.Device], owners[key] = t, t.Device
	}
	return wanted, errs
}

// open makes workers and socket, unless they are there.
func (e *Endpoint) open() error {
	for i := len(e.workers); i < e.opts.Queues; i++ {
		w, err := newWorker(e, i)
		if err != nil {
			return err
		}
		e.workers = append(e.workers, w)
	}
	if e.conn != nil {
		return nil
	}
	c, err := underlay.Listen(underlay.Config{
		Addr: netip.AddrPortFrom(netip.Addr{}, e.opts.Port), GRO: e.opts.GRO, GSO: e.opts.GSO, Unpolled: true,
	})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: %d: end the program that has it (ss -lunp 'sport = :%d' shows it), or delete the kernel's geneve and vxlan devices with this port: %w", ErrPortInUse, e.opts.Port, e.opts.Port, err)
	case err != nil:
		return err
	}
	for _, w := range e.workers {
		if err := w.setConn(c, w.index == 0); err != nil {
			return errors.Join(fmt.Errorf("watch the socket: %w", err), c.Close())
		}
	}
	e.conn = c
	return nil
}

func (e *Endpoint) closeConn() {
	if e.conn == nil {
		return
	}
	for _, w := range e.workers {
		_ = w.setConn(nil, false)
	}
	_ = e.conn.Close()
	e.conn = nil
}

// install puts the tunnels in force whose devices are open, and closes the stale devices
// when no worker uses them any more.
func (e *Endpoint) install(wanted map[string]Tunnel, devices map[string]*device, stale []*device) {
	before := make(map[string]*tunnel)
	for _, t := range e.snap.Load().sorted {
		before[t.Device] = t
	}
	s := &snapshot{tunnels: make(map[tunnelKey]*tunnel, len(devices))}
	for name, d := range devices {
		t := newTunnel(wanted[name], e.opts.Port, d, &e.waiting, before[name])
		s.tunnels[t.key()] = t
		s.sorted = append(s.sorted, t)
		d.tunnel.Store(t)
	}
	slices.SortFunc(s.sorted, func(a, b *tunnel) int { return strings.Compare(a.Device, b.Device) })
	e.snap.Store(s)
	for _, w := range e.workers {
		w.follow(s, stale)
	}
	for _, d := range stale {
		d.close()
	}
	for _, t := range s.sorted {
		if b := before[t.Device]; b != nil && b.learned == t.learned {
			delete(before, t.Device)
		}
	}
	for _, t := range before { // nobody will resolve it
		t.expire(math.MaxInt64)
	}
}

// Run carries packets until ctx ends or something breaks, and closes everything. The
// devices stay: they are persistent.
func (e *Endpoint) Run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return errors.New("the endpoint has ended")
	}
	e.mu.Unlock()
	tick := time.NewTicker(neighbor.ProbeInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		e.upkeep(cancel)
		select {
		case <-ctx.Done():
		case <-e.doubts:
		case <-tick.C:
		}
	}
	e.shut()
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// upkeep starts the workers that Apply has made, and asks for the gateways that are
// not known or were not heard for long.
func (e *Endpoint) upkeep(cancel context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ; e.started < len(e.workers); e.started++ {
		w := e.workers[e.started]
		e.running.Go(func() {
			if err := w.run(); err != nil {
				cancel(err)
			}
		})
	}
	now := e.clock()
	var questions []underlay.Datagram
	for _, t := range e.snap.Load().sorted {
		t.expire(now - int64(holdTime))
		if t.due(now) {
			questions = append(questions, t.question())
		}
	}
	if len(questions) > 0 {
		_, _ = e.conn.WriteBatch(questions) // asked again if it did not work
	}
}

// shut ends the workers and closes everything.
func (e *Endpoint) shut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	for _, w := range e.workers {
		w.stop()
	}
	e.running.Wait()
	for _, w := range e.workers {
		w.close()
	}
	for _, d := range e.devices {
		d.close()
	}
	if e.conn != nil {
		_ = e.conn.Close()
	}
}
