package tunnel

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"
)

// This file has the further tunnels of a peering. One tunnel has one port at each end, and so
// one queue of network cards and one receiver of most other implementations. Several have as
// many. Each is a Tunnel with a device, keys of sessions and a socket of its own; all have the
// same private key and peer. The first one reads the packets, and each flow goes by one of them
// (spread.go).
//
// A further tunnel that cannot work costs nothing: the others carry its flows.

// furtherRetry is after how long a further tunnel is tried again that could not be opened.
const furtherRetry = 5 * time.Second

// further are the further tunnels of the first one.
type further struct {
	// changed is sent to by wake and received by followFurther; one slot, never closed.
	changed chan struct{}

	mu sync.Mutex
	// tunnels and problems are by place in Config.Further. Who has no tunnel has a problem.
	tunnels  []*furtherTunnel
	problems []string
	usable   []bool // of SetUsable
}

// furtherTunnel is a further tunnel that runs.
type furtherTunnel struct {
	*Tunnel
	key    furtherKey
	writer int // the number of its Writer, which no other that runs has
	cancel context.CancelFunc
	ended  chan struct{} // closed
}

// furtherKey is what cannot change in a further tunnel: its socket and where that leads.
type furtherKey struct {
	endpoint   string
	listenPort uint16
}

func (f Further) key() furtherKey { return furtherKey{f.Endpoint, f.ListenPort} }

// config is that of the further tunnel f.
func (c Config) further(f Further) Config {
	c.Endpoint, c.ListenPort, c.AllowedIPs, c.Further = f.Endpoint, f.ListenPort, f.AllowedIPs, nil
	return c
}

// wake has followFurther look at the configuration.
func (f *further) wake() {
	select {
	case f.changed <- struct{}{}:
	default: // it has not looked since the last time
	}
}

// followFurther keeps the further tunnels as they are configured until ctx ends, and then ends
// them.
func (t *Tunnel) followFurther(ctx context.Context) {
	for {
		t.mu.Lock()
		c := t.config
		t.mu.Unlock()
		var retry <-chan time.Time
		if !t.arrangeFurther(ctx, c) {
			retry = time.After(furtherRetry)
		}
		select {
		case <-t.further.changed:
		case <-retry:
		case <-ctx.Done():
			t.arrangeFurther(ctx, Config{})
			return
		}
	}
}

// arrangeFurther ends the further tunnels that are not configured, and has the others run. It
// reports whether all do.
func (t *Tunnel) arrangeFurther(ctx context.Context, c Config) bool {
	had := t.further.tunnels // written here only
	next, problems := make([]*furtherTunnel, len(c.Further)), make([]string, len(c.Further))
	for i, f := range c.Further {
		if j := slices.IndexFunc(had, func(h *furtherTunnel) bool { return h != nil && h.key == f.key() && h.runs() }); j >= 0 {
			next[i] = had[j]
		}
	}
	t.publish(next, problems) // nothing goes any more by those that end
	for _, h := range had {
		if h != nil && !slices.Contains(next, h) {
			h.end()
		}
	}
	all := true
	for i, f := range c.Further {
		var err error
		if next[i] != nil {
			err = next[i].Apply(c.further(f))
		} else {
			next[i], err = t.openFurther(ctx, i, freeWriter(next), c.further(f))
		}
		if err != nil {
			problems[i], all = err.Error(), false
		}
	}
	t.publish(next, problems)
	return all
}

// freeWriter is the lowest number of a Writer that none of these tunnels has. Those that stay
// keep theirs when their place changes, so it need not be that of the place.
func freeWriter(tunnels []*furtherTunnel) (n int) {
	for slices.ContainsFunc(tunnels, func(h *furtherTunnel) bool { return h != nil && h.writer == n }) {
		n++
	}
	return n
}

// openFurther makes the further tunnel of a place, which writes to a Writer of that number, and
// has it run.
func (t *Tunnel) openFurther(ctx context.Context, place, writer int, c Config) (*furtherTunnel, error) {
	o := t.opts
	o.Overlay, o.Readers, o.Writers, o.Further = newSink(o.Further(writer)), nil, nil, nil
	o.Logger = t.log.With("tunnel", place+2)
	tunnel, err := New(o)
	if err != nil {
		return nil, err
	}
	tunnel.egress.makeSenders(len(t.egress.loops))
	if err := tunnel.Apply(c); err != nil {
		return nil, err
	}
	if observe := t.egress.observer.Load(); observe != nil {
		tunnel.Observe(*observe)
	}
	dev, err := tunnel.start()
	ctx, cancel := context.WithCancel(ctx)
	f := &furtherTunnel{tunnel, furtherKey{c.Endpoint, c.ListenPort}, writer, cancel, make(chan struct{})}
	go func() {
		defer t.further.wake() // one that ends by itself begins anew
		defer close(f.ended)
		if err := tunnel.serve(ctx, dev, err); err != nil {
			t.log.Warn("a further tunnel has ended", "tunnel", place+2, "error", err)
		}
	}()
	return f, nil
}

// end ends the tunnel, and waits for that.
func (f *furtherTunnel) end() {
	f.cancel()
	<-f.ended
}

// runs tells whether the tunnel has not ended.
func (f *furtherTunnel) runs() bool {
	select {
	case <-f.ended:
		return false
	default:
		return true
	}
}

// publish has packets go by these further tunnels, and says what is wrong with them.
func (t *Tunnel) publish(tunnels []*furtherTunnel, problems []string) {
	f := &t.further
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tunnels, f.problems = slices.Clone(tunnels), slices.Clone(problems)
	t.egress.spread.Store(t.spreadLocked())
}

// releasePort ends the further tunnel that has a port, which the first one is to have.
func (t *Tunnel) releasePort(port uint16) {
	t.further.mu.Lock()
	defer t.further.mu.Unlock()
	for _, h := range t.further.tunnels {
		if h != nil && port != 0 && h.key.listenPort == port {
			h.end()
		}
	}
}

// SetUsable says by which tunnels packets may go: the first one, and the further ones in the
// order of Config.Further. Those that it does not tell of may not. Where none may, and before
// it is called, packets go by the first one. Packets to addresses that one tunnel alone has in
// its AllowedIPs go by that one, whatever it says.
func (t *Tunnel) SetUsable(usable []bool) {
	f := &t.further
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.usable, usable) {
		f.usable = slices.Clone(usable)
		t.egress.spread.Store(t.spreadLocked())
	}
}

// spreadLocked returns over which tunnels packets go. The caller holds the lock of further.
func (t *Tunnel) spreadLocked() *spread {
	if len(t.further.tunnels) == 0 {
		return nil
	}
	s := &spread{all: []*egress{t.egress}}
	for _, f := range t.further.tunnels {
		if f == nil {
			s.all = append(s.all, nil)
			continue
		}
		s.all = append(s.all, f.egress)
	}
	for i, usable := range t.further.usable {
		if usable && i < len(s.all) && s.all[i] != nil {
			s.live = append(s.live, i)
		}
	}
	if len(s.live) == 0 {
		s.live = []int{0}
	}
	return s
}

// runningFurther returns the further tunnels that run: all, or those that packets do not go by.
func (t *Tunnel) runningFurther(all bool) (running []*Tunnel) {
	t.further.mu.Lock()
	defer t.further.mu.Unlock()
	for i, f := range t.further.tunnels {
		if f != nil && (all || !slices.Contains(t.egress.spread.Load().live, i+1)) {
			running = append(running, f.Tunnel)
		}
	}
	return running
}

// addFurther puts the further tunnels into s, the Stats of the first one.
func (t *Tunnel) addFurther(s *Stats) {
	f := &t.further
	f.mu.Lock()
	defer f.mu.Unlock()
	spread := t.egress.spread.Load()
	if spread == nil {
		return
	}
	s.LeftOut = !slices.Contains(spread.live, 0)
	for i, further := range f.tunnels {
		stats := Stats{Self: s.Self, Peer: s.Peer}
		if further != nil {
			stats = further.Stats()
		}
		stats.Problem, stats.LeftOut = f.problems[i], !slices.Contains(spread.live, i+1)
		s.Further = append(s.Further, stats)
	}
}

// sink is the Overlay of a further tunnel, whose packets the loops of the first one send.
type sink struct {
	Writer
	closed chan struct{}
	close  func()
}

func newSink(w Writer) *sink {
	s := &sink{Writer: w, closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	return s
}

// ReadPackets implements Reader.
func (s *sink) ReadPackets([][]byte, []int, int) (n, own int, err error) {
	<-s.closed
	return 0, 0, os.ErrClosed
}

// CloseRead ends ReadPackets.
func (s *sink) CloseRead() { s.close() }
