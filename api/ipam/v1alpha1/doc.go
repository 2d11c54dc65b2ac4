// Package v1alpha1 holds the Go types of the API group ipam.liqo.io, version v1alpha1: the prefixes and addresses that
// the IPAM hands out.
//
// Like its sister in networking.liqo.io it is the contract and nothing more: no allocator lives here, and it imports
// only apimachinery and the core types that one kind embeds.
//
//	Network   controller, installer or user; status: IPAM. A prefix to reserve, or to remap to a free one
//	IP        controller or user; status: IPAM. An address to make reachable from the remote clusters
//
// IPv4 and IPv6 are both valid wherever an address or a prefix stands (see [Address] and [CIDR]). What was asked for
// never changes, nor does what was given: the remote side may already use it.
//
// +kubebuilder:object:generate=true
// +groupName=ipam.liqo.io
package v1alpha1
