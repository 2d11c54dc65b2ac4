package tunnel

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/sluice-net/sluice/test/packettest"
)

// funcOverlay is an Overlay of two functions.
type funcOverlay struct {
	read  func(bufs [][]byte, sizes []int, offset int) (n, own int, err error)
	write func(bufs [][]byte, offset int)
}

func (o *funcOverlay) ReadPackets(bufs [][]byte, sizes []int, offset int) (int, int, error) {
	return o.read(bufs, sizes, offset)
}
func (o *funcOverlay) WritePackets(bufs [][]byte, _ []uint8, offset int) { o.write(bufs, offset) }

// fullBatches is an Overlay that always has packets, the first own of each batch
// the gateway's own.
func fullBatches(own int) *funcOverlay {
	return &funcOverlay{
		read: func(bufs [][]byte, sizes []int, _ int) (int, int, error) {
			for i := range bufs {
				sizes[i] = 100
			}
			return len(bufs), min(own, len(bufs)), nil
		},
		write: func([][]byte, int) {},
	}
}

func newTestTun(t testing.TB, o Overlay) *tunDevice {
	t.Helper()
	tun, err := New(Options{Overlay: o, Listen: newMemNet().listen("192.0.2.1"), MaxInFlight: testInFlight})
	if err != nil {
		t.Fatal(err)
	}
	return tun.tun
}

// admittedOf returns the indexes of a batch that have a size.
func admittedOf(sizes []int) (indexes []int) {
	for i, n := range sizes {
		if n > 0 {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// replaceTaken does what wireguard-go does with a batch that it takes.
func replaceTaken(bufs [][]byte, sizes []int) (taken [][]byte) {
	for i, n := range sizes {
		if n > 0 {
			taken = append(taken, bufs[i])
			bufs[i] = make([]byte, len(bufs[i]))
		}
	}
	return taken
}

func TestReadAdmitsAFewWithoutASession(t *testing.T) {
	d := newTestTun(t, fullBatches(1))
	d.egress.setReachable()
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	n, err := d.Read(bufs, sizes, 16)
	if n != unprovenLimit || err != nil {
		t.Fatalf("Read = %d, %v, want %d", n, err, unprovenLimit)
	}
	staged := replaceTaken(bufs, sizes[:n])

	// Now the first packets wait for a handshake that never comes: one own packet
	// per batch, and a probe.
	n, err = d.Read(bufs, sizes, 16)
	if got := admittedOf(sizes[:n]); err != nil || !cmp.Equal(got, []int{0, 1}) {
		t.Fatalf("Read admitted %v, %v, want the own packet and a probe", got, err)
	}
	staged = append(staged, replaceTaken(bufs, sizes[:n])...)
	n, err = d.Read(bufs, sizes, 16)
	if got := admittedOf(sizes[:n]); err != nil || !cmp.Equal(got, []int{0}) {
		t.Fatalf("Read admitted %v, %v, want the own packet", got, err)
	}
	staged = append(staged, replaceTaken(bufs, sizes[:n])...)
	var s Stats
	d.egress.addTo(&s)
	if s.DropNoSession != 2*BatchSize-3 || s.InFlightEgress != unprovenLimit+3 {
		t.Errorf("%+v", s)
	}

	// The handshake completes and all of them go out.
	d.egress.sendStarts()
	d.egress.sendEnds(staged[len(staged)-1], len(staged))
	d.egress.addTo(&s)
	if s.InFlightEgress != 0 || s.TxPackets != uint64(len(staged)) || s.DropFlushed != 0 {
		t.Errorf("after sending: %+v", s)
	}
	if n, _ = d.Read(bufs, sizes, 16); len(admittedOf(sizes[:n])) != BatchSize {
		t.Errorf("with a session Read admitted %d, want a full batch", n)
	}
}

func TestReadAdmitsOnlyAFewOwnPackets(t *testing.T) {
	d := newTestTun(t, fullBatches(BatchSize))
	d.egress.setReachable()
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	n, _ := d.Read(bufs, sizes, 16)
	replaceTaken(bufs, sizes[:n])
	n, _ = d.Read(bufs, sizes, 16)
	if got := len(admittedOf(sizes[:n])); got != ownBurst+1 { // and a probe
		t.Errorf("%d own packets admitted, want %d", got, ownBurst+1)
	}
}

func TestReadWaitsForCredits(t *testing.T) {
	d := newTestTun(t, fullBatches(0))
	d.egress.setReachable()
	d.egress.sendStarts()
	d.egress.sendEnds(nil, 0) // a keepalive: there is a session
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	var inside [][]byte
	for len(inside) < testInFlight {
		n, err := d.Read(bufs, sizes, 16)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		inside = append(inside, replaceTaken(bufs, sizes[:n])...)
	}
	done := make(chan int)
	go func() {
		n, _ := d.Read(bufs, sizes, 16)
		done <- n
	}()
	d.egress.sendStarts()
	d.egress.sendEnds(inside[BatchSize-1], BatchSize)
	if n := receive(t, done, "credits"); n != BatchSize {
		t.Errorf("Read = %d, want the %d credits that came back", n, BatchSize)
	}
	var s Stats
	d.egress.addTo(&s)
	if s.InFlightEgress != testInFlight || s.DropInFlight != 0 {
		t.Errorf("%+v", s)
	}
}

func TestReadCountsWhatIsNotTaken(t *testing.T) {
	d := newTestTun(t, fullBatches(0))
	d.egress.setReachable()
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	for i := range uint64(10) {
		n, err := d.Read(bufs, sizes, 16)
		if n != unprovenLimit || err != nil {
			t.Fatalf("Read = %d, %v: credits of packets that were not taken are lost", n, err)
		}
		if d.egress.noPeer != i*unprovenLimit {
			t.Fatalf("%d not taken, want %d", d.egress.noPeer, i*unprovenLimit)
		}
	}
	last := bufs[5]
	bufs[5] = make([]byte, 100) // only this one is taken
	n, _ := d.Read(bufs, sizes, 16)
	if n != unprovenLimit-1 {
		t.Errorf("Read = %d, want room for all but one", n)
	}
	_, _, _ = d.egress.admit(bufs)
	d.egress.sendStarts()
	d.egress.sendEnds(last, 1)
	var s Stats
	if d.egress.addTo(&s); s.InFlightEgress != 0 || s.DropFlushed != 0 || s.TxPackets != 1 {
		t.Errorf("%+v", s)
	}
}

func TestReadDropsWithoutAnEndpoint(t *testing.T) {
	batches := 0
	o := fullBatches(1)
	full := o.read
	o.read = func(bufs [][]byte, sizes []int, offset int) (int, int, error) {
		if batches++; batches > 3 {
			return 0, 0, os.ErrClosed
		}
		return full(bufs, sizes, offset)
	}
	d := newTestTun(t, o)
	if _, err := d.Read(batchBuffers(), make([]int, BatchSize), 16); !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	var s Stats
	d.egress.addTo(&s)
	if s.DropNoEndpoint != 3*BatchSize || s.InFlightEgress != 0 {
		t.Errorf("%+v", s)
	}
	if !errors.Is(d.failure(), os.ErrClosed) {
		t.Errorf("failure %v", d.failure())
	}
}

// A session that comes up while the overlay waits counts for what it then reads.
func TestReadLooksAgainAfterWaiting(t *testing.T) {
	var d *tunDevice
	o := fullBatches(0)
	full := o.read
	o.read = func(bufs [][]byte, sizes []int, offset int) (int, int, error) {
		d.egress.setReachable() // as when the peer contacted us meanwhile
		return full(bufs, sizes, offset)
	}
	d = newTestTun(t, o)
	n, err := d.Read(batchBuffers(), make([]int, BatchSize), 16)
	if n != BatchSize || err != nil {
		t.Errorf("Read = %d, %v", n, err)
	}
}

func TestReadEndsOnClose(t *testing.T) {
	d := newTestTun(t, fullBatches(0))
	d.egress.setReachable()
	d.egress.sendStarts() // never ends: the socket is stuck, and Read waits
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	done := make(chan error)
	go func() {
		for {
			n, err := d.Read(bufs, sizes, 16)
			if err != nil {
				done <- err
				return
			}
			replaceTaken(bufs, sizes[:n])
		}
	}()
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, done, "the end of Read"); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if _, open := <-d.Events(); open {
		t.Error("events are still open")
	}
	d.setMTU(1280) // must not send to the closed channel
}

func TestMTUChangeIsAnEvent(t *testing.T) {
	d := newTestTun(t, fullBatches(0))
	d.setMTU(DefaultMTU)
	select {
	case e := <-d.Events():
		t.Errorf("event %v without a change", e)
	default:
	}
	d.setMTU(1300)
	d.setMTU(1280)
	if e := <-d.Events(); e != tun.EventMTUUpdate {
		t.Errorf("event %v", e)
	}
	if mtu, _ := d.MTU(); mtu != 1280 {
		t.Errorf("MTU %d", mtu)
	}
}

func TestIngressCreditsComeBack(t *testing.T) {
	d := newTestTun(t, fullBatches(0))
	a := d.ingress
	receiveBatch := func() (batch [][]byte) {
		bufs, sizes := batchBuffers(), make([]int, BatchSize)
		for i := range bufs {
			sizes[i] = copy(bufs[i], message(typeTransport, 100))
		}
		if _, err := a.admit(bufs); err != nil {
			t.Fatal(err)
		}
		a.take(bufs, sizes)
		return bufs
	}
	for range 100 {
		if n, err := d.Write(receiveBatch(), 16); n != BatchSize || err != nil {
			t.Fatal(n, err)
		}
	}
	var s Stats
	if a.addTo(&s); s.RxPackets != 100*BatchSize || s.InFlightIngress != 0 || s.DropRejected != 0 {
		t.Errorf("%+v", s)
	}
	// Messages that fail authentication never reach Write. They cost a pause, not
	// the tunnel.
	for range 20 {
		receiveBatch()
	}
	if n, err := d.Write(receiveBatch(), 16); n != BatchSize || err != nil {
		t.Fatal(n, err)
	}
	if a.addTo(&s); s.RxPackets != 101*BatchSize || s.InFlightIngress != 0 || s.DropRejected != 20*BatchSize {
		t.Errorf("%+v", s)
	}
}

// What was given up and then is delivered after all was not rejected.
func TestLateIngressIsNotRejected(t *testing.T) {
	d := newTestTun(t, fullBatches(0))
	a := d.ingress
	var inside [][][]byte
	for range testInFlight/BatchSize + 1 {
		bufs, sizes := batchBuffers(), make([]int, BatchSize)
		for i := range bufs {
			sizes[i] = copy(bufs[i], message(typeTransport, 100))
		}
		if _, err := a.admit(bufs); err != nil { // the last time it gives the others up
			t.Fatal(err)
		}
		a.take(bufs, sizes)
		inside = append(inside, bufs)
	}
	for i, bufs := range inside {
		if i == 2 {
			continue // this batch is rejected
		}
		if _, err := d.Write(bufs, 16); err != nil {
			t.Fatal(err)
		}
	}
	var s Stats
	if a.addTo(&s); s.DropRejected != BatchSize || s.InFlightIngress != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTunAllocatesNothing(t *testing.T) {
	if packettest.Race {
		t.Skip("the race detector allocates")
	}
	d := newTestTun(t, fullBatches(1))
	d.egress.setReachable()
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	spare := batchBuffers()
	if n := testing.AllocsPerRun(100, func() {
		n, err := d.Read(bufs, sizes, 16)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		bufs, spare = spare, bufs // all taken
		d.egress.sendStarts()
		d.egress.sendEnds(spare[n-1], n)
	}); n != 0 {
		t.Errorf("Read: %v allocations per batch", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = d.Write(bufs, 16) }); n != 0 {
		t.Errorf("Write: %v allocations per batch", n)
	}
}

func BenchmarkTun(b *testing.B) {
	d := newTestTun(b, fullBatches(0))
	d.egress.setReachable()
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	spare := batchBuffers()
	b.Run("Read/128", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n, _ := d.Read(bufs, sizes, 16)
			bufs, spare = spare, bufs
			d.egress.sendStarts()
			d.egress.sendEnds(spare[n-1], n)
		}
	})
	b.Run("Write/128", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = d.Write(bufs, 16)
		}
	})
}

// For a while the peer has two keys, and with Workers two goroutines deliver. The data
// plane has one at a time.
func TestDeliveriesTakeTurns(t *testing.T) {
	inside, packets := atomic.Int32{}, 0 // packets without a lock, for the race detector
	d := newTunDevice(&funcOverlay{write: func(bufs [][]byte, _ int) {
		if inside.Add(1) != 1 {
			t.Error("WritePackets is called while it runs")
		}
		runtime.Gosched()
		packets += len(bufs)
		inside.Add(-1)
	}}, newEgressAccount(testInFlight), newIngressAccount(testInFlight))
	const rounds = 1000
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range rounds {
				if _, err := d.Write([][]byte{make([]byte, 64)}, 16); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if packets != 2*rounds {
		t.Errorf("%d packets, want %d", packets, 2*rounds)
	}
}
