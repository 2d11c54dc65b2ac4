// Package pcapng writes the blocks of a capture file as Wireshark reads it
// (draft-ietf-opsawg-pcapng), passes a stream of them on block by block,
// and reads them.
//
// It is what the gateway, which writes them, and its clients have in common. The
// writer of gopacket's pcapgo, by which the tests read the result, is not used: its
// statistics lack the comment that says why a capture ended and the count of packets
// that the filter accepted, it passes no stream on block by block, and it costs the
// gateway a megabyte of resident memory and an allocation per packet.
//
// A file is a section header, then descriptions of interfaces, packets and
// statistics in any order, an interface before what refers to it. All blocks have
// the form
//
//	type 4, length 4, body, length 4
//
// with the length of the whole block, a multiple of four. Nothing in front of a
// block that is missing depends on it: a file that ends between two blocks is
// complete.
//
// Nothing here does I/O but through the Writer of a Copier.
package pcapng
