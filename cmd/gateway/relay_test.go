package main

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/underlay"
)

// TestRelay passes on what comes from the peer, and the answers, and nothing else. The
// peer is answered from the address that it asked, which is not the one that the routes
// to it would choose.
func TestRelay(t *testing.T) {
	open := func() (*net.UDPConn, netip.AddrPort) {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn, conn.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	between := openBetween(t)
	port := between.LocalAddr().Port()
	asked := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), port)
	toSuccessor := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	peer, peerAddr := open()
	successor, successorAddr := open()
	stranger, _ := open()
	passed := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { passed <- relay(ctx, between, peerAddr, successorAddr, time.Hour) }()
	send := func(from *net.UDPConn, to netip.AddrPort, text string) {
		t.Helper()
		if _, err := from.WriteToUDPAddrPort([]byte(text), to); err != nil {
			t.Fatal(err)
		}
	}
	comes := func(to *net.UDPConn, want string, through netip.AddrPort) {
		t.Helper()
		b := make([]byte, 64)
		_ = to.SetReadDeadline(time.Now().Add(controlplanetest.Patience))
		n, from, err := to.ReadFromUDPAddrPort(b)
		if err != nil || string(b[:n]) != want || from != through {
			t.Errorf("%q from %v (%v), want %q from %v", b[:n], from, err, want, through)
		}
	}
	send(stranger, asked, "who is there")
	send(peer, asked, "data of the old session")
	comes(successor, "data of the old session", toSuccessor)
	send(successor, toSuccessor, "a handshake")
	comes(peer, "a handshake", asked)
	send(peer, asked, "an answer")
	comes(successor, "an answer", toSuccessor)
	cancel()
	select {
	case n := <-passed:
		if n != 3 {
			t.Errorf("%d packets were passed on, want 3", n)
		}
	case <-time.After(controlplanetest.Patience):
		t.Error("it goes on although its time is over")
	}
}

// TestRelayEnds when the peer is silent, or at once when the time of the pod is over.
func TestRelayEnds(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		quiet time.Duration
	}{
		"the peer is silent":          {t.Context(), time.Millisecond},
		"the time of the pod is over": {over, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			conn := openBetween(t)
			peer := netip.MustParseAddrPort("192.0.2.1:51820")
			if n := relay(c.ctx, conn, peer, netip.MustParseAddrPort("192.0.2.2:51820"), c.quiet); n != 0 {
				t.Errorf("%d packets", n)
			}
		})
	}
}

// openBetween returns a socket for a relay, on all addresses of this host.
func openBetween(t *testing.T) *underlay.Conn {
	t.Helper()
	conn, err := underlay.Listen(underlay.Config{GSO: true, GRO: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
