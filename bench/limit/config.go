package limit

import (
	"net/netip"

	"github.com/sluice-net/sluice/bench/transport"
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

	// Tunnel has the keys.
	Tunnel Tunnel
}

// Tunnel has the keys of the tunnel to the peer. Sender belongs to the thread
// towards the peer, the rest to the one back.
type Tunnel interface {
	// Attach is called once, before the others: write sends a message to the peer,
	// and may be used by any thread.
	Attach(write func(message []byte))
	// Sender is asked before each batch for the key to seal it with, and
	// returns nil while there is none.
	Sender() *transport.SendKey
	// Receiver finds the key of one of our indices, nil if there is none.
	Receiver(index uint32) *transport.ReceiveKey
	// Confirm says that the key of an index has opened a message.
	Confirm(index uint32)
	// Control takes a message that carries no data.
	Control(message []byte)
}
