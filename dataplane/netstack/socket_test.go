package netstack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

func TestTransferIsFaithful(t *testing.T) {
	for _, addr := range []netip.Addr{addrB4, addrB6} {
		t.Run(addr.String(), func(t *testing.T) {
			a, b := wire(t, Config{}, Config{})
			data := make([]byte, 8<<20)
			rand.NewChaCha8([32]byte{1}).Read(data)
			if got, want := transfer(t, a, b, addr, data), sha256.Sum256(data); got != want {
				t.Errorf("hash %x, want %x", got, want)
			}
		})
	}
}

// transfer sends data from a to a listener of b and returns the hash of what
// arrived there.
func transfer(t testing.TB, a, b *Stack, addr netip.Addr, data []byte) [sha256.Size]byte {
	t.Helper()
	l, err := b.ListenTCP(netip.AddrPortFrom(addr, 5001))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type result struct {
		sum [sha256.Size]byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- result{err: err}
			return
		}
		defer c.Close()
		h := sha256.New()
		_, err = io.Copy(h, c)
		done <- result{[sha256.Size]byte(h.Sum(nil)), err}
	}()
	c, err := a.DialTCP(testContext(t), netip.AddrPort{}, netip.AddrPortFrom(addr, 5001))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.sum
}

func TestHTTP(t *testing.T) {
	a, b := wire(t, Config{}, Config{})
	l, err := b.ListenTCP(netip.AddrPortFrom(addrB4, 80))
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Repeat("hello ", 100_000)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, page)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{DialContext: a.DialContext}}
	defer client.CloseIdleConnections()
	for range 20 {
		resp, err := client.Get("http://" + addrB4.String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != page {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve: %v", err)
	}
}

func TestManyShortConnections(t *testing.T) {
	a, b := wire(t, Config{}, Config{})
	l, err := b.ListenTCP(netip.AddrPortFrom(addrB4, 80))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	ctx := testContext(t)
	for i := range 300 {
		c, err := a.DialContext(ctx, "tcp", addrB4.String()+":80")
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		want := []byte(fmt.Sprint("connection ", i))
		if _, err := c.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
		c.Close()
	}
	l.Close()
	wg.Wait()
}

func TestUDP(t *testing.T) {
	a, b := wire(t, Config{}, Config{})
	tests := []struct {
		name   string
		listen netip.Addr
		dial   netip.Addr
	}{
		{"IPv4", addrB4, addrB4},
		{"IPv6", addrB6, addrB6},
		{"IPv4 wildcard", netip.IPv4Unspecified(), addrB4},
		{"dual-stack wildcard reached by IPv4", netip.IPv6Unspecified(), addrB4},
		{"dual-stack wildcard reached by IPv6", netip.IPv6Unspecified(), addrB6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, err := b.ListenUDP(netip.AddrPortFrom(tt.listen, 12345))
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			client, err := a.DialUDP(netip.AddrPort{}, netip.AddrPortFrom(tt.dial, 12345))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			for _, size := range []int{0, 1, 1000, 1312, 5000} { // the last in fragments
				want := bytes.Repeat([]byte{7}, size)
				if _, err := client.Write(want); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 9000)
				n, from, err := server.ReadFrom(buf)
				if err != nil || !bytes.Equal(buf[:n], want) {
					t.Fatalf("server got %d bytes, %v; want %d", n, err, size)
				}
				if _, err := server.WriteTo(buf[:n], from); err != nil {
					t.Fatal(err)
				}
				if n, err := client.Read(buf); err != nil || !bytes.Equal(buf[:n], want) {
					t.Fatalf("client got %d bytes, %v; want %d", n, err, size)
				}
			}
		})
	}
}

func TestCloseWakesWhoWaits(t *testing.T) {
	a, _ := wire(t, Config{}, Config{})
	pc, err := a.ListenUDP(netip.AddrPortFrom(addrA4, 1))
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.ListenTCP(netip.AddrPortFrom(addrA4, 1))
	if err != nil {
		t.Fatal(err)
	}
	read, accepted := make(chan error, 1), make(chan error, 1)
	go func() { _, _, err := pc.ReadFrom(make([]byte, 1)); read <- err }()
	go func() { _, err := l.Accept(); accepted <- err }()
	pc.Close()
	l.Close()
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Errorf("ReadFrom: %v", err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := pc.WriteTo([]byte{1}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addrB4, 1))); !errors.Is(err, net.ErrClosed) {
		t.Errorf("WriteTo: %v", err)
	}
}

func TestWriteToRefusesWrongAddresses(t *testing.T) {
	a, _ := wire(t, Config{}, Config{})
	pc, err := a.ListenUDP(netip.AddrPortFrom(addrA4, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	for _, addr := range []net.Addr{nil, (*net.UDPAddr)(nil), &net.UDPAddr{}, &net.TCPAddr{IP: net.IPv4(1, 2, 3, 4)},
		net.UDPAddrFromAddrPort(netip.AddrPortFrom(addrB6, 1))} {
		if _, err := pc.WriteTo([]byte{1}, addr); err == nil {
			t.Errorf("WriteTo(%v) succeeded", addr)
		}
	}
}

func TestErrorsAreThoseOfSockets(t *testing.T) {
	a, _ := wire(t, Config{}, Config{})
	ctx := testContext(t)
	if _, err := a.DialContext(ctx, "tcp", netip.AddrPortFrom(addrB4, 9).String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial a closed port: %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := a.DialContext(canceled, "tcp", "10.9.9.9:1"); !errors.Is(err, context.Canceled) {
		t.Errorf("dial with an ended context: %v", err)
	}
	l, err := a.ListenTCP(netip.AddrPortFrom(addrA4, 80))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := a.ListenTCP(netip.AddrPortFrom(addrA4, 80)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen twice: %v", err)
	}
	if _, err := a.ListenUDP(netip.AddrPortFrom(addrB4, 80)); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("listen on a foreign address: %v", err)
	}
	for _, bad := range [][2]string{{"tcp", "name:80"}, {"tcp", "10.0.0.1"}, {"sctp", "10.0.0.1:1"}, {"tcp6", "10.0.0.1:1"}, {"udp4", "[fd00::1]:1"}} {
		if _, err := a.DialContext(ctx, bad[0], bad[1]); err == nil {
			t.Errorf("DialContext(%q, %q) succeeded", bad[0], bad[1])
		}
	}
}

// Connections between two addresses of one stack never reach the output.
func TestOwnAddressesAreReachableFromInside(t *testing.T) {
	s := newStack(t, Config{}, addrA4, addrB4)
	run(t, s, func(pkt []byte) { t.Errorf("packet came out: %x", pkt) })
	if _, err := s.Ping(testContext(t), addrB4, 56, false); err != nil {
		t.Error(err)
	}
	data := make([]byte, 100_000)
	if got, want := transfer(t, s, s, addrA4, data), sha256.Sum256(data); got != want {
		t.Errorf("hash %x, want %x", got, want)
	}
}

// A flood of connection requests from nowhere must not keep real ones out.
func TestSynFlood(t *testing.T) {
	a, b := newStack(t, Config{}, addrA4), newStack(t, Config{}, addrB4)
	run(t, a, func(pkt []byte) { b.Inject(pkt) })
	run(t, b, func(pkt []byte) {
		if _, dst, _ := fields(pkt); dst == addrA4 {
			a.Inject(pkt)
		}
	})
	l, err := b.ListenTCP(netip.AddrPortFrom(addrB4, 80))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 5000 {
		b.Inject(synPacket(netip.AddrFrom4([4]byte{10, 7, byte(i >> 8), byte(i)}), addrB4, 1000, 80))
	}
	c, err := a.DialContext(testContext(t), "tcp", addrB4.String()+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := make([]byte, 1)
	if _, err := s.Read(got); err != nil || got[0] != 'x' {
		t.Errorf("read %q, %v", got, err)
	}
	if n := len(b.stack.RegisteredEndpoints()); n > backlog+10 {
		t.Errorf("%d endpoints after the flood", n)
	}
	if n := b.stack.Stats().TCP.ListenOverflowSynCookieSent.Value(); n < 4000 {
		t.Errorf("%d SYN cookies", n)
	}
}

// A stack that stands in for a pod behind a kernel tunnel device emits
// super-segments whose checksum is that of the pseudo-header alone.
func TestSuperSegments(t *testing.T) {
	for _, addr := range []netip.Addr{addrB4, addrB6} {
		t.Run(addr.String(), func(t *testing.T) {
			a := newStack(t, Config{SuperSegments: true}, addrA4, addrA6)
			b := newStack(t, Config{}, addrB4, addrB6)
			var super, partial int
			run(t, a, func(pkt []byte) {
				src, dst, _ := fields(pkt)
				if header.IPVersion(pkt) == 4 && !header.IPv4(pkt).IsChecksumValid() {
					t.Error("wrong IPv4 header checksum")
				}
				hlen := header.IPv4MinimumSize
				if src.Is6() {
					hlen = header.IPv6MinimumSize
				}
				tcp := header.TCP(pkt[hlen:])
				pseudo := header.PseudoHeaderChecksum(header.TCPProtocolNumber, toAddress(src), toAddress(dst), uint16(len(tcp)))
				if tcp.Checksum() == pseudo {
					partial++
					tcp.SetChecksum(0)
					tcp.SetChecksum(^checksum.Checksum(tcp, pseudo))
				}
				if len(pkt) > 1340 {
					super++
				}
				b.Inject(pkt)
			})
			run(t, b, func(pkt []byte) {
				if len(pkt) > 1340 {
					t.Errorf("packet of %d bytes", len(pkt))
				}
				a.Inject(pkt)
			})
			data := make([]byte, 8<<20)
			rand.NewChaCha8([32]byte{1}).Read(data)
			if got, want := transfer(t, a, b, addr, data), sha256.Sum256(data); got != want {
				t.Errorf("hash %x, want %x", got, want)
			}
			a.Close()
			if super < 8<<20/65536 || partial < super {
				t.Errorf("%d super-segments, %d unfinished checksums, %+v", super, partial, a.Stats())
			}
			if n := b.Stats().ChecksumErrors; n != 0 {
				t.Errorf("%d checksum errors", n)
			}
		})
	}
}

// TestListensAgain: connections that this side has closed do not keep their port, and a listener does.
func TestListensAgain(t *testing.T) {
	a, b := wire(t, Config{}, Config{})
	for i := range 3 {
		l, err := b.ListenTCP(netip.AddrPortFrom(addrB4, 80))
		if err != nil {
			t.Fatalf("listener %d: %v", i, err)
		}
		if second, err := b.ListenTCP(netip.AddrPortFrom(addrB4, 80)); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a second listener: %v", err)
			if err == nil {
				second.Close()
			}
		}
		c, err := a.DialContext(testContext(t), "tcp", addrB4.String()+":80")
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		accepted.Close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the end: %v", err)
		}
		c.Close()
		l.Close()
	}
}
