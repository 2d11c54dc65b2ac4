// Package clusterdns answers DNS questions about the Services of a cluster set:
// those that clusters import from each other, under clusterset.local.
//
//	ServiceImports, EndpointSlices --mirror--> Services --Build--> Zone --Answer--> messages
//	files of a gateway outside clusters ----/
//
// Services and Zone are values, and Build and Answer are pure. Server is the only
// part that touches the network; Cluster is the only part that knows Kubernetes, Site
// the only one that knows files.
//
// The records are those of the multi-cluster DNS specification (KEP-1645,
// specification.md of its DNS part):
//
//	SERVICE.NAMESPACE.svc.ZONE                              A, AAAA: the ClusterSetIP, or the ready endpoints
//	_PORT._PROTOCOL.SERVICE.NAMESPACE.svc.ZONE              SRV: the same names
//	HOSTNAME.CLUSTER.SERVICE.NAMESPACE.svc.ZONE             A, AAAA: one endpoint of a headless Service
//
// A Service without any ready endpoint behind a headless name does not exist, as in
// the DNS of a cluster. Nothing outside the zone is answered, and nothing is asked.
package clusterdns
