package dataplanetest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/underlay"
)

var (
	hereAddr  = netip.MustParseAddrPort("192.0.2.1:1000")
	thereAddr = netip.MustParseAddrPort("[2001:db8::1]:2000")
)

func write(t *testing.T, s *Socket, to netip.AddrPort, texts ...string) {
	t.Helper()
	var ds []underlay.Datagram
	for _, text := range texts {
		ds = append(ds, underlay.Datagram{Addr: to, Head: []byte(text[:1]), Body: []byte(text[1:])})
	}
	if n, err := s.WriteBatch(ds); n != len(ds) || err != nil {
		t.Fatalf("wrote %d of %d: %v", n, len(ds), err)
	}
}

// read returns what one ReadBatch of at most n datagrams gets.
func read(t *testing.T, s *Socket, n int) (texts []string) {
	t.Helper()
	bufs, sizes, from := make([][]byte, n), make([]int, n), make([]underlay.Origin, n)
	for i := range bufs {
		bufs[i] = make([]byte, 16)
	}
	n, err := s.ReadBatch(bufs, sizes, from)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		texts = append(texts, fmt.Sprintf("%s from %s", bufs[i][:sizes[i]], from[i].Addr))
	}
	return texts
}

func TestSocketsExchangeDatagrams(t *testing.T) {
	network := NewNetwork()
	here, there := network.Listen(hereAddr), network.Listen(thereAddr)
	write(t, here, thereAddr, "one", "two", "three")
	write(t, here, netip.MustParseAddrPort("192.0.2.99:1"), "lost")
	for _, want := range [][]string{
		{"one from 192.0.2.1:1000", "two from 192.0.2.1:1000"},
		{"three from 192.0.2.1:1000"},
	} {
		if diff := cmp.Diff(want, read(t, there, 2)); diff != "" {
			t.Errorf("read (-want +got)\n%s", diff)
		}
	}
	write(t, there, hereAddr, "back")
	if got := read(t, here, 9); !slices.Equal(got, []string{"back from [2001:db8::1]:2000"}) {
		t.Errorf("read %v", got)
	}
	if got, want := here.Stats(), (underlay.Stats{Reads: 1, ReadDatagrams: 1, Writes: 2, WriteDatagrams: 4}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}

func TestListenTakesAFreePort(t *testing.T) {
	network := NewNetwork()
	any := netip.AddrPortFrom(hereAddr.Addr(), 0)
	a, b := network.Listen(any).LocalAddr(), network.Listen(any).LocalAddr()
	if a == b || a.Port() == 0 || b.Port() == 0 || a.Addr() != hereAddr.Addr() {
		t.Errorf("got %s and %s", a, b)
	}
}

func TestListenReplaces(t *testing.T) {
	network := NewNetwork()
	old, there := network.Listen(hereAddr), network.Listen(thereAddr)
	restarted := network.Listen(hereAddr)
	old.Close() // late, and not the new one's affair
	write(t, there, hereAddr, "hello")
	if got := read(t, restarted, 1); len(got) != 1 {
		t.Errorf("read %v", got)
	}
}

func TestWakeOnce(t *testing.T) {
	network := NewNetwork()
	here, there := network.Listen(hereAddr), network.Listen(thereAddr)
	write(t, there, hereAddr, "data")
	here.Wake()
	here.Wake()
	bufs, sizes, from := [][]byte{make([]byte, 16)}, make([]int, 1), make([]underlay.Origin, 1)
	if _, err := here.ReadBatch(bufs, sizes, from); !errors.Is(err, underlay.ErrWoken) {
		t.Errorf("first read: %v, want %v", err, underlay.ErrWoken)
	}
	if got := read(t, here, 1); len(got) != 1 {
		t.Errorf("second read: %v", got)
	}
}

func TestCloseEndsABlockedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := NewNetwork().Listen(hereAddr)
		done := make(chan error, 1)
		go func() {
			_, err := here.ReadBatch([][]byte{make([]byte, 16)}, make([]int, 1), make([]underlay.Origin, 1))
			done <- err
		}()
		synctest.Wait() // it is blocked
		for range 2 {
			if err := here.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("ReadBatch: %v, want %v", err, net.ErrClosed)
		}
		if _, err := here.WriteBatch(nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("WriteBatch: %v, want %v", err, net.ErrClosed)
		}
	})
}

func TestImpair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := NewNetwork()
		here, there := network.Listen(hereAddr), network.Listen(thereAddr)
		network.Impair(func(src, dst netip.AddrPort, payload []byte) (f Fate) {
			if src != hereAddr || dst != thereAddr {
				t.Errorf("asked about %s > %s", src, dst)
			}
			f.Drop = string(payload) == "drop"
			f.Duplicate = string(payload) == "twice"
			if string(payload) == "late" {
				f.Delay = time.Minute
			}
			return f
		})
		write(t, here, thereAddr, "late", "drop", "twice", "plain")
		from := func(texts ...string) []string {
			for i := range texts {
				texts[i] += " from " + hereAddr.String()
			}
			return texts
		}
		if diff := cmp.Diff(from("twice", "twice", "plain"), read(t, there, 9)); diff != "" {
			t.Errorf("at once (-want +got)\n%s", diff)
		}
		start := time.Now()
		if diff := cmp.Diff(from("late"), read(t, there, 9)); diff != "" || time.Since(start) != time.Minute {
			t.Errorf("after %s (-want +got)\n%s", time.Since(start), diff)
		}
		network.Impair(nil)
		write(t, here, thereAddr, "drop")
		if diff := cmp.Diff(from("drop"), read(t, there, 9)); diff != "" {
			t.Errorf("without impairment (-want +got)\n%s", diff)
		}
	})
}

func TestOverrunIsCounted(t *testing.T) {
	network := NewNetwork()
	here, there := network.Listen(hereAddr), network.Listen(thereAddr)
	for range socketQueue + 3 {
		write(t, here, thereAddr, "x")
	}
	if got := there.Stats().Overruns; got != 3 {
		t.Errorf("%d overruns, want 3", got)
	}
}

// For the race detector.
func TestManyWriters(t *testing.T) {
	network := NewNetwork()
	here, there := network.Listen(hereAddr), network.Listen(thereAddr)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				_, _ = here.WriteBatch([]underlay.Datagram{{Addr: thereAddr, Body: []byte("x")}})
			}
		})
	}
	for n := 0; n < 800; {
		n += len(read(t, there, 64))
	}
	wg.Wait()
}
