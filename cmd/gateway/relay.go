package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
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
	// relayBatch is how many datagrams are passed on at a time.
	relayBatch = 32
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
	g.log.Info("passing on what the peer sends", "peer", before.Endpoint, "successor", successor)
	n := relay(ctx, conn, before.Endpoint, successor, relayQuiet)
	g.log.Info("the peer sends elsewhere now", "packets", n)
}

// openRelay opens the port that the tunnel has left, and finds who leads.
func (g *gateway) openRelay(ctx context.Context, port uint16) (conn *underlay.Conn, successor netip.AddrPort, err error) {
	ctx, cancel := context.WithTimeout(ctx, successorWithin)
	defer cancel()
	tick := time.NewTicker(relayPoll)
	defer tick.Stop()
	for {
		if conn == nil {
			conn, err = underlay.Listen(underlay.Config{Addr: netip.AddrPortFrom(g.options.bind, port), GSO: g.options.udpGSO, GRO: g.options.udpGRO})
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
// for a while, or ctx has ended, and counts those that it passed on. Who else sends is
// nobody to answer. The peer is answered from the address that it sends to, and what the
// network marked stays marked, as if this host were not there.
func relay(ctx context.Context, conn *underlay.Conn, peer, successor netip.AddrPort, quiet time.Duration) (packets int) {
	defer context.AfterFunc(ctx, conn.Wake)()
	var silent atomic.Bool
	timer := time.AfterFunc(quiet, func() {
		silent.Store(true)
		conn.Wake()
	})
	defer timer.Stop()

	bufs := make([][]byte, relayBatch)
	for i := range bufs {
		bufs[i] = make([]byte, underlay.MaxDatagram)
	}
	sizes, from := make([]int, relayBatch), make([]underlay.Origin, relayBatch)
	ds := make([]underlay.Datagram, 0, relayBatch)
	var asked netip.Addr // our address, as the peer knows it
	for ctx.Err() == nil && !silent.Load() {
		n, err := conn.ReadBatch(bufs, sizes, from)
		if errors.Is(err, net.ErrClosed) {
			return packets
		}
		// Any other error is a wake, or an ICMP error about an earlier datagram.
		ds = ds[:0]
		for i := range n {
			d := underlay.Datagram{ECN: from[i].ECN, Body: bufs[i][:sizes[i]]}
			switch from[i].Addr {
			case peer:
				timer.Reset(quiet)
				asked = from[i].Local
				d.Addr = successor
			case successor:
				d.Addr, d.Local = peer, asked
			default:
				continue
			}
			ds = append(ds, d)
		}
		sent, _ := conn.WriteBatch(ds) // fails when closed, as reading does
		packets += sent
	}
	return packets
}
