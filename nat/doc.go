// Package nat translates addresses between two clusters whose address ranges
// overlap: stateless prefix translation (what iptables calls NETMAP; the
// mapping of RFC 6296 section 2 with checksums repaired), single
// addresses, and the MSS clamp.
//
// Inside is an address as it is used in this cluster, outside is the same host
// as it is carried in the tunnel. Two mappings meet in one packet: the peer's
// ranges (Remote) and single hosts of this cluster (Local).
//
//	           address      egress: this cluster -> peer    ingress: peer -> this cluster
//	Remote     the peer's   destination, inside -> outside  source, outside -> inside
//	Local      our own      source, inside -> outside       destination, outside -> inside
//
// An ICMP error travels against the packet that it quotes, so in the quotation
// source and destination change places.
//
// What it is not: it keeps no connections, allocates no ports, drops nothing
// and knows no routes. Fragments need no reassembly, because no decision
// here looks at ports.
//
// Invariants: a Table is immutable and safe for concurrent use; nil and zero
// tables translate nothing; translation allocates nothing, keeps the
// length of the packet and the host bits of an address, and what Egress did to
// a packet Ingress undoes in its reply.
package nat
