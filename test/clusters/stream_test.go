package clusters

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// stream is one TCP connection between two pods that is never idle: numbers go
// to and fro, and the longest silence is remembered.
type stream struct {
	conn net.Conn
	wg   sync.WaitGroup
	stop chan struct{}

	mu     sync.Mutex
	err    error // the first
	last   time.Time
	gap    time.Duration
	rounds uint64
}

// streamPause is the time between two numbers.
const streamPause = 20 * time.Millisecond

// stream starts one, to the echo server of a pod of the other cluster.
func (p *pod) stream(t *testing.T, at netip.Addr) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), attempt)
	defer cancel()
	conn, err := p.DialContext(ctx, "tcp", netip.AddrPortFrom(at, echoPort).String())
	if err != nil {
		t.Fatalf("echo from %s to %s: %v", p.name, at, err)
	}
	s := &stream{conn: conn, stop: make(chan struct{}), last: time.Now()}
	s.wg.Go(s.send)
	s.wg.Go(s.receive)
	t.Cleanup(func() { s.end() })
	return s
}

func (s *stream) send() {
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
		if _, err := s.conn.Write(b[:]); err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *stream) receive() {
	var b [8]byte
	for n := uint64(0); ; n++ {
		if _, err := io.ReadFull(s.conn, b[:]); err != nil {
			s.fail(err)
			return
		}
		if got := binary.BigEndian.Uint64(b[:]); got != n {
			s.fail(fmt.Errorf("number %d came for %d", got, n))
			return
		}
		s.mu.Lock()
		now := time.Now()
		s.gap, s.last, s.rounds = max(s.gap, now.Sub(s.last)), now, n
		s.mu.Unlock()
	}
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !errors.Is(err, net.ErrClosed) {
		s.err = err
	}
}

// longest returns the longest silence since the last call, one that goes on
// included, or why the connection is broken.
func (s *stream) longest() (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gap := max(s.gap, time.Since(s.last))
	s.gap = 0
	return gap, s.err
}

// lives checks that numbers come back now.
func (s *stream) lives(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if silence := time.Since(s.last); silence > 10*streamPause {
		return fmt.Errorf("silent for %v", silence)
	}
	return nil
}

func (s *stream) end() {
	select {
	case <-s.stop:
		return
	default:
	}
	close(s.stop)
	s.conn.Close()
	s.wg.Wait()
}

// pinger measures for how long a pod does not answer.
type pinger struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	gap  time.Duration
	last time.Time
}

// pingPause is the time between two pings, and the patience with each.
const pingPause = 50 * time.Millisecond

func (p *pod) ping(t *testing.T, at netip.Addr) *pinger {
	ctx, cancel := context.WithCancel(t.Context())
	m := &pinger{cancel: cancel, done: make(chan struct{}), last: time.Now()}
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			one, stop := context.WithTimeout(ctx, pingPause)
			_, err := p.Stack.Ping(one, at, 56, false)
			if err == nil {
				m.mu.Lock()
				now := time.Now()
				m.gap, m.last = max(m.gap, now.Sub(m.last)), now
				m.mu.Unlock()
			}
			<-one.Done()
			stop()
		}
	}()
	t.Cleanup(m.end)
	return m
}

// longest is the longest time without an answer since the last call.
func (m *pinger) longest() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	gap := max(m.gap, time.Since(m.last))
	m.gap = 0
	return gap
}

func (m *pinger) end() {
	m.cancel()
	<-m.done
}
