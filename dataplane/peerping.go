package dataplane

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// ErrNoPeer is PingPeer's error while no peering is in force.
var ErrNoPeer = errors.New("no peering is in force")

// PingPeer sends the peer's gateway one ICMP echo request through the tunnel, as
// one packet of size bytes, headers included. It may exceed the MTU: the peer
// takes what arrives, and only its answer keeps to its MTU, in pieces. So up to
// the MTU both directions are tried, above it the way to the peer.
func (f *Forwarder) PingPeer(ctx context.Context, size int) (time.Duration, error) {
	c := &f.snap.Load().cfg
	own, peer := c.TunnelAddr, c.PeerTunnelAddr
	if !peer.IsValid() {
		return 0, ErrNoPeer
	}
	if i := int(f.pinged.Load()); 0 < i && i <= len(c.Further) {
		own, peer = c.Further[i-1].Own, c.Further[i-1].Peer
	}
	return f.stack.PingWhole(ctx, own, peer, size)
}

// PeerTunnelAddr is the peer's end inside the tunnel, not valid while no peering
// is in force.
func (f *Forwarder) PeerTunnelAddr() netip.Addr { return f.snap.Load().cfg.PeerTunnelAddr }

// TunnelAddrs are both ends inside the tunnel, not valid while no peering is in force.
func (f *Forwarder) TunnelAddrs() (own, peer netip.Addr) {
	c := &f.snap.Load().cfg
	return c.TunnelAddr, c.PeerTunnelAddr
}
