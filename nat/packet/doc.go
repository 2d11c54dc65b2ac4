// Package packet is a view over one IP packet: it finds the fields that a
// router and translator needs, changes them in place with their checksums, and
// cuts packets that are too long.
//
// Parse checks every length once, so that the stages behind it check none.
// It handles IPv4 (RFC 791) and IPv6 with its extension headers (RFC 8200)
// behind the same methods: callers do not branch on the version. Setters repair
// checksums incrementally (RFC 1071, RFC 1624) and never compute one over the
// payload. Embedded is the view over the packet that an ICMP error quotes (RFC
// 792, RFC 4443).
//
// What it is not: it neither reassembles nor reorders, holds no state
// between packets, does no I/O, and decodes nothing above the transport header.
//
// Invariants:
//   - Nothing allocates. A Packet points into the caller's buffer; whoever owns
//     the buffer owns the packet.
//   - A setter changes addresses, checksums and what its name says, and no other
//     byte; the length of a packet never changes in place.
//   - What is valid stays valid, and what is wrong stays wrong: no setter
//     hides a corruption that happened before it.
//   - No input, however hostile, makes it panic or read outside the packet.
package packet
