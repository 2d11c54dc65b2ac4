// Package prefixes reconciles Networks: it writes the prefix that each is granted
// into its status, and the reason for this prefix, or for none, into its condition.
//
// The prefixes are chosen by [github.com/sluice-net/sluice/controlplane/cidr],
// in memory. What was granted is recorded in the Networks and nowhere else; when
// this process becomes the leader it reads them all before it grants anything.
//
// # What holds
//
//   - Two Networks never get overlapping space, unless one of them is labelled as
//     shared.
//   - A granted prefix is never changed: remote clusters and routes of nodes use
//     it. If two Networks have overlapping prefixes, as after a backup was
//     restored, both keep what their status says, no other Network gets any of it,
//     and the condition of the younger one reports the overlap.
//   - The Networks of the installation come first. Others wait until the prefixes
//     that the cluster uses itself are known and decided, or a peer might be
//     granted the pod CIDR of this cluster.
//   - A Network without a prefix is reconciled again when another one is deleted. Of
//     several that wait, the installation's come first, then those that must not
//     be remapped, then the oldest.
package prefixes
