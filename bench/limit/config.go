package limit

import (
	"net/netip"

	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
)

// Config is what a Gateway needs. Everything is required but Alone.
type Config struct {
	// NodeListen and TunnelListen are the local addresses towards the node and
	// towards the peer.
	NodeListen, TunnelListen netip.AddrPort
	// Node and Peer are the other ends.
	Node, Peer netip.AddrPort

	// VNI is that of the node's tunnel.
	VNI geneve.VNI
	// Internal is the gateway's address in the node's tunnel, NodeInternal the
	// node's.
	Internal, NodeInternal netip.Addr

	// Translation between the clusters.
	Translation nat.Config
	// MTU is that of the tunnel.
	MTU int

	// Alone says that the process does nothing else: it collects no garbage, and has
	// a processor to spare in Go's count. Its threads then wait without a word to
	// Go's scheduler.
	Alone bool

	// SendKey and ReceiveKey are those of the tunnel, which never change: there is no
	// handshake. A SendKey is for one Gateway only, because counters begin at zero.
	SendKey, ReceiveKey Key
}
