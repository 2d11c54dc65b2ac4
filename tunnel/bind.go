package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/sluice-net/sluice/underlay"
)

// BatchSize is how many packets move per call between this package, wireguard-go
// and the data plane.
const BatchSize = conn.IdealBatchSize

// maxKnownSources bounds the endpoints that a receiver remembers. One peer needs
// one or two; forgetting costs an allocation. Who is not authenticated, as far as that
// is known where endpoints are made, gets none or one that is not remembered.
const maxKnownSources = 256

// Pause after an error of the socket: wireguard-go would end the receiver for
// good after ten of them, so they never reach it.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// bind is wireguard-go's UDP socket: a conn.Bind over a Socket.
type bind struct {
	listen  func(port uint16) (Socket, error)
	log     *slog.Logger
	egress  *egressAccount
	ingress *ingressAccount
	// answered is called when a handshake message goes to a peer: it may be the
	// response to one that has proven its key.
	answered func()
	// datagrams holds *[BatchSize]underlay.Datagram. A pool, because handshake
	// workers send at the same time as the sequential sender.
	datagrams sync.Pool
	observer  observer
	onDrop    func(Observation) // Options.OnDrop, never nil
	// direct opens in the receiver; nil where wireguard-go's workers do, and before Run.
	direct atomic.Pointer[device.Direct]
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
	done chan struct{}
	once sync.Once
}

func (s *openSocket) shut() (err error) {
	s.once.Do(func() {
		close(s.done)
		err = s.Close()
	})
	return err
}

func newBind(o Options, egress *egressAccount, ingress *ingressAccount, answered func()) *bind {
	if o.OnDrop == nil {
		o.OnDrop = func(Observation) {}
	}
	b := &bind{
		listen: o.Listen, onDrop: o.OnDrop, log: o.Logger, egress: egress, ingress: ingress, answered: answered,
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
	b.open = &openSocket{Socket: s, done: make(chan struct{})}
	return []conn.ReceiveFunc{b.receiver(b.open)}, s.LocalAddr().Port(), nil
}

// Close implements conn.Bind. It closes the open socket, not the prepared one.
func (b *bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		return nil
	}
	err := b.open.shut()
	b.open = nil
	return err
}

// SetMark implements conn.Bind. Marking packets takes a capability that the
// gateway does not have, and nothing configures it.
func (b *bind) SetMark(uint32) error { return nil }

// BatchSize implements conn.Bind.
func (b *bind) BatchSize() int { return BatchSize }

// ParseEndpoint implements conn.Bind. Names never get here.
func (b *bind) ParseEndpoint(s string) (conn.Endpoint, error) {
	addr, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, err
	}
	return &endpoint{addr: unmap(addr)}, nil
}

// Send implements conn.Bind: it hands a batch to the socket without copying.
// All messages of a batch are of one kind, as wireguard-go makes them.
func (b *bind) Send(bufs [][]byte, ep conn.Endpoint) error { return b.SendMarked(bufs, nil, ep) }

// SendMarked implements device.Bind. A nil ecn marks nothing.
func (b *bind) SendMarked(bufs [][]byte, ecn []uint8, ep conn.Endpoint) error {
	e, ok := ep.(*endpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	if len(bufs) == 0 || len(bufs[0]) < 4 {
		return nil
	}
	switch binary.LittleEndian.Uint32(bufs[0]) {
	case typeTransport:
		last, data := lastWithPacket(bufs)
		b.egress.sendStarts()
		// Settled even when sending fails: the packets leave wireguard-go anyway.
		defer b.egress.sendEnds(last, data)
	case typeInitiation:
		if b.egress.keep(bufs[0], e) {
			return nil
		}
		fallthrough
	case typeResponse:
		b.egress.sendHandshake(bufs)
		b.answered()
	case typeCookieReply:
		for _, reply := range bufs {
			b.cookies.add(reply, e)
		}
		return nil
	}
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

// lastWithPacket returns the last message that carries a packet, and how many do.
func lastWithPacket(bufs [][]byte) (last []byte, n int) {
	for _, m := range bufs {
		if len(m) > keepaliveLen {
			last = m
			n++
		}
	}
	return last, n
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
		clear(ds[:n]) // the pool must not keep wireguard-go's buffers alive
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

// receiver is what wireguard-go's receive goroutine has of a socket.
type receiver struct {
	*bind
	socket  *openSocket
	from    []underlay.Origin
	sources sourceCache
	quotas  quotas
	pause   time.Duration // after the next error
}

// receiver returns the function with which wireguard-go reads s. It returns no error
// but net.ErrClosed.
func (b *bind) receiver(s *openSocket) conn.ReceiveFunc {
	r := &receiver{bind: b, socket: s, from: make([]underlay.Origin, BatchSize), pause: firstPause}
	return func(bufs [][]byte, sizes []int, eps []conn.Endpoint) (n int, err error) {
		for n == 0 && err == nil {
			if direct := b.direct.Load(); direct != nil {
				n, err = r.open(direct, bufs, sizes, eps)
			} else {
				n, err = r.receive(bufs, sizes, eps)
			}
		}
		return n, err
	}
}

// receive reads what wireguard-go's workers open.
func (r *receiver) receive(bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	stranger, err := r.ingress.admit(bufs)
	if err != nil {
		return 0, err
	}
	if stranger >= 0 { // of the batch before, whose sizes are still there
		r.noteCaller(r.from[stranger], sizes[stranger])
		r.dropped(dropUnknownSession, bufs[stranger][:sizes[stranger]], r.from[stranger])
	}
	n, err := r.read(bufs, sizes)
	r.take(bufs[:n], sizes[:n])
	for i := range n {
		eps[i] = r.Endpoint(i)
		if isInitiation(bufs[i][:sizes[i]]) {
			r.noteInitiation(r.from[i], bufs[i][:sizes[i]])
		}
	}
	return n, err
}

// open reads, and opens what carries packets. wireguard-go gets what is left,
// handshakes, and nothing to do where nothing is.
func (r *receiver) open(direct *device.Direct, bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	n, err := r.read(bufs, sizes)
	if n == 0 {
		return 0, err
	}
	opened := direct.Receive(bufs[:n], sizes[:n], r)
	if opened.Stranger >= 0 {
		r.noteCaller(r.from[opened.Stranger], opened.StrangerSize)
		r.dropped(dropUnknownSession, bufs[opened.Stranger][:opened.StrangerSize], r.from[opened.Stranger])
	}
	r.ingress.opened(opened)
	if opened.Left == 0 {
		return 0, nil
	}
	r.take(bufs[:n], sizes[:n])
	for i, size := range sizes[:n] {
		if size > 0 {
			eps[i] = r.sources.stranger(r.from[i])
			if isInitiation(bufs[i][:size]) {
				r.noteInitiation(r.from[i], bufs[i][:size])
			}
		}
	}
	return n, nil
}

// take enters the messages of a batch, and gives size 0 to those of which wireguard-go is to see nothing.
func (r *receiver) take(bufs [][]byte, sizes []int) {
	if place, n := r.limit(bufs, sizes); n > 0 {
		r.ingress.limited(n)
		r.dropped(dropHandshakeLimit, bufs[place][:initiationLen], r.from[place])
	}
	if place, size := r.ingress.take(bufs, sizes); place >= 0 {
		r.dropped(dropMalformed, bufs[place][:size], r.from[place])
	}
}

// dropped shows a datagram that goes no further.
func (r *receiver) dropped(why string, datagram []byte, from underlay.Origin) {
	r.onDrop(Observation{Outside: true, Local: r.localOf(from), Remote: from.Addr, Bytes: datagram, Drop: why})
}

// localOf is where a datagram arrived.
func (r *receiver) localOf(from underlay.Origin) netip.AddrPort {
	local := r.socket.LocalAddr()
	if from.Local.IsValid() {
		local = netip.AddrPortFrom(from.Local, local.Port())
	}
	return local
}

// read waits for datagrams, and pauses after an error of the socket.
func (r *receiver) read(bufs [][]byte, sizes []int) (n int, err error) {
	n, err = r.socket.ReadBatch(bufs, sizes, r.from)
	switch {
	case err == nil:
		r.pause = firstPause
		if observe := r.observer.Load(); observe != nil {
			showReceived(observe, bufs[:n], sizes[:n], r.socket.LocalAddr(), r.from[:n])
		}
		return n, nil
	case errors.Is(err, net.ErrClosed):
		return 0, net.ErrClosed
	case errors.Is(err, underlay.ErrWoken):
		return 0, nil
	}
	r.ingress.failed()
	if r.pause == lastPause {
		r.log.Warn("receiving from the WireGuard socket keeps failing", "error", err)
	}
	if !sleep(r.socket.done, r.pause) {
		return 0, net.ErrClosed
	}
	r.pause = min(2*r.pause, lastPause)
	return 0, nil
}

// Endpoint implements device.Batch.
func (r *receiver) Endpoint(i int) conn.Endpoint { return r.sources.endpoint(r.from[i]) }

// ECN implements device.Batch.
func (r *receiver) ECN(i int) uint8 { return r.from[i].ECN }

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

// endpoint is where a peer is, and which address of ours it sends to. It is
// immutable: wireguard-go keeps and shares it.
type endpoint struct {
	addr  netip.AddrPort
	local netip.Addr // not valid: not known, or the only one
}

// ClearSrc implements conn.Endpoint. It does nothing: where our address is ours no
// more, the socket takes another one.
func (e *endpoint) ClearSrc() {}

// SrcToString implements conn.Endpoint.
func (e *endpoint) SrcToString() string {
	if !e.local.IsValid() {
		return ""
	}
	return e.local.String()
}

// SrcIP implements conn.Endpoint.
func (e *endpoint) SrcIP() netip.Addr { return e.local }

// DstToString implements conn.Endpoint.
func (e *endpoint) DstToString() string { return e.addr.String() }

// DstToBytes implements conn.Endpoint: address and port as they go into the MAC
// of a cookie (WireGuard paper section 5.4.7), which only has to be the same for
// the same source.
func (e *endpoint) DstToBytes() []byte {
	b, _ := e.addr.MarshalBinary() // never fails
	return b
}

// DstIP implements conn.Endpoint.
func (e *endpoint) DstIP() netip.Addr { return e.addr.Addr() }

// sourceCache gives equal sources the same endpoint, so that a datagram from a
// known source allocates nothing. It belongs to one receiver and has no lock.
type sourceCache struct {
	last  *endpoint
	known map[endpoint]*endpoint
}

// endpoint returns the endpoint of a source, and remembers it.
func (c *sourceCache) endpoint(from underlay.Origin) *endpoint {
	e := c.stranger(from)
	if e == c.last {
		return e
	}
	if c.known == nil || len(c.known) >= maxKnownSources {
		c.known = make(map[endpoint]*endpoint)
	}
	c.known[*e] = e
	c.last = e
	return e
}

// stranger returns the endpoint of a source that may be anybody's, and does not
// remember it.
func (c *sourceCache) stranger(from underlay.Origin) *endpoint {
	at := endpoint{unmap(from.Addr), from.Local}
	if c.last != nil && *c.last == at {
		return c.last
	}
	if e := c.known[at]; e != nil {
		return e
	}
	e := at // here, so that at itself stays on the stack
	return &e
}

// unmap writes an IPv4 address as IPv4, so that one peer has one endpoint
// however its datagrams arrive.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
