// Package internalnetwork joins the nodes of this cluster with its gateways: it
// decides who has which address, which tunnel has which number, and behind which
// node each pod lives. Gateways and nodes read the objects and build the tunnels.
//
//	Node ──────────────► InternalNode ──┐
//	                                    ├──► GeneveTunnel (one for each pair)
//	GatewayServer/Client, ─► InternalFabric ─┘
//	Configuration
//	InternalNode, Pods ──► RouteConfiguration <node>-gw-node
//
// There are four reconcilers, one for each kind that is written. None of them
// looks at more than its own key needs: lookups that are not by name go through
// an index of the cache, so that a cluster of 5000 nodes and 100 000 pods costs
// an event no more than one of five.
//
// Addresses of the internal CIDR and numbers of tunnels (VNIs) are kept for the
// life of Node and gateway, not of the objects that show them, which come back
// when they are deleted. They are remembered nowhere but in these objects: the
// first grant after a start is preceded by reading all of them past the cache.
// Where two objects have the same number, as after a restore from a backup, the
// older one keeps it. Names of links are hashes of what they lead to, and need no
// memory at all.
//
// InternalNodes have no owner, because a Node that is deleted and registered
// again keeps its address and its tunnels. The status of an InternalNode belongs
// to the node and is never written here.
package internalnetwork
