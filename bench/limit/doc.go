// Package limit is the smallest gateway there can be: it does what a gateway cannot
// avoid, on the same sockets, and nothing else. It shows what the machine could do,
// to have something to compare the real one with.
//
//	egress   receive (super-segments) -> decapsulate -> translate -> cut -> seal -> send (GSO)
//	ingress  receive (GRO) -> open -> translate -> encapsulate -> send (GSO)
//
// Each direction is one thread that does all of it, one batch after the other.
// There are no queues, no timers, no locks and no allocations. A packet's bytes
// are moved only by the kernel and by the cipher: a super-segment is cut where it
// lies, by writing the headers of each packet over the end of the one before;
// on the way back the headers towards the node take the place of the tunnel's.
//
// What passes is what the product makes of it, bit by bit: Geneve or VXLAN towards the
// node, transport messages of WireGuard towards the peer, prefix translation,
// hop limit, checksums, MSS clamp. What it does not do: more than one node and one
// peer, IPv6 at the node, fragments, path MTU, ICMP errors, filters, flows,
// counters, the gateway's own addresses, and the handshake of WireGuard: both
// ends are given their keys.
//
// The program below this package runs it, one end per process.
package limit
