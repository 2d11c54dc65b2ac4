package tunnel

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// oneWay is how long a datagram takes in these tests.
const oneWay = 150 * time.Millisecond

// Handshakes that both gateways begin at the same time make a session as fast
// as one alone does, whichever has the larger key. When the initiation that prevails is lost, that is
// made up for.
func TestCrossingHandshakes(t *testing.T) { eachWay(t, testCrossingHandshakes) }

func testCrossingHandshakes(t *testing.T) {
	// An initiation, the response, what confirms that, and the packet that waited for it.
	const four = 4 * oneWay
	for _, tt := range []struct {
		name         string
		client, lost bool
		most         time.Duration
	}{
		{"client prevails", true, false, four},
		{"client prevails, its initiation is lost", true, true, crossTime + four},
		{"server prevails", false, false, four},
		{"server prevails, its initiation is lost", false, true, crossTime + four},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, n := withoutSession(t, tt.client)
				first := a.host
				if !tt.client {
					first = b.host
				}
				n.setDrop(func(from, _ netip.AddrPort, m []byte) bool {
					if !tt.lost || from.Addr().String() != first || !isInitiation(m) {
						return false
					}
					first = "" // only this one
					return true
				})
				if got := bothBegin(t, a, b); got > tt.most {
					t.Errorf("took %v, want at most %v", got, tt.most)
				}
			})
		})
	}
}

// Gateways that both see themselves as the one that prevails connect like stock WireGuard:
// after REKEY_TIMEOUT and a random time, by which they do not cross as a rule.
func TestCrossingHandshakesBothPrevail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, n := withoutSession(t, true)
		n.setDelay(time.Millisecond)
		b.bind.crossing.prevails.Store(true)
		took := reconnect(t, a, b, func() { b.overlay.out <- ipPacket(b.inner, a.inner, 2, 100) })
		if took > 30*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// withoutSession returns two gateways that know each other's addresses, and whose session
// is over. The handshake of the client, a, prevails, or that of the server.
func withoutSession(t *testing.T, client bool) (a, b *gateway, n *memNet) {
	t.Helper()
	n = newMemNet()
	a = newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
	b = newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
	if prevails(Config{PrivateKey: a.key, PeerKey: b.key.Public()}) != client {
		a.key, b.key = b.key, a.key
	}
	connect(t, a, b)
	n.setDelay(oneWay)
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
