// Package drops reads the headers of dropped packets that gateways keep, and says what
// the reasons mean.
//
// What a gateway tells comes from strangers: whoever sends it a packet chooses the
// addresses in it, and a gateway of another cluster is the other operator's. So
// nothing is taken over but numbers, addresses, and names of the narrow form that
// nodes and reasons have, and a line is bounded.
package drops
