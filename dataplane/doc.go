// Package dataplane joins the parts of a gateway's packet path: the node
// tunnels, the translation of addresses and the WireGuard tunnel to the peer.
//
//	node --Geneve/UDP--> underlay -> decapsulate -> parse -> own address? -> source and
//	       destination check -> filter -> hop limit -> MTU -> translate -> clamp -> tunnel --> peer
//	node <-Geneve/UDP--- underlay <- encapsulate <- translate <- clamp <- MTU <- hop limit <-
//	       filter <- destination and source check <- own address? <- parse <- tunnel <-- peer
//
// egress.go and ingress.go say the same in the same order, one direction each.
// Everything that the path reads is one immutable snapshot, built from a Config
// by Apply and swapped atomically.
//
// # Goroutines and queues
//
// Egress runs on the tunnel's readers: ReadPackets reads a node socket and
// writes straight into the tunnel's buffers, so no queue of ours lies between
// them. There is a loop for each of the sockets, which shares with the others only what is
// written rarely or must be one (loop.go). Ingress runs on the tunnel's receivers: WritePackets sends to the nodes
// before it returns. There are as many loops of that, which send in turn. Two queues hold what the gateway itself sends to the peer
// (send). Run adds a goroutine for the gateway's own stack and one for
// upkeep.
//
// # What it must not do
//
// Forward a packet between a node and the peer other than through the tunnel;
// accept from a node what is not local, or from the peer what is not the
// peer's; allocate or log per packet; know anything of Kubernetes.
//
// # Words
//
//	egress, ingress       local cluster -> peer cluster; the other way
//	inside, outside       an address as used in this cluster; as carried in the tunnel (RFC 6296)
//	underlay, overlay     UDP between node and gateway; the packets carried in it
//	encapsulate, inner    Geneve's or VXLAN's wrap; the packet in it (RFC 8926)
//	node tunnel           the pair (node's underlay address, VNI)
//	unknown source        the shared address of local senders that are not pods
//	filter, chain, rule   what users allow and forbid, in the words of nftables
//	verdict, drop         the outcome of one packet; an outcome that goes nowhere
//	batch, headroom       packets per call; free bytes before a packet
package dataplane
