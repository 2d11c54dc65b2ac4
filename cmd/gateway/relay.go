package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/tunnel"
)

// A server that has handed over is still the one to which node ports and load
// balancers send what comes from the peer: they follow the new pod after a second,
// or later. Until then it passes the peer's datagrams on to its successor, and the
// answers back. It can read neither, as the session is the successor's.
//
//	peer --> node port --> this pod --> the pod that leads
//	     <--           <--          <--
//
// To WireGuard that is a peer which moves, as through any NAT. Clients need none of
// this: what they send tells their peer where they are.

const (
	// successorWithin bounds the wait for the address of the pod that leads, which
	// the controllers write after a moment.
	successorWithin = 2 * time.Second
	// relayQuiet is how long the peer may be silent until its packets are taken to go
	// elsewhere. Its gateway asks for a sign of life every second or two.
	relayQuiet = 3 * time.Second
	relayPoll  = 10 * time.Millisecond
)

// relay passes on what the peer sends until it sends no more, or ctx ends. before
// is the tunnel as it was when this pod led.
func (g *gateway) relay(ctx context.Context, before tunnel.Stats) {
	server := g.options.cluster.Type == networkingv1beta1.ConnectionServer
	if g.elector == nil || g.elector.State().Leading || !server || !before.Endpoint.IsValid() {
		return // nobody has taken over, or there is nothing to pass on
	}
	conn, successor, err := g.openRelay(ctx, before.ListenPort)
	if err != nil {
		g.log.Info("what the peer sends here is not passed on", "reason", err)
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	g.log.Info("passing on what the peer sends", "peer", before.Endpoint, "successor", successor)
	n := relay(ctx, conn, before.Endpoint, successor, relayQuiet)
	g.log.Info("the peer sends elsewhere now", "packets", n)
}

// openRelay opens the port that the tunnel has left, and finds who leads.
func (g *gateway) openRelay(ctx context.Context, port uint16) (conn *net.UDPConn, successor netip.AddrPort, err error) {
	ctx, cancel := context.WithTimeout(ctx, successorWithin)
	defer cancel()
	tick := time.NewTicker(relayPoll)
	defer tick.Stop()
	for {
		if conn == nil {
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(g.options.bind, port)))
		}
		if conn != nil {
			if addr, ok := g.link.Successor(); ok {
				return conn, netip.AddrPortFrom(addr, port), nil
			}
			err = errors.New("nobody has said at which address another pod leads")
		}
		select {
		case <-ctx.Done():
			if conn != nil {
				conn.Close()
			}
			return nil, successor, err
		case <-tick.C:
		}
	}
}

// relay passes datagrams between two on one socket until the first one was silent
// for a while, or ctx has ended and the socket was woken, and counts those that it
// passed on. Who else sends is nobody to answer.
func relay(ctx context.Context, conn *net.UDPConn, peer, successor netip.AddrPort, quiet time.Duration) (packets int) {
	b := make([]byte, 64<<10)
	_ = conn.SetReadDeadline(time.Now().Add(quiet))
	for ctx.Err() == nil {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return packets
		}
		if err != nil {
			continue // an ICMP error about an earlier one
		}
		switch from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port()); from {
		case peer:
			_ = conn.SetReadDeadline(time.Now().Add(quiet))
			_, err = conn.WriteToUDPAddrPort(b[:n], successor)
		case successor:
			_, err = conn.WriteToUDPAddrPort(b[:n], peer)
		default:
			continue
		}
		if err == nil {
			packets++
		}
	}
	return packets
}
