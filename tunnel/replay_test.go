package tunnel

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/test/packettest"
)

var replays = flag.Int("tunnel.replays", packettest.Rounds(40_000), "how many copies of messages TestReplays sends")

// Somebody who reads the traffic sends copies of it, of any age, between what the peer
// sends: of this session and of those before, inside the replay window and behind it. Each
// packet is delivered once and in its place, and the copies move nothing.
func TestReplays(t *testing.T) {
	const (
		copies = 160 // for each batch
		kept   = 300 // batches of which copies are made: more than a replay window, and a session
	)
	// Sessions expire meanwhile, however few copies are sent.
	pause := max(time.Second, 2*sessionLife*copies/time.Duration(*replays))
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a, b := newPair(t, n)
		var mu sync.Mutex
		var seen [][]byte
		n.setDrop(func(from, to netip.AddrPort, m []byte) bool {
			if from.Addr().String() == a.host && classify(m) == messageData {
				mu.Lock()
				defer mu.Unlock()
				if seen = append(seen, m); len(seen) > kept*BatchSize {
					seen = seen[BatchSize:]
				}
			}
			return false
		})
		cross(t, a, b, 0)
		keepPeers(a, b)
		first := a.Stats().LastHandshake
		stranger := newStranger(t, n, "192.0.2.66")
		defer stranger.Close()
		at, sent, replayed := b.bind.open.LocalAddr(), uint32(1), 0
		for replayed < *replays {
			for range BatchSize {
				a.overlay.out <- ipPacket(a.inner, b.inner, sent, 100)
				sent++
			}
			for range copies {
				mu.Lock()
				m := seen[rand.IntN(len(seen))]
				mu.Unlock()
				n.send(stranger.memSocket, at, m)
			}
			replayed += copies
			for i := range uint32(BatchSize) {
				expect(t, b, sent-BatchSize+i)
			}
			synctest.Wait() // what was sent is entered as sent
			time.Sleep(pause)
			cross(t, a, b, sent) // a session is proven, so that a whole batch is taken
			sent++
			synctest.Wait()
		}
		s := b.Stats()
		t.Logf("%d packets, %d copies: %d rejected, %d of expired sessions", sent, replayed, s.DropRejected, s.DropUnknownSession)
		if got := s.DropRejected + s.DropUnknownSession; got != uint64(replayed) || s.RxPackets != uint64(sent) || len(b.overlay.in) > 0 {
			t.Errorf("%d copies were rejected, want %d; %d packets delivered and %d to come, want %d", got, replayed, s.RxPackets, len(b.overlay.in), sent)
		}
		if s.DropRejected == 0 || s.DropUnknownSession == 0 || a.Stats().LastHandshake.Sub(first) < sessionLife/2 {
			t.Errorf("not all kinds of copies were sent: %+v", s)
		}
		if got, want := s.Endpoint, a.bind.open.LocalAddr(); got != want {
			t.Errorf("the peer is at %v, want %v", got, want)
		}
	})
}
