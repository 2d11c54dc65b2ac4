package limit

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
)

// Options is a Config in JSON, for a program of its own.
type Options struct {
	NodeListen, TunnelListen netip.AddrPort
	Node, Peer               netip.AddrPort
	VNI                      geneve.VNI
	Internal, NodeInternal   netip.Addr
	Remote                   []nat.Mapping
	MTU                      int
	SendKey, ReceiveKey      Key
	// Pprof is where the program offers profiles; "" is nowhere.
	Pprof string
}

// Config returns the Config.
func (o Options) Config() (Config, error) {
	for _, a := range []netip.AddrPort{o.NodeListen, o.TunnelListen, o.Node, o.Peer} {
		if !a.IsValid() {
			return Config{}, fmt.Errorf("an address is missing: %+v", o)
		}
	}
	return Config{
		NodeListen: o.NodeListen, TunnelListen: o.TunnelListen, Node: o.Node, Peer: o.Peer,
		VNI: o.VNI, Internal: o.Internal, NodeInternal: o.NodeInternal,
		Translation: nat.Config{Remote: o.Remote}, MTU: o.MTU,
		SendKey: o.SendKey, ReceiveKey: o.ReceiveKey,
	}, nil
}
