// Package packettest makes IP packets for tests, from a description that says
// what is in them. Every byte and every checksum is computed from scratch and in
// the most obvious way, so that the packet a description gives is the
// oracle for code that arrives at the same packet by changing another one. It also
// makes the frames and headers that carry packets to a gateway, what a router says about
// a packet, and what a kernel makes of one.
//
// It imports nothing of this module, on purpose: an oracle that shared code with
// what it judges would repeat its mistakes. Only tests may import it.
package packettest
