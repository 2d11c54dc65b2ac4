// Package trace follows a packet from a pod to an address behind a peering and back:
// from what clusters, gateways and agents report to a list of hops, with the addresses
// at each, what decides there, and where the packet stops and why.
//
// Where that is asked for, a watch adds what is seen of such packets now: gateways capture
// them at each of their points, agents have the kernel count them at both sides of the
// nodes, and where they stop follows from that.
//
// Trace is a pure function of Facts; Read gathers them and changes nothing. What
// could not be read is said at its hop, and judged neither way.
package trace
