package tunnel

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/sluice-net/sluice/underlay"
)

// TestInitiationsAboveTheQuota: a flood is dropped above its limit, and the peer's initiations, and messages of other
// kinds, are not.
func TestInitiationsAboveTheQuota(t *testing.T) {
	if quotaSize <= device.QueueHandshakeSize/8 {
		t.Errorf("%d initiations of a window are not enough to make wireguard-go demand cookies", quotaSize)
	}
	if n := quotaSize * int(time.Second/quotaWindow); n != 20_000 {
		t.Errorf("%d initiations in a second, and not 20000, as the documents say", n)
	}
	synctest.Test(t, func(t *testing.T) {
		peer, stranger := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("[::ffff:192.0.2.66]:2")
		r := &receiver{inbound: new(inbound), from: make([]underlay.Origin, BatchSize)}
		r.sources.endpoint(underlay.Origin{Addr: peer})
		batch := func(from netip.AddrPort, kind uint32, size int) (dropped int) {
			bufs, sizes := make([][]byte, BatchSize), make([]int, BatchSize)
			for i := range bufs {
				bufs[i], sizes[i], r.from[i].Addr = message(kind, size), size, from
			}
			place, dropped := r.limit(bufs, sizes)
			for i, size := range sizes {
				if limited := size < 0; limited != (i >= BatchSize-dropped) {
					t.Fatalf("message %d of %v, of which %d are dropped: %v", i, from, dropped, limited)
				}
			}
			if dropped > 0 && sizes[place] >= 0 {
				t.Errorf("message %d is shown as dropped", place)
			}
			return dropped
		}
		for round := range 3 {
			dropped := 0
			for range 10 {
				dropped += batch(stranger, typeInitiation, initiationLen)
				for kind, size := range map[uint32]int{typeResponse: responseLen, typeTransport: 1400, typeCookieReply: cookieReplyLen} {
					if n := batch(stranger, kind, size); n > 0 {
						t.Errorf("%d messages of kind %d are dropped", n, kind)
					}
				}
			}
			if want := 10*BatchSize - quotaSize; dropped != want {
				t.Errorf("window %d: %d of %d initiations are dropped, want %d", round, dropped, 10*BatchSize, want)
			}
			if n := batch(netip.AddrPortFrom(peer.Addr(), 999), typeInitiation, initiationLen); n > 0 {
				t.Errorf("%d initiations of the peer's address are dropped", n)
			}
			time.Sleep(quotaWindow)
		}
	})
}
