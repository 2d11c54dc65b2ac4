package underlay

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/test/source"
)

// addAddress6 gives lo of the thread's namespace another IPv6 address.
func addAddress6(a netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	// struct in6_ifreq, include/uapi/linux/ipv6.h
	req := struct {
		addr   [16]byte
		length uint32
		index  int32
	}{a.As16(), 128, int32(lo.Index)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return os.NewSyscallError("SIOCSIFADDR", errno)
	}
	return awaitAddress(a)
}

// awaitAddress waits until the kernel has put a new address into use, which it does on
// a thread of its own.
func awaitAddress(a netip.Addr) error {
	pause := func() { _ = unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil) }
	c, err := net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	for ; errors.Is(err, unix.EADDRNOTAVAIL); pause() {
		c, err = net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	}
	if err != nil {
		return err
	}
	defer c.Close()
	for { // until a datagram gets from it to itself
		_, _ = c.WriteTo([]byte("x"), c.LocalAddr())
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// inNamespace runs f in a fresh network namespace with an address more on lo. Sockets
// that f opens stay in it.
func inNamespace(t *testing.T, more netip.Addr, f func() error) {
	t.Helper()
	source.NeedRoot(t)
	var errNamespace, err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so that the thread ends with this goroutine
		if errNamespace = unix.Unshare(unix.CLONE_NEWNET); errNamespace != nil {
			return
		}
		if err = loopbackUp(65536); err != nil {
			return
		}
		if err = addAddress6(more); err == nil {
			err = f()
		}
	}()
	<-done
	if errNamespace != nil {
		source.Lacks(t, "it needs the right to make a network namespace: %v", errNamespace)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A host has two addresses. Whoever asks at one gets the answer from it, as a NAT and a
// kernel's tunnel devices demand, whichever the routes would prefer.
func TestAnswersComeFromTheAddressAsked(t *testing.T) {
	second6 := netip.MustParseAddr("2001:db8::2")
	for _, tt := range []struct {
		name   string
		listen netip.Addr
		at     netip.Addr // asked there
		from   netip.Addr // who asks
	}{
		{"IPv4 on both families", netip.Addr{}, netip.MustParseAddr("127.0.0.2"), loopback4},
		{"IPv4", netip.IPv4Unspecified(), netip.MustParseAddr("127.0.0.2"), loopback4},
		{"IPv6", netip.Addr{}, second6, loopback6},
		{"IPv6, the usual one", netip.Addr{}, loopback6, loopback6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var host *Conn
			var client *net.UDPConn
			inNamespace(t, second6, func() (err error) {
				if host, err = Listen(Config{Addr: netip.AddrPortFrom(tt.listen, 0), GRO: true, GSO: true}); err != nil {
					return err
				}
				client, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(tt.from, 0)))
				return err
			})
			defer host.Close()
			defer client.Close()
			asked := netip.AddrPortFrom(tt.at, host.LocalAddr().Port())
			if _, err := client.WriteToUDPAddrPort([]byte("question"), asked); err != nil {
				t.Fatal(err)
			}
			b := newBatch(1, 2048)
			n, err := host.ReadBatch(b.bufs, b.sizes, b.from)
			if n != 1 || err != nil {
				t.Fatalf("%d datagrams, %v", n, err)
			}
			if b.from[0].Local != tt.at {
				t.Errorf("sent to %v, read as sent to %v", tt.at, b.from[0].Local)
			}
			answer := Datagram{Addr: b.from[0].Addr, Local: b.from[0].Local, Body: []byte("answer")}
			run := Datagram{Addr: b.from[0].Addr, Local: b.from[0].Local, Body: make([]byte, 1000)}
			if sent, err := host.WriteBatch([]Datagram{answer, run, run}); sent != 3 || err != nil {
				t.Fatalf("sent %d, %v", sent, err)
			}
			for range 3 {
				_, from, err := client.ReadFromUDPAddrPort(make([]byte, 2048))
				if from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port()); err != nil || from != asked {
					t.Errorf("the answer comes from %v, %v; asked was %v", from, err, asked)
				}
			}
		})
	}
}

// An address that this host does not have, any more, is no reason not to send.
func TestSendFromAForeignAddress(t *testing.T) {
	for _, tt := range []struct{ listen, foreign netip.Addr }{
		{netip.IPv4Unspecified(), netip.MustParseAddr("192.0.2.99")},
		{netip.Addr{}, netip.MustParseAddr("192.0.2.99")},
		{netip.Addr{}, netip.MustParseAddr("2001:db8::99")},
	} {
		a := open(t, Config{Addr: netip.AddrPortFrom(tt.listen, 0), GSO: true})
		to := netip.AddrPortFrom(loopback4, 0)
		if tt.foreign.Is6() {
			to = netip.AddrPortFrom(loopback6, 0)
		}
		b := open(t, Config{Addr: to})
		var ds []Datagram
		for range 3 {
			ds = append(ds, Datagram{Addr: b.LocalAddr(), Local: tt.foreign, Body: make([]byte, 1000)})
		}
		ds = append(ds, Datagram{Addr: b.LocalAddr(), Body: []byte("without")})
		if sent, err := a.WriteBatch(ds); sent != len(ds) || err != nil {
			t.Fatalf("from %v: sent %d of %d, %v", tt.foreign, sent, len(ds), err)
		}
		readN(t, b, newBatch(16, 2048), len(ds))
		if s := a.Stats(); s.WriteErrors != 0 || !s.GSO {
			t.Errorf("from %v: %+v", tt.foreign, s)
		}
	}
}

// Who is bound to one address need not be told it.
func TestBoundSocketsAreNotToldTheirAddress(t *testing.T) {
	a := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	if _, err := a.WriteBatch([]Datagram{{Addr: a.LocalAddr(), Body: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	b := newBatch(1, 16)
	if n, err := a.ReadBatch(b.bufs, b.sizes, b.from); n != 1 || err != nil || b.from[0].Local.IsValid() {
		t.Errorf("%d datagrams, %v, local %v", n, err, b.from[0].Local)
	}
}

// The ECN field travels with each datagram, and runs have one of their own.
func TestECN(t *testing.T) {
	for _, tt := range []struct{ listen, at netip.Addr }{
		{loopback4, loopback4}, {loopback6, loopback6}, {netip.Addr{}, loopback4}, {netip.Addr{}, loopback6},
	} {
		a := open(t, Config{Addr: netip.AddrPortFrom(tt.listen, 0), GSO: true})
		b := open(t, Config{Addr: netip.AddrPortFrom(tt.listen, 0), GRO: true})
		to := netip.AddrPortFrom(tt.at, b.LocalAddr().Port())
		var ds []Datagram
		for i := range 64 {
			ds = append(ds, Datagram{Addr: to, ECN: uint8(i / 5 % 4), Body: make([]byte, 1000)})
		}
		if sent, err := a.WriteBatch(ds); sent != len(ds) || err != nil {
			t.Fatalf("sent %d of %d, %v", sent, len(ds), err)
		}
		if s := a.Stats(); s.GSO && s.WriteRuns != 13 {
			t.Errorf("%d runs, want one for each change of the field", s.WriteRuns)
		}
		batch := newBatch(64, MaxDatagram)
		for got := 0; got < len(ds); {
			n, err := b.ReadBatch(batch.bufs, batch.sizes, batch.from)
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if from := batch.from[i]; from.ECN != ds[got].ECN || batch.sizes[i] != 1000 {
					t.Errorf("datagram %d to %v: ECN %d, want %d", got, to, from.ECN, ds[got].ECN)
				}
				got++
			}
		}
	}
}

// What a socket refuses for its source goes out from another one, in order, whatever
// else is refused besides.
func TestForeignSourcesAndRefusedRuns(t *testing.T) {
	local := netip.MustParseAddr("192.0.2.9")
	k := &fakeSender{refuse: func(_ netip.AddrPort, n, _ int) syscall.Errno {
		if n > 1 {
			return unix.EINVAL
		}
		return 0
	}}
	w := newWriter(k)
	ds := to(nodeA, 1000, 1000, 1000, 500, 700)
	for i := range ds {
		ds[i].Local = local
	}
	if sent, err := write(w, ds); sent != len(ds) || err != nil {
		t.Fatalf("sent %d, %v", sent, err)
	}
	if d := diff(k.sent, asReceived(ds)); d != "" {
		t.Errorf("datagrams (-want +got):\n%s", d)
	}
}
