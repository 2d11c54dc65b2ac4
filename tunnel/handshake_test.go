package tunnel

import (
	"testing"
	"testing/synctest"
	"time"
)

// lostSession connects a and b, and puts a new process with the key and the
// address of b in its place after a while. Like a kernel's, it does not call back.
func lostSession(t *testing.T) (a, b *gateway) {
	t.Helper()
	n := newMemNet()
	a, old := newPair(t, n)
	cross(t, a, old, 0)
	keepPeers(a, old)
	time.Sleep(30 * time.Second)
	old.stop(t)
	b = newGateway(t, old.host, old.inner, Options{Listen: n.listen(old.host)})
	b.key, b.config = old.key, old.config
	b.apply(t, nil)
	b.run(t)
	synctest.Wait()
	keepPeers(b)
	b.egress.peerSeen.Store(true)
	return a, b
}

// What was sent and what came in, by both ends, tells on which way handshakes
// get lost.
func TestHandshakesAreCountedByDirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, newMemNet())
		cross(t, a, b, 1)
		keepPeers(a, b)
		sa, sb := a.Stats(), b.Stats()
		if sa.TxInitiations != 1 || sb.RxInitiations != 1 || sb.TxResponses != 1 || sa.RxResponses != 1 {
			t.Errorf("a handshake is an initiation and a response; a %+v, b %+v", sa, sb)
		}
		time.Sleep(time.Second) // responders take one handshake per 20 ms

		// An initiation for another key arrives, and nobody answers it.
		a.apply(t, func(c *Config) { c.PeerKey = GeneratePrivateKey().Public() })
		keepPeers(a)
		a.overlay.out <- ipPacket(a.inner, b.inner, 2, 100)
		synctest.Wait()
		sa, sb = a.Stats(), b.Stats()
		if sa.TxInitiations != 2 || sb.RxInitiations != 2 || sb.TxResponses != 1 || sa.RxResponses != 1 {
			t.Errorf("an initiation for another key; a %+v, b %+v", sa, sb)
		}
		if got := sb.LastInitiation.Sub(sb.LastResponse); got != time.Second {
			t.Errorf("the last initiation came in %v after the last response, want 1 s", got)
		}
	})
}

// reconnect sends a packet every second until one arrives, and calls ask before
// each.
func reconnect(t *testing.T, a, b *gateway, ask func()) time.Duration {
	t.Helper()
	arrived, began := arrival(b, 1), time.Now()
	for time.Since(began) < time.Minute {
		ask()
		a.overlay.out <- ipPacket(a.inner, b.inner, 1, 200)
		select {
		case <-arrived:
			return time.Since(began)
		case <-time.After(time.Second):
		}
	}
	t.Fatal("not within a minute")
	return 0
}

func TestHandshakeFindsARestartedPeerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := lostSession(t)
		took := reconnect(t, a, b, func() {
			if !a.Handshake() {
				t.Error("the peer and its address are known, but Handshake did not ask")
			}
		})
		if took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// What Handshake is for: left alone, WireGuard waits for 15 seconds.
func TestWithoutHandshakeARestartedPeerIsFoundLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := lostSession(t)
		if took := reconnect(t, a, b, func() {}); took < 14*time.Second {
			t.Errorf("took only %v: is Handshake still needed?", took)
		}
	})
}

// A session that is alive survives being asked for another.
func TestHandshakeLosesNoPacket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, newMemNet())
		cross(t, a, b, 0)
		keepPeers(a, b)
		first := a.Stats().LastHandshake
		for id := uint32(1); id < 300; id++ {
			a.Handshake()
			cross(t, a, b, id)
			cross(t, b, a, id)
			time.Sleep(100 * time.Millisecond)
		}
		if last := a.Stats().LastHandshake; last.Sub(first) < 20*time.Second {
			t.Errorf("no handshake was made: the last one is %v younger than the first", last.Sub(first))
		}
	})
}

func TestHandshakeNeedsAPeer(t *testing.T) {
	n := newMemNet()
	g := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
	check := func(when string) {
		t.Helper()
		if g.Handshake() {
			t.Errorf("%s: asked", when)
		}
	}
	check("before a configuration")
	g.config = Config{PrivateKey: g.key}
	g.apply(t, nil)
	check("before Run")
	g.run(t)
	check("without a peer")
	g.apply(t, func(c *Config) { c.PeerKey = GeneratePrivateKey().Public() })
	check("without an address of the peer")
	g.stop(t)
	check("after Run")
}
