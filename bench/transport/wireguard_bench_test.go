package transport

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// What a packet costs from one end of a tunnel to the other, with memory in the
// place of the kernel: batches of packets are copied from a source to the
// tunnel, messages from one end to the other, and packets to nowhere. Both ends work
// at the same time, so it is the processor time that counts, not the time.

const (
	batchSize   = 128 // wireguard-go's
	packetLen   = 1340
	batchesLeft = 4 // between the source and the sink at any time
)

// wire carries messages from one end to the other, a batch at a time, in buffers that
// come back.
type wire struct{ full, free chan *batch }

type batch struct {
	bufs  [batchSize][2048]byte
	sizes [batchSize]int
	n     int
}

func newWire() *wire {
	w := &wire{make(chan *batch, batchesLeft), make(chan *batch, batchesLeft)}
	for range batchesLeft {
		w.free <- new(batch)
	}
	return w
}

func (b *batch) add(message []byte) {
	b.sizes[b.n] = copy(b.bufs[b.n][:], message)
	b.n++
}

// flow lets a source send as much as the sink has taken.
type flow struct {
	credits chan struct{} // a batch each
	arrived int
	want    int
	done    chan struct{}
}

func newFlow(packets int) *flow {
	return &flow{credits: make(chan struct{}, batchesLeft), want: packets, done: make(chan struct{})}
}

// begin lets the source send.
func (f *flow) begin() {
	for range batchesLeft {
		f.credits <- struct{}{}
	}
}

// arrive counts packets at the sink.
func (f *flow) arrive(n int) {
	for range n {
		if f.arrived++; f.arrived%batchSize == 0 {
			f.credits <- struct{}{}
		}
		if f.arrived == f.want {
			close(f.done)
		}
	}
}

// BenchmarkPath moves packets through both ends of a tunnel.
func BenchmarkPath(b *testing.B) {
	for _, impl := range []struct {
		name  string
		start func(b *testing.B, f *flow)
	}{{"wireguard-go", startDevices}, {"loop", startLoops}} {
		b.Run(impl.name, func(b *testing.B) {
			packets := (b.N + batchSize - 1) / batchSize * batchSize
			f := newFlow(packets)
			impl.start(b, f)
			before := processorTime(b)
			b.ResetTimer()
			f.begin()
			select {
			case <-f.done:
			case <-time.After(time.Minute):
				b.Fatalf("%d of %d packets arrived", f.arrived, packets)
			}
			b.StopTimer()
			b.ReportMetric(float64(processorTime(b)-before)/float64(packets), "cpu-ns/op")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// startLoops runs both ends as two loops.
func startLoops(b *testing.B, f *flow) {
	w, plain := newWire(), ipPacket(ourInner, peerInner, 1, packetLen)
	send, receive := NewSendKey(testKey(1), 1), NewReceiveKey(testKey(1))
	quit := make(chan struct{})
	b.Cleanup(func() { close(quit) })
	go func() {
		var nonce Nonce
		var packets, messages [batchSize][2048]byte
		for {
			select {
			case <-f.credits:
			case <-quit:
				return
			}
			for i := range packets {
				copy(packets[i][:], plain)
			}
			first := send.Reserve(batchSize)
			out := <-w.free
			out.n = 0
			for i := range packets {
				n := send.Seal(messages[i][:], packets[i][:packetLen], first+uint64(i), &nonce)
				out.add(messages[i][:n])
			}
			w.full <- out
		}
	}()
	go func() {
		var nonce Nonce
		var bufs [batchSize][2048]byte
		for {
			var in *batch
			select {
			case in = <-w.full:
			case <-quit:
				return
			}
			for i := range in.n { // the kernel's copy
				copy(bufs[i][:], in.bufs[i][:in.sizes[i]])
			}
			for i := range in.n {
				if packet, ok := receive.Open(bufs[i][:in.sizes[i]], &nonce); !ok || len(packet) != packetLen {
					panic("the packet did not arrive")
				}
			}
			f.arrive(in.n)
			w.free <- in
		}
	}()
}

// memoryTUN is a device of wireguard-go: a source of packets, or a sink.
type memoryTUN struct {
	plain  []byte // nil for the sink
	flow   *flow
	closed chan struct{}
	events chan tun.Event
}

func newMemoryTUN(plain []byte, f *flow) *memoryTUN {
	t := &memoryTUN{plain: plain, flow: f, closed: make(chan struct{}), events: make(chan tun.Event, 1)}
	t.events <- tun.EventUp
	return t
}

func (t *memoryTUN) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	source := t.flow.credits
	if t.plain == nil {
		source = nil
	}
	select {
	case <-source:
	case <-t.closed:
		return 0, os.ErrClosed
	}
	for i := range bufs {
		sizes[i] = copy(bufs[i][offset:], t.plain)
	}
	return len(bufs), nil
}

func (t *memoryTUN) Write(bufs [][]byte, _ int) (int, error) {
	t.flow.arrive(len(bufs))
	return len(bufs), nil
}

func (t *memoryTUN) Close() error {
	close(t.closed)
	close(t.events)
	return nil
}

func (t *memoryTUN) File() *os.File           { return nil }
func (t *memoryTUN) MTU() (int, error)        { return packetLen, nil }
func (t *memoryTUN) Name() (string, error)    { return "memory", nil }
func (t *memoryTUN) Events() <-chan tun.Event { return t.events }
func (t *memoryTUN) BatchSize() int           { return batchSize }

// memoryBind is a socket of wireguard-go.
type memoryBind struct {
	in, out *wire
	quit    chan struct{}
}

// place is the one address there is.
type place struct{}

func (place) ClearSrc()           {}
func (place) SrcToString() string { return "" }
func (place) DstToString() string { return "127.0.0.1:1" }
func (place) DstToBytes() []byte  { return []byte{127, 0, 0, 1} }
func (place) DstIP() netip.Addr   { return loopback }
func (place) SrcIP() netip.Addr   { return loopback }

func (m *memoryBind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	m.quit = make(chan struct{})
	quit := m.quit
	return []conn.ReceiveFunc{func(bufs [][]byte, sizes []int, endpoints []conn.Endpoint) (int, error) {
		select {
		case b := <-m.in.full:
			n := b.n
			for i := range n {
				sizes[i], endpoints[i] = copy(bufs[i], b.bufs[i][:b.sizes[i]]), place{}
			}
			m.in.free <- b
			return n, nil
		case <-quit:
			return 0, net.ErrClosed
		}
	}}, port, nil
}

func (m *memoryBind) Close() error {
	if m.quit != nil {
		close(m.quit)
		m.quit = nil
	}
	return nil
}

func (m *memoryBind) Send(messages [][]byte, _ conn.Endpoint) error {
	b := <-m.out.free
	b.n = 0
	for _, message := range messages {
		b.add(message)
	}
	m.out.full <- b
	return nil
}

func (m *memoryBind) SetMark(uint32) error                        { return nil }
func (m *memoryBind) ParseEndpoint(string) (conn.Endpoint, error) { return place{}, nil }
func (m *memoryBind) BatchSize() int                              { return batchSize }

// startDevices runs both ends as devices of wireguard-go.
func startDevices(b *testing.B, f *flow) {
	there, back := newWire(), newWire()
	private, public := newKeys(b)
	peerPrivate, peerPublic := newKeys(b)
	plain := ipPacket(ourInner, peerInner, 1, packetLen)
	for _, end := range []struct {
		private, peer [KeyLen]byte
		allowed       netip.Addr
		tun           *memoryTUN
		bind          *memoryBind
	}{
		{peerPrivate, public, ourInner, newMemoryTUN(nil, f), &memoryBind{in: there, out: back}},
		{private, peerPublic, peerInner, newMemoryTUN(plain, f), &memoryBind{in: back, out: there}},
	} {
		d := device.NewDevice(end.tun, end.bind, device.NewLogger(device.LogLevelError, ""))
		b.Cleanup(d.Close)
		text := fmt.Sprintf("private_key=%x\npublic_key=%x\nendpoint=127.0.0.1:1\nallowed_ip=%s/32\n", end.private, end.peer, end.allowed)
		if err := errors.Join(d.IpcSet(text), d.Up()); err != nil {
			b.Fatal(err)
		}
	}
}
