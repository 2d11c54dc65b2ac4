// Package importer makes of the Services that peers export what pods of this cluster use.
//
//	ImportedServices of all peerings -> for each namespace and name: a ServiceImport, a Service without selector,
//	                                    and EndpointSlices, whose owner the ServiceImport is
//
// A Service that several clusters export, this one among them, is one, with the endpoints of all. Where they contradict each
// other the oldest export counts.
//
// Nothing that a peer says is trusted. A Service lands in the namespace of its name, if there is one or operators want it
// created, and it is not one of Kubernetes or of this project, and under a name that no user gives. An endpoint passes only if its address is of the
// peer's own pod CIDRs, and what that is translated to belongs to nobody here (CVE-2021-25740). One that a hub passes on is of
// its external CIDR, and leads to whatever IPs of the hub name. While the network of the peering is down, its endpoints stay
// and are not ready.
package importer
