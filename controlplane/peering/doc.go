// Package peering connects two clusters and separates them again.
//
// A peering is a handful of objects in each cluster, in one namespace, the
// tenant namespace of the other:
//
//	local, the client                          remote, the server
//	Namespace      liqo-tenant-REMOTE          Namespace      liqo-tenant-LOCAL
//	Configuration  REMOTE: remote's CIDRs      Configuration  LOCAL: local's CIDRs
//	GatewayClient  REMOTE: where to dial       GatewayServer  LOCAL: how to be reached
//	PublicKey      REMOTE: remote's key        PublicKey      LOCAL: local's key
//
// objects.go makes these, without a cluster. The controllers of each cluster make
// everything else of them.
package peering
