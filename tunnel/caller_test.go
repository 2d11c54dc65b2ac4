package tunnel

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// A server that is started again finds its peer by what that still sends.
func TestRestartedServerCallsBack(t *testing.T) {
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

// The first attempt is lost; the address is called again.
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
		if took := reconnect(t, a, b, func() {}); took < callAgain || took > callAgain+2*time.Second {
			t.Errorf("took %v, want a little more than %v", took, callAgain)
		}
	})
}

// What a stranger sends that looks like messages of a session draws at most one
// datagram, no larger than what was sent, and changes nothing.
func TestStrangerHearsLittle(t *testing.T) {
	for size, want := range map[int]int{keepaliveLen: 0, initiationLen - 1: 0, initiationLen: 1, 1400: 1} {
		synctest.Test(t, func(t *testing.T) {
			a, b := lostSession(t)
			b.egress.peerSeen.Store(false)
			stranger := newStranger(t, network(b), "192.0.2.66")
			defer stranger.Close()
			stranger.send(a.Stats().Endpoint, size)
			synctest.Wait()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			count, bytes := stranger.received()
			if count != want || bytes > size {
				t.Errorf("%d bytes draw %d datagrams of %d bytes, want %d", size, count, bytes, want)
			}
			if s := b.Stats(); s.Endpoint.IsValid() {
				t.Errorf("the peer is taken to be at %v", s.Endpoint)
			}
		})
	}
}

// A stranger and the peer call. The peer is found nevertheless.
func TestStrangersCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := lostSession(t)
		b.egress.peerSeen.Store(false)
		stranger := newStranger(t, network(b), "192.0.2.66")
		defer stranger.Close()
		call := func() { stranger.send(a.Stats().Endpoint, 160) }
		call()
		synctest.Wait()
		if count, _ := stranger.received(); count != 1 {
			t.Fatalf("the stranger was sent %d datagrams, want one", count)
		}
		if took := reconnect(t, a, b, call); took > firstCallPause+2*time.Second {
			t.Errorf("took %v", took)
		}
		stranger.received()
		for range 10 {
			call()
			time.Sleep(time.Second)
		}
		count, _ := stranger.received()
		if got, at := b.Stats(), a.bind.open.LocalAddr(); count > 0 || got.Endpoint != at {
			t.Errorf("with a session strangers are answered: %d datagrams, the peer at %v, want %v", count, got.Endpoint, at)
		}
	})
}

// Many strangers call, and no peer. They are sent a datagram now and then, each
// address fewer and fewer, and nothing any more once the peer cannot have a session
// of before.
func TestManyStrangersCall(t *testing.T) {
	for name, hosts := range map[string]int{"one address": 1, "many": 200} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := lostSession(t)
				b.egress.peerSeen.Store(false)
				var strangers []*stranger
				for range hosts {
					s := newStranger(t, network(b), "192.0.2.66")
					defer s.Close()
					strangers = append(strangers, s)
				}
				most, sent := 39, uint64(0) // fewer than forty
				if hosts == 1 {
					most = 7
				}
				const second = 40 // calls in one
				for i := range 600 * second {
					strangers[i%hosts].send(a.Stats().Endpoint, 160)
					time.Sleep(time.Second / second)
					if i == 200*second {
						sent = b.Stats().TxInitiations
					}
				}
				if s := b.Stats(); s.TxInitiations != sent || sent > uint64(most) || sent == 0 {
					t.Errorf("%d initiations, %d of them in the first 200 s, want at most %d and none later", s.TxInitiations, sent, most)
				}
			})
		})
	}
}

// A later key of the peer opens the window again.
func TestAnotherKeyIsCalledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := lostSession(t)
		b.egress.peerSeen.Store(false)
		time.Sleep(2 * callWindow)
		b.apply(t, func(c *Config) { c.PeerKey = GeneratePrivateKey().Public() })
		keepPeers(b)
		stranger := newStranger(t, network(b), "192.0.2.66")
		defer stranger.Close()
		stranger.send(a.Stats().Endpoint, 160)
		synctest.Wait()
		if count, _ := stranger.received(); count != 1 {
			t.Errorf("%d datagrams, want one", count)
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
		stranger := newStranger(t, n, "192.0.2.66")
		defer stranger.Close()
		before := a.Stats().Endpoint
		stranger.send(a.bind.open.LocalAddr(), 160)
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

// stranger sends what looks like messages of a session.
type stranger struct{ *memSocket }

func newStranger(t *testing.T, n *memNet, host string) *stranger {
	t.Helper()
	s, err := n.listen(host)(0)
	if err != nil {
		t.Fatal(err)
	}
	return &stranger{s.(*memSocket)}
}

func (s *stranger) send(to netip.AddrPort, size int) {
	fake := make([]byte, size)
	fake[0] = typeTransport
	s.net.send(s.memSocket, to, fake)
}

// received returns what has come since the last time.
func (s *stranger) received() (count, bytes int) {
	for {
		select {
		case d := <-s.in:
			count++
			bytes += len(d.b)
		default:
			return count, bytes
		}
	}
}

// network is the one that a gateway is on.
func network(g *gateway) *memNet { return g.bind.open.Socket.(*memSocket).net }
