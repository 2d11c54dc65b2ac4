package underlay

import (
	"net/netip"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// loopPair is two sockets on loopback: what a writes to b is read from b.
func loopPair(t testing.TB, addr netip.Addr, gso, gro bool) (a, b *Conn) {
	t.Helper()
	a = open(t, Config{Addr: netip.AddrPortFrom(addr, 0), GSO: gso})
	b = open(t, Config{Addr: netip.AddrPortFrom(addr, 0), GRO: gro})
	if a.Stats().GSO != gso || b.Stats().GRO != gro {
		t.Skip("this kernel has no UDP_SEGMENT or UDP_GRO")
	}
	return a, b
}

// What was written is what is read, through the real kernel: in order, each datagram
// whole and by itself, whatever their sizes, in all four combinations of offloads.
func TestWrittenIsRead(t *testing.T) {
	for _, addr := range []netip.Addr{loopback4, loopback6} {
		for _, gso := range []bool{false, true} {
			for _, gro := range []bool{false, true} {
				name := addr.String()
				if gso {
					name += " GSO"
				}
				if gro {
					name += " GRO"
				}
				t.Run(name, func(t *testing.T) { testWrittenIsRead(t, addr, gso, gro) })
			}
		}
	}
}

func testWrittenIsRead(t *testing.T, addr netip.Addr, gso, gro bool) {
	a, b := loopPair(t, addr, gso, gro)
	other := open(t, Config{Addr: netip.AddrPortFrom(addr, 0), GRO: gro})
	large, small := newBatch(128, MaxDatagram), newBatch(3, 9000)
	rapid.Check(t, func(rt *rapid.T) {
		var ds []Datagram
		bytes := 0
		for range rapid.IntRange(1, 10).Draw(rt, "groups") {
			addr := rapid.SampledFrom([]*Conn{b, b, b, other}).Draw(rt, "to").LocalAddr()
			size := rapid.SampledFrom([]int{0, 1, 32, 100, 1452, 1452, 9000}).Draw(rt, "size")
			n := rapid.IntRange(1, 70).Draw(rt, "n")
			n = min(n, (400_000-bytes)/(size+1000)) // stay within any receive buffer
			sizes := repeat(max(n, 0), size)
			if n > 0 && size > 0 && rapid.Bool().Draw(rt, "short end") {
				sizes[n-1] = rapid.IntRange(0, size).Draw(rt, "end")
			}
			bytes += n * (size + 1000)
			ds = append(ds, to(addr, sizes...)...)
		}
		sent, err := a.WriteBatch(ds)
		if sent != len(ds) || err != nil {
			rt.Fatalf("sent %d of %d, %v", sent, len(ds), err)
		}
		for _, c := range []*Conn{b, other} {
			var want []received
			for _, r := range asReceived(ds) {
				if r.addr == c.LocalAddr() {
					want = append(want, received{a.LocalAddr(), r.data})
				}
			}
			bufs := rapid.SampledFrom([]batch{large, small}).Draw(rt, "buffers")
			if d := diff(readN(t, c, bufs, len(want)), want); d != "" {
				rt.Fatalf("datagrams (-want +got):\n%s", d)
			}
		}
	})
	if s := a.Stats(); s.WriteErrors != 0 || s.WriteReplays != 0 || gso != (s.WriteRuns > 0) {
		t.Errorf("writer: %+v", s)
	}
	if s := b.Stats(); s.Truncated != 0 || s.Overruns != 0 || (gso && gro) != (s.ReadRuns > 0) {
		t.Errorf("reader: %+v", s)
	}
}

func TestRunsLandWithoutCopies(t *testing.T) {
	a, b := loopPair(t, loopback4, true, true)
	bufs := newBatch(128, MaxDatagram)
	ds := to(b.LocalAddr(), repeat(45, 1452)...)
	for range 10 {
		if _, err := a.WriteBatch(ds); err != nil {
			t.Fatal(err)
		}
		readN(t, b, bufs, len(ds))
	}
	s := b.Stats()
	if s.ReadRuns != 10 || s.ReadRepairs != 1 || s.ReadDatagrams != 450 {
		t.Errorf("%d runs, %d repairs, %d datagrams, want 10 runs of which the first is repaired, 450 datagrams", s.ReadRuns, s.ReadRepairs, s.ReadDatagrams)
	}
}

func TestOffloadsSwitchAtRunTime(t *testing.T) {
	a, b := loopPair(t, loopback4, true, true)
	bufs := newBatch(128, MaxDatagram)
	ds := to(b.LocalAddr(), repeat(40, 1000)...)
	for _, on := range []bool{true, false, true} {
		a.SetGSO(on)
		b.SetGRO(on)
		before, beforeA := b.Stats(), a.Stats()
		if beforeA.GSO != on || before.GRO != on {
			t.Fatalf("switched %v, but Stats tell GSO %v, GRO %v", on, beforeA.GSO, before.GRO)
		}
		if _, err := a.WriteBatch(ds); err != nil {
			t.Fatal(err)
		}
		readN(t, b, bufs, len(ds))
		if got := b.Stats().ReadRuns > before.ReadRuns; got != on {
			t.Errorf("switched %v, runs arrived: %v", on, got)
		}
		if got := a.Stats().WriteRuns > beforeA.WriteRuns; got != on {
			t.Errorf("switched %v, runs were sent: %v", on, got)
		}
	}
}

// A node's kernel sends runs; without GRO the kernel has to hand them out one by one.
func TestRunsAreCutForAReaderWithoutGRO(t *testing.T) {
	a, b := loopPair(t, loopback4, true, false)
	ds := to(b.LocalAddr(), append(repeat(40, 1000), 7)...)
	if _, err := a.WriteBatch(ds); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, r := range readN(t, b, newBatch(128, 2048), len(ds)) {
		sizes = append(sizes, len(r.data))
	}
	if !slices.Equal(sizes, append(repeat(40, 1000), 7)) {
		t.Errorf("sizes %v", sizes)
	}
	if s := b.Stats(); s.ReadRuns != 0 || s.ReadRepairs != 0 {
		t.Errorf("%d runs and %d repairs without GRO", s.ReadRuns, s.ReadRepairs)
	}
}

func TestBatchesLargerThanOneCall(t *testing.T) {
	for _, offload := range []bool{false, true} {
		a, b := loopPair(t, loopback4, offload, offload)
		ds := to(b.LocalAddr(), repeat(1500, 50)...)
		if sent, err := a.WriteBatch(ds); sent != len(ds) || err != nil {
			t.Fatalf("sent %d, %v", sent, err)
		}
		got := readN(t, b, newBatch(1500, 2048), len(ds))
		for i := range got {
			got[i].addr = b.LocalAddr()
		}
		if d := diff(got, asReceived(ds)); d != "" {
			t.Errorf("datagrams (-want +got):\n%s", d)
		}
	}
}

func TestOverrunsAreReported(t *testing.T) {
	a := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	b := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0), ReadBuffer: 4096})
	if _, err := a.WriteBatch(to(b.LocalAddr(), repeat(100, 1000)...)); err != nil {
		t.Fatal(err)
	}
	bufs := newBatch(128, 2048)
	n, err := b.ReadBatch(bufs.bufs, bufs.sizes, bufs.from)
	if err != nil {
		t.Fatal(err)
	}
	if s := b.Stats(); s.Overruns != uint64(100-n) || s.ReadBuffer > DefaultBuffer {
		t.Errorf("read %d of 100 datagrams, %d overruns reported, read buffer %d", n, s.Overruns, s.ReadBuffer)
	}
}

func TestUnsendableDatagramsDoNotStopABatch(t *testing.T) {
	a, b := loopPair(t, loopback4, true, true)
	closed := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	good := to(b.LocalAddr(), 100, 100)
	ds := concat(
		good,
		[]Datagram{{Body: []byte("no address")}, {Body: []byte("no address")}},
		to(nodeB, 100, 100),                            // IPv6 on an IPv4 socket
		to(netip.AddrPortFrom(loopback4, 0), 100, 100), // no port
		to(b.LocalAddr(), 65508),                       // larger than a datagram
		good,
	)
	sent, err := a.WriteBatch(ds)
	if sent != 4 || err != nil {
		t.Errorf("sent %d, %v, want 4", sent, err)
	}
	if got := readN(t, b, newBatch(8, 2048), 4); len(got) != 4 {
		t.Errorf("%d datagrams arrived", len(got))
	}
	s := a.Stats()
	if s.WriteErrors != 7 || s.LastWriteError == "" || !s.GSO {
		t.Errorf("%d errors (last %q), GSO %v, want 7 and still on", s.WriteErrors, s.LastWriteError, s.GSO)
	}
	// Nobody listens: the ICMP error that comes back must not break the socket.
	for range 3 {
		if sent, err := a.WriteBatch(to(closed.LocalAddr(), 10)); sent != 1 || err != nil {
			t.Errorf("to a closed port: sent %d, %v", sent, err)
		}
	}
	a.Wake()
	bufs := newBatch(1, 10)
	if _, err := a.ReadBatch(bufs.bufs, bufs.sizes, bufs.from); err != ErrWoken {
		t.Errorf("ReadBatch after datagrams to a closed port: %v", err)
	}
}

func TestBuffersAreReported(t *testing.T) {
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	if s := c.Stats(); s.ReadBuffer <= 0 || s.ReadBuffer > DefaultBuffer || s.WriteBuffer <= 0 || s.WriteBuffer > DefaultBuffer {
		t.Errorf("granted %d and %d of %d", s.ReadBuffer, s.WriteBuffer, DefaultBuffer)
	}
}

// Traffic, wakes, statistics, switches and Close at once, for the race detector.
func TestEverythingAtOnce(t *testing.T) {
	a := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0), GSO: true})
	b := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0), GRO: true})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	for i := range 2 {
		ds := to(b.LocalAddr(), repeat(20+i, 500)...)
		loop(func() {
			if _, err := a.WriteBatch(ds); err != nil {
				t.Errorf("WriteBatch: %v", err)
			}
		})
	}
	on := false
	loop(func() {
		b.Wake()
		a.SetGSO(on)
		b.SetGRO(on)
		on = !on
		_, _ = a.Stats(), b.Stats()
	})
	datagrams := 0
	bufs := newBatch(64, MaxDatagram)
	for datagrams < 20_000 {
		n, err := b.ReadBatch(bufs.bufs, bufs.sizes, bufs.from)
		if err != nil && err != ErrWoken {
			t.Fatalf("ReadBatch: %v", err)
		}
		for i := range n {
			if bufs.from[i].Addr != a.LocalAddr() {
				t.Fatalf("datagram from %v", bufs.from[i].Addr)
			}
		}
		datagrams += n
	}
	close(stop)
	wg.Wait()
}
