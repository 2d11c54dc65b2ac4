package tunnel

import (
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// initiationAt returns the initiation that a gateway sends whose clock is so far ahead
// of that of every other one. Each gateway knows the fake time of its bubble alone.
func initiationAt(t *testing.T, ahead time.Duration, from PrivateKey, to PublicKey) (message []byte) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		s, err := n.listen("192.0.2.2")(51820)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		time.Sleep(ahead)
		g := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
		g.apply(t, func(c *Config) {
			*c = Config{
				PrivateKey: from, PeerKey: to, MTU: 1340, Endpoint: "192.0.2.2:51820",
				AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.2.0.1/32")},
			}
		})
		g.run(t)
		synctest.Wait()
		keepPeers(g)
		g.overlay.out <- ipPacket(g.inner, "10.2.0.1", 1, 100)
		message = receive(t, s.(*memSocket).in, "an initiation").b
	})
	return message
}

// The gateway that took over from another has a clock that is an hour behind.
func TestReplicaWithAnEarlierClock(t *testing.T) {
	keyA, keyB := GeneratePrivateKey(), GeneratePrivateKey()
	later := initiationAt(t, time.Hour, keyA, keyB.Public())
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
		b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
		a.key, b.key = keyA, keyB
		connect(t, a, b)
		b.run(t)
		synctest.Wait()
		former := newStranger(t, n, "192.0.2.9")
		defer former.Close()
		n.send(former.memSocket, netip.MustParseAddrPort("192.0.2.2:51820"), later)
		synctest.Wait()
		if s := b.Stats(); s.TxResponses != 1 || s.Endpoint != former.addr {
			t.Fatalf("the former gateway was not answered: %+v", s)
		}
		time.Sleep(30 * time.Second)
		a.run(t)
		synctest.Wait()
		keepPeers(a, b)
		if took := reconnect(t, a, b, func() {}); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		cross(t, b, a, 2)
		if got, want := b.Stats().Endpoint, a.bind.open.LocalAddr(); got != want {
			t.Errorf("the peer is at %v, want %v", got, want)
		}
	})
}

// A clock is an hour ahead, and then set back by that hour and stays there, on either side,
// while packets go both ways. None is lost until the clock has caught up, and after that.
// A clock that is ahead and stays there is the first half of it: gateways compare the times
// that the peer tells with each other only, and all that follow are later. For both clocks
// set back at once see the decision about calls of servers: a limit.
func TestClockIsSetBack(t *testing.T) {
	keyA, keyB := GeneratePrivateKey(), GeneratePrivateKey()
	for name, side := range map[string]struct {
		later []byte
		ends  func(a, b *gateway) (set, other *gateway)
	}{
		"client": {
			initiationAt(t, time.Hour, keyA, keyB.Public()),
			func(a, b *gateway) (set, other *gateway) { return a, b },
		},
		"server": {
			initiationAt(t, time.Hour, keyB, keyA.Public()),
			func(a, b *gateway) (set, other *gateway) { return b, a },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newMemNet()
				a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
				b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
				a.key, b.key = keyA, keyB
				connect(t, a, b)
				a.run(t)
				b.run(t)
				cross(t, a, b, 1)
				keepPeers(a, b)
				first := a.Stats().LastHandshake
				time.Sleep(time.Second)

				set, other := side.ends(a, b)
				before := other.Stats().TxResponses
				n.send(set.bind.open.Socket.(*memSocket), other.bind.open.LocalAddr(), side.later)
				synctest.Wait()
				if got := other.Stats().TxResponses - before; got != 1 {
					t.Fatalf("an initiation with a clock that is ahead drew %d responses, want one", got)
				}
				sent, arrived := 0, 0
				for at := range 70 * 60 {
					time.Sleep(time.Second)
					if at%600 == 0 {
						set.Handshake() // or the other end would begin all of them
					}
					for _, way := range [][2]*gateway{{set, other}, {other, set}} {
						way[0].overlay.out <- ipPacket(way[0].inner, way[1].inner, 2, 100)
						sent++
						synctest.Wait()
						select {
						case <-way[1].overlay.in:
							arrived++
						default:
						}
					}
				}
				if arrived != sent {
					t.Errorf("%d of %d packets are lost", sent-arrived, sent)
				}
				if got := a.Stats().LastHandshake.Sub(first); got < 68*time.Minute {
					t.Errorf("handshakes within %v, want at least 68 min", got)
				}
			})
		})
	}
}

// Somebody repeats an older initiation again and again. While the peer is silent he is sent
// a datagram now and then, and what he repeats moves nothing. The last initiation draws
// nothing at all, nor does an older one while the peer is heard.
func TestRepeatedInitiations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		var mu sync.Mutex
		var seen [][]byte
		n.setDrop(func(_, to netip.AddrPort, m []byte) bool {
			if to.Addr().String() == "192.0.2.2" && isInitiation(m) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, m)
			}
			return false
		})
		a, b := newPair(t, n)
		cross(t, a, b, 0)
		keepPeers(a, b)
		time.Sleep(10 * time.Second)
		a.Handshake()
		synctest.Wait()
		n.setDrop(nil)
		if len(seen) != 2 {
			t.Fatalf("%d initiations, want 2", len(seen))
		}
		stranger := newStranger(t, n, "192.0.2.66")
		defer stranger.Close()
		repeat := func(m []byte, peer bool) (count int) {
			for id := range uint32(1000) {
				n.send(stranger.memSocket, b.bind.open.LocalAddr(), m)
				time.Sleep(100 * time.Millisecond)
				if peer {
					cross(t, a, b, id)
				}
				heard, bytes := stranger.received()
				if bytes > heard*initiationLen {
					t.Fatalf("%d datagrams of %d bytes", heard, bytes)
				}
				count += heard
			}
			return count
		}
		if got := repeat(seen[1], true); got != 0 {
			t.Errorf("the last initiation draws %d datagrams", got)
		}
		if got := repeat(seen[0], true); got != 0 {
			t.Errorf("while the peer is heard, an older initiation draws %d datagrams", got)
		}
		if got := repeat(seen[0], false); got < 1 || got > 7 {
			t.Errorf("an older initiation draws %d datagrams in 100 s, want a few", got)
		}
		if got, want := b.Stats().Endpoint, a.bind.open.LocalAddr(); got != want {
			t.Errorf("the peer is at %v, want %v", got, want)
		}
		cross(t, b, a, 1)
	})
}
