package tunnel

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/underlay"
)

// udp returns an Options.Listen for a real socket.
func udp(host string) func(uint16) (Socket, error) {
	return func(port uint16) (Socket, error) {
		return underlay.Listen(underlay.Config{Addr: netip.AddrPortFrom(netip.MustParseAddr(host), port), GRO: true, GSO: true})
	}
}

func TestTunnelCarriesPacketsBothWays(t *testing.T) {
	for _, tt := range []struct {
		name   string
		hosts  [2]string
		listen func(host string) func(uint16) (Socket, error)
	}{
		{"in memory", [2]string{"192.0.2.1", "192.0.2.2"}, newMemNet().listen},
		{"over IPv4 loopback", [2]string{"127.0.0.1", "127.0.0.2"}, udp},
		{"over IPv6 loopback", [2]string{"::1", "::1"}, udp},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.name, "IPv6") {
				if c, err := net.ListenPacket("udp6", "[::1]:0"); err != nil {
					t.Skip("no IPv6:", err)
				} else {
					c.Close()
				}
			}
			noLeaks(t)
			a := newGateway(t, tt.hosts[0], "10.1.0.1", Options{Listen: tt.listen(tt.hosts[0])})
			b := newGateway(t, tt.hosts[1], "10.2.0.1", Options{Listen: tt.listen(tt.hosts[1])})
			connect(t, a, b)
			a.run(t)
			b.run(t)
			// The first packet triggers the handshake and is not lost by it.
			cross(t, a, b, 1)
			// In rounds that fit into a socket's buffer, because UDP drops the rest.
			const rounds, perRound = 100, 100
			for range rounds {
				var wg sync.WaitGroup
				wg.Go(func() { sendMany(a, b, perRound) })
				wg.Go(func() { sendMany(b, a, perRound) })
				wg.Go(func() { receiveMany(t, a, perRound) })
				receiveMany(t, b, perRound)
				wg.Wait()
			}
			// Packets may arrive before who sent them has counted them.
			eventually(t, "all counted, and nothing waits", func() bool {
				s := a.Stats()
				return s.TxPackets == rounds*perRound+1 && s.RxPackets == rounds*perRound && s.Waiting == 0
			})
			s := a.Stats()
			if s.LastHandshake.IsZero() || s.RxBytes == 0 || s.TxBytes == 0 ||
				s.Peer != b.key.Public() || !s.Endpoint.IsValid() || s.ListenPort == 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// sendMany offers packets 0 to n-1, and gives up when they are not taken.
func sendMany(from, to *gateway, n uint32) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for id := range n {
		select {
		case from.overlay.out <- ipPacket(from.inner, to.inner, id, 100+int(id%1200)):
		case <-timer.C:
			return
		}
	}
}

// receiveMany checks that packets 0 to n-1 arrive in order.
func receiveMany(t *testing.T, g *gateway, n uint32) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for want := range n {
		select {
		case p := <-g.overlay.in:
			if got := packetID(p); got != want || len(p) != 100+int(want%1200) {
				t.Errorf("%s: got packet %d of %d bytes, want %d; stats %+v", g.inner, got, len(p), want, g.Stats())
				return
			}
		case <-timer.C:
			t.Errorf("packet %d did not arrive", want)
			return
		}
	}
}

// receiveAll checks that packets 0 to n-1 arrive, each once. What waited may be overtaken.
func receiveAll(t *testing.T, g *gateway, n uint32) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	seen := make([]bool, n)
	for got := range n {
		select {
		case p := <-g.overlay.in:
			if id := packetID(p); id >= n || seen[id] {
				t.Errorf("packet %d twice", id)
			} else {
				seen[id] = true
			}
		case <-timer.C:
			t.Errorf("%d of %d packets arrived; stats %+v", got, n, g.Stats())
			return
		}
	}
}

func TestApplyWhileTrafficFlowsLosesNothing(t *testing.T) {
	noLeaks(t)
	a, b := newPair(t, newMemNet())
	cross(t, a, b, 1)
	endpoint := b.Stats().Endpoint
	const count = 20000
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { sendMany(a, b, count) })
	wg.Go(func() { sendMany(b, a, count) })
	wg.Go(func() { receiveAll(t, a, count) })
	go func() {
		receiveAll(t, b, count)
		wg.Wait()
		close(done)
	}()
	changes := 0
	for running := true; running; changes++ {
		select {
		case <-done:
			running = false
		default:
		}
		own := netip.MustParsePrefix(b.inner + "/32")
		wide := netip.MustParsePrefix("10.2.0.0/16")
		other := netip.MustParsePrefix("10.77.0.0/16")
		// The prefix that carries the traffic is exchanged for a wider one and back.
		a.apply(t, func(c *Config) { c.AllowedIPs = []netip.Prefix{wide, other}; c.MTU = 1400 })
		b.apply(t, func(c *Config) { c.AllowedIPs = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")} })
		a.apply(t, func(c *Config) { c.AllowedIPs = []netip.Prefix{own}; c.MTU = 1340 })
		b.apply(t, func(c *Config) { c.AllowedIPs = []netip.Prefix{netip.MustParsePrefix(a.inner + "/32")} })
	}
	if changes < 3 {
		t.Errorf("only %d changes during the traffic", changes)
	}
	if got := b.Stats().Endpoint; got != endpoint {
		t.Errorf("the endpoint moved from %v to %v", endpoint, got)
	}
	for _, g := range []*gateway{a, b} {
		s := g.Stats()
		if drops := s.DropNoEndpoint + s.DropNoPeer + s.DropNoSession + s.DropFlushed + s.DropRejected; drops != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// flood is an Overlay that always has packets of one kind, and now and then one
// of the gateway's own.
type flood struct {
	*memOverlay
	packet []byte
	offer  int // packets to offer; then it waits
	mu     sync.Mutex
	given  int
}

func (f *flood) ReadPackets(bufs [][]byte, sizes []int, offset int) (n, own int, err error) {
	select {
	case <-f.done:
		return 0, 0, os.ErrClosed
	case p := <-f.own:
		sizes[0] = copy(bufs[0][offset:], p)
		n, own = 1, 1
	default:
	}
	f.mu.Lock()
	rest := f.offer - f.given
	f.given += min(rest, len(bufs)-n)
	f.mu.Unlock()
	if rest == 0 && n == 0 {
		return f.memOverlay.ReadPackets(bufs, sizes, offset)
	}
	for ; n < len(bufs) && rest > 0; rest-- {
		sizes[n] = copy(bufs[n][offset:], f.packet)
		n++
	}
	return n, own, nil
}

func (f *flood) rest() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.offer - f.given
}

func TestFloodTowardsADeadPeer(t *testing.T) {
	noLeaks(t)
	n := newMemNet()
	f := &flood{memOverlay: newMemOverlay(), packet: ipPacket("10.1.0.1", "10.2.0.1", 1, 1300), offer: 1_000_000}
	a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Overlay: f, Listen: n.listen("192.0.2.1")})
	b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
	connect(t, a, b) // b does not run: its socket is open and nobody reads it
	others := collectGarbage()
	a.run(t)
	peak := uint64(0)
	eventually(t, "a million packets offered", func() bool {
		peak = max(peak, heap())
		s := a.Stats()
		if s.Waiting > maxWaiting {
			t.Errorf("%d packets wait", s.Waiting)
		}
		return f.rest() == 0
	})
	t.Logf("peak heap %d MiB, %d of other tests", peak>>20, others>>20)
	if peak > 2*others+128<<20 {
		t.Errorf("heap of %d MiB, %d of other tests, want at most 128 beside twice that", peak>>20, others>>20)
	}
	if s := a.Stats(); s.DropNoSession < 990_000 {
		t.Errorf("%+v", s)
	}

	// Under a flood that goes on, the peer appears: the gateway's own packets bring
	// the tunnel up, and everything else follows.
	f.mu.Lock()
	f.offer += 1 << 40
	f.mu.Unlock()
	b.run(t)
	own := uint32(1000)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for arrived := false; !arrived; {
		select {
		case <-tick.C:
			select {
			case f.own <- ipPacket(a.inner, b.inner, own, 100):
			default:
			}
		case p := <-b.overlay.in:
			arrived = packetID(p) == own
		case <-timer.C:
			t.Fatalf("no own packet arrived: %+v", a.Stats())
		}
	}
	// From here on the flood flows, and nothing of it is dropped by us.
	before := a.Stats()
	for range 10000 {
		receive(t, b.overlay.in, "packet of the flood")
	}
	after := a.Stats()
	if after.DropNoSession > before.DropNoSession+BatchSize || after.Waiting > 0 { // one batch may have been read before
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	// And it ends in time although everything is busy.
	a.stop(t)
	b.stop(t)
}

func TestPortInUse(t *testing.T) {
	noLeaks(t)
	n := newMemNet()
	taken, err := n.listen("192.0.2.1")(7)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
	b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
	connect(t, a, b)
	config := a.config
	config.ListenPort = 7
	check := func() {
		t.Helper()
		err := a.Apply(config)
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "UDP port 7") {
			t.Errorf("Apply: %v", err)
		}
	}
	check() // before Run
	a.run(t)
	b.run(t)
	cross(t, a, b, 1)
	check() // and during it: what worked goes on working
	cross(t, a, b, 2)
	cross(t, b, a, 3)
	// The port that is in use by ourselves is no change.
	a.apply(t, func(c *Config) { c.ListenPort = a.Stats().ListenPort })
	cross(t, b, a, 4)
	a.apply(t, func(c *Config) { c.ListenPort = 8 })
	eventually(t, "the peer knows the new port", func() bool { return b.Stats().Endpoint.Port() == 8 })
	cross(t, b, a, 5)
	if n.open() != 3 {
		t.Errorf("%d sockets open, want 3", n.open())
	}
	a.stop(t)
	b.stop(t)
	if n.open() != 1 {
		t.Errorf("%d sockets open after the end, want the foreign one", n.open())
	}
}

func TestConfigurationMayComeDuringRun(t *testing.T) {
	noLeaks(t)
	n := newMemNet()
	a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
	b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
	a.run(t)
	b.run(t)
	if n.open() != 0 {
		t.Errorf("%d sockets open before a configuration", n.open())
	}
	a.overlay.out <- ipPacket(a.inner, b.inner, 0, 100)
	eventually(t, "a drop", func() bool { return a.Stats().DropNoEndpoint == 1 })

	// Without the peer's key it listens.
	b.apply(t, func(c *Config) { *c = Config{PrivateKey: b.key, ListenPort: 51820} })
	if b.Stats().ListenPort != 51820 || n.open() != 1 {
		t.Errorf("%+v, %d sockets", b.Stats(), n.open())
	}
	connect(t, a, b)
	cross(t, a, b, 1)
	cross(t, b, a, 2)
}

func TestAllowedIPsAreEnforced(t *testing.T) {
	noLeaks(t)
	a, b := newPair(t, newMemNet())
	a.overlay.out <- ipPacket("10.66.0.1", b.inner, 1, 100) // not allowed at b
	a.overlay.out <- ipPacket(a.inner, "10.66.0.1", 2, 100) // no peer at a
	cross(t, a, b, 3)
	eventually(t, "both drops", func() bool { return b.Stats().DropRejected == 1 && a.Stats().DropNoPeer == 1 })
}

func TestGarbageIsCountedAndHarmless(t *testing.T) {
	noLeaks(t)
	n := newMemNet()
	a, b := newPair(t, n)
	cross(t, a, b, 1)
	s, err := n.listen("192.0.2.66")(1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const rounds = 3000
	to := netip.MustParseAddrPort("192.0.2.2:51820")
	for range rounds {
		ds := []underlay.Datagram{
			{Addr: to}, {Addr: to, Body: message(typeTransport, 31)}, {Addr: to, Body: message(99, 200)},
			{Addr: to, Body: message(typeTransport, 1400)}, {Addr: to, Body: message(typeInitiation, initiationLen)},
		}
		if _, err := s.WriteBatch(ds); err != nil {
			t.Fatal(err)
		}
	}
	cross(t, a, b, 2)
	eventually(t, "all counted", func() bool {
		s := b.Stats()
		return s.DropMalformed == 3*rounds && s.DropUnknownSession == rounds && s.RxHandshakes+s.DropHandshakeLimit == rounds+1
	})
	cross(t, b, a, 3)
}
