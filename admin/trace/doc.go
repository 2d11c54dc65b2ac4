// Package trace follows a packet from a pod to an address behind a peering and back:
// from what clusters, gateways and agents report to a list of hops, with the addresses
// at each, what decides there, and where the packet stops and why.
//
// Live captures, where they are asked for, add what is seen of such packets now: a watch
// counts them at each point of both gateways, and where they stop follows from that.
//
// Trace is a pure function of Facts; Read gathers them and changes nothing. What
// could not be read is said at its hop, and judged neither way.
package trace
