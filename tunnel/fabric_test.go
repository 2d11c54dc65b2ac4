package tunnel

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/test/testlog"
	"github.com/sluice-net/sluice/underlay"
)

// memNet is a network of in-memory sockets. A datagram to nobody is lost.
type memNet struct {
	mu    sync.Mutex
	socks map[netip.AddrPort]*memSocket
	next  uint16
	drop  func(from, to netip.AddrPort, b []byte) bool    // nil: drops nothing
	pass  func(from netip.AddrPort, d *underlay.Datagram) // nil: changes nothing
	delay time.Duration                                   // of each datagram
}

func newMemNet() *memNet {
	return &memNet{socks: make(map[netip.AddrPort]*memSocket), next: 40000}
}

// listen returns what Options.Listen wants, for a host with one address.
func (n *memNet) listen(host string) func(uint16) (Socket, error) {
	addr := netip.MustParseAddr(host)
	return func(port uint16) (Socket, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if port == 0 {
			n.next++
			port = n.next
		}
		at := netip.AddrPortFrom(addr, port)
		if n.socks[at] != nil {
			return nil, &net.OpError{Op: "listen", Net: "udp", Err: syscall.EADDRINUSE}
		}
		s := &memSocket{net: n, addr: at, in: make(chan memDatagram, 1024), done: make(chan struct{})}
		n.socks[at] = s
		return s, nil
	}
}

// setDrop replaces the loss function.
func (n *memNet) setDrop(f func(from, to netip.AddrPort, b []byte) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop = f
}

// setDelay changes how long each datagram takes from now on.
func (n *memNet) setDelay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

func (n *memNet) open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.socks)
}

func (n *memNet) send(from *memSocket, to netip.AddrPort, b []byte) {
	n.sendAs(from, underlay.Datagram{Addr: to, Body: b})
}

// sendAs sends the body of a datagram, marked as it says. Who it comes to is told that
// he was sent to under the address he has.
func (n *memNet) sendAs(from *memSocket, d underlay.Datagram) {
	to, b := d.Addr, d.Body
	n.mu.Lock()
	s, drop, pass, delay := n.socks[to], n.drop, n.pass, n.delay
	n.mu.Unlock()
	if pass != nil {
		pass(from.addr, &d)
	}
	if s == nil || drop != nil && drop(from.addr, to, b) {
		return
	}
	arrive := func() {
		select {
		case s.in <- memDatagram{underlay.Origin{Addr: from.addr, Local: to.Addr(), ECN: d.ECN}, b}: // waits when full: loses nothing
		case <-s.done:
		case <-from.done:
		}
	}
	if delay == 0 {
		arrive()
	} else {
		time.AfterFunc(delay, arrive)
	}
}

type memDatagram struct {
	origin underlay.Origin
	b      []byte
}

type memSocket struct {
	net  *memNet
	addr netip.AddrPort
	in   chan memDatagram
	done chan struct{}
	once sync.Once
}

func (s *memSocket) ReadBatch(bufs [][]byte, sizes []int, from []underlay.Origin) (n int, err error) {
	put := func(d memDatagram) {
		sizes[n] = copy(bufs[n], d.b)
		from[n] = d.origin
		n++
	}
	select {
	case d := <-s.in:
		put(d)
	case <-s.done:
		return 0, net.ErrClosed
	}
	for n < len(bufs) {
		select {
		case d := <-s.in:
			put(d)
		default:
			return n, nil
		}
	}
	return n, nil
}

func (s *memSocket) WriteBatch(ds []underlay.Datagram) (int, error) {
	for _, d := range ds {
		select {
		case <-s.done:
			return 0, net.ErrClosed
		default:
		}
		b := make([]byte, 0, len(d.Head)+len(d.Body))
		d.Head, d.Body = nil, append(append(b, d.Head...), d.Body...)
		s.net.sendAs(s, d)
	}
	return len(ds), nil
}

func (s *memSocket) LocalAddr() netip.AddrPort { return s.addr }

func (s *memSocket) Close() error {
	s.once.Do(func() {
		close(s.done)
		s.net.mu.Lock()
		delete(s.net.socks, s.addr)
		s.net.mu.Unlock()
	})
	return nil
}

// memOverlay is a data plane: what the test sends comes out of ReadPackets, what
// the tunnel delivers goes into in.
type memOverlay struct {
	out, own chan []byte   // to the peer; own is read first
	in       chan []byte   // from the peer; WritePackets waits when it is full
	ecn      atomic.Uint32 // that of the last message from the peer, 255: not known
	done     chan struct{}
	once     sync.Once
}

func newMemOverlay() *memOverlay {
	return &memOverlay{
		out: make(chan []byte, 1024), own: make(chan []byte, 16),
		in: make(chan []byte, 1024), done: make(chan struct{}),
	}
}

func (o *memOverlay) ReadPackets(bufs [][]byte, sizes []int, offset int) (n, own int, err error) {
	put := func(p []byte) {
		sizes[n] = copy(bufs[n][offset:], p)
		n++
	}
	select {
	case p := <-o.own:
		put(p)
		own++
	case p := <-o.out:
		put(p)
	case <-o.done:
		return 0, 0, os.ErrClosed
	}
	for own == n && n < len(bufs) && len(o.own) > 0 {
		put(<-o.own)
		own++
	}
	for n < len(bufs) {
		select {
		case p := <-o.out:
			put(p)
		default:
			return n, own, nil
		}
	}
	return n, own, nil
}

func (o *memOverlay) WritePackets(bufs [][]byte, ecn []uint8, offset int, turn func()) {
	turn()
	for i, b := range bufs {
		if o.ecn.Store(255); ecn != nil {
			o.ecn.Store(uint32(ecn[i]))
		}
		select {
		case o.in <- append([]byte(nil), b[offset:]...):
		case <-o.done:
			return
		}
	}
}

func (o *memOverlay) CloseRead() { o.once.Do(func() { close(o.done) }) }

// ipPacket returns an IPv4 packet with a number in its payload.
func ipPacket(src, dst string, id uint32, size int) []byte {
	b := make([]byte, max(size, 24))
	b[0], b[8], b[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	copy(b[12:], netip.MustParseAddr(src).AsSlice())
	copy(b[16:], netip.MustParseAddr(dst).AsSlice())
	binary.BigEndian.PutUint32(b[20:], id)
	return b
}

func packetID(b []byte) uint32 { return binary.BigEndian.Uint32(b[20:]) }

// gateway is a Tunnel with what is around it.
type gateway struct {
	*Tunnel
	overlay *memOverlay
	key     PrivateKey
	host    string
	inner   string // an address on this side
	config  Config
	cancel  context.CancelFunc
	done    chan error
}

func newGateway(t testing.TB, host, inner string, o Options) *gateway {
	t.Helper()
	g := &gateway{overlay: newMemOverlay(), key: GeneratePrivateKey(), host: host, inner: inner}
	if o.Overlay == nil {
		o.Overlay = g.overlay
	}
	if o.Logger == nil {
		o.Logger = testLogger(t)
	}
	tun, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	g.Tunnel = tun
	return g
}

// apply fails the test when the configuration is refused.
func (g *gateway) apply(t testing.TB, change func(*Config)) {
	t.Helper()
	if change != nil {
		change(&g.config)
	}
	if err := g.Apply(g.config); err != nil {
		t.Fatalf("Apply: %v", err)
	}
}

func (g *gateway) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel, g.done = cancel, make(chan error, 1)
	go func() { g.done <- g.Run(ctx) }()
	t.Cleanup(func() { g.stop(t) })
}

func (g *gateway) stop(t testing.TB) {
	t.Helper()
	if g.done == nil {
		return
	}
	g.cancel()
	if err := receive(t, g.done, "the end of Run"); err != nil {
		t.Errorf("Run: %v", err)
	}
	g.done = nil
}

// connect gives both gateways their first configuration; a knows b's address.
func connect(t testing.TB, a, b *gateway) {
	t.Helper()
	b.config = Config{
		PrivateKey: b.key, PeerKey: a.key.Public(), ListenPort: 51820, MTU: 1340,
		AllowedIPs: []netip.Prefix{netip.MustParsePrefix(a.inner + "/32")},
	}
	b.apply(t, nil)
	a.config = Config{
		PrivateKey: a.key, PeerKey: b.key.Public(), MTU: 1340,
		AllowedIPs: []netip.Prefix{netip.MustParsePrefix(b.inner + "/32")},
		Endpoint:   netip.AddrPortFrom(netip.MustParseAddr(b.host), 51820).String(),
	}
	a.apply(t, nil)
}

// newPair returns two configured gateways on a network of their own, running.
func newPair(t testing.TB, n *memNet) (a, b *gateway) {
	t.Helper()
	a = newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
	b = newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
	connect(t, a, b)
	a.run(t)
	b.run(t)
	return a, b
}

// cross sends one packet and waits until it arrives.
func cross(t testing.TB, from, to *gateway, id uint32) {
	t.Helper()
	from.overlay.out <- ipPacket(from.inner, to.inner, id, 100)
	expect(t, to, id)
}

func expect(t testing.TB, g *gateway, id uint32) {
	t.Helper()
	if got := packetID(receive(t, g.overlay.in, "a packet")); got != id {
		t.Fatalf("got packet %d, want %d", got, id)
	}
}

// patience is how long a test waits for what must come.
const patience = time.Minute

func receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("no %s within %v", what, patience)
		panic("unreachable")
	}
}

// eventually polls a condition that no signal announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// noLeaks fails the test when goroutines are left at its end.
func noLeaks(t *testing.T) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

// testLogger logs to the test, and stops when the test ends.
func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testlog.Writer(t), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

var errTest = errors.New("test")

// heap returns the bytes of live and not yet collected heap objects.
func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// collectGarbage frees what other tests left; twice, because pools keep what they
// hold for one collection. It returns the heap that stays all the same. From then
// on garbage is collected as by default, whatever GOGC says: a heap may double before.
func collectGarbage() uint64 {
	debug.SetGCPercent(100)
	runtime.GC()
	runtime.GC()
	return heap()
}

// freePort returns a UDP port that was free a moment ago.
func freePort(t *testing.T) uint16 {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}
