package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

const (
	echoPort = 7
	// loadInterval is the time between two messages of a flow.
	loadInterval = 4 * time.Millisecond
	// loadSize is the size of each message: with its headers it fits the tunnel.
	loadSize = 1000
)

// load is flows whose messages are numbered and echoed, so that what is lost is
// known exactly.
type load struct {
	flows []*flow
	stop  chan struct{}
	work  sync.WaitGroup
}

// flow is one conversation. A message is lost when its echo does not come.
type flow struct {
	name string
	tcp  bool

	mu       sync.Mutex
	sent     []time.Time // by number
	received []time.Time // by number; zero: not yet
	arrivals []time.Time
	err      error
	errAt    time.Time
}

// startLoad returns a load without flows, which ends with the test.
func startLoad(t *testing.T) *load {
	l := &load{stop: make(chan struct{})}
	t.Cleanup(l.end)
	return l
}

// end ends all flows.
func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.work.Wait()
}

// add starts a flow from a host to the echo server at an address.
func (l *load) add(t *testing.T, network string, from *lab.Host, to netip.AddrPort) {
	t.Helper()
	var conn net.Conn
	if err := from.Do(func() (err error) {
		conn, err = net.DialTimeout(network, to.String(), lab.Patience)
		return err
	}); err != nil {
		t.Fatalf("%s: %v", from.Name, err)
	}
	f := &flow{name: fmt.Sprintf("%s from %s to %s", network, from.Name, to), tcp: network == "tcp"}
	l.flows = append(l.flows, f)
	l.work.Go(func() { f.send(conn, l.stop) })
	l.work.Go(func() { f.receive(conn) })
}

// send sends numbered messages until stop, and then ends the conversation.
func (f *flow) send(conn net.Conn, stop <-chan struct{}) {
	tick := time.NewTicker(loadInterval)
	defer tick.Stop()
	message := make([]byte, loadSize)
	for {
		select {
		case <-stop:
			conn.Close()
			return
		case <-tick.C:
		}
		f.mu.Lock()
		binary.BigEndian.PutUint64(message, uint64(len(f.sent)))
		f.sent = append(f.sent, time.Now())
		f.received = append(f.received, time.Time{})
		f.mu.Unlock()
		_ = conn.SetWriteDeadline(time.Now().Add(lab.Patience))
		if _, err := conn.Write(message); err != nil && f.tcp {
			f.fail(err)
			conn.Close()
			return
		} // UDP: an ICMP error about an earlier message, which is lost and counted as such
	}
}

// receive notes the echoes.
func (f *flow) receive(conn net.Conn) {
	message := make([]byte, loadSize)
	for {
		var err error
		if f.tcp {
			_, err = io.ReadFull(conn, message)
		} else {
			_, err = conn.Read(message)
		}
		if errors.Is(err, net.ErrClosed) || err != nil && f.tcp {
			f.fail(err)
			return
		}
		if err != nil {
			continue // see send
		}
		now, number := time.Now(), binary.BigEndian.Uint64(message)
		f.mu.Lock()
		if number < uint64(len(f.received)) && f.received[number].IsZero() {
			f.received[number] = now
			f.arrivals = append(f.arrivals, now)
		}
		f.mu.Unlock()
	}
}

// fail notes the first error; that of the end is none.
func (f *flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil && !errors.Is(err, net.ErrClosed) {
		f.err, f.errAt = err, time.Now()
	}
}

// recovered waits until something arrives at all flows that are not broken. What
// the last of them waits for is the sender's timer.
func (l *load) recovered(t *testing.T) {
	t.Helper()
	since := time.Now()
	lab.Eventually(t, lab.Patience, "arrivals at all flows", func() error {
		for _, f := range l.flows {
			f.mu.Lock()
			silent := f.err == nil && (len(f.arrivals) == 0 || f.arrivals[len(f.arrivals)-1].Before(since))
			f.mu.Unlock()
			if silent {
				return fmt.Errorf("none: %s", f.name)
			}
		}
		return nil
	})
}

// returned tells whether the echoes of all datagrams of a time have come.
func (l *load) returned(start, end time.Time) bool {
	for _, f := range l.flows {
		f.mu.Lock()
		missing := !f.tcp && f.missing(start, end)
		f.mu.Unlock()
		if missing {
			return false
		}
	}
	return true
}

// missing tells whether a datagram of a time is not back. The caller holds mu.
func (f *flow) missing(start, end time.Time) bool {
	for i, at := range f.sent {
		if !at.Before(start) && !at.After(end) && f.received[i].IsZero() {
			return true
		}
	}
	return false
}

// seen is what became of the messages of a load that were sent from a time on.
type seen struct {
	// sent and lost are datagrams, connections the TCP connections and broken the
	// errors of those that broke.
	sent, lost, connections int
	broken                  []error
	// gap is the longest time without an arrival at a UDP flow, and gapTCP that at a
	// TCP connection, whose sender waits longer each time.
	gap, gapTCP time.Duration
}

func (s seen) String() string {
	return fmt.Sprintf("%d of %d datagrams lost, longest gap %v; %d of %d TCP connections broken, longest gap %v",
		s.lost, s.sent, s.gap.Round(time.Millisecond), len(s.broken), s.connections, s.gapTCP.Round(time.Millisecond))
}

// underWay is how long datagrams are waited for that may be lost, and longest how long
// those that must not.
const (
	underWay = 300 * time.Millisecond
	longest  = 5 * time.Second
)

// since waits for what is under way, no longer than the limit, and says what was seen
// from a time on.
func (l *load) since(start time.Time, limit time.Duration) (s seen) {
	end := time.Now()
	for !l.returned(start, end) && time.Since(end) < limit {
		time.Sleep(5 * time.Millisecond)
	}
	for _, f := range l.flows {
		f.mu.Lock()
		for i, at := range f.sent {
			if f.tcp || at.Before(start) || at.After(end) {
				continue
			}
			s.sent++
			if f.received[i].IsZero() {
				s.lost++
			}
		}
		if f.tcp {
			s.connections++
		}
		if f.err != nil && f.errAt.After(start) {
			s.broken = append(s.broken, fmt.Errorf("%s: %w", f.name, f.err))
		}
		last := start
		if f.err != nil {
			f.mu.Unlock()
			continue
		}
		for _, at := range append(f.arrivals, time.Now()) {
			if at.Before(start) {
				last = at
				continue
			}
			if gap := at.Sub(last); f.tcp {
				s.gapTCP = max(s.gapTCP, gap)
			} else {
				s.gap = max(s.gap, gap)
			}
			last = at
		}
		f.mu.Unlock()
	}
	return s
}

// serveEcho answers TCP and UDP on echoPort of a host until the end of the test.
func serveEcho(t *testing.T, h *lab.Host) {
	t.Helper()
	var listener net.Listener
	var socket *net.UDPConn
	err := h.Do(func() (err error) {
		if listener, err = net.Listen("tcp", fmt.Sprintf(":%d", echoPort)); err != nil {
			return err
		}
		socket, err = net.ListenUDP("udp", &net.UDPAddr{Port: echoPort})
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", h.Name, err)
	}
	_ = socket.SetReadBuffer(1 << 20)
	var work sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	work.Go(func() {
		message := make([]byte, 65536)
		for {
			n, from, err := socket.ReadFromUDPAddrPort(message)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = socket.WriteToUDPAddrPort(message[:n], from)
			}
		}
	})
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			work.Go(func() { _, _ = io.Copy(conn, conn); conn.Close() })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		socket.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		work.Wait()
	})
}
