// Package prefixes answers Networks: it writes into the status of each the prefix
// that it is granted, and into its condition why it is this one or none.
//
// The prefixes are chosen by [github.com/sluice-net/sluice/controlplane/cidr],
// in memory. What was granted is recorded in the Networks and nowhere else; when
// this process becomes the leader it reads them all before it grants anything.
//
// # What holds
//
//   - Two Networks never get overlapping space, unless one of them is labelled as
//     shared.
//   - What was granted is never changed: remote clusters and routes of nodes use
//     it. If two Networks have overlapping prefixes, as after a backup was put
//     back, both keep what their status says, nobody else gets any of it, and the
//     younger one says that it overlaps.
//   - The Networks of the installation come first. Others wait until the prefixes
//     that the cluster uses itself are known and decided, or a peer might be
//     granted the pod CIDR of this cluster.
//   - A Network without a prefix is looked at again whenever another one goes. Of
//     several that wait, the installation's come first, then those that must not
//     be remapped, then the oldest.
package prefixes
