package tunnel

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/underlay"
)

// funcOverlay is an Overlay of two functions.
type funcOverlay struct {
	read  func(bufs [][]byte, sizes []int, offset int) (n, own int, err error)
	write func(bufs [][]byte, offset int)
}

func (o *funcOverlay) ReadPackets(bufs [][]byte, sizes []int, offset int) (int, int, error) {
	return o.read(bufs, sizes, offset)
}
func (o *funcOverlay) WritePackets(bufs [][]byte, _ []uint8, offset int, _ func()) {
	o.write(bufs, offset)
}

// seen collects what an observer is shown inside, to the peer.
type seen struct {
	mu    sync.Mutex
	drops map[string][]uint32 // by reason, none for what goes on
}

func (s *seen) observe(o Observation) {
	if o.Outside || !o.Egress {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drops == nil {
		s.drops = make(map[string][]uint32)
	}
	s.drops[o.Drop] = append(s.drops[o.Drop], packetID(o.Bytes))
}

func (s *seen) of(drop string) []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.drops[drop])
}

// Without a session the last packets wait. They are sent in order when there is one, and
// those before them are dropped by name.
func TestTheLastPacketsWait(t *testing.T) {
	for _, responds := range []bool{false, true} { // whether the other end begins the session
		synctest.Test(t, func(t *testing.T) {
			n := newMemNet()
			var drops seen
			a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1"), OnDrop: drops.observe})
			b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
			connect(t, a, b)
			b.apply(t, func(c *Config) { c.Endpoint = "192.0.2.1:51820" })
			a.apply(t, func(c *Config) { c.ListenPort = 51820 })
			n.setDrop(func(from, _ netip.AddrPort, _ []byte) bool { return true })
			var all seen
			a.Observe(all.observe)
			a.run(t)
			b.run(t)
			const count = 3 * maxWaiting
			for id := range uint32(count) {
				a.overlay.out <- ipPacket(a.inner, b.inner, id, 100+int(id))
			}
			time.Sleep(2 * readPause)
			keepPeers(a, b)
			if s := a.Stats(); s.Waiting != maxWaiting || s.DropNoSession != count-maxWaiting || s.TxPackets != 0 {
				t.Fatalf("%+v", s)
			}
			if got := all.of(""); len(got) != count || !slices.IsSorted(got) {
				t.Errorf("%d packets were seen on their way in", len(got))
			}
			if got := all.of("DropTunnelNoSession"); len(got) != count-maxWaiting || !slices.IsSorted(got) {
				t.Errorf("%d packets were seen being dropped", len(got))
			}
			if got := drops.of("DropTunnelNoSession"); len(got) == 0 || got[0] != 0 {
				t.Errorf("OnDrop was shown %v", got)
			}
			time.Sleep(6 * time.Second) // WireGuard asks again after five
			n.setDrop(nil)
			if responds {
				b.overlay.out <- ipPacket(b.inner, a.inner, 0, 100)
			}
			for id := uint32(count - maxWaiting); id < count; id++ {
				expect(t, b, id)
			}
			synctest.Wait()
			if s := a.Stats(); s.Waiting != 0 || s.TxPackets != maxWaiting {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A burst that finds no session is read as fast as it can be sent, as long as a handshake may
// take. Where there is none it is read, and most of it dropped.
func TestABurstWaitsForTheSession(t *testing.T) {
	for oneWay, lost := range map[time.Duration]bool{100 * time.Millisecond: false, time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			n := newMemNet()
			n.setDelay(oneWay)
			a, b := newPair(t, n)
			const count = 10 * maxWaiting
			for id := range uint32(count) {
				a.overlay.out <- ipPacket(a.inner, b.inner, id, 100)
			}
			time.Sleep(10 * time.Second)
			keepPeers(a, b)
			s := a.Stats()
			if got := s.DropNoSession > 0; got != lost || s.TxPackets+s.DropNoSession != count || s.Waiting != 0 {
				t.Errorf("%v each way: %+v", oneWay, s)
			}
			if got := len(b.overlay.in); uint64(got) != s.TxPackets {
				t.Errorf("%v each way: %d packets arrived, %d were sent", oneWay, got, s.TxPackets)
			}
		})
	}
}

// A packet that no peer claims keeps those that are read with it from nothing.
func TestWhatNoPeerClaims(t *testing.T) {
	noLeaks(t)
	a, b := newPair(t, newMemNet())
	cross(t, a, b, 0)
	var all seen
	a.Observe(all.observe)
	a.overlay.own <- ipPacket(a.inner, b.inner, 1, 100) // these three are read at once, or not
	a.overlay.out <- ipPacket(a.inner, "203.0.113.1", 2, 100)
	a.overlay.out <- ipPacket(a.inner, b.inner, 3, 100)
	arrived := []uint32{packetID(receive(t, b.overlay.in, "a packet")), packetID(receive(t, b.overlay.in, "a packet"))}
	slices.Sort(arrived) // what waits may be overtaken
	if !slices.Equal(arrived, []uint32{1, 3}) {
		t.Errorf("packets %v arrived", arrived)
	}
	eventually(t, "it is counted", func() bool { return a.Stats().DropNoPeer == 1 && a.Stats().TxPackets == 3 })
	if got := all.of("DropTunnelNoPeer"); !slices.Equal(got, []uint32{2}) {
		t.Errorf("dropped by name: %v", got)
	}
}

// silentSocket is a socket that can be told to keep what is sent.
type silentSocket struct {
	*memSocket
	silent *atomic.Bool
	kept   *[][]byte // cloned; nil: thrown away
}

func (s *silentSocket) WriteBatch(ds []underlay.Datagram) (int, error) {
	if !s.silent.Load() {
		return s.memSocket.WriteBatch(ds)
	}
	if s.kept != nil {
		for _, d := range ds {
			*s.kept = append(*s.kept, slices.Clone(d.Body))
		}
	}
	return len(ds), nil
}

// Each direction as a whole: sealed and sent, received and opened.
func TestTunnelAllocatesNothing(t *testing.T) {
	if packettest.Race {
		t.Skip("the race detector allocates")
	}
	n := newMemNet()
	var silent atomic.Bool
	var kept [][]byte
	listen := func(host string, kept *[][]byte) func(uint16) (Socket, error) {
		return func(port uint16) (Socket, error) {
			s, err := n.listen(host)(port)
			if err != nil {
				return nil, err
			}
			return &silentSocket{s.(*memSocket), &silent, kept}, nil
		}
	}
	var delivered atomic.Int64
	end := make(chan struct{})
	sink := &funcOverlay{
		read:  func([][]byte, []int, int) (int, int, error) { <-end; return 0, 0, errTest },
		write: func(bufs [][]byte, _ int) { delivered.Add(int64(len(bufs))) },
	}
	options, _ := withReaders(Options{Listen: listen("192.0.2.1", &kept)}, 2)
	a := newGateway(t, "192.0.2.1", "10.1.0.1", options)
	b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: listen("192.0.2.2", nil), Overlay: sink})
	connect(t, a, b)
	a.run(t)
	ended := make(chan error, 1)
	go func() { ended <- b.Run(t.Context()) }()
	defer func() { close(end); receive(t, ended, "the end of Run") }()
	a.overlay.out <- ipPacket(a.inner, b.inner, 1, 100)
	eventually(t, "a session", func() bool { return delivered.Load() == 1 })

	silent.Store(true) // from here on the test is the only one who sends
	const runs = 20
	packet := ipPacket(a.inner, b.inner, 1, 1340)
	bufs, sizes := newBuffers(), make([]int, BatchSize)
	batch := func() {
		for i := range bufs {
			sizes[i] = copy(bufs[i][sealFront:], packet)
		}
	}
	kept = make([][]byte, 0, (runs+1)*BatchSize)
	for range runs + 1 {
		batch()
		a.egress.senders[0].send(t.Context(), bufs, sizes, 0, true)
	}
	messages := kept[:(runs+1)*BatchSize]
	a.bind.open.Socket.(*silentSocket).kept = nil
	send := func() {
		for _, l := range a.egress.senders {
			batch()
			l.send(t.Context(), bufs, sizes, 0, true)
		}
	}
	several := &spread{all: []*egress{a.egress, a.egress, a.egress}, live: []int{0, 1, 2}}
	divide := func() {
		batch()
		for i := range bufs {
			bufs[i][sealFront+15] = byte(i) // other sources are other flows
		}
		a.egress.loops[0].divide(t.Context(), several, bufs, sizes, 5)
	}
	for name, send := range map[string]func(){"to the peer": send, "by several tunnels": divide} {
		least := testing.AllocsPerRun(runs, send)
		for i := 0; i < 3 && least > 0; i++ { // other goroutines of the two tunnels count, too
			least = min(least, testing.AllocsPerRun(runs, send))
		}
		if least != 0 {
			t.Errorf("%s: %v allocations per batch", name, least)
		}
	}

	r := newReceiver(newInbound(b.bind, b.bind.open), b.bind.writers[0], b.dev.Load())
	r.bufs, r.sizes, r.from = bufs, sizes, make([]underlay.Origin, BatchSize)
	for i := range r.from {
		r.from[i].Addr = a.bind.open.LocalAddr()
	}
	if n := testing.AllocsPerRun(runs, func() {
		for i := range bufs {
			sizes[i] = copy(bufs[i], messages[i])
		}
		messages = messages[BatchSize:]
		r.carry(BatchSize)
		r.batch++
	}); n != 0 {
		t.Errorf("from the peer: %v allocations per batch", n)
	}
	if got, want := delivered.Load(), int64(1+(runs+1)*BatchSize); got != want {
		t.Errorf("%d packets were delivered, want %d", got, want)
	}
}
