package tunnel

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// Handshakes that both gateways begin at the same time cost half a second or two, and not
// REKEY_TIMEOUT, 5 s, whichever has the larger key. The same where one of them is lost.
func TestCrossingHandshakes(t *testing.T) {
	const oneWay = 150 * time.Millisecond
	// The first attempt, an initiation, the response, what confirms that, and the packet that
	// waited for it.
	const most = oneWay + greetAgain + 4*oneWay
	for _, tt := range []struct {
		name                   string
		client, lost, stranger bool
	}{
		{"client has the larger key", true, false, false},
		{"client has the larger key, its initiation is lost", true, true, false},
		{"client has the larger key, a stranger sends responses", true, false, true},
		{"server has the larger key", false, false, false},
		{"server has the larger key, its initiation is lost", false, true, false},
		{"server has the larger key, a stranger sends responses", false, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, n := withoutSession(t, tt.client, oneWay)
				first := a.host
				if !tt.client {
					first = b.host
				}
				var lost atomic.Bool // only one is
				n.setDrop(func(from, _ netip.AddrPort, m []byte) bool {
					return tt.lost && from.Addr().String() == first && isInitiation(m) && !lost.Swap(true)
				})
				if tt.stranger {
					defer answersAll(t, n, a, b)()
				}
				if got := bothBegin(t, a, b); got > most {
					t.Errorf("took %v, want at most %v", got, most)
				}
			})
		})
	}
}

// answersAll has somebody send each gateway what looks like the response to a handshake, every
// ten milliseconds until stop is called.
func answersAll(t *testing.T, n *memNet, gateways ...*gateway) (stop func()) {
	t.Helper()
	stranger := newStranger(t, n, "192.0.2.66")
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, g := range gateways {
				n.send(stranger.memSocket, g.bind.socket().LocalAddr(), message(typeResponse, responseLen))
			}
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-done
		stranger.Close()
	}
}

// Each attempt gives up the one before. So gateways wait for as long as the last handshake was
// under way, and a half: crossing, the first attempt of the larger key, and what is sent then.
func TestCrossingOnALongPath(t *testing.T) {
	for _, oneWay := range []time.Duration{250 * time.Millisecond, 400 * time.Millisecond, 500 * time.Millisecond, 900 * time.Millisecond} {
		most := 5*oneWay + time.Duration(greetTrips*2*float64(oneWay)) + 2*flowPause
		for _, client := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				a, b, _ := withoutSession(t, client, oneWay)
				ab, ba := startFlow(t, a, b), startFlow(t, b, a)
				time.Sleep(30 * time.Second)
				got := max(ab.longest(), ba.longest())
				if got > most {
					t.Errorf("took %v where a round trip takes %v, want at most %v", got, 2*oneWay, most)
				}
				t.Logf("took %v where a round trip takes %v", got, 2*oneWay)
			})
		}
	}
}

// A gateway that may not begin handshakes, as perhaps another one leads, does not give up
// the one that is under way either; and one to whom a handshake went by one key has not
// crossed that of the other.
func TestGreetingIsOfOneKeyAndPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, newMemNet())
		cross(t, a, b, 1)
		keepPeers(a, b)
		other := GeneratePrivateKey().Public()
		initiation, response := message(typeInitiation, initiationLen), message(typeResponse, responseLen)
		a.egress.noteExchange(b.key.Public(), initiation, 0)
		time.Sleep(time.Millisecond)
		a.egress.noteExchange(other, response, 0)
		if crossed(a.egress.exchanged(b.key.Public()), time.Time{}) || crossed(a.egress.exchanged(other), time.Time{}) {
			t.Error("an initiation to one key and a response to another one count as crossed")
		}
		a.egress.noteExchange(b.key.Public(), response, 0)
		if !crossed(a.egress.exchanged(b.key.Public()), time.Time{}) {
			t.Error("an initiation and a response to one key do not count as crossed")
		}

		peer := device.NoisePublicKey(b.key.Public())
		under, err := a.dev.Load().LookupPeer(peer).Initiation()
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name    string
			silence time.Duration
			key     PublicKey
			kept    bool
		}{
			{"the peer is silent, and perhaps another gateway leads", time.Second, b.key.Public(), true},
			{"it leads, and the key is that of nobody", 0, other, true},
			{"it leads", 0, b.key.Public(), false},
		} {
			certain := func() {}
			if tt.silence > 0 {
				certain = doubts(a, tt.silence)
				time.Sleep(5 * tt.silence)
			}
			a.greetAgain(tt.key)
			if peer, _ := a.dev.Load().PeerOf(under); (peer != nil) != tt.kept {
				t.Errorf("%s: the handshake under way is kept: %v", tt.name, !tt.kept)
			}
			certain()
		}
	})
}

// withoutSession returns two gateways that know each other's addresses, and whose session
// is over. The client, a, has the larger key, or the server.
func withoutSession(t *testing.T, client bool, oneWay time.Duration) (a, b *gateway, n *memNet) {
	t.Helper()
	n = newMemNet()
	n.setDelay(oneWay)
	a = newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
	b = newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
	if pause := newGreeting(a.key.Public(), []PublicKey{b.key.Public()}, 0, time.Time{}).to[0].pause; pause == 2*greetAgain != client {
		a.key, b.key = b.key, a.key
	}
	connect(t, a, b)
	a.run(t)
	b.run(t)
	cross(t, a, b, 1)
	keepPeers(a, b)
	time.Sleep(2 * sessionLife)
	return a, b, n
}

// bothBegin sends a packet from each end at the same time, and returns how long it takes
// until both have arrived.
func bothBegin(t *testing.T, a, b *gateway) time.Duration {
	t.Helper()
	began := time.Now()
	there, back := arrival(b, 2), arrival(a, 2)
	a.overlay.out <- ipPacket(a.inner, b.inner, 2, 100)
	b.overlay.out <- ipPacket(b.inner, a.inner, 2, 100)
	receive(t, there, "the packet to the server")
	receive(t, back, "the packet to the client")
	return time.Since(began)
}

func TestCrossed(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time {
		if ms == 0 {
			return time.Time{}
		}
		return start.Add(time.Duration(ms) * time.Millisecond)
	}
	for _, tt := range []struct {
		name                              string
		initiation, response, established int // when; 0: never
		want                              bool
	}{
		{"nothing was sent", 0, 0, 0, false},
		{"only a response was sent", 0, 100, 0, false},
		{"the peer's initiation came while ours was under way", 100, 250, 0, true},
		{"the same with a session of before", 100, 250, 50, true},
		{"ours was answered before", 100, 250, 200, false},
		{"there is a session since", 100, 250, 300, false},
		{"ours was lost", 100, 1200, 0, false},
		{"ours came after", 300, 250, 0, false},
	} {
		sent := exchange{initiation: at(tt.initiation), response: at(tt.response)}
		if got := crossed(sent, at(tt.established)); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
