// Package drops reads the headers of dropped packets that gateways keep, and says what
// the reasons mean.
//
// A gateway's answer is not trusted: whoever sends it a packet chooses the addresses in
// it, and the gateway of another cluster belongs to another operator. So only numbers,
// addresses, and names in the narrow form of nodes and reasons are accepted, and the
// length of a line is bounded.
package drops
