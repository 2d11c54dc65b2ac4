package underlay

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/test/packettest"
)

// readMessages reads until n datagrams have come.
func readMessages(t *testing.T, c *Conn, n int) (all []Message) {
	t.Helper()
	bufs, ms := newBatch(4, MaxDatagram).bufs, make([]Message, 4)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); n > 0; {
		k, err := c.ReadMessages(bufs, ms)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%d datagrams are missing: %v", n, err)
		}
		for _, m := range ms[:k] {
			m.Data = append([]byte(nil), m.Data...)
			all = append(all, m)
			n -= (len(m.Data) + m.Segment - 1) / m.Segment
		}
		if k == 0 { // as its users wait: on the descriptor
			_ = raw.Control(func(fd uintptr) {
				_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
			})
		}
	}
	return all
}

// What was sent as runs is found as runs, at the same address, in and out of the poller.
func TestReadMessages(t *testing.T) {
	for name, unpolled := range map[string]bool{"polled": false, "unpolled": true} {
		for _, addr := range []netip.Addr{loopback4, loopback6} {
			t.Run(name+"/"+addr.String(), func(t *testing.T) {
				cfg := Config{Addr: netip.AddrPortFrom(addr, 0), GSO: true, GRO: true, Unpolled: unpolled}
				a, err := Listen(cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				b, err := Listen(cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				if n, err := b.ReadMessages([][]byte{make([]byte, 10)}, make([]Message, 1)); n != 0 || err != nil {
					t.Errorf("nothing has come: %d, %v", n, err)
				}
				ds := to(b.LocalAddr(), append(repeat(20, 1200), 700, 300, 65000)...)
				if sent, err := a.WriteBatch(ds); sent != len(ds) || err != nil {
					t.Fatalf("sent %d of %d, %v", sent, len(ds), err)
				}
				var got []received
				runs := 0
				for _, m := range readMessages(t, b, len(ds)) {
					if m.Addr != a.LocalAddr() {
						t.Errorf("from %v, want %v", m.Addr, a.LocalAddr())
					}
					if m.Segment < len(m.Data) {
						runs++
					}
					for rest := m.Data; len(rest) > 0; rest = rest[min(m.Segment, len(rest)):] {
						got = append(got, received{b.LocalAddr(), rest[:min(m.Segment, len(rest))]})
					}
				}
				if d := diff(got, asReceived(ds)); d != "" {
					t.Errorf("datagrams (-want +got):\n%s", d)
				}
				if s := b.Stats(); s.ReadDatagrams != uint64(len(ds)) || s.ReadRuns != uint64(runs) || runs == 0 && s.GRO && a.Stats().GSO {
					t.Errorf("%d runs, %+v", runs, s)
				}
			})
		}
	}
}

// A datagram larger than its buffer is counted and not delivered in part.
func TestReadMessagesTruncated(t *testing.T) {
	c, err := Listen(Config{Addr: netip.AddrPortFrom(loopback4, 0), Unpolled: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.WriteBatch(to(c.LocalAddr(), 100)); err != nil {
		t.Fatal(err)
	}
	ms := make([]Message, 1)
	for n := 0; n == 0; {
		if n, err = c.ReadMessages([][]byte{make([]byte, 99)}, ms); err != nil {
			t.Fatal(err)
		}
	}
	if len(ms[0].Data) != 0 || c.Stats().Truncated != 1 {
		t.Errorf("got %+v, %+v", ms[0], c.Stats())
	}
}

// Close ends what waits, and everything after it says so.
func TestUnpolledClose(t *testing.T) {
	c, err := Listen(Config{Addr: netip.AddrPortFrom(loopback4, 0), Unpolled: true})
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	go func() { waited <- c.raw.Write(func(uintptr) bool { return false }) }()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waited; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the wait ended with %v", err)
	}
	if _, err := c.ReadMessages([][]byte{make([]byte, 1)}, make([]Message, 1)); err != net.ErrClosed {
		t.Errorf("ReadMessages: %v", err)
	}
	if _, err := c.WriteBatch(to(c.LocalAddr(), 1)); err != net.ErrClosed {
		t.Errorf("WriteBatch: %v", err)
	}
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
}

func TestReadMessagesAllocatesNothing(t *testing.T) {
	if packettest.Race {
		t.Skip("NOT CHECKED under the race detector, which allocates itself; the run without it checks")
	}
	c, err := Listen(Config{Addr: netip.AddrPortFrom(loopback4, 0), GSO: true, GRO: true, Unpolled: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	bufs, ms, ds := newBatch(4, MaxDatagram).bufs, make([]Message, 4), to(c.LocalAddr(), repeat(20, 1200)...)
	if n := testing.AllocsPerRun(100, func() {
		_, _ = c.WriteBatch(ds)
		for n := 0; n == 0; {
			n, _ = c.ReadMessages(bufs, ms)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
