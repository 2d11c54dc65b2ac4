package health

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeConn is one end of a network in memory, for use in a synctest bubble.
type fakeConn struct {
	net.PacketConn
	addr netip.AddrPort
	in   chan fakeDatagram

	mu     sync.Mutex
	route  func(to netip.AddrPort) (*fakeConn, error)
	expire chan struct{} // closed when the read deadline has passed
	closed chan struct{}
}

type fakeDatagram struct {
	from netip.AddrPort
	body []byte
}

func newFakeConn(addr string) *fakeConn {
	return &fakeConn{
		addr: netip.MustParseAddrPort(addr), in: make(chan fakeDatagram, 16),
		expire: make(chan struct{}), closed: make(chan struct{}),
	}
}

func (c *fakeConn) setRoute(f func(to netip.AddrPort) (*fakeConn, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.route = f
}

func (c *fakeConn) ReadFrom(b []byte) (int, net.Addr, error) {
	c.mu.Lock()
	expire := c.expire
	c.mu.Unlock()
	select {
	case d := <-c.in:
		return copy(b, d.body), net.UDPAddrFromAddrPort(d.from), nil
	case <-expire:
		return 0, nil, os.ErrDeadlineExceeded
	case <-c.closed:
		return 0, nil, net.ErrClosed
	}
}

func (c *fakeConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	c.mu.Lock()
	route := c.route
	c.mu.Unlock()
	to, err := route(addr.(*net.UDPAddr).AddrPort())
	if err != nil {
		return 0, err
	}
	if to != nil {
		to.in <- fakeDatagram{c.addr, bytes.Clone(b)}
	}
	return len(b), nil
}

func (c *fakeConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.IsZero() {
		c.expire = make(chan struct{})
	} else if !t.After(time.Now()) {
		close(c.expire)
	}
	return nil
}

// fakePair returns two ends that reach each other.
func fakePair() (a, b *fakeConn) {
	a, b = newFakeConn("169.254.18.1:12345"), newFakeConn("169.254.18.2:12345")
	ends := map[netip.AddrPort]*fakeConn{a.addr: a, b.addr: b}
	route := func(to netip.AddrPort) (*fakeConn, error) { return ends[to], nil }
	a.setRoute(route)
	b.setRoute(route)
	return a, b
}

// started is a Prober that runs until stop.
type started struct {
	*Prober
	conn    *fakeConn
	log     *bytes.Buffer
	reports []Status // to read when the bubble is idle
	stop    func() error
}

func start(t *testing.T, conn *fakeConn, peer *fakeConn, mtu int) *started {
	t.Helper()
	s := &started{conn: conn, log: new(bytes.Buffer)}
	p, err := New(Config{ClusterID: "peer", Peer: peer.addr, MTU: mtu}, Options{
		Notify: func(st Status) { s.reports = append(s.reports, st) },
		Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Prober = p
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, conn) }()
	s.stop = func() error { cancel(); return <-done }
	return s
}

func TestProbersConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cb := fakePair()
		a, b := start(t, ca, cb, 1340), start(t, cb, ca, 1400)
		synctest.Wait()
		for _, p := range []*started{a, b} {
			if s := p.Status(); s.Value != Connected || s.Latency <= 0 {
				t.Errorf("%+v", s)
			}
		}
		if a.Status().PeerMTU != 1400 || b.Status().PeerMTU != 1340 {
			t.Errorf("peer MTU %d and %d", a.Status().PeerMTU, b.Status().PeerMTU)
		}
		time.Sleep(20*time.Second + 1)
		synctest.Wait()
		if s := a.Stats(); s.Sent != 11 || s.Count(Measured) != 11 || s.Count(Answered) != 11 || s.SendErrors != 0 {
			t.Errorf("%+v", s)
		}
		if n := len(a.reports); n < 3 || n > 6 { // the beginning and every ten seconds
			t.Errorf("%d reports: %+v", n, a.reports)
		}
		if err := errors.Join(a.stop(), b.stop()); err != nil {
			t.Error(err)
		}
	})
}

func TestProberNoticesLossAndReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cb := fakePair()
		a, b := start(t, ca, cb, 0), start(t, cb, ca, 0)
		synctest.Wait()
		lost := time.Now()
		back := ca.route
		ca.setRoute(func(netip.AddrPort) (*fakeConn, error) { return nil, nil })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := a.Status(); s.Value != Error || s.Latency != 0 || s.Timestamp.Sub(lost) != 10*time.Second {
			t.Errorf("%+v, lost at %v", s, lost)
		}
		if last := a.reports[len(a.reports)-1]; last.Value != Error {
			t.Errorf("reported %+v", last)
		}
		ca.setRoute(back)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := a.Status(); s.Value != Connected {
			t.Errorf("%+v", s)
		}
		if last := a.reports[len(a.reports)-1]; last.Value != Connected {
			t.Errorf("reported %+v", last)
		}
		if err := errors.Join(a.stop(), b.stop()); err != nil {
			t.Error(err)
		}
	})
}

func TestProberSaysOnceThatItCannotSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cb := fakePair()
		back := ca.route
		ca.setRoute(func(netip.AddrPort) (*fakeConn, error) { return nil, errors.New("network is unreachable") })
		a := start(t, ca, cb, 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := a.Stats(); s.SendErrors < 30 {
			t.Errorf("%+v", s)
		}
		ca.setRoute(back)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		log := a.log.String()
		if strings.Count(log, "cannot be sent") != 1 || strings.Count(log, "can be sent again") != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}

func TestProberDropsByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cb := fakePair()
		a := start(t, ca, cb, 0)
		ca.in <- fakeDatagram{cb.addr, bytes.Repeat([]byte{' '}, 5000)}
		ca.in <- fakeDatagram{cb.addr, []byte("?")}
		synctest.Wait()
		if s := a.Stats(); s.Count(DropTooLong) != 1 || s.Count(DropMalformed) != 1 || s.Count(verdicts) != 0 {
			t.Errorf("%+v", s)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRunEndsWithItsSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cb := fakePair()
		a := start(t, ca, cb, 0)
		synctest.Wait()
		close(ca.closed)
		synctest.Wait()
		if err := a.stop(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// Run ends, whichever of the two it hears of first.
func TestRunEndsWithItsContextAndItsSocketAtOnce(t *testing.T) {
	for range 30 { // select chooses
		synctest.Test(t, func(t *testing.T) {
			ca, cb := fakePair()
			sending := make(chan struct{})
			ca.setRoute(func(netip.AddrPort) (*fakeConn, error) { <-sending; return nil, nil })
			a := start(t, ca, cb, 0)
			synctest.Wait()
			done := make(chan error)
			go func() { done <- a.stop() }()
			synctest.Wait()
			close(ca.closed)
			synctest.Wait()
			close(sending) // only now it looks
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRunAgainOnTheSameSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cb := fakePair()
		b := start(t, cb, ca, 0)
		for range 3 {
			a := start(t, ca, cb, 0)
			synctest.Wait()
			if s := a.Status(); s.Value != Connected {
				t.Errorf("%+v", s)
			}
			if err := a.stop(); err != nil {
				t.Error(err)
			}
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestApplyTakesEffectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cb := fakePair()
		a, b := start(t, ca, cb, 0), start(t, cb, ca, 0)
		synctest.Wait()
		other := netip.MustParseAddrPort("169.254.18.9:12345")
		if err := a.Apply(Config{ClusterID: "peer", Peer: other}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if last := a.reports[len(a.reports)-1]; last.Value != Connecting {
			t.Errorf("reported %+v", last)
		}
		if err := a.Apply(Config{}); err == nil {
			t.Error("no error")
		}
		if err := errors.Join(a.stop(), b.stop()); err != nil {
			t.Error(err)
		}
	})
}

func TestProberOverRealSockets(t *testing.T) {
	ca, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ca.Close()
	cb, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer cb.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	connected := make(chan struct{}, 2)
	var wg sync.WaitGroup
	for _, ends := range [][2]net.PacketConn{{ca, cb}, {cb, ca}} {
		peer := ends[1].LocalAddr().(*net.UDPAddr).AddrPort()
		p, err := New(Config{Peer: peer, Interval: 10 * time.Millisecond}, Options{Notify: func(s Status) {
			if s.Value == Connected && s.Latency > 0 {
				select {
				case connected <- struct{}{}:
				default:
				}
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := p.Run(ctx, ends[0]); err != nil {
				t.Error(err)
			}
		})
	}
	<-connected
	<-connected
	cancel()
	wg.Wait()
}
