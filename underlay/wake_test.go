package underlay

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A reader with a second source of packets: whatever is put there before Wake must be
// seen by the reader without anything else happening, for every interleaving.
func TestNoWakeIsLost(t *testing.T) {
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	const wakers, rounds = 4, 2000
	var put, taken atomic.Int64
	step := make(chan struct{}, wakers*rounds)
	var wg sync.WaitGroup
	for range wakers {
		wg.Go(func() {
			for range rounds {
				put.Add(1)
				c.Wake()
				<-step // until the reader took one: a lost wake stops the test here
			}
		})
	}
	watchdog := time.AfterFunc(30*time.Second, func() { _ = c.Close() })
	defer watchdog.Stop()
	b := newBatch(4, 100)
	for total := int64(0); total < wakers*rounds; {
		n, err := c.ReadBatch(b.bufs, b.sizes, b.from)
		if err != ErrWoken || n != 0 {
			t.Fatalf("ReadBatch = %d, %v after %d of %d: a wake was lost", n, err, total, wakers*rounds)
		}
		for now := put.Load(); taken.Load() < now; {
			taken.Add(1)
			total++
			step <- struct{}{}
		}
	}
	wg.Wait()
}

func TestWakeWhileBlocked(t *testing.T) {
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	b := newBatch(4, 100)
	result := make(chan error)
	for range 100 {
		go func() {
			_, err := c.ReadBatch(b.bufs, b.sizes, b.from)
			result <- err
		}()
		c.Wake()
		if err := <-result; err != ErrWoken {
			t.Fatalf("ReadBatch = %v", err)
		}
	}
}

func TestWakesDoNotStarveTheSocket(t *testing.T) {
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	b := newBatch(1, 100)
	for range 3 {
		if _, err := c.WriteBatch([]Datagram{{Addr: c.LocalAddr(), Body: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	var order []error
	for range 6 {
		c.Wake()
		_, err := c.ReadBatch(b.bufs, b.sizes, b.from)
		order = append(order, err)
	}
	for i, err := range order {
		if want := []error{ErrWoken, nil}[i%2]; err != want {
			t.Fatalf("wakes and datagrams must alternate, got %v", order)
		}
	}
}

func TestWakesDoNotHideClose(t *testing.T) {
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	b := newBatch(1, 100)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.Wake()
		if _, err := c.ReadBatch(b.bufs, b.sizes, b.from); err == net.ErrClosed {
			return
		}
	}
	t.Error("somebody who goes on waking hides that the socket is closed")
}
