package underlay

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// A second thread is woken for a socket that waits for more of a bulk transfer, and for
// nothing else.
func TestWhoWakesThePoller(t *testing.T) {
	const now = int64(time.Hour)
	for _, tt := range []struct {
		name   string
		own    int64
		others []int64 // when they began to wait
		want   int
	}{
		{"alone", 0, nil, 0},
		{"itself does not count", now, nil, 0},
		{"the other one is not waiting, or for little", 0, []int64{0}, 0},
		{"it has begun to wait just now", 0, []int64{now}, 1},
		{"a while ago", 0, []int64{now - int64(bulkPause) + 1}, 1},
		{"it is idle", 0, []int64{now - int64(bulkPause)}, 0},
		{"once for several", 0, []int64{now - int64(time.Second), 0, now - 2, now - 1}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			woken := 0
			s := sockets{now: func() int64 { return now }, wake: func() { woken++ }}
			w := new(waiter)
			s.woken(w) // before there is any
			w.since.Store(tt.own)
			s.add(w)
			for _, since := range tt.others {
				o := new(waiter)
				o.since.Store(since)
				s.add(o)
			}
			if s.woken(w); woken != tt.want {
				t.Errorf("woken %d times, want %d", woken, tt.want)
			}
		})
	}
}

// Sockets say that they wait for more of a bulk transfer, as long as it is one.
func TestWaitOfABulkTransfer(t *testing.T) {
	a, b := loopPair(t, loopback4, true, true)
	w := &b.read.waiter
	if !slices.Contains(*polled.all.Load(), w) {
		t.Error("the poller does not know the socket")
	}
	arrived := make(chan int)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for batch := newBatch(64, 2000); ; {
			n, err := b.ReadBatch(batch.bufs, batch.sizes, batch.addrs)
			if err != nil {
				return
			}
			arrived <- n
		}
	}()
	send := func(times int, sizes ...int) {
		t.Helper()
		for range times {
			if _, err := a.WriteBatch(to(b.LocalAddr(), sizes...)); err != nil {
				t.Fatal(err)
			}
			for rest := len(sizes); rest > 0; {
				rest -= <-arrived
			}
		}
	}
	waits := func(bulk bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); (w.since.Load() != 0) != bulk; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waiting for more of a bulk transfer: %v, want %v", !bulk, bulk)
			}
		}
	}
	send(1, 100)
	waits(false)
	send(50, repeat(40, 1200)...)
	waits(true)
	send(50, 100)
	waits(false)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	if slices.Contains(*polled.all.Load(), w) {
		t.Error("the poller still knows the socket")
	}
}

func TestWakingThePollerAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("NOT CHECKED under the race detector, which allocates itself; the run without it checks")
	}
	if n := testing.AllocsPerRun(100, func() {
		wakePoller()
		runtime.Gosched() // they end
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
