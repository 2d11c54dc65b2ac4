package tunnel

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Handshakes that both gateways begin at the same time cost half a second or two, and not
// REKEY_TIMEOUT, 5 s, whichever has the larger key. The same where one of them is lost.
func TestCrossingHandshakes(t *testing.T) {
	const oneWay = 150 * time.Millisecond
	// The first attempt, an initiation, the response, what confirms that, and the packet that
	// waited for it.
	const most = oneWay + greetAgain + 4*oneWay
	for _, tt := range []struct {
		name         string
		client, lost bool
	}{
		{"client has the larger key", true, false},
		{"client has the larger key, its initiation is lost", true, true},
		{"server has the larger key", false, false},
		{"server has the larger key, its initiation is lost", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, n := withoutSession(t, tt.client)
				n.setDelay(oneWay)
				first := a.host
				if !tt.client {
					first = b.host
				}
				var lost atomic.Bool // only one is
				n.setDrop(func(from, _ netip.AddrPort, m []byte) bool {
					return tt.lost && from.Addr().String() == first && isInitiation(m) && !lost.Swap(true)
				})
				if got := bothBegin(t, a, b); got > most {
					t.Errorf("took %v, want at most %v", got, most)
				}
			})
		})
	}
}

// withoutSession returns two gateways that know each other's addresses, and whose session
// is over. The client, a, has the larger key, or the server.
func withoutSession(t *testing.T, client bool) (a, b *gateway, n *memNet) {
	t.Helper()
	n = newMemNet()
	a = newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
	b = newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
	if pause := newGreeting(a.key.Public(), b.key.Public(), nil, time.Time{}).pause; pause == 2*greetAgain != client {
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
		name                                      string
		initiation, response, answer, established int // when; 0: never
		want                                      bool
	}{
		{"nothing was sent", 0, 0, 0, 0, false},
		{"only a response was sent", 0, 100, 0, 0, false},
		{"the peer's initiation came while ours was under way", 100, 250, 0, 0, true},
		{"the same with a session of before", 100, 250, 0, 50, true},
		{"the same after an earlier handshake", 100, 250, 50, 60, true},
		{"ours was answered before", 100, 250, 200, 0, false},
		{"there is a session since", 100, 250, 0, 300, false},
		{"ours was lost", 100, 1200, 0, 0, false},
		{"ours came after", 300, 250, 0, 0, false},
	} {
		sent := handshakeCounts{lastInitiation: at(tt.initiation), lastResponse: at(tt.response)}
		if got := crossed(sent, handshakeCounts{lastResponse: at(tt.answer)}, at(tt.established)); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
