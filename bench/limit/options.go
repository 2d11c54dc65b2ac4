package limit

import (
	"encoding/base64"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/bench/transport"
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

	// SendKey and ReceiveKey are those of a tunnel without handshake. PrivateKey and
	// PeerKey, in the base64 of wg(8), make sessions instead.
	SendKey, ReceiveKey [transport.KeyLen]byte
	PrivateKey, PeerKey string
}

// Config returns the Config.
func (o Options) Config() (Config, error) {
	for _, a := range []netip.AddrPort{o.NodeListen, o.TunnelListen, o.Node, o.Peer} {
		if !a.IsValid() {
			return Config{}, fmt.Errorf("an address is missing: %+v", o)
		}
	}
	tunnel, err := o.tunnel()
	return Config{
		NodeListen: o.NodeListen, TunnelListen: o.TunnelListen, Node: o.Node, Peer: o.Peer,
		VNI: o.VNI, Internal: o.Internal, NodeInternal: o.NodeInternal,
		Translation: nat.Config{Remote: o.Remote}, MTU: o.MTU,
		Tunnel: tunnel,
	}, err
}

func (o Options) tunnel() (Tunnel, error) {
	if o.PrivateKey == "" {
		return transport.NewStatic(o.SendKey, o.ReceiveKey), nil
	}
	private, err := parseKey(o.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	peer, err := parseKey(o.PeerKey)
	if err != nil {
		return nil, fmt.Errorf("the peer's key: %w", err)
	}
	return transport.NewPeer(private, peer)
}

func parseKey(text string) (key [transport.KeyLen]byte, err error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return key, err
	}
	if copy(key[:], b) != len(key) || len(b) != len(key) {
		return key, fmt.Errorf("%d bytes, want %d", len(b), len(key))
	}
	return key, nil
}
