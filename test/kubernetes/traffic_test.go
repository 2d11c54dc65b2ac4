package kubernetes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

const (
	// streamPause is the time between two numbers of a stream, pingPause that between
	// two pings.
	streamPause = 5 * time.Millisecond
	pingPause   = 10 * time.Millisecond
	// setUp is the patience with a new connection.
	setUp = 10 * time.Second
)

// place is where one end of some traffic is, a pod as a rule: sockets that are
// opened by Do stay there.
type place interface {
	Do(fn func() error) error
}

// path is from where to where traffic goes, and by which address.
type path struct {
	name     string
	from, to place
	at       netip.Addr
}

// stream is one TCP connection on which each end sends numbers all the time.
type stream struct {
	name string
	ends [2]net.Conn // of the client and of the server
	// heard is what came to each end.
	heard [2]arrivals
	stop  chan struct{}
	work  sync.WaitGroup

	mu     sync.Mutex
	err    error // the first
	broken time.Time
}

// startStream connects, and lets numbers go until the end of the test.
func startStream(t *testing.T, p path) *stream {
	t.Helper()
	s := &stream{name: p.name, stop: make(chan struct{})}
	if err := s.connect(t.Context(), p); err != nil {
		t.Fatalf("TCP connection %s to %s: %v", p.name, p.at, err)
	}
	now := time.Now()
	for i, conn := range s.ends {
		s.heard[i].last = now
		s.work.Go(func() { s.send(conn) })
		s.work.Go(func() { s.receive(conn, &s.heard[i]) })
	}
	t.Cleanup(s.end)
	return s
}

// connect makes the two ends. No probe of the kernel's may end the connection:
// the numbers alone tell whether it lives.
func (s *stream) connect(ctx context.Context, p path) error {
	ctx, cancel := context.WithTimeout(ctx, setUp)
	defer cancel()
	var l net.Listener
	if err := p.to.Do(func() (err error) {
		l, err = (&net.ListenConfig{KeepAlive: -1}).Listen(ctx, "tcp", ":0")
		return err
	}); err != nil {
		return err
	}
	defer l.Close()
	to := netip.AddrPortFrom(p.at, l.Addr().(*net.TCPAddr).AddrPort().Port())
	if err := p.from.Do(func() (err error) {
		s.ends[0], err = (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", to.String())
		return err
	}); err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	_ = l.(*net.TCPListener).SetDeadline(deadline)
	var err error
	if s.ends[1], err = l.Accept(); err != nil {
		s.ends[0].Close()
	}
	return err
}

func (s *stream) send(conn net.Conn) {
	tick := time.NewTicker(streamPause)
	defer tick.Stop()
	var b [8]byte
	for n := uint64(0); ; n++ {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		binary.BigEndian.PutUint64(b[:], n)
		if _, err := conn.Write(b[:]); err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *stream) receive(conn net.Conn, heard *arrivals) {
	var b [8]byte
	for n := uint64(0); ; n++ {
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			s.fail(err)
			return
		}
		if got := binary.BigEndian.Uint64(b[:]); got != n {
			s.fail(fmt.Errorf("number %d came for %d", got, n))
			return
		}
		heard.note(time.Now())
	}
}

// fail notes the first error; that of the end is none.
func (s *stream) fail(err error) {
	select {
	case <-s.stop:
		return
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err, s.broken = fmt.Errorf("%s: %w", s.name, err), time.Now()
	}
}

// lost is why and when the connection broke; nil while it lives.
func (s *stream) lost() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken, s.err
}

// longest is the longest silence at either end since a moment.
func (s *stream) longest(since time.Time) time.Duration {
	return max(s.heard[0].longest(since), s.heard[1].longest(since))
}

// end closes the connection and waits for everything that belongs to it.
func (s *stream) end() {
	select {
	case <-s.stop:
		return
	default:
	}
	close(s.stop)
	for _, conn := range s.ends {
		conn.Close()
	}
	s.work.Wait()
}

// pings are UDP datagrams that are echoed: they do not wait for each other, as
// segments of a connection do, and so tell how long the network was away.
type pings struct {
	name  string
	ends  [2]*net.UDPConn
	heard arrivals
	stop  chan struct{}
	work  sync.WaitGroup

	mu   sync.Mutex
	sent []time.Time
	back []bool
}

// startPings lets pings go until the end of the test.
func startPings(t *testing.T, p path) *pings {
	t.Helper()
	m := &pings{name: p.name, stop: make(chan struct{})}
	err := p.to.Do(func() (err error) {
		m.ends[1], err = net.ListenUDP("udp", nil)
		return err
	})
	if err != nil {
		t.Fatalf("pings %s: %v", p.name, err)
	}
	to := netip.AddrPortFrom(p.at, m.ends[1].LocalAddr().(*net.UDPAddr).AddrPort().Port())
	if err := p.from.Do(func() (err error) {
		m.ends[0], err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	}); err != nil {
		m.ends[1].Close()
		t.Fatalf("pings %s to %s: %v", p.name, to, err)
	}
	m.heard.last = time.Now()
	m.work.Go(m.send)
	m.work.Go(m.receive)
	m.work.Go(m.echo)
	t.Cleanup(m.end)
	return m
}

func (m *pings) send() {
	tick := time.NewTicker(pingPause)
	defer tick.Stop()
	var b [8]byte
	for {
		select {
		case <-m.stop:
			return
		case <-tick.C:
		}
		m.mu.Lock()
		binary.BigEndian.PutUint64(b[:], uint64(len(m.sent)))
		m.sent, m.back = append(m.sent, time.Now()), append(m.back, false)
		m.mu.Unlock()
		_, _ = m.ends[0].Write(b[:]) // an error speaks of an earlier one, which is lost
	}
}

func (m *pings) receive() {
	var b [8]byte
	for {
		n, err := m.ends[0].Read(b[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != len(b) {
			continue // an ICMP error: see send
		}
		m.mu.Lock()
		number := binary.BigEndian.Uint64(b[:])
		fresh := number < uint64(len(m.back)) && !m.back[number]
		if fresh {
			m.back[number] = true
		}
		m.mu.Unlock()
		if fresh {
			m.heard.note(time.Now())
		}
	}
}

func (m *pings) echo() {
	var b [64]byte
	for {
		n, from, err := m.ends[1].ReadFromUDPAddrPort(b[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = m.ends[1].WriteToUDPAddrPort(b[:n], from)
		}
	}
}

// longest is the longest time without an answer since a moment.
func (m *pings) longest(since time.Time) time.Duration { return m.heard.longest(since) }

// missing counts the pings that were sent from a moment on, those of them that had
// the time to be answered and were not, and the most of these one after the other.
func (m *pings) missing(since time.Time) (sent, missing, run int) {
	const grace = 500 * time.Millisecond
	now, lost := time.Now(), 0
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, at := range m.sent {
		if at.Before(since) || now.Sub(at) < grace {
			continue
		}
		sent++
		if m.back[i] {
			lost = 0
			continue
		}
		missing++
		lost++
		run = max(run, lost)
	}
	return sent, missing, run
}

// end closes the sockets and waits for everything that belongs to them.
func (m *pings) end() {
	select {
	case <-m.stop:
		return
	default:
	}
	close(m.stop)
	for _, conn := range m.ends {
		conn.Close()
	}
	m.work.Wait()
}

// traffic is a stream and pings on each of some paths.
type traffic struct {
	streams []*stream
	pings   []*pings
}

// startTraffic starts it and waits until everything is heard.
func startTraffic(t *testing.T, paths ...path) *traffic {
	t.Helper()
	x := new(traffic)
	for _, p := range paths {
		x.streams = append(x.streams, startStream(t, p))
		x.pings = append(x.pings, startPings(t, p))
	}
	x.back(t, setUp)
	return x
}

// silent says who has heard nothing since a moment, connections that are lost
// excepted.
func (x *traffic) silent(since time.Time) error {
	for _, s := range x.streams {
		if _, err := s.lost(); err == nil && !(s.heard[0].after(since) && s.heard[1].after(since)) {
			return fmt.Errorf("TCP connection %s is silent", s.name)
		}
	}
	for _, m := range x.pings {
		if !m.heard.after(since) {
			return fmt.Errorf("no answer to pings %s", m.name)
		}
	}
	return nil
}

// back waits until something has come to every end from now on.
func (x *traffic) back(t *testing.T, limit time.Duration) {
	t.Helper()
	since := time.Now()
	lab.Eventually(t, limit, "traffic on every path", func() error { return x.silent(since) })
}

// since is what the traffic has seen from a moment on.
func (x *traffic) since(start time.Time) (o outcome) {
	for _, s := range x.streams {
		o.streams++
		at, err := s.lost()
		switch {
		case err == nil:
			o.tcp = append(o.tcp, s.longest(start))
		case !at.Before(start):
			o.lost = append(o.lost, err)
		}
	}
	for _, m := range x.pings {
		o.udp = append(o.udp, m.longest(start))
		o.silences = append(o.silences, m.heard.all(start))
		sent, missing, run := m.missing(start)
		o.sent, o.missing = o.sent+sent, o.missing+missing
		o.outage = max(o.outage, time.Duration(run)*pingPause)
	}
	return o
}

// end ends all of it.
func (x *traffic) end() {
	for _, s := range x.streams {
		s.end()
	}
	for _, m := range x.pings {
		m.end()
	}
}

// outcome is what became of traffic.
type outcome struct {
	streams int
	lost    []error // of the connections that broke
	// tcp and udp are the longest silences, one of each connection that lives and of
	// each sender of pings. A connection that has waited waits longer before it tries
	// again, so the silence of pings is that of the network.
	tcp, udp series
	// silences are those of each sender of pings.
	silences [][]silence
	// sent and missing count pings.
	sent, missing int
	// outage is the time in which pings that were sent one after the other were lost,
	// by their number. Unlike a silence it does not grow when the machine is too busy
	// to send, to forward and to receive: what is late is not lost.
	outage time.Duration
}

func (o outcome) String() string {
	text := fmt.Sprintf("silence of pings %v (%d of %d lost, of these %v one after the other), of TCP %v, %d of %d connections lost",
		round(o.udp.worst()), o.missing, o.sent, o.outage, round(o.tcp.worst()), len(o.lost), o.streams)
	var reasons []string
	for _, err := range o.lost {
		reasons = append(reasons, err.Error())
	}
	if len(reasons) > 0 {
		text += ": " + strings.Join(reasons, "; ")
	}
	return text
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// bulk sends as much as one TCP connection takes for a while, and returns what
// arrived, in bits per second.
func bulk(ctx context.Context, p path, d time.Duration) (rate float64, err error) {
	s := new(stream)
	if err := s.connect(ctx, p); err != nil {
		return 0, err
	}
	defer s.ends[1].Close()
	start := time.Now()
	var work sync.WaitGroup
	work.Go(func() {
		defer s.ends[0].Close()
		b := make([]byte, 128<<10)
		for time.Since(start) < d {
			_ = s.ends[0].SetWriteDeadline(time.Now().Add(patience))
			if _, err := s.ends[0].Write(b); err != nil {
				return // the receiver sees the end
			}
		}
	})
	_ = s.ends[1].SetReadDeadline(start.Add(d + patience))
	n, err := io.Copy(io.Discard, s.ends[1])
	work.Wait()
	return float64(8*n) / time.Since(start).Seconds(), err
}
