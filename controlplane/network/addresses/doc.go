// Package addresses answers IPs: it writes into the status of each the address by which
// remote clusters reach spec.ip, and makes the Service and the EndpointSlice of
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
//     the Network keeps for itself: the first preAllocated ones, and the first of
//     an external CIDR in any case, which stands for unknown senders.
//   - What was given is never changed. If two IPs have the same address, as after
//     a backup was put back, both keep what their status says, and the younger
//     one says so.
//   - An IP without an address is looked at again when its Network changes or an
//     address of it is given back; the oldest comes first.
package addresses
