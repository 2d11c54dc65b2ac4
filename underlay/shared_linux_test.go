package underlay

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/test/packettest"
)

// openShared is ListenShared for tests: it closes the sockets at the end.
func openShared(t *testing.T, cfg Config, n int) []*Conn {
	t.Helper()
	conns, err := ListenShared(cfg, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conns {
		t.Cleanup(func() { _ = c.Close() })
	}
	if len(conns) != n {
		t.Fatalf("%d sockets, want %d", len(conns), n)
	}
	return conns
}

// What comes from one port comes to one socket, in order, and what comes from many comes to
// all sockets.
func TestSharedSocketsSpreadFlows(t *testing.T) {
	// With so many senders, one of the sockets gets nothing once in 25 million runs.
	const sockets, senders, each = 4, 64, 50
	for _, tt := range []struct{ listen, from netip.Addr }{{loopback4, loopback4}, {loopback6, loopback6}, {netip.Addr{}, loopback4}, {netip.Addr{}, loopback6}} {
		t.Run(tt.listen.String()+" from "+tt.from.String(), func(t *testing.T) {
			conns := openShared(t, Config{Addr: netip.AddrPortFrom(tt.listen, 0), GRO: true}, sockets)
			for i, c := range conns {
				if got := c.LocalAddr(); got != conns[0].LocalAddr() {
					t.Errorf("socket %d has the address %v, the first %v", i, got, conns[0].LocalAddr())
				}
			}
			dst := netip.AddrPortFrom(tt.from, conns[0].LocalAddr().Port())
			var got [sockets]int
			for range senders {
				s := open(t, Config{Addr: netip.AddrPortFrom(tt.from, 0)})
				for half := range uint32(2) {
					var ds []Datagram
					for i := range uint32(each) {
						ds = append(ds, Datagram{Addr: dst, Body: binary.BigEndian.AppendUint32(nil, half*each+i)})
					}
					if n, err := s.WriteBatch(ds); n != each || err != nil {
						t.Fatalf("sent %d, %v", n, err)
					}
				}
				socket := -1
				for i, c := range conns {
					numbers := numbersFrom(t, c, s.LocalAddr())
					if len(numbers) == 0 {
						continue
					}
					if socket >= 0 || len(numbers) != 2*each || !slices.IsSorted(numbers) {
						t.Errorf("socket %d got %v, socket %d had some before", i, numbers, socket)
					}
					socket = i
					got[i]++
				}
			}
			if slices.Contains(got[:], 0) {
				t.Errorf("the sockets got what %d senders sent, want none without any", got)
			}
		})
	}
}

// numbersFrom returns the numbers in what has come from one sender. Over loopback a datagram has
// arrived when it is sent.
func numbersFrom(t *testing.T, c *Conn, from netip.AddrPort) (numbers []uint32) {
	t.Helper()
	b, ms := newBatch(32, MaxDatagram), make([]Message, 32)
	for {
		n, err := c.ReadMessages(b.bufs, ms)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return numbers
		}
		for _, m := range ms[:n] {
			if m.Addr != from {
				t.Errorf("got a datagram from %v, want one from %v", m.Addr, from)
			}
			for d := range slices.Chunk(m.Data, m.Segment) {
				numbers = append(numbers, binary.BigEndian.Uint32(d))
			}
		}
	}
}

// A second gateway that is started by mistake must not get half of the packets of the first.
func TestNobodyElseShares(t *testing.T) {
	conns := openShared(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)}, 2)
	cfg := Config{Addr: conns[0].LocalAddr()}
	if c, err := Listen(cfg); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Listen: %v, %v, want %v", c, err, syscall.EADDRINUSE)
	}
	if c, err := ListenShared(cfg, 2); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("ListenShared: %v, %v, want %v", c, err, syscall.EADDRINUSE)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	openShared(t, cfg, 2) // nobody has it now
}

// Several send at the same time, none of which waits for another, and each in order.
func TestWritersDoNotWaitForEachOther(t *testing.T) {
	const writers = 3
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0), Writers: writers, GSO: true})
	to := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0), GRO: true})
	var all sync.WaitGroup // in the kernel, at the same time
	all.Add(writers)
	for _, w := range c.writers {
		var once sync.Once
		w.sendmmsg = func(fd uintptr, ms []mmsghdr) (int, syscall.Errno) {
			once.Do(func() { all.Done(); all.Wait() })
			return sendmmsg(fd, ms)
		}
	}
	const each = 40
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for number := range uint32(each) {
				body := binary.BigEndian.AppendUint32([]byte{byte(i)}, number)
				if n, err := c.WriteBatch([]Datagram{{Addr: to.LocalAddr(), Body: body}}); n != 1 || err != nil {
					t.Errorf("sent %d, %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	var next [writers]uint32
	for _, d := range readN(t, to, newBatch(32, 100), writers*each) {
		i := d.data[0]
		if number := binary.BigEndian.Uint32(d.data[1:]); number != next[i] {
			t.Errorf("writer %d: datagram %d, want %d", i, number, next[i])
		}
		next[i]++
	}
	if s := c.Stats(); s.WriteDatagrams != writers*each || !s.GSO {
		t.Errorf("%d datagrams, GSO %v, want %d, on", s.WriteDatagrams, s.GSO, writers*each)
	}
}

// Where the send buffer is full, one of several writers waits as the only one does.
func TestWritersWaitForTheSendBuffer(t *testing.T) {
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0), Writers: 2})
	to := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	full := 1
	c.writers[0].sendmmsg = func(fd uintptr, ms []mmsghdr) (int, syscall.Errno) {
		if full > 0 {
			full--
			return 0, unix.EAGAIN
		}
		return sendmmsg(fd, ms)
	}
	if n, err := c.WriteBatch([]Datagram{{Addr: to.LocalAddr(), Body: []byte("x")}}); n != 1 || err != nil {
		t.Errorf("sent %d, %v", n, err)
	}
	readN(t, to, newBatch(1, 100), 1)
	c.writers[0].sendmmsg = func(uintptr, []mmsghdr) (int, syscall.Errno) { return 0, unix.EAGAIN }
	_ = c.Close()
	if _, err := c.WriteBatch([]Datagram{{Addr: to.LocalAddr()}}); err != net.ErrClosed {
		t.Errorf("after Close: %v, want %v", err, net.ErrClosed)
	}
}

func TestWritersDoNotAllocate(t *testing.T) {
	if packettest.Race {
		t.Skip("NOT CHECKED under the race detector, which allocates itself; the run without it checks")
	}
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0), Writers: 2, GSO: true})
	ds := to(netip.AddrPortFrom(loopback4, 9), repeat(45, 1000)...)
	if n := testing.AllocsPerRun(100, func() { _, _ = c.WriteBatch(ds) }); n != 0 {
		t.Errorf("%v allocations per batch", n)
	}
}
