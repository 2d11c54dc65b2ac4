package tunnel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/underlay"
)

// funcSocket is a Socket whose reads and writes are functions.
type funcSocket struct {
	read   func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error)
	write  func(ds []underlay.Datagram) (int, error)
	closed atomic.Bool
}

func (s *funcSocket) ReadBatch(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
	if s.closed.Load() {
		return 0, net.ErrClosed
	}
	return s.read(bufs, sizes, from)
}
func (s *funcSocket) WriteBatch(ds []underlay.Datagram) (int, error) { return s.write(ds) }
func (s *funcSocket) LocalAddr() netip.AddrPort                      { return netip.MustParseAddrPort("127.0.0.1:51820") }
func (s *funcSocket) Close() error                                   { s.closed.Store(true); return nil }

// newTestBind returns an open bind over s, and what wireguard-go receives by.
func newTestBind(t testing.TB, s Socket) (*bind, conn.ReceiveFunc) {
	t.Helper()
	tun, err := New(Options{Overlay: newMemOverlay(), Listen: func(uint16) (Socket, error) { return s, nil }})
	if err != nil {
		t.Fatal(err)
	}
	fns, port, err := tun.bind.Open(0)
	if err != nil || len(fns) != 1 || port != s.LocalAddr().Port() {
		t.Fatalf("Open: %d functions, port %d, %v", len(fns), port, err)
	}
	return tun.bind, fns[0]
}

// newTestReceiver returns a receiver over s of a device that has no keys, and what wireguard-go
// receives by.
func newTestReceiver(t testing.TB, s Socket) (*receiver, conn.ReceiveFunc) {
	t.Helper()
	b, next := newTestBind(t, s)
	dev := device.NewDevice(newTunDevice(), b, newDeviceLogger(b.log))
	t.Cleanup(dev.Close)
	r := newReceiver(newInbound(b, b.open), b.writers[0], dev)
	r.bufs, r.sizes, r.from = batchBuffers(), make([]int, BatchSize), make([]underlay.Origin, BatchSize)
	return r, next
}

// receiveOnce reads and carries one batch.
func receiveOnce(t testing.TB, r *receiver) {
	t.Helper()
	n, err := r.read()
	if err != nil {
		t.Fatal(err)
	}
	if n > 0 {
		r.carry(n)
	}
}

func message(kind uint32, size int) []byte {
	b := make([]byte, size)
	binary.LittleEndian.PutUint32(b, kind)
	return b
}

func batchBuffers() [][]byte {
	bufs := make([][]byte, BatchSize)
	for i := range bufs {
		bufs[i] = make([]byte, 2048)
	}
	return bufs
}

func TestBindHandsDatagramsOver(t *testing.T) {
	var got []underlay.Datagram
	b, _ := newTestBind(t, &funcSocket{write: func(ds []underlay.Datagram) (int, error) {
		for _, d := range ds {
			got = append(got, underlay.Datagram{Addr: d.Addr, Body: bytes.Clone(d.Body)})
		}
		return len(ds), nil
	}})
	ep, err := b.ParseEndpoint("[::ffff:192.0.2.1]:7")
	if err != nil {
		t.Fatal(err)
	}
	if ep.DstToString() != "192.0.2.1:7" || ep.DstIP() != netip.MustParseAddr("192.0.2.1") || ep.SrcIP().IsValid() || ep.SrcToString() != "" {
		t.Errorf("endpoint %v", ep)
	}
	ep.ClearSrc()
	bufs := make([][]byte, BatchSize+2)
	for i := range bufs {
		bufs[i] = message(typeTransport, 40+i)
	}
	if err := b.SendMarked(bufs, make([]uint8, len(bufs)), ep); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(bufs) {
		t.Fatalf("%d datagrams, want %d", len(got), len(bufs))
	}
	for i, d := range got {
		if d.Addr != netip.MustParseAddrPort("192.0.2.1:7") || len(d.Body) != 40+i {
			t.Errorf("datagram %d: %v, %d bytes", i, d.Addr, len(d.Body))
		}
	}
	if err := b.Send(nil, ep); err != nil {
		t.Errorf("sending nothing: %v", err)
	}
	if err := errors.Join(b.Send(bufs, &conn.StdNetEndpoint{}), b.SendMarked(bufs, nil, &conn.StdNetEndpoint{})); !errors.Is(err, conn.ErrWrongEndpointType) {
		t.Errorf("foreign endpoint: %v", err)
	}
	if _, err := b.ParseEndpoint("gw.example:1"); err == nil {
		t.Error("a name was taken for an address")
	}
}

func TestBindReportsWriteErrors(t *testing.T) {
	err := errTest
	b, _ := newTestBind(t, &funcSocket{write: func([]underlay.Datagram) (int, error) { return 0, err }})
	ep, _ := b.ParseEndpoint("192.0.2.1:7")
	if got := b.Send([][]byte{message(typeTransport, 40)}, ep); !errors.Is(got, errTest) {
		t.Errorf("got %v", got)
	}
	// A socket that is being exchanged or closed is no error worth a log line.
	err = net.ErrClosed
	if got := b.Send([][]byte{message(typeTransport, 40)}, ep); got != nil {
		t.Errorf("got %v", got)
	}
	b.Close()
	if got := b.Send([][]byte{message(typeTransport, 40)}, ep); got != nil {
		t.Errorf("after Close: %v", got)
	}
}

func TestBindOpenAndClose(t *testing.T) {
	n := newMemNet()
	listen := n.listen("192.0.2.1")
	tun, err := New(Options{Overlay: newMemOverlay(), Listen: listen})
	if err != nil {
		t.Fatal(err)
	}
	b := tun.bind
	if err := b.Close(); err != nil { // wireguard-go closes before it opens
		t.Fatal(err)
	}
	socket := func(port uint16) Socket {
		t.Helper()
		s, err := listen(port)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := errors.Join(b.prepare(socket(1)), b.prepare(socket(2))); err != nil {
		t.Fatal(err)
	}
	if n.open() != 1 || b.port() != 2 {
		t.Fatalf("%d sockets, port %d: the replaced one must be closed", n.open(), b.port())
	}
	if _, port, err := b.Open(7); err != nil || port != 2 {
		t.Fatalf("Open = %d, %v, want the prepared port 2", port, err)
	}
	if _, _, err := b.Open(7); !errors.Is(err, conn.ErrBindAlreadyOpen) {
		t.Errorf("second Open: %v", err)
	}
	if err := b.prepare(socket(3)); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil || b.port() != 3 {
		t.Fatalf("Close = %v, port %d: the prepared socket must stay", err, b.port())
	}
	if _, port, err := b.Open(7); err != nil || port != 3 {
		t.Fatalf("Open = %d, %v", port, err)
	}
	b.shutdown()
	if _, _, err := b.Open(7); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Open after shutdown: %v", err)
	}
	if err := b.prepare(socket(4)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("prepare after shutdown: %v", err)
	}
	if n.open() != 0 {
		t.Errorf("%d sockets left", n.open())
	}
}

func TestReceiverSurvivesErrors(t *testing.T) {
	calls := 0
	r, next := newTestReceiver(t, &funcSocket{read: func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
		if calls++; calls < 5 {
			return 0, errTest
		}
		sizes[0] = copy(bufs[0], message(typeResponse, responseLen))
		from[0].Addr = netip.MustParseAddrPort("192.0.2.1:7")
		return 1, nil
	}})
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	for calls < 5 {
		receiveOnce(t, r)
	}
	eps := make([]conn.Endpoint, 1)
	if n, err := next(bufs, sizes, eps); n != 1 || err != nil || sizes[0] != responseLen || eps[0].DstToString() != "192.0.2.1:7" {
		t.Fatalf("got %d, %v", n, err)
	}
	if r.ingress.errors != 4 {
		t.Errorf("%d errors counted, want 4", r.ingress.errors)
	}
	r.bind.Close()
	if _, err := r.read(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := next(bufs, sizes, eps); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// wireguard-go gets handshakes, and nothing else.
func TestReceiverSortsDatagrams(t *testing.T) {
	datagrams := []struct {
		name string
		b    []byte
		kind messageClass
	}{
		{"data", message(typeTransport, 48), messageData},
		{"keepalive", message(typeTransport, 32), messageKeepalive},
		{"initiation", message(typeInitiation, 148), messageHandshake},
		{"response", message(typeResponse, 92), messageHandshake},
		{"cookie reply", message(typeCookieReply, 64), messageHandshake},
		{"empty", nil, messageMalformed},
		{"31 bytes", message(typeTransport, 31), messageMalformed},
		{"long initiation", message(typeInitiation, 149), messageMalformed},
		{"short response", message(typeResponse, 91), messageMalformed},
		{"type 0", message(0, 100), messageMalformed},
		{"type 5", message(5, 100), messageMalformed},
		{"reserved bytes set", message(0x0100_0004, 100), messageMalformed},
	}
	r, next := newTestReceiver(t, &funcSocket{read: func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
		for i, d := range datagrams {
			sizes[i] = copy(bufs[i], d.b)
			from[i].Addr = netip.MustParseAddrPort("192.0.2.1:7")
		}
		return len(datagrams), nil
	}})
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	receiveOnce(t, r)
	for _, d := range datagrams {
		if got := classify(d.b); got != d.kind {
			t.Errorf("%s: class %d, want %d", d.name, got, d.kind)
		}
		if d.kind != messageHandshake {
			continue
		}
		if n, err := next(bufs, sizes, make([]conn.Endpoint, 1)); n != 1 || err != nil || !bytes.Equal(bufs[0][:sizes[0]], d.b) {
			t.Errorf("%s: wireguard-go gets %d messages of %d bytes, %v", d.name, n, sizes[0], err)
		}
	}
	if n := len(r.socket.handshakes); n > 0 {
		t.Errorf("wireguard-go gets %d more", n)
	}
	var s Stats
	r.ingress.addTo(&s)
	if s.DropMalformed != 7 || s.RxHandshakes != 3 || s.RxInitiations != 1 || s.RxResponses != 1 || s.DropUnknownSession != 2 {
		t.Errorf("%+v", s)
	}
}

// Handshakes that wireguard-go does not take in time are dropped and counted, and keep
// nothing waiting.
func TestReceiverDropsWhatIsNotTaken(t *testing.T) {
	r, next := newTestReceiver(t, &funcSocket{read: func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
		for i := range bufs {
			sizes[i] = copy(bufs[i], message(typeResponse, responseLen))
		}
		return len(bufs), nil
	}})
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	for range maxHandshakes/BatchSize + 2 {
		receiveOnce(t, r)
	}
	var s Stats
	r.ingress.addTo(&s)
	if s.DropHandshakeLimit != 2*BatchSize {
		t.Errorf("%d dropped, want %d", s.DropHandshakeLimit, 2*BatchSize)
	}
	for range maxHandshakes {
		if _, err := next(bufs, sizes, make([]conn.Endpoint, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEndpointsAreShared(t *testing.T) {
	var c sourceCache
	a, b := underlay.Origin{Addr: netip.MustParseAddrPort("192.0.2.1:7")}, underlay.Origin{Addr: netip.MustParseAddrPort("[2001:db8::1]:7")}
	first := c.endpoint(a)
	second := c.endpoint(b)
	if c.endpoint(a) != first || c.endpoint(b) != second || first == second {
		t.Error("the same source has two endpoints")
	}
	if !bytes.Equal(first.DstToBytes(), (&endpoint{addr: a.Addr}).DstToBytes()) || bytes.Equal(first.DstToBytes(), second.DstToBytes()) {
		t.Error("cookie bytes do not identify the source")
	}
	for i := range 10 * maxKnownSources {
		c.endpoint(underlay.Origin{Addr: netip.AddrPortFrom(a.Addr.Addr(), uint16(i+100))})
	}
	if len(c.known) > maxKnownSources {
		t.Errorf("%d endpoints kept", len(c.known))
	}
}

// What anybody can send, under any address, leaves nothing behind: neither memory nor
// an entry in a cache, as far as it takes no handshake to find out.
func TestForgedSourcesAllocateNothing(t *testing.T) {
	source := uint32(0)
	kind := uint32(typeTransport)
	r, _ := newTestReceiver(t, &funcSocket{read: func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
		for i := range bufs {
			sizes[i] = copy(bufs[i], message(kind, 1400))
			if kind == typeInitiation {
				sizes[i] = initiationLen
			}
			source++
			a := [4]byte{198, 18, byte(source >> 8), byte(source)}
			from[i] = underlay.Origin{Addr: netip.AddrPortFrom(netip.AddrFrom4(a), 7)}
		}
		return len(bufs), nil
	}})
	receive := func() { receiveOnce(t, r) }
	made := testing.AllocsPerRun(20, func() { message(kind, 1400) }) * BatchSize // by this test
	if n := testing.AllocsPerRun(20, receive); n > made && !packettest.Race {
		t.Errorf("%v allocations for a batch of forged messages", n-made)
	}
	kind = typeInitiation
	receive()
	if len(r.sources.known) > 0 || r.sources.last != nil {
		t.Errorf("%d forged sources are remembered", len(r.sources.known))
	}
}

func BenchmarkBind(b *testing.B) {
	bind, _ := newTestBind(b, &funcSocket{write: func(ds []underlay.Datagram) (int, error) { return len(ds), nil }})
	ep, _ := bind.ParseEndpoint("192.0.2.1:7")
	bufs := batchBuffers()
	for i := range bufs {
		copy(bufs[i], message(typeTransport, 1400))
		bufs[i] = bufs[i][:1400]
	}
	b.ReportAllocs()
	b.SetBytes(BatchSize * 1400)
	for b.Loop() {
		_ = bind.SendMarked(bufs, nil, ep)
	}
}
