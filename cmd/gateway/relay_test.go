package main

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestRelay passes on what comes from the peer, and the answers, and nothing else.
func TestRelay(t *testing.T) {
	open := func() (*net.UDPConn, netip.AddrPort) {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn, conn.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	between, here := open()
	peer, peerAddr := open()
	successor, successorAddr := open()
	stranger, _ := open()
	passed := make(chan int, 1)
	go func() {
		passed <- relay(t.Context(), between, peerAddr, successorAddr, 500*time.Millisecond)
	}()
	send := func(from *net.UDPConn, text string) {
		t.Helper()
		if _, err := from.WriteToUDPAddrPort([]byte(text), here); err != nil {
			t.Fatal(err)
		}
	}
	comes := func(to *net.UDPConn, want string) {
		t.Helper()
		b := make([]byte, 64)
		_ = to.SetReadDeadline(time.Now().Add(controlplanetest.Patience))
		n, from, err := to.ReadFromUDPAddrPort(b)
		if err != nil || string(b[:n]) != want || from != here {
			t.Errorf("%q from %v (%v), want %q from %v", b[:n], from, err, want, here)
		}
	}
	send(stranger, "who is there")
	send(peer, "data of the old session")
	comes(successor, "data of the old session")
	send(successor, "a handshake")
	comes(peer, "a handshake")
	send(peer, "an answer")
	comes(successor, "an answer")
	select {
	case n := <-passed:
		if n != 3 {
			t.Errorf("%d packets were passed on, want 3", n)
		}
	case <-time.After(controlplanetest.Patience):
		t.Error("it goes on although the peer is silent")
	}
}

// TestRelayEndsAtOnce when the time of the pod is over, whatever the peer sends.
func TestRelayEndsAtOnce(t *testing.T) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n := relay(ctx, conn, netip.AddrPort{}, netip.AddrPort{}, time.Hour); n != 0 {
		t.Errorf("%d packets", n)
	}
}
