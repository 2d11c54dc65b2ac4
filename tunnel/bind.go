package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/sluice-net/sluice/underlay"
)

// BatchSize is how many packets move per call between this package, its socket and the
// data plane.
const BatchSize = conn.IdealBatchSize

// maxHandshakes bounds the handshake messages that wait for wireguard-go to take them, which
// itself queues as many (device.QueueHandshakeSize).
const maxHandshakes = 1024

// bind is wireguard-go's UDP socket: a conn.Bind over a Socket. Of what the socket receives
// wireguard-go gets the handshakes.
type bind struct {
	listen  func(port uint16) (Socket, error)
	log     *slog.Logger
	egress  *egress
	ingress *ingressAccount
	writers []Writer // one for each receiver
	// receive works on what a socket receives until it is closed. Nil before Run.
	receive func(*openSocket)
	// onHandshake is called when an initiation or a response goes to a peer. A response means
	// that the peer has proven its key.
	onHandshake func(message []byte)
	// datagrams holds *[BatchSize]underlay.Datagram. A pool, because handshakes are sent at
	// the same time as packets.
	datagrams sync.Pool
	observer  observer
	onDrop    func(Observation) // Options.OnDrop, never nil
	// callers is sent to by noteCaller and received by followCallers; one slot, never
	// closed.
	callers chan endpoint
	// initiations is sent to by noteInitiation and received by followClock; one slot,
	// never closed.
	initiations chan received
	cookies     *cookies

	mu     sync.Mutex
	open   *openSocket // what wireguard-go uses
	next   Socket      // what the next Open will use; nil if none was prepared
	closed bool        // for good
}

// openSocket is a Socket in use; done is closed before the socket is.
type openSocket struct {
	Socket
	done       chan struct{}
	once       sync.Once
	handshakes chan handshake // sent to by pass, received by next; never closed
	received   sync.WaitGroup // those who receive
}

// handshake is a message for wireguard-go.
type handshake struct {
	message [initiationLen]byte
	size    int
	from    *endpoint
}

// pass hands a handshake message to wireguard-go. It never waits: false says that there is
// no room.
func (s *openSocket) pass(message []byte, from *endpoint) bool {
	h := handshake{size: len(message), from: from}
	copy(h.message[:], message)
	select {
	case s.handshakes <- h:
		return true
	default:
		return false
	}
}

// next is a conn.ReceiveFunc. It returns no error but net.ErrClosed.
func (s *openSocket) next(bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	select {
	case <-s.done:
		return 0, net.ErrClosed
	case h := <-s.handshakes:
		sizes[0], eps[0] = copy(bufs[0], h.message[:h.size]), h.from
		return 1, nil
	}
}

func (s *openSocket) shut() (err error) {
	s.once.Do(func() {
		close(s.done)
		err = s.Close()
	})
	return err
}

func newBind(o Options, egress *egress, ingress *ingressAccount, onHandshake func([]byte)) *bind {
	b := &bind{
		listen: o.Listen, onDrop: o.OnDrop, log: o.Logger, egress: egress, ingress: ingress, onHandshake: onHandshake,
		writers:   append([]Writer{o.Overlay}, o.Writers...),
		datagrams: sync.Pool{New: func() any { return new([BatchSize]underlay.Datagram) }},
		callers:   make(chan endpoint, 1), initiations: make(chan received, 1),
	}
	b.cookies = newCookies(b.writeCookies)
	return b
}

// prepare gives the next Open its socket. Until then the open one keeps working:
// a port that cannot be had leaves everything as it was.
func (b *bind) prepare(s Socket) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		s.Close()
		return net.ErrClosed
	}
	if b.next != nil {
		b.next.Close()
	}
	b.next = s
	return nil
}

// port returns the port in use or prepared, 0 for none.
func (b *bind) port() uint16 {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.next != nil:
		return b.next.LocalAddr().Port()
	case b.open != nil:
		return b.open.LocalAddr().Port()
	}
	return 0
}

// shutdown closes every socket for good, so that no reader and no writer stays
// blocked in one. wireguard-go's own Close cannot do that: it waits for writers
// before it closes the socket that they wait for.
func (b *bind) shutdown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.next != nil {
		b.next.Close()
		b.next = nil
	}
	if b.open != nil {
		b.open.shut()
	}
}

// Open implements conn.Bind.
func (b *bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, 0, net.ErrClosed
	}
	if b.open != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	s := b.next
	b.next = nil
	if s == nil {
		var err error
		if s, err = b.listen(port); err != nil {
			return nil, 0, err
		}
	}
	open := &openSocket{Socket: s, done: make(chan struct{}), handshakes: make(chan handshake, maxHandshakes)}
	if b.receive != nil {
		open.received.Go(func() { b.receive(open) })
	}
	b.open = open
	return []conn.ReceiveFunc{open.next}, s.LocalAddr().Port(), nil
}

// Close implements conn.Bind. It closes the open socket, not the prepared one, and waits
// until nothing more is received from it: replay filters have no lock, so that all who receive
// are of one socket, which gives them their turns.
func (b *bind) Close() error {
	b.mu.Lock()
	open := b.open
	b.open = nil
	b.mu.Unlock()
	if open == nil {
		return nil
	}
	err := open.shut()
	open.received.Wait()
	return err
}

// SetMark implements conn.Bind. Marking packets takes a capability that the
// gateway does not have, and nothing configures it.
func (b *bind) SetMark(uint32) error { return nil }

// BatchSize implements conn.Bind: handshakes come one by one.
func (b *bind) BatchSize() int { return 1 }

// ParseEndpoint implements conn.Bind. Names never get here.
func (b *bind) ParseEndpoint(s string) (conn.Endpoint, error) {
	addr, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, err
	}
	return &endpoint{addr: unmap(addr)}, nil
}

// Send implements conn.Bind: handshakes and keepalives, which are wireguard-go's own. All
// messages of a batch are of one kind, as wireguard-go makes them.
func (b *bind) Send(bufs [][]byte, ep conn.Endpoint) error {
	e, ok := ep.(*endpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	if len(bufs) == 0 || len(bufs[0]) < 4 {
		return nil
	}
	switch binary.LittleEndian.Uint32(bufs[0]) {
	case typeTransport: // the first message of every session that we begin is a keepalive
		b.egress.countSent(0)
		b.egress.sessionBegins()
	case typeInitiation:
		if b.egress.keepBack(bufs[0], e) {
			return nil
		}
		fallthrough
	case typeResponse:
		b.egress.sendHandshake(bufs)
		b.onHandshake(bufs[0])
	case typeCookieReply:
		for _, reply := range bufs {
			b.cookies.add(reply, e)
		}
		return nil
	}
	return b.write(bufs, nil, e)
}

// SendMarked implements device.Bind: it hands a batch of messages with packets to the
// socket without copying.
func (b *bind) SendMarked(bufs [][]byte, ecn []uint8, ep conn.Endpoint) error {
	e, ok := ep.(*endpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	// Counted even if it fails: they are gone.
	defer b.egress.countSent(len(bufs))
	return b.write(bufs, ecn, e)
}

// writeCookies writes cookie replies. An error means what lost messages mean.
func (b *bind) writeCookies(replies []underlay.Datagram) {
	s := b.socket()
	if s == nil {
		return
	}
	if observe := b.observer.Load(); observe != nil {
		for _, r := range replies {
			showSent(observe, [][]byte{r.Body}, s.LocalAddr(), r.Addr)
		}
	}
	_, _ = s.WriteBatch(replies)
}

// socket is the one in use; nil between two sockets, and after the last.
func (b *bind) socket() *openSocket {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

func (b *bind) write(bufs [][]byte, ecn []uint8, to *endpoint) error {
	s := b.socket()
	if s == nil {
		return nil // datagrams may get lost
	}
	if observe := b.observer.Load(); observe != nil {
		showSent(observe, bufs, s.LocalAddr(), to.addr)
	}
	ds := b.datagrams.Get().(*[BatchSize]underlay.Datagram)
	defer b.datagrams.Put(ds)
	for len(bufs) > 0 {
		n := min(len(bufs), BatchSize)
		for i, m := range bufs[:n] {
			ds[i] = underlay.Datagram{Addr: to.addr, Local: to.local, Body: m}
		}
		for i := range min(n, len(ecn)) {
			ds[i].ECN = ecn[i]
		}
		_, err := s.WriteBatch(ds[:n])
		clear(ds[:n]) // the pool must not keep the caller's buffers alive
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("write to %v: %w", to.addr, err)
		}
		bufs, ecn = bufs[n:], ecn[min(n, len(ecn)):]
	}
	return nil
}

// sleep pauses for d, and reports false when done was closed meanwhile.
func sleep(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return false
	case <-t.C:
		return true
	}
}
