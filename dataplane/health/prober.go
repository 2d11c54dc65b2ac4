package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// readRetry is how long the reader waits after an error of the socket that is
// not its end, so that a lasting one does not spin.
const readRetry = 100 * time.Millisecond

// Options are a Prober's ties to the rest of the process.
type Options struct {
	// Notify is called, from Run's goroutine, whenever the status should be
	// told to others: see Monitor.Report. It must not block for long. Nil is
	// allowed.
	Notify func(Status)
	// Logger receives changes of state; nil discards.
	Logger *slog.Logger
}

// Stats counts datagrams.
type Stats struct {
	Sent       uint64           // PINGs
	SendErrors uint64           // PINGs and PONGs that the socket refused
	Received   [verdicts]uint64 // by Verdict
}

// Count returns how many received datagrams had this verdict.
func (s Stats) Count(v Verdict) uint64 {
	if v >= verdicts {
		return 0
	}
	return s.Received[v]
}

// Prober runs a Monitor over a socket. Make one with New; its methods may be
// called from any goroutine.
type Prober struct {
	notify func(Status)
	log    *slog.Logger
	kick   chan struct{} // capacity 1: the monitor has changed, look again

	mu      sync.Mutex
	monitor *Monitor
	stats   Stats
	failing bool // the last send failed; said once
}

// New returns a Prober in state Connecting. Nothing happens until Run.
func New(c Config, o Options) (*Prober, error) {
	m, err := NewMonitor(c, time.Now())
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Notify == nil {
		o.Notify = func(Status) {}
	}
	return &Prober{notify: o.Notify, log: o.Logger, kick: make(chan struct{}, 1), monitor: m}, nil
}

// Apply replaces the configuration, also while Run runs.
func (p *Prober) Apply(c Config) error {
	p.mu.Lock()
	err := p.monitor.Apply(c, time.Now())
	p.mu.Unlock()
	p.wake()
	return err
}

// Status returns the current state.
func (p *Prober) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.monitor.Status()
}

// Stats returns the counters.
func (p *Prober) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Run sends and answers over conn until ctx ends, and then returns nil, or
// until conn is closed. It does not close conn; its read deadline is Run's
// while Run runs. The time since New counts for the loss of the peer only from
// here on.
func (p *Prober) Run(ctx context.Context, conn net.PacketConn) error {
	p.mu.Lock()
	p.monitor.reset(time.Now())
	p.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	readErr := make(chan error, 1)
	go func() {
		readErr <- p.read(ctx, conn)
		close(readErr) // loop may have taken the error, which is nil when ctx ends and conn is closed at once
	}()

	err := p.loop(ctx, conn, readErr)
	cancel()
	_ = conn.SetReadDeadline(time.Unix(1, 0)) // wakes the reader; on a closed conn it is awake
	if err == nil {
		err = <-readErr
	}
	_ = conn.SetReadDeadline(time.Time{})
	return err
}

// loop does what the monitor says is due. It ends with ctx, or with the error
// that ended the reader.
func (p *Prober) loop(ctx context.Context, conn net.PacketConn, readErr <-chan error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.kick:
		case err := <-readErr:
			return err
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		p.mu.Lock()
		before := p.monitor.reported.Value
		ping, next := p.monitor.Tick(now)
		peer := p.monitor.Peer()
		status, report := p.monitor.Report(now)
		if ping != nil {
			p.stats.Sent++
		}
		p.mu.Unlock()
		if ping != nil {
			_, err := conn.WriteTo(ping, net.UDPAddrFromAddrPort(peer))
			p.noteSend(err)
		}
		if report {
			if status.Value != before {
				p.log.Info("connection state", "value", string(status.Value), "was", string(before), "latency", status.Latency)
			}
			p.notify(status)
		}
		timer.Reset(next.Sub(now))
	}
}

// read takes datagrams until ctx ends (nil) or conn does.
func (p *Prober) read(ctx context.Context, conn net.PacketConn) error {
	// One byte more than allowed, to tell a long datagram from a cut one.
	buf := make([]byte, MaxMessage+1)
	for {
		n, addr, err := conn.ReadFrom(buf)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
			return fmt.Errorf("read health ping: %w", err)
		}
		if err != nil {
			// The socket may be told of unreachable hosts; the missing PONGs
			// say the same.
			retry := time.NewTimer(readRetry)
			select {
			case <-retry.C:
			case <-ctx.Done():
			}
			retry.Stop()
			continue
		}
		p.receive(conn, addr, buf[:n])
	}
}

// receive handles one datagram.
func (p *Prober) receive(conn net.PacketConn, addr net.Addr, b []byte) {
	var from netip.Addr // of no source that we know: never the peer
	if a, ok := addr.(*net.UDPAddr); ok {
		from = a.AddrPort().Addr()
	}
	p.mu.Lock()
	reply, v := p.monitor.Receive(time.Now(), from, b)
	p.stats.Received[v]++
	p.mu.Unlock()
	if reply != nil {
		_, err := conn.WriteTo(reply, addr)
		p.noteSend(err)
	}
	if v == Measured || v == Answered {
		p.wake()
	}
}

// noteSend counts a failure, and logs it only when the last send succeeded: an
// unreachable network fails every two seconds.
func (p *Prober) noteSend(err error) {
	p.mu.Lock()
	if err != nil {
		p.stats.SendErrors++
	}
	changed := (err != nil) != p.failing
	p.failing = err != nil
	p.mu.Unlock()
	switch {
	case changed && err != nil:
		p.log.Warn("health ping cannot be sent", "error", err)
	case changed:
		p.log.Info("health ping can be sent again")
	}
}

// wake makes loop look at the monitor.
func (p *Prober) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}
