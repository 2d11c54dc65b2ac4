package tunnel

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// A server that is started again finds its peer by what that still sends.
func TestRestartedServerCallsBack(t *testing.T) { eachWay(t, testRestartedServerCallsBack) }

func testRestartedServerCallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := lostSession(t)
		b.egress.peerSeen.Store(false)
		if took := reconnect(t, a, b, func() {}); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		cross(t, b, a, 2)
		if s := b.Stats(); s.TxInitiations != 1 {
			t.Errorf("%d initiations, want one", s.TxInitiations)
		}
	})
}

// The first attempt is lost; WireGuard itself makes another.
func TestCallBackIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := lostSession(t)
		b.egress.peerSeen.Store(false)
		lost := 0
		network(b).setDrop(func(_, _ netip.AddrPort, m []byte) bool {
			if m[0] == typeInitiation && lost == 0 {
				lost++
				return true
			}
			return false
		})
		if took := reconnect(t, a, b, func() {}); took < callPause || took > callPause+2*time.Second {
			t.Errorf("took %v, want a little more than %v", took, callPause)
		}
	})
}

// Somebody else, too, sends what looks like messages of a session. The peer is
// found nevertheless, and strangers hear little.
func TestStrangersCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := lostSession(t)
		b.egress.peerSeen.Store(false)
		n := network(b)
		stranger, err := n.listen("192.0.2.66")(0)
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		fake := make([]byte, 80)
		fake[0] = typeTransport
		call := func() { n.send(stranger.(*memSocket), a.Stats().Endpoint, fake) }
		call()
		synctest.Wait()
		if got := b.Stats().Endpoint; got != stranger.LocalAddr() {
			t.Fatalf("the stranger was not called back, but %v", got)
		}
		if took := reconnect(t, a, b, call); took > firstCallPause+2*time.Second {
			t.Errorf("took %v", took)
		}
		asked := b.Stats().TxInitiations
		for range 10 {
			call()
			time.Sleep(time.Second)
		}
		if got, at := b.Stats(), a.bind.open.LocalAddr(); got.TxInitiations != asked || got.Endpoint != at {
			t.Errorf("with a session strangers are answered: %d initiations more, the peer at %v, want %v", got.TxInitiations-asked, got.Endpoint, at)
		}
	})
}

// Many strangers call, and no peer. They get an initiation now and then.
func TestManyStrangersCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := lostSession(t)
		b.egress.peerSeen.Store(false)
		n := network(b)
		fake := make([]byte, 80)
		fake[0] = typeTransport
		const second = 40 // calls in one
		for i := range 60 * second {
			stranger, err := n.listen("192.0.2.66")(0)
			if err != nil {
				t.Fatal(err)
			}
			n.send(stranger.(*memSocket), a.Stats().Endpoint, fake)
			stranger.Close()
			time.Sleep(time.Second / second)
			if s := b.Stats(); i == 10*second && s.TxInitiations > 8 {
				t.Errorf("%d initiations in ten seconds", s.TxInitiations)
			}
		}
		if s := b.Stats(); s.TxInitiations < 10 || s.TxInitiations > 20 {
			t.Errorf("%d initiations in a minute, want one in %v and some more in the beginning", s.TxInitiations, callPause)
		}
	})
}

// A gateway that is told where its peer is believes nobody else.
func TestConfiguredEndpointIsNotMovedByCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a, b := newPair(t, n)
		cross(t, a, b, 1)
		keepPeers(a, b)
		b.stop(t)
		stranger, err := n.listen("192.0.2.66")(0)
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		fake := make([]byte, 80)
		fake[0] = typeTransport
		before := a.Stats().Endpoint
		n.send(stranger.(*memSocket), a.bind.open.LocalAddr(), fake)
		synctest.Wait()
		if got := a.Stats().Endpoint; got != before {
			t.Errorf("the peer is looked for at %v, configured is %v", got, before)
		}
	})
}

func TestUsable(t *testing.T) {
	for addr, want := range map[string]bool{
		"192.0.2.1:51820": true, "127.0.0.1:1": true, "[2001:db8::1]:9": true, "[fe80::1]:9": true,
		"192.0.2.1:0": false, "224.0.0.1:9": false, "0.0.0.0:9": false, "255.255.255.255:9": false, "[ff02::1]:9": false,
	} {
		if got := usable(netip.MustParseAddrPort(addr)); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}

// network is the one that a gateway is on.
func network(g *gateway) *memNet { return g.bind.open.Socket.(*memSocket).net }
