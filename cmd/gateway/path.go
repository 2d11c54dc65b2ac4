package main

import (
	"context"
	"net/netip"
	"time"
)

// path is the control.Path of a gateway.
type path struct{ *gateway }

// PingPeer implements control.Path.
func (p path) PingPeer(ctx context.Context, size int) (time.Duration, error) {
	return p.forwarder.PingPeer(ctx, size)
}

// SetPathMTU implements control.Path.
func (p path) SetPathMTU(size int) error { return p.forwarder.SetPathMTU(size) }

// SetDontFragment implements control.Path, for all sockets.
func (p path) SetDontFragment(on bool) error { return p.toPeer.setDontFragment(on) }

// Route implements control.Path.
func (p path) Route(endpoint netip.AddrPort) int { return pathOf(endpoint).Inner }
