// Package foreigncluster shows each peering in one object: a ForeignCluster with the ID of the other cluster as its name.
//
//	Configuration, GatewayServer, GatewayClient, Connection, Deployments  -> module networking
//	Tenant                                                                -> module authentication; the peer is a consumer
//	Identity of type ControlPlane, or its Secret                          -> module authentication; the peer is a provider
//	VirtualNodes and their Nodes                                          -> module offloading; the peer is a provider
//	/livez of the provider's API server, asked now and then               -> condition APIServerStatus
//	the tenant namespace there, asked with it                             -> module authentication
//
// It is made when the first object with the label liqo.io/remote-cluster-id appears, and deleted with the last, if it is
// ours. Where the controllers of authentication or offloading do not run, nothing of theirs is looked at.
//
// Nobody takes orders from a ForeignCluster: it is a report, for users and for programs made for Liqo.
package foreigncluster
