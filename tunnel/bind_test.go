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
func (s *funcSocket) Wake()                                          {}
func (s *funcSocket) LocalAddr() netip.AddrPort                      { return netip.MustParseAddrPort("127.0.0.1:51820") }
func (s *funcSocket) Close() error                                   { s.closed.Store(true); return nil }

// newTestBind returns an open bind over s and its receiver.
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
	if err := b.Send(bufs, ep); err != nil {
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
	if err := b.Send(bufs, &conn.StdNetEndpoint{}); !errors.Is(err, conn.ErrWrongEndpointType) {
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

// wireguard-go would end its receiver for good after ten errors.
func TestReceiverSurvivesErrors(t *testing.T) {
	calls := 0
	b, receive := newTestBind(t, &funcSocket{read: func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
		if calls++; calls%2 == 0 {
			return 0, underlay.ErrWoken
		}
		if calls < 8 {
			return 0, errTest
		}
		sizes[0] = copy(bufs[0], message(typeTransport, 32))
		from[0].Addr = netip.MustParseAddrPort("192.0.2.1:7")
		return 1, nil
	}})
	sizes, eps := make([]int, BatchSize), make([]conn.Endpoint, BatchSize)
	n, err := receive(batchBuffers(), sizes, eps)
	if n != 1 || err != nil || eps[0].DstToString() != "192.0.2.1:7" {
		t.Fatalf("got %d, %v", n, err)
	}
	if b.ingress.errors != 4 {
		t.Errorf("%d errors counted, want 4", b.ingress.errors)
	}
	b.Close()
	if _, err := receive(batchBuffers(), sizes, eps); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestReceiverSortsDatagrams(t *testing.T) {
	datagrams := []struct {
		name string
		b    []byte
		size int // as wireguard-go gets it
	}{
		{"data", message(typeTransport, 48), 48},
		{"keepalive", message(typeTransport, 32), 32},
		{"initiation", message(typeInitiation, 148), 148},
		{"response", message(typeResponse, 92), 92},
		{"cookie reply", message(typeCookieReply, 64), 64},
		{"empty", nil, 0},
		{"31 bytes", message(typeTransport, 31), 0},
		{"long initiation", message(typeInitiation, 149), 0},
		{"short response", message(typeResponse, 91), 0},
		{"type 0", message(0, 100), 0},
		{"type 5", message(5, 100), 0},
		{"reserved bytes set", message(0x0100_0004, 100), 0},
	}
	b, receive := newTestBind(t, &funcSocket{read: func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
		for i, d := range datagrams {
			sizes[i] = copy(bufs[i], d.b)
			from[i].Addr = netip.MustParseAddrPort("192.0.2.1:7")
		}
		return len(datagrams), nil
	}})
	sizes, eps := make([]int, BatchSize), make([]conn.Endpoint, BatchSize)
	if _, err := receive(batchBuffers(), sizes, eps); err != nil {
		t.Fatal(err)
	}
	for i, d := range datagrams {
		if sizes[i] != d.size {
			t.Errorf("%s: size %d, want %d", d.name, sizes[i], d.size)
		}
	}
	var s Stats
	b.ingress.addTo(&s)
	if s.DropMalformed != 7 || s.RxHandshakes != 3 || s.RxInitiations != 1 || s.RxResponses != 1 || s.InFlightIngress != 1 {
		t.Errorf("%+v", s)
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

func TestBindAllocatesNothing(t *testing.T) {
	if packettest.Race {
		t.Skip("the race detector allocates")
	}
	addr := netip.MustParseAddrPort("192.0.2.1:7")
	other := netip.MustParseAddrPort("192.0.2.1:8")
	data := message(typeTransport, 1400)
	b, receive := newTestBind(t, &funcSocket{
		write: func(ds []underlay.Datagram) (int, error) { return len(ds), nil },
		read: func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
			for i := range bufs {
				sizes[i] = copy(bufs[i], data)
				from[i] = underlay.Origin{Addr: addr}
			}
			from[7] = underlay.Origin{Addr: other}
			return len(bufs), nil
		},
	})
	ep, _ := b.ParseEndpoint("192.0.2.1:7")
	bufs := batchBuffers()
	for _, m := range bufs {
		copy(m, data)
	}
	sizes, eps := make([]int, BatchSize), make([]conn.Endpoint, BatchSize)
	if n := testing.AllocsPerRun(100, func() {
		if err := b.Send(bufs, ep); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Send: %v allocations per batch", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := receive(bufs, sizes, eps); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("receive: %v allocations per batch", n)
	}
}

// What anybody can send, under any address, leaves nothing behind: neither memory nor
// an entry in a cache, as far as it takes no handshake to find out.
func TestForgedSourcesLeaveNothing(t *testing.T) {
	source := uint32(0)
	kind := uint32(typeTransport)
	b, _ := newTestBind(t, &funcSocket{read: func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
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
	dev := device.NewDevice(newTunDevice(newMemOverlay(), b.egress, b.ingress), b, newDeviceLogger(b.log))
	t.Cleanup(dev.Close)
	r := &receiver{bind: b, socket: b.open, from: make([]underlay.Origin, BatchSize), pause: firstPause}
	direct := dev.NewDirect(BatchSize)
	bufs, sizes, eps := batchBuffers(), make([]int, BatchSize), make([]conn.Endpoint, BatchSize)
	receive := func() {
		if _, err := r.open(direct, bufs, sizes, eps); err != nil {
			t.Fatal(err)
		}
	}
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
	addr := netip.MustParseAddrPort("192.0.2.1:7")
	bind, receive := newTestBind(b, &funcSocket{
		write: func(ds []underlay.Datagram) (int, error) { return len(ds), nil },
		read: func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
			for i := range bufs {
				sizes[i], from[i].Addr = 1400, addr
			}
			return len(bufs), nil
		},
	})
	ep, _ := bind.ParseEndpoint("192.0.2.1:7")
	bufs := batchBuffers()
	for i := range bufs {
		copy(bufs[i], message(typeTransport, 1400))
		bufs[i] = bufs[i][:1400]
	}
	sizes, eps := make([]int, BatchSize), make([]conn.Endpoint, BatchSize)
	b.Run("Send/128", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(BatchSize * 1400)
		for b.Loop() {
			_ = bind.Send(bufs, ep)
		}
	})
	b.Run("Receive/128", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(BatchSize * 1400)
		for b.Loop() {
			_, _ = receive(bufs, sizes, eps)
		}
	})
}
