// Package filter judges packets by chains of rules as in nftables: accept, drop,
// reject, and the MSS clamp, by address, port, protocol and side.
//
// # Where the chains run
//
// A chain sees a packet as it would on a kernel gateway of the same task: the
// destination is translated at prerouting, priority -100, the source at
// postrouting, priority 100 (the kernel's dstnat and srcnat). Hence three points,
// in this order, with the chains of each ordered by hook, then by priority:
//
//	point      chains                               source         destination
//	---------------------------------------------------------------------------
//	arrival    prerouting below -100                as it came     as it came
//	between    prerouting from -100 on, forward,    as it came     translated
//	           postrouting below 100
//	departure  postrouting from 100 on              translated     translated
//
//	              egress: node -> peer                ingress: peer -> node
//	source        as it came: the pod's own           as it came: as in the peer's cluster
//	              translated: as the peer sees it     translated: as this cluster sees it
//	destination   as it came: as this cluster         as it came: as the peer addresses it
//	              addresses it                        (an IP object: its external address)
//	              translated: as in the peer's        translated: the host itself
//	              cluster
//
// So a forward chain sees the real addresses of both ends, in both directions.
//
// # How rules decide
//
// The first rule that matches and decides ends its chain. Accept lets the packet
// go on to the next chain; drop and reject end it for good; without a decision
// the chain's policy counts. The MSS clamp decides nothing: of several that match
// the lowest counts.
//
// A rule matches when all of its matches hold. A match that names an address is
// for that family only, also with Not, as in nftables. A rule with a port matches
// only packets that have ports: not ICMP, and no fragment but the first of its
// datagram. So a drop by port takes the first fragment and with it the datagram,
// while an accept by port in front of a policy of drop lets no large datagram
// pass. The clamp matches nothing but TCP packets with the SYN flag.
//
// # What it is not
//
// It keeps no connections: what may go one way must be allowed the other way as
// well, ICMP errors included, without which path MTU discovery fails. It does not
// see what the gateway itself sends and receives, as forward chains of a kernel
// do not: no rule cuts off the gateway's health check. A super-segment is judged
// once, as one packet.
//
// # Invariants
//
// A Filter is immutable but for its counters and safe for concurrent use. Check
// does no I/O, allocates nothing, takes no lock, reads only what packet.Parse has
// checked, and takes time in proportion to the rules of the packet's direction
// and family.
package filter
