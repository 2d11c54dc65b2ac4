// Package trace follows a packet from a pod to an address behind a peering and back. From
// what clusters, gateways and agents report it makes a list of hops, with the addresses at
// each, the object that decides there, and where and why the packet stops.
//
// On request, a watch adds how many matching packets pass now: gateways capture them at each
// of their points, agents have the kernel count them on both sides of the nodes, and the
// counts show where the packets stop.
//
// Trace is a pure function of Facts; Follow gathers them and changes nothing. A hop says
// what could not be read there, and is then judged neither good nor bad.
package trace
