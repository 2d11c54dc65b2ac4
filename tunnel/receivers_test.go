package tunnel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/underlay"
)

// slowWriter is a Writer that takes some time before it waits for its turn, to the same end
// as others.
type slowWriter struct {
	to      *memOverlay
	batches atomic.Int64
}

func (w *slowWriter) WritePackets(bufs [][]byte, ecn []uint8, offset int, turn func()) {
	w.batches.Add(1)
	for range rand.IntN(20) {
		runtime.Gosched()
	}
	w.to.WritePackets(bufs, ecn, offset, turn)
}

// slowOverlay is an Overlay with a slowWriter.
type slowOverlay struct {
	*memOverlay
	writer *slowWriter
}

func (o slowOverlay) WritePackets(bufs [][]byte, ecn []uint8, offset int, turn func()) {
	o.writer.WritePackets(bufs, ecn, offset, turn)
}

// newReceivers returns a pair of which b has so many receivers, and their Writers.
func newReceivers(t *testing.T, n *memNet, receivers int) (a, b *gateway, writers []*slowWriter) {
	overlay := newMemOverlay()
	o := Options{Listen: n.listen("192.0.2.2")}
	for i := range receivers {
		w := &slowWriter{to: overlay}
		writers = append(writers, w)
		if i > 0 {
			o.Writers = append(o.Writers, w)
		}
	}
	o.Overlay = slowOverlay{overlay, writers[0]}
	a = newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
	b = newGateway(t, "192.0.2.2", "10.2.0.1", o)
	b.overlay = overlay
	connect(t, a, b)
	a.run(t)
	b.run(t)
	return a, b, writers
}

// working is how many of the Writers have got something.
func working(writers []*slowWriter) (n int) {
	for _, w := range writers {
		if w.batches.Load() > 0 {
			n++
		}
	}
	return n
}

// again has every message with a packet come to b's host several times: as it is, and changed
// in two ways before that.
func again(n *memNet, b *gateway) {
	n.setDrop(func(from, to netip.AddrPort, m []byte) bool {
		if to.Addr().String() != b.host || classify(m) != messageData {
			return false
		}
		n.mu.Lock()
		s := n.socks[to]
		n.mu.Unlock()
		if s == nil {
			return false
		}
		forged, later := slices.Clone(m), slices.Clone(m)
		forged[len(m)-1] ^= 1
		binary.LittleEndian.PutUint64(later[8:], binary.LittleEndian.Uint64(m[8:])+1000)
		for _, c := range [][]byte{forged, later, slices.Clone(m)} {
			select {
			case s.in <- memDatagram{underlay.Origin{Addr: from, Local: to.Addr()}, c}:
			case <-s.done:
			}
		}
		return false
	})
}

// Each packet is delivered once, and in order, whoever of several receivers has it, and over
// several sessions and ports. Copies and forgeries are rejected.
func TestReceiversKeepTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a, b, writers := newReceivers(t, n, 4)
		cross(t, a, b, 0)
		keepPeers(a, b)
		again(n, b)
		const rounds, each = 50, 5 * BatchSize
		sent := uint32(1)
		for round := range rounds {
			go func() {
				for i := range uint32(each) {
					a.overlay.out <- ipPacket(a.inner, b.inner, sent+i, 100)
				}
			}()
			if round%10 == 5 { // a configuration meets the traffic
				b.apply(t, func(c *Config) {
					c.AllowedIPs = append(c.AllowedIPs, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(round)}), 32))
				})
				a.apply(t, func(c *Config) { c.ListenPort = uint16(2000 + round) })
			}
			for i := range uint32(each) {
				expect(t, b, sent+i)
			}
			sent += each
			synctest.Wait()
			cross(t, b, a, 1)            // b has followed a
			time.Sleep(10 * time.Second) // a session is replaced after two minutes
		}
		s := b.Stats()
		if s.RxPackets != uint64(sent) || len(b.overlay.in) > 0 {
			t.Errorf("%d packets are counted, and %d came too often, of %d", s.RxPackets, len(b.overlay.in), sent)
		}
		if want := 3 * uint64(sent-1); s.DropRejected != want || s.DropUnknownSession != 0 || s.DropMalformed != 0 {
			t.Errorf("%d rejected, want %d: %+v", s.DropRejected, want, s)
		}
		if s.RxInitiations+s.RxResponses < 3 {
			t.Errorf("only %d handshakes", s.RxInitiations+s.RxResponses)
		}
		if got := working(writers); got < 2 {
			t.Errorf("%d receivers have worked", got)
		}
	})
}

// As long as little comes there is one receiver that works, and the others have no memory.
func TestOneReceiverForLittle(t *testing.T) {
	noLeaks(t)
	a, b, writers := newReceivers(t, newMemNet(), 4)
	cross(t, a, b, 0)
	before := collectGarbage()
	for i := range uint32(500) {
		for j := range uint32(busyBatch - 1) {
			a.overlay.out <- ipPacket(a.inner, b.inner, i*busyBatch+j, 100)
		}
		for j := range uint32(busyBatch - 1) {
			expect(t, b, i*busyBatch+j)
		}
	}
	if got := working(writers); got != 1 {
		t.Errorf("%d receivers have worked", got)
	}
	if after := collectGarbage(); after > before+BatchSize*device.MaxMessageSize/2 {
		t.Errorf("%d bytes more", after-before)
	}
}

// The socket is exchanged again and again under several receivers. What comes, comes in order,
// and all of them end with the socket, and with Run.
func TestReceiversEndWithTheSocket(t *testing.T) {
	noLeaks(t)
	n := newMemNet()
	a, b, _ := newReceivers(t, n, 3)
	cross(t, a, b, 0)
	again(n, b)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for id := uint32(1); ; id++ {
			select {
			case a.overlay.out <- ipPacket(a.inner, b.inner, id, 100):
			case <-done:
				return
			}
		}
	})
	var came atomic.Uint32
	wg.Go(func() {
		for last := uint32(0); ; {
			select {
			case p := <-b.overlay.in:
				if id := packetID(p); id <= last {
					t.Errorf("packet %d comes after %d", id, last)
				} else {
					last = id
				}
				came.Add(1)
			case <-done:
				return
			}
		}
	})
	for i := range 50 {
		b.apply(t, func(c *Config) { c.ListenPort = uint16(1000 + i%2) }) // its message tells a
		at := came.Load()
		eventually(t, fmt.Sprintf("packets after change %d", i), func() bool { return came.Load() > at+BatchSize })
		if i%10 == 0 {
			b.Handshake()
		}
	}
	b.stop(t) // under traffic
	close(done)
	wg.Wait()
	if n.open() != 1 {
		t.Errorf("%d sockets are open", n.open())
	}
}

// Handshakes among other messages are passed on in the order in which they came, whoever has
// read them.
func TestReceiversPassHandshakesOn(t *testing.T) {
	noLeaks(t)
	const batches, every = 60, 16
	number, read := uint32(0), 0
	tun, err := New(Options{
		Overlay: newMemOverlay(), Writers: []Writer{newMemOverlay(), newMemOverlay()},
		Listen: func(uint16) (Socket, error) {
			s := new(funcSocket)
			s.read = func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
				if read++; read > batches {
					for !s.closed.Load() {
						runtime.Gosched()
					}
					return 0, net.ErrClosed
				}
				for i := range bufs {
					from[i].Addr = netip.MustParseAddrPort("192.0.2.1:7")
					if i%every != every/2 {
						sizes[i] = copy(bufs[i], message(typeTransport, 100))
						continue
					}
					m := message(typeResponse, responseLen)
					binary.LittleEndian.PutUint32(m[8:], number)
					number++
					sizes[i] = copy(bufs[i], m)
				}
				return len(bufs), nil
			}
			return s, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	fns, _, err := tun.bind.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewDevice(newTunDevice(), tun.bind, newDeviceLogger(tun.log))
	t.Cleanup(dev.Close)
	s := tun.bind.open
	s.received.Go(func() { newInbound(tun.bind, s).run(dev) })
	bufs, sizes, eps := [][]byte{make([]byte, 2048)}, make([]int, 1), make([]conn.Endpoint, 1)
	for i := range uint32(batches * BatchSize / every) {
		if _, err := fns[0](bufs, sizes, eps); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint32(bufs[0][8:]); got != i || !bytes.Equal(bufs[0][:4], message(typeResponse, 4)) {
			t.Fatalf("got handshake %d, want %d", got, i)
		}
	}
	if err := tun.bind.Close(); err != nil {
		t.Error(err)
	}
	var stats Stats
	tun.ingress.addTo(&stats)
	if want := uint64(batches * (BatchSize - BatchSize/every)); stats.DropUnknownSession != want || stats.DropHandshakeLimit != 0 {
		t.Errorf("%d of no session, want %d: %+v", stats.DropUnknownSession, want, stats)
	}
}

// An order lets one in after another, whoever comes first, and wakes who sleeps.
func TestOrder(t *testing.T) {
	const goers, each = 8, 2000
	o, next := newOrder(), uint64(0)
	var taken atomic.Uint64
	var wg sync.WaitGroup
	for range goers {
		wg.Go(func() {
			for {
				n := taken.Add(1) - 1
				if n >= goers*each {
					return
				}
				if rand.IntN(8) == 0 {
					runtime.Gosched()
				}
				o.await(n)
				if next != n {
					t.Errorf("the turn of %d at that of %d", n, next)
				}
				next++
				o.pass()
			}
		})
	}
	wg.Wait()
}

// Receivers that wait for each other allocate nothing.
func TestReceiversAllocateNothing(t *testing.T) {
	n := newMemNet()
	const runs, receivers = 20, 3
	var mu sync.Mutex
	var kept [][]byte
	var keep bool
	var passed uint64 // bytes
	n.setDrop(func(_, to netip.AddrPort, m []byte) bool {
		if to.Addr().String() != "192.0.2.2" {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !keep || binary.LittleEndian.Uint32(m) != typeTransport:
			passed += uint64(len(m))
			return false
		case len(m) > keepaliveLen:
			kept = append(kept, slices.Clone(m))
		}
		return true
	})
	a, b := newPair(t, n)
	cross(t, a, b, 1)
	mu.Lock()
	keep = true
	mu.Unlock()
	// The gateway's own receiver has the replay filter until it is done with what came before.
	eventually(t, "nothing is under way", func() bool { mu.Lock(); defer mu.Unlock(); return b.Stats().RxBytes == passed })
	const count = (runs + 1) * receivers * BatchSize
	for range count {
		a.overlay.out <- ipPacket(a.inner, b.inner, 1, 1340)
	}
	eventually(t, "the messages are sealed", func() bool { mu.Lock(); defer mu.Unlock(); return len(kept) == count })
	in, packets := newInbound(b.bind, b.bind.open), new(countingWriter)
	var begin [receivers]chan [][]byte
	end := make(chan struct{}, receivers)
	for i := range begin {
		r := newReceiver(in, packets, b.dev.Load())
		r.bufs, r.sizes, r.from = batchBuffers(), make([]int, BatchSize), make([]underlay.Origin, BatchSize)
		for j := range r.from {
			r.from[j].Addr = a.bind.open.LocalAddr()
		}
		r.batch = uint64(i)
		begin[i] = make(chan [][]byte)
		go func() {
			for messages := range begin[i] {
				for j, m := range messages {
					r.sizes[j] = copy(r.bufs[j], m)
				}
				r.carry(BatchSize)
				r.batch += receivers
				end <- struct{}{}
			}
		}()
	}
	at := 0
	allocations := testing.AllocsPerRun(runs, func() {
		for i := range receivers { // the last one first: it waits
			c := receivers - 1 - i
			begin[c] <- kept[at+c*BatchSize : at+(c+1)*BatchSize]
		}
		for range receivers {
			<-end
		}
		at += receivers * BatchSize
	})
	for _, c := range begin {
		close(c)
	}
	if got := packets.Load(); got != count {
		t.Fatalf("%d packets were delivered, want %d", got, count)
	}
	if allocations >= 1 && !packettest.Race {
		t.Errorf("%v allocations", allocations)
	}
}

// countingWriter counts packets.
type countingWriter struct{ atomic.Int64 }

func (w *countingWriter) WritePackets(bufs [][]byte, _ []uint8, _ int, turn func()) {
	turn()
	w.Add(int64(len(bufs)))
}
