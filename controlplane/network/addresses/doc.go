// Package addresses reconciles IPs: it writes the address by which remote clusters
// reach spec.ip into the status, and makes the Service and the EndpointSlice of
// its template.
//
// The address is one of the Network that the IP names or, when it names none, of
// the external CIDR of this cluster that has the family of spec.ip. It is chosen
// in memory by [github.com/sluice-net/sluice/controlplane/cidr] and recorded in
// the IP and nowhere else; when this process becomes the leader it reads all IPs
// before it gives an address to any.
//
// # What holds
//
//   - Two IPs never get the same address of a Network, and none gets those that
//     the Network reserves: the first preAllocated ones, and in an external CIDR
//     always the first, which is the unknown-source address.
//   - An allocated address is never changed. If two IPs have the same address, as
//     after a backup was restored, both keep what their status says, and the
//     condition of the younger one reports it.
//   - An IP without an address is reconciled again when its Network changes or an
//     address of it is released; the oldest comes first.
package addresses
