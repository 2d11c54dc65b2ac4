package underlay

import (
	"go/version"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/test/source"
)

// What poller_linux.go does rests on how Go's runtime polls, which another version may do otherwise. Its effect
// is measured by a benchmark, which no test can judge; this one fails until that was done with the Go of go.mod, and
// with that which builds, which may be newer.
func TestPollerWasMeasured(t *testing.T) {
	const with = "1.26"
	mod, err := os.ReadFile(source.Path("go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), "\ngo "+with+".") || version.Lang(runtime.Version()) != "go"+with {
		t.Errorf("the poller was measured with Go %s; go.mod or the Go that built this, %s, is another one: do what bench/README.md says under \"Another version of Go\", take out what is worthless, and change this test", with, runtime.Version())
	}
}

// A second thread is woken in a bulk transfer, for a socket that is not idle.
func TestWhoWakesThePoller(t *testing.T) {
	const now = int64(time.Hour)
	type socket struct {
		since int64 // when it began to wait
		bulk  bool
	}
	for _, tt := range []struct {
		name   string
		own    socket
		others []socket
		want   int
	}{
		{"alone", socket{0, true}, nil, 0},
		{"itself does not count", socket{now, true}, nil, 0},
		{"the other one does not wait", socket{0, true}, []socket{{0, true}}, 0},
		{"the other one waits for more", socket{0, false}, []socket{{now, true}}, 1},
		{"it waits for what is acknowledged", socket{0, true}, []socket{{now, false}}, 1},
		{"little passes", socket{0, false}, []socket{{now, false}}, 0},
		{"it began a while ago", socket{0, true}, []socket{{now - int64(bulkPause) + 1, true}}, 1},
		{"it is idle", socket{0, true}, []socket{{now - int64(bulkPause), true}}, 0},
		{"once for several", socket{0, true}, []socket{{now - int64(time.Second), true}, {0, true}, {now - 2, true}, {now - 1, false}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			woken := 0
			s := sockets{now: func() int64 { return now }, wake: func() { woken++ }}
			add := func(k socket) *waiter {
				w := new(waiter)
				w.since.Store(k.since)
				w.bulk.Store(k.bulk)
				s.add(w)
				return w
			}
			s.woken(new(waiter)) // before there is any
			w := add(tt.own)
			for _, o := range tt.others {
				add(o)
			}
			if s.woken(w); woken != tt.want {
				t.Errorf("woken %d times, want %d", woken, tt.want)
			}
		})
	}
}

// Sockets know that they wait for more of a bulk transfer, as long as it is one.
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
			n, err := b.ReadBatch(batch.bufs, batch.sizes, batch.from)
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
		for deadline := time.Now().Add(time.Minute); w.since.Load() == 0 || w.bulk.Load() != bulk; time.Sleep(time.Millisecond) {
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
	if packettest.Race {
		t.Skip("NOT CHECKED under the race detector, which allocates itself; the run without it checks")
	}
	if n := testing.AllocsPerRun(100, func() {
		wakePoller()
		runtime.Gosched() // they end
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
