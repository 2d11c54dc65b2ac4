package services

import (
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Network is the tunnel. *dataplane.Forwarder implements it.
type Network interface {
	// TunnelAddrs are the two ends inside the tunnel, not valid while no peering is in force or another replica leads.
	TunnelAddrs() (own, peer netip.Addr)
	ListenTCP(netip.AddrPort) (net.Listener, error)
	DialTCP(ctx context.Context, laddr, raddr netip.AddrPort) (net.Conn, error)
}

// Options are what an Exchange is built from.
type Options struct {
	Network Network
	// Logger gets changes of state. Nil: slog.Default().
	Logger *slog.Logger
	// Changed is called after each change of what the peer tells. Nil: nobody asks.
	Changed func()
}

// times are the pauses of an Exchange.
type times struct {
	addresses time.Duration // between reads of the addresses of the tunnel
	batch     time.Duration // between two batches of changes
	accept    time.Duration // between two connections of the peer
	heartbeat time.Duration
	silence   time.Duration // without a byte, or without room for one, after which a connection is given up
	dial      time.Duration
	retry     [2]time.Duration // the first and the longest pause after a connection that failed
	refused   [2]time.Duration // the same after what a peer must not do
}

var defaultTimes = times{
	addresses: 500 * time.Millisecond, batch: 20 * time.Millisecond, accept: time.Second, heartbeat: 10 * time.Second, silence: 35 * time.Second,
	dial: 10 * time.Second, retry: [2]time.Duration{time.Second, 15 * time.Second}, refused: [2]time.Duration{30 * time.Second, 10 * time.Minute},
}

// Exchange tells the peer which Services it may use, and hears which ones of the peer may be used here. Build it with New;
// it works while Run runs.
type Exchange struct {
	network Network
	log     *slog.Logger
	changed func()
	times   times

	// Owned by the goroutine that hears.
	bytes, frames bucket

	mu      sync.Mutex
	offer   offer
	offered bool          // there was an Offer: before, nothing is known to be all
	renewed chan struct{} // closed when offer is replaced
	remote  remote
	hearing func()    // closes the connection over which the peer is heard; nil: there is none
	since   time.Time // when that was opened
	told    bool      // the peer listens and knows the offer as it was at the start of the connection, or later
	hears   bool      // the peer tells, and has told all
	why     string    // hears is false; empty: not known yet
	refused map[Reason]uint64
	strange uint64
}

// New builds an Exchange that tells of nothing.
func New(o Options) *Exchange {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	return &Exchange{
		network: o.Network, log: o.Logger, changed: o.Changed, times: defaultTimes,
		bytes: bucket{burst: readBurst, rate: readRate}, frames: bucket{burst: frameBurst, rate: frameRate},
		renewed: make(chan struct{}), refused: map[Reason]uint64{},
	}
}

// Offer replaces what the peer is told; before the first one it is told nothing. The objects must not be changed any more; one that is the same as before is not
// encoded again.
func (x *Exchange) Offer(objects []*networkingv1beta1.ExportedService) {
	x.mu.Lock()
	before := x.offer
	x.mu.Unlock()
	o := newOffer(objects, before)
	if len(o.left) > 0 && !slices.Equal(o.left, before.left) {
		x.log.Warn("Services are not told to the peer", "count", len(o.left), "first", o.left[0])
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.offer, x.offered = o, true
	close(x.renewed)
	x.renewed = make(chan struct{})
}

// Imported returns what the peer has told, and whether it has ever told all there is since this gateway leads. Until then
// nothing is known to be gone. The descriptions must not be changed.
func (x *Exchange) Imported() (services map[string]*networkingv1beta1.ServiceDescription, all bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.remote.settled), x.remote.settled != nil
}

// Run tells and hears until ctx ends.
func (x *Exchange) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if own, peer := x.network.TunnelAddrs(); own.IsValid() && peer.IsValid() {
			x.peering(ctx, own, peer)
		}
		Pause(ctx, x.times.addresses)
	}
	return nil
}

// peering runs while the addresses of the tunnel are the same.
func (x *Exchange) peering(ctx context.Context, own, peer netip.Addr) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { x.serve(ctx, own, peer) })
	wg.Go(func() { x.listen(ctx, own, peer) })
	for ctx.Err() == nil {
		Pause(ctx, x.times.addresses)
		if a, b := x.network.TunnelAddrs(); a != own || b != peer {
			break
		}
	}
	cancel()
	wg.Wait()
	x.mu.Lock()
	// Another replica may write now, and what it hears is newer.
	x.remote, x.hears, x.why = remote{}, false, ""
	x.mu.Unlock()
}

// serve tells the peer, whenever it listens.
func (x *Exchange) serve(ctx context.Context, own, peer netip.Addr) {
	for failures := 1; ctx.Err() == nil; failures++ {
		l, err := x.network.ListenTCP(netip.AddrPortFrom(own, Port))
		if err == nil {
			failures = 0
			x.accept(ctx, l, peer)
			continue
		}
		x.log.Debug("cannot listen for the peer's gateway", "port", Port, "error", err)
		Pause(ctx, backoff(x.times.retry[0], x.times.retry[1], failures))
	}
}

// accept tells the peer over one connection at a time, the newest: a peer that opens another one has lost the one before.
func (x *Exchange) accept(ctx context.Context, l net.Listener, peer netip.Addr) {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	end := func() {}
	defer func() { end() }()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if from, _ := netip.ParseAddrPort(c.RemoteAddr().String()); from.Addr().Unmap() != peer {
			c.Close()
			x.mu.Lock()
			x.strange++
			x.mu.Unlock()
			continue
		}
		end()
		x.doubt()
		one, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer c.Close()
			err := x.tell(one, cancel, c)
			x.log.Debug("the peer's gateway does not listen any more", "error", err)
		}()
		end = func() {
			cancel()
			<-done
		}
		Pause(ctx, x.times.accept)
	}
}

// doubt ends the connection over which the peer is heard: one that connects anew may have lost it when it was killed, and
// who only listens does not notice. A new one stays, or two gateways would doubt each other without end.
func (x *Exchange) doubt() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.hearing != nil && time.Since(x.since) > x.times.heartbeat {
		x.hearing()
	}
}

// idleConn is a connection that is given up when nothing passes for a while.
type idleConn struct {
	net.Conn
	silence time.Duration
}

// Read implements io.Reader.
func (c idleConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// Write implements io.Writer.
func (c idleConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// tell tells the peer over one connection, until it ends. Cancel is that of ctx.
func (x *Exchange) tell(ctx context.Context, cancel func(), c net.Conn) error {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.Close()
	wg.Go(func() { // who listens says nothing: this is the end, or another protocol
		_, _ = c.Read(make([]byte, 1))
		cancel()
	})
	out := idleConn{c, x.times.silence}
	if _, err := io.WriteString(out, greeting); err != nil {
		return err
	}
	w, err := flate.NewWriter(out, flate.BestSpeed)
	if err != nil {
		return err
	}
	send := func(frames []byte) error {
		if len(frames) == 0 {
			return nil
		}
		_, err := w.Write(frames)
		return errors.Join(err, w.Flush())
	}
	defer x.setTold(false)
	var t told
	var sent time.Time
	beat := time.NewTicker(x.times.heartbeat)
	defer beat.Stop()
	for {
		x.mu.Lock()
		o, offered, renewed := x.offer, x.offered, x.renewed
		x.mu.Unlock()
		if offered {
			if err := send(t.frames(nil, o)); err != nil {
				return err
			}
			sent = time.Now()
			x.setTold(true)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-renewed:
			Pause(ctx, x.times.batch-time.Since(sent)) // the first of several changes goes at once
		case <-beat.C:
			if err := send(appendFrame(nil, kindHeartbeat, nil)); err != nil {
				return err
			}
		}
	}
}

func (x *Exchange) setTold(told bool) {
	x.mu.Lock()
	x.told = told
	x.mu.Unlock()
}

// listen hears what the peer tells, and opens the connection anew whenever it ends.
func (x *Exchange) listen(ctx context.Context, own, peer netip.Addr) {
	failures, refusals := 0, 0
	for ctx.Err() == nil {
		synced, err := x.hear(ctx, own, peer)
		if ctx.Err() != nil {
			return
		}
		if synced {
			failures = 0
		}
		failures++
		wait := backoff(x.times.retry[0], x.times.retry[1], failures)
		if reason := reasonOf(err); reason != "" {
			refusals++
			wait = backoff(x.times.refused[0], x.times.refused[1], refusals)
		} else if synced {
			refusals = 0
		}
		x.lost(err)
		Pause(ctx, wait)
	}
}

// lost notes why the peer is not heard, and logs it once.
func (x *Exchange) lost(err error) {
	why := "the connection to the peer's gateway ended: " + err.Error()
	switch {
	case reasonOf(err) != "":
		why = "refused what the peer's gateway tells: " + err.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "the peer's gateway does not exchange Services: they are off there, or it is of a version that has none"
	}
	x.mu.Lock()
	same := x.why == why
	x.hears, x.why = false, why
	if r := reasonOf(err); r != "" {
		x.refused[r]++
	}
	x.mu.Unlock()
	switch {
	case same:
	case reasonOf(err) != "":
		x.log.Warn("Services of the peer: an invalid message, the earlier ones stay", "error", why)
	default:
		x.log.Info("Services of the peer: no news now, the earlier ones stay", "reason", why)
	}
}

// hear opens one connection and hears what the peer tells over it, until it ends. Synced tells whether all there is was
// told.
func (x *Exchange) hear(ctx context.Context, own, peer netip.Addr) (synced bool, err error) {
	dialing, cancel := context.WithTimeout(ctx, x.times.dial)
	c, err := x.network.DialTCP(dialing, netip.AddrPortFrom(own, 0), netip.AddrPortFrom(peer, Port))
	cancel()
	if err != nil {
		return false, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	d, err := newDecoder(idleConn{c, x.times.silence}, func(n int) {
		now := time.Now()
		Pause(ctx, max(x.bytes.take(n, now), x.frames.take(1, now)))
	})
	if err != nil {
		return false, err
	}
	x.mu.Lock()
	x.remote.begin()
	x.hearing, x.since = func() { c.Close() }, time.Now()
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		x.hearing = nil
		x.mu.Unlock()
	}()
	invalid := 0
	for {
		k, payload, err := d.next()
		if err != nil {
			return synced, err
		}
		x.mu.Lock()
		changed, err := x.remote.take(k, payload)
		now := x.remote.synced && !x.hears
		if x.hears = x.remote.synced; x.hears {
			synced, x.why = true, ""
		}
		if reasonOf(err) == ReasonInvalid {
			x.refused[ReasonInvalid]++
		}
		services := len(x.remote.now)
		x.mu.Unlock()
		if changed {
			x.changed()
		}
		if now {
			x.log.Info("hearing the Services of the peer", "services", services)
		}
		switch {
		case reasonOf(err) == ReasonInvalid:
			if invalid++; invalid == 1 { // the peer decides how many there are
				x.log.Warn("a Service of the peer is left out, and others like it without a word", "error", err)
			}
		case err != nil:
			return synced, err
		}
	}
}

// Summary is one Service of the peer, for display.
type Summary struct {
	Name      string                        `json:"name"`
	Type      networkingv1beta1.ServiceType `json:"type"`
	Endpoints int                           `json:"endpoints"`
}

// Status is what an Exchange does now, as plain values for display.
type Status struct {
	// Exported is how many Services the peer may use, with so many endpoints.
	Exported          int `json:"exported"`
	ExportedEndpoints int `json:"exportedEndpoints"`
	// LeftOut says which ExportedServices are not told, and why.
	LeftOut []string `json:"leftOut,omitempty"`
	// Told says that the peer listens.
	Told bool `json:"told"`
	// Imported are the Services that the peer has told.
	Imported          []Summary `json:"imported"`
	ImportedEndpoints int       `json:"importedEndpoints"`
	// Heard says that the peer tells, and has told all there is.
	Heard bool `json:"heard"`
	// Problem says why it is not heard; empty where it is, or was not tried yet.
	Problem string `json:"problem,omitempty"`
	// Refused counts by reason what the peer told and must not have.
	Refused map[Reason]uint64 `json:"refused,omitempty"`
	// Strangers counts connections that did not come from the peer's gateway.
	Strangers uint64 `json:"strangers"`
}

// Status returns a copy.
func (x *Exchange) Status() Status {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := Status{
		Exported: len(x.offer.puts), ExportedEndpoints: x.offer.endpoints, LeftOut: x.offer.left, Told: x.told,
		Heard: x.hears, Problem: x.why, Refused: maps.Clone(x.refused), Strangers: x.strange, Imported: []Summary{},
	}
	for _, name := range slices.Sorted(maps.Keys(x.remote.settled)) {
		d := x.remote.settled[name]
		n := d.Endpoints()
		s.Imported = append(s.Imported, Summary{Name: name, Type: d.Type, Endpoints: n})
		s.ImportedEndpoints += n
	}
	return s
}

// Text says in a line how many Services go which way.
func (s Status) Text() string {
	told, heard := "which the peer knows", "all it has"
	if !s.Told {
		told = "which the peer does not listen to"
	}
	if !s.Heard {
		heard = "not heard now"
	}
	return fmt.Sprintf("%d exported, %s; %d of the peer, %s", s.Exported, told, len(s.Imported), heard)
}
