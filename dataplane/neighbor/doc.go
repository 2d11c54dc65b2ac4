// Package neighbor speaks what two stations on one link must speak before IP
// packets flow between them: Ethernet framing, ARP (RFC 826) and IPv6 Neighbor
// Discovery (RFC 4861). The link is the tunnel between a node and the gateway,
// so there are exactly two stations and the gateway is one of them.
//
//	node --ARP who has?--> gateway        node --Neighbor Solicitation--> gateway
//	node <--ARP reply----- gateway        node <-Neighbor Advertisement-- gateway
//
// It turns bytes into values and back; it keeps no cache, answers nothing and
// sends nothing by itself. Router discovery, redirects and duplicate address
// detection of its own are not here: the tunnel's addresses are configured.
//
// # Invariants
//
//   - Nothing is allocated, and what a decoder returns by reference aliases its input.
//   - A decoder that says true has made every check that the RFC demands of a
//     receiver and that needs no state; in particular an address that it names
//     as a station's is never a group address or zero.
//   - Whatever an appender writes, its decoder accepts and returns unchanged.
package neighbor
