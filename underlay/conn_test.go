package underlay

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
)

// open is Listen for tests: it closes the socket at the end.
func open(t testing.TB, cfg Config) *Conn {
	t.Helper()
	c, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// batch is the arguments of ReadBatch.
type batch struct {
	bufs  [][]byte
	sizes []int
	from  []Origin
}

func newBatch(n, size int) batch {
	b := batch{make([][]byte, n), make([]int, n), make([]Origin, n)}
	for i := range b.bufs {
		b.bufs[i] = make([]byte, size)
	}
	return b
}

// cut is n buffers of the given size out of b, so that tests need not clear memory again and again.
func (b batch) cut(n, size int) batch {
	c := batch{make([][]byte, n), b.sizes[:n], b.from[:n]}
	for i := range c.bufs {
		c.bufs[i] = b.bufs[i][:size:size]
	}
	return c
}

// received is one datagram as read.
type received struct {
	addr netip.AddrPort
	data []byte
}

// readN reads until it has n datagrams.
func readN(t testing.TB, c *Conn, b batch, n int) (got []received) {
	t.Helper()
	timer := time.AfterFunc(10*time.Second, func() { _ = c.Close() })
	defer timer.Stop()
	for len(got) < n {
		k, err := c.ReadBatch(b.bufs, b.sizes, b.from)
		if err != nil {
			t.Fatalf("after %d of %d datagrams: %v", len(got), n, err)
		}
		if k == 0 {
			t.Fatal("ReadBatch returned neither datagrams nor an error")
		}
		for i := range k {
			got = append(got, received{b.from[i].Addr, bytes.Clone(b.bufs[i][:b.sizes[i]])})
		}
	}
	return got
}

func TestDatagramsArriveOverEveryFamily(t *testing.T) {
	tests := []struct {
		name           string
		listen, remote netip.Addr // the socket under test, and the address others reach it by
		peer           netip.Addr
	}{
		{"IPv4", loopback4, loopback4, loopback4},
		{"IPv6", loopback6, loopback6, loopback6},
		{"dual stack by IPv4", netip.Addr{}, loopback4, loopback4},
		{"dual stack by IPv6", netip.IPv6Unspecified(), loopback6, loopback6},
		{"unspecified IPv4 is dual stack too", netip.IPv4Unspecified(), loopback6, loopback6},
		{"IPv4 given as mapped", netip.AddrFrom16(loopback4.As16()), loopback4, loopback4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := open(t, Config{Addr: netip.AddrPortFrom(tt.listen, 0), GRO: true, GSO: true})
			peer := open(t, Config{Addr: netip.AddrPortFrom(tt.peer, 0), GSO: true})
			to := netip.AddrPortFrom(tt.remote, c.LocalAddr().Port())
			sent, err := peer.WriteBatch([]Datagram{
				{Addr: to, Head: []byte("he"), Body: []byte("llo")},
				{Addr: to, Body: []byte("world")},
			})
			if sent != 2 || err != nil {
				t.Fatalf("WriteBatch = %d, %v", sent, err)
			}
			b := newBatch(4, 100)
			for i, got := range readN(t, c, b, 2) {
				if want := []string{"hello", "world"}[i]; string(got.data) != want || got.addr != peer.LocalAddr() {
					t.Errorf("got %q from %v, want %q from %v", got.data, got.addr, want, peer.LocalAddr())
				}
			}
			// And the answer to the address as it was reported.
			if sent, err := c.WriteBatch([]Datagram{{Addr: peer.LocalAddr(), Body: []byte("back")}}); sent != 1 || err != nil {
				t.Fatalf("WriteBatch = %d, %v", sent, err)
			}
			if got := readN(t, peer, b, 1)[0]; string(got.data) != "back" || got.addr != to {
				t.Errorf("got %q from %v, want %q from %v", got.data, got.addr, "back", to)
			}
		})
	}
}

func TestPortInUse(t *testing.T) {
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	_, err := Listen(Config{Addr: c.LocalAddr()})
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second Listen on %v: %v, want EADDRINUSE", c.LocalAddr(), err)
	}
}

func TestCloseEndsReadBatch(t *testing.T) {
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	done := make(chan error)
	b := newBatch(1, 100)
	go func() {
		_, err := c.ReadBatch(b.bufs, b.sizes, b.from)
		done <- err
	}()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != net.ErrClosed {
		t.Errorf("ReadBatch = %v, want net.ErrClosed itself", err)
	}
	if _, err := c.ReadBatch(b.bufs, b.sizes, b.from); err != net.ErrClosed {
		t.Errorf("ReadBatch after Close = %v, want net.ErrClosed itself", err)
	}
	if _, err := c.WriteBatch([]Datagram{{Addr: c.LocalAddr()}}); err != net.ErrClosed {
		t.Errorf("WriteBatch after Close = %v, want net.ErrClosed itself", err)
	}
	c.Wake() // must not panic
}

func TestWakeReturnsOnce(t *testing.T) {
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	b := newBatch(4, 100)
	c.Wake()
	c.Wake()
	if n, err := c.ReadBatch(b.bufs, b.sizes, b.from); n != 0 || err != ErrWoken {
		t.Fatalf("ReadBatch after Wake = %d, %v", n, err)
	}
	if _, err := c.WriteBatch([]Datagram{{Addr: c.LocalAddr(), Body: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.ReadBatch(b.bufs, b.sizes, b.from); n != 1 || err != nil {
		t.Fatalf("ReadBatch after the wake was taken = %d, %v", n, err)
	}
}
