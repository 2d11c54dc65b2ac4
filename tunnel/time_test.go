package tunnel

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// The tests in this file run in fake time, so that minutes of WireGuard's
// timers pass at once.

// kept holds the peers of devices that lived in a synctest bubble: their queues
// have finalizers that touch channels, which is fatal outside of the bubble.
var kept struct {
	sync.Mutex
	peers []*device.Peer
}

func keepPeers(gateways ...*gateway) {
	kept.Lock()
	defer kept.Unlock()
	for _, g := range gateways {
		kept.peers = append(kept.peers, g.dev.Load().LookupPeer(device.NoisePublicKey(g.config.PeerKey)))
	}
}

// arrival returns a channel that is closed when packet id arrives at g; all
// others are discarded.
func arrival(g *gateway, id uint32) <-chan struct{} {
	arrived := make(chan struct{})
	go func() {
		for {
			select {
			case p := <-g.overlay.in:
				if packetID(p) == id {
					close(arrived)
					return
				}
			case <-g.overlay.done:
				return
			}
		}
	}()
	return arrived
}

func TestRekeyLosesNoPacket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, newMemNet())
		cross(t, a, b, 0)
		keepPeers(a, b)
		first := a.Stats().LastHandshake
		// A session is renewed after 120 s; five minutes hold two renewals.
		for id := uint32(1); id < 3000; id++ {
			cross(t, a, b, id)
			cross(t, b, a, id)
			time.Sleep(100 * time.Millisecond)
		}
		s := a.Stats()
		if got := s.LastHandshake.Sub(first); got < 200*time.Second {
			t.Errorf("handshakes within %v, want at least 200 s", got)
		}
		if s.TxPackets != 3000 || s.RxPackets != 2999 || s.Waiting != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A peer that dies in the middle of a session is the worst case for memory:
// until the session expires packets look as if they could be sent.
func TestMemoryIsBoundedWhenThePeerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a, b := newPair(t, n)
		cross(t, a, b, 0)
		keepPeers(a, b)
		var dead atomic.Bool
		dead.Store(true)
		n.setDrop(func(_, _ netip.AddrPort, _ []byte) bool { return dead.Load() })

		others := collectGarbage()
		const batches = 8000 // of 128 packets: 10^6 in 400 s
		var peak uint64
		p := ipPacket(a.inner, b.inner, 1, 1300)
		for i := range batches {
			for range BatchSize {
				a.overlay.out <- p
			}
			if i%40 == 0 {
				a.overlay.own <- ipPacket(a.inner, b.inner, 2, 100)
			}
			time.Sleep(50 * time.Millisecond)
			if i%100 == 0 {
				peak = max(peak, heap())
			}
			if got := a.Stats().Waiting; got > maxWaiting {
				t.Fatalf("%d packets wait", got)
			}
		}
		s := a.Stats()
		t.Logf("peak heap %d MiB, %d of other tests", peak>>20, others>>20)
		if peak > 2*others+128<<20 {
			t.Errorf("peak heap %d MiB, %d of other tests, want at most 128 beside twice that", peak>>20, others>>20)
		}
		if s.DropNoSession == 0 {
			t.Errorf("drops are not counted: %+v", s)
		}

		dead.Store(false)
		arrived := arrival(b, 3)
		began := time.Now()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for done := false; !done; {
			select {
			case <-arrived:
				done = true
			case <-tick.C:
				if time.Since(began) > time.Minute {
					t.Fatal("no recovery within a minute")
				}
				a.overlay.out <- ipPacket(a.inner, b.inner, 3, 100)
			}
		}
		// One lost handshake attempt of 5 s and the jitter.
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("recovered in %v, want at most 12 s", took)
		}
		synctest.Wait()
		if got := a.Stats().Waiting; got != 0 {
			t.Errorf("%d packets wait after recovery, want 0", got)
		}
	})
}

// wireguard-go gives up after 90 s. The next packet has it try again, and what waited too
// long is not sent.
func TestRecoveryAfterWireGuardGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
		b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
		connect(t, a, b)
		n.setDrop(func(_, _ netip.AddrPort, _ []byte) bool { return true })
		a.run(t)
		b.run(t)
		for range 200 {
			a.overlay.out <- ipPacket(a.inner, b.inner, 1, 100)
		}
		time.Sleep(5 * time.Minute)
		keepPeers(a, b)
		if s := a.Stats(); s.Waiting != maxWaiting || s.DropNoSession != 200-maxWaiting {
			t.Fatalf("before recovery: %+v", s)
		}
		n.setDrop(nil)
		arrived := arrival(b, 2)
		for done := false; !done; {
			select {
			case <-arrived:
				done = true
			case <-time.After(time.Second):
				a.overlay.out <- ipPacket(a.inner, b.inner, 2, 100)
			}
		}
		synctest.Wait()
		s := a.Stats()
		if s.Waiting != 0 || s.DropFlushed == 0 || s.TxPackets+s.DropFlushed+s.DropNoSession < 200 {
			t.Errorf("after recovery: %+v", s)
		}
	})
}

func TestEndpointNameIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		var mu sync.Mutex
		addrs := []netip.Addr{}
		lookups := 0
		point := func(hosts ...string) {
			mu.Lock()
			defer mu.Unlock()
			addrs = nil
			for _, h := range hosts {
				addrs = append(addrs, netip.MustParseAddr(h))
			}
		}
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return lookups
		}
		a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{
			Listen: n.listen("192.0.2.1"),
			Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
				mu.Lock()
				defer mu.Unlock()
				lookups++
				if host != "gateway.example" {
					t.Errorf("looked up %q", host)
				}
				if len(addrs) == 0 {
					return nil, errTest
				}
				return slices.Clone(addrs), nil
			},
		})
		b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
		connect(t, a, b)
		a.apply(t, func(c *Config) { c.Endpoint = "gateway.example:51820" })
		a.run(t)
		b.run(t)
		synctest.Wait()
		keepPeers(a, b)

		// The name does not exist yet: packets are dropped for that reason, and none
		// of them costs a handshake timeout.
		a.overlay.out <- ipPacket(a.inner, b.inner, 1, 100)
		synctest.Wait()
		if s := a.Stats(); s.DropNoEndpoint != 1 || s.Endpoint.IsValid() || s.LookupError != errTest.Error() {
			t.Fatalf("without an address: %+v", s)
		}
		point("192.0.2.2")
		time.Sleep(lookupFast + time.Millisecond)
		cross(t, a, b, 2)
		if s := a.Stats(); s.LookupError != "" {
			t.Errorf("found, but %q", s.LookupError)
		}

		// The name moves while the session lives: the endpoint stays.
		before := count()
		point("192.0.2.3")
		for id := uint32(3); id < 130; id++ {
			time.Sleep(time.Second)
			cross(t, a, b, id)
		}
		if got := count() - before; got != 0 {
			t.Errorf("%d lookups during a session", got)
		}

		// The peer moves too: it comes back under the new address.
		b.stop(t)
		c := newGateway(t, "192.0.2.3", "10.2.0.1", Options{Listen: n.listen("192.0.2.3")})
		c.key = b.key
		c.config = b.config
		c.apply(t, nil)
		c.run(t)
		synctest.Wait()
		keepPeers(c)
		arrived := arrival(c, 200)
		for done := false; !done; {
			select {
			case <-arrived:
				done = true
			case <-time.After(time.Second):
				a.overlay.out <- ipPacket(a.inner, b.inner, 200, 100)
			}
		}
		if got := a.Stats().Endpoint.Addr(); got != netip.MustParseAddr("192.0.2.3") {
			t.Errorf("endpoint %v", got)
		}

		// Gone for an hour: a few lookups an hour, no more.
		c.stop(t)
		time.Sleep(20 * time.Minute)
		before = count()
		time.Sleep(time.Hour)
		if got := count() - before; got < 11 || got > 13 {
			t.Errorf("%d lookups in the second hour, want 12", got)
		}
	})
}

func TestRoamedEndpointIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a, b := newPair(t, n)
		a.apply(t, func(c *Config) { c.ListenPort = 1111 })
		b.apply(t, func(c *Config) { c.Endpoint = "192.0.2.1:1111" })
		cross(t, b, a, 1)
		keepPeers(a, b)

		a.apply(t, func(c *Config) { c.ListenPort = 2222 })
		synctest.Wait()
		// The keepalive on the new port is enough: b has sent nothing in between.
		roamed := netip.MustParseAddrPort("192.0.2.1:2222")
		if got := b.Stats().Endpoint; got != roamed {
			t.Fatalf("endpoint %v, want %v", got, roamed)
		}
		cross(t, b, a, 2)
		b.apply(t, func(c *Config) {
			c.MTU = 1400
			c.AllowedIPs = append(c.AllowedIPs, netip.MustParsePrefix("10.9.0.0/16"))
		})
		time.Sleep(time.Minute)
		if got := b.Stats().Endpoint; got != roamed {
			t.Errorf("endpoint %v after Apply, want %v", got, roamed)
		}
		cross(t, b, a, 3)

		// A new Endpoint is an order.
		b.apply(t, func(c *Config) { c.Endpoint = "192.0.2.99:1111" })
		if got, want := b.Stats().Endpoint, netip.MustParseAddrPort("192.0.2.99:1111"); got != want {
			t.Errorf("endpoint %v after a new one was applied, want %v", got, want)
		}

		// A roamed endpoint of a session that is over goes back to the configured one.
		b.apply(t, func(c *Config) { c.Endpoint = "192.0.2.1:2222" })
		a.apply(t, func(c *Config) { c.ListenPort = 3333 })
		cross(t, a, b, 4)
		a.stop(t)
		time.Sleep(4 * time.Minute)
		if got := b.Stats().Endpoint; got != roamed {
			t.Errorf("endpoint %v after the session, want the configured %v", got, roamed)
		}
	})
}

func TestKeysChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, newMemNet())
		cross(t, a, b, 1)
		keepPeers(a, b)
		// Responders take one handshake per 20 ms.
		settle := func() { time.Sleep(time.Second) }

		settle() // The key is taken away, so that it is honoured no longer, and then a wrong one: nothing passes.
		a.apply(t, func(c *Config) { c.PeerKey = PublicKey{} })
		a.apply(t, func(c *Config) { c.PeerKey = GeneratePrivateKey().Public() })
		keepPeers(a)
		a.overlay.out <- ipPacket(a.inner, b.inner, 2, 100)
		synctest.Wait()
		if s := a.Stats(); !s.LastHandshake.IsZero() || s.Waiting != 1 || b.Stats().RxHandshakes != 2 {
			t.Errorf("%+v", s)
		}

		settle() // The right one again.
		a.apply(t, func(c *Config) { c.PeerKey = b.key.Public() })
		keepPeers(a)
		cross(t, a, b, 3)
		synctest.Wait()
		if s := a.Stats(); s.DropFlushed != 1 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}

		settle() // A new private key: b must learn the public one.
		fresh := GeneratePrivateKey()
		b.apply(t, func(c *Config) { c.PeerKey = fresh.Public() })
		keepPeers(b)
		synctest.Wait() // b begins a handshake with the key; where it meets one that a begins, a packet may get lost
		a.apply(t, func(c *Config) { c.PrivateKey = fresh })
		settle()
		cross(t, a, b, 4)
		cross(t, b, a, 5)

		// The peer goes away and nothing is sent to it.
		synctest.Wait() // what was sent is entered as sent
		a.apply(t, func(c *Config) { c.PeerKey = PublicKey{} })
		for id := range uint32(2) {
			a.overlay.out <- ipPacket(a.inner, b.inner, 6+id, 100)
			synctest.Wait()
		}
		if s := a.Stats(); s.DropNoEndpoint != 2 || !s.Peer.IsZero() || s.Endpoint.IsValid() {
			t.Errorf("%+v", s)
		}
	})
}
