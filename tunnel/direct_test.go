package tunnel

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

// What is opened where it is read passes the replay filter and the cipher, and nothing
// that does not moves the peer's endpoint.
func TestCopiesAndForgeriesAreRejected(t *testing.T) {
	noLeaks(t)
	n := newMemNet()
	a, b := newPair(t, n)
	var mu sync.Mutex
	var seen [][]byte
	n.setDrop(func(_, to netip.AddrPort, m []byte) bool {
		if to.Addr().String() == b.host && classify(m) == messageData {
			mu.Lock()
			seen = append(seen, slices.Clone(m))
			mu.Unlock()
		}
		return false
	})
	const count = 3 * BatchSize
	for i := range uint32(count) {
		cross(t, a, b, i)
	}
	n.setDrop(nil)
	// Packets may arrive before they are counted.
	eventually(t, "all are counted", func() bool { return b.Stats().RxPackets == count })
	endpoint, before := b.Stats().Endpoint, b.Stats()
	s, err := n.listen("192.0.2.66")(1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	to := netip.AddrPortFrom(netip.MustParseAddr(b.host), before.ListenPort)
	again := func(change func(m []byte)) {
		for _, m := range seen {
			m = slices.Clone(m)
			change(m)
			n.send(s.(*memSocket), to, m)
		}
	}
	again(func([]byte) {})
	again(func(m []byte) { // a counter that is new, under a tag that is not
		binary.LittleEndian.PutUint64(m[8:], binary.LittleEndian.Uint64(m[8:])+count)
	})
	again(func(m []byte) { m[len(m)-1] ^= 1 })
	cross(t, a, b, count) // and nothing comes before it
	eventually(t, "all are rejected, and one delivered", func() bool {
		s := b.Stats()
		return s.DropRejected == before.DropRejected+3*count && s.RxPackets == before.RxPackets+1
	})
	if got := b.Stats().Endpoint; got != endpoint {
		t.Errorf("the endpoint %v is %v now", endpoint, got)
	}
	cross(t, b, a, 1)
}

// The socket is exchanged again and again under the goroutine that opens what it reads,
// which must not wait for who exchanges it.
func TestPortChangesWhileTrafficFlows(t *testing.T) {
	noLeaks(t)
	a, b := newPair(t, newMemNet())
	cross(t, a, b, 1)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, way := range []struct{ from, to *gateway }{{a, b}, {b, a}} {
		wg.Go(func() {
			for id := uint32(0); ; id++ {
				select {
				case way.from.overlay.out <- ipPacket(way.from.inner, way.to.inner, id, 100):
				case <-done:
					return
				}
			}
		})
		wg.Go(func() {
			for {
				select {
				case <-way.to.overlay.in:
				case <-done:
					return
				}
			}
		})
	}
	const changes = 100
	for i := range changes {
		a.apply(t, func(c *Config) { c.ListenPort = uint16(1000 + i%2) })
		if i%10 == 0 { // a handshake meets a change
			a.Handshake()
			time.Sleep(time.Millisecond)
		}
	}
	close(done)
	wg.Wait()
}
