// Package geneve reads and writes the encapsulation header between a node and
// the gateway: Geneve (RFC 8926) and, for nodes whose kernel lacks it, VXLAN
// (RFC 7348). It turns bytes into values and back. It does no I/O, allocates
// nothing, and decides nothing: which source address and which VNI to believe
// is up to the caller, because neither protocol authenticates anything.
//
// # Two protocols on one port
//
// Both headers are eight bytes and carry the VNI in the same place; they differ
// in the first four:
//
//	          octet 0         octet 1           octets 2 and 3
//	Geneve    Ver | Opt Len   O | C | Reserved  Protocol Type
//	VXLAN     R R R R I R R R Reserved          Reserved
//
// A VXLAN sender sets every reserved bit to zero (RFC 7348 section 5), so its
// first word is 08000000. Read as Geneve that is version 0 with eight words of
// options (Opt Len counts words of four octets: 32 octets) and Protocol Type 0.
// Protocol Type is an EtherType (RFC 8926 section 3.4), and EtherTypes start at
// 0600 (IEEE 802.3 clause 3.2.6), so no Geneve header has a Protocol Type of 0.
//
// Octets 2 and 3 alone therefore decide: an EtherType means Geneve, less than
// 0600 means VXLAN. Every other reserved bit of VXLAN is ignored, as RFC 7348
// demands; only a header whose reserved octets 2 and 3 look like an EtherType,
// which no conforming sender emits, is held to the rules of Geneve instead.
//
// # Invariants
//
//   - Decode reads only inside its input, and the payload that it returns aliases it.
//   - The lengths of all options add up exactly to Opt Len, or Decode fails.
//   - A packet with a critical option is refused: no option is known here yet
//     (RFC 8926 section 3.5.1).
//   - What PutHeader writes, Decode returns again.
package geneve
