package clusterdns

import "net/netip"

// Service is an imported Service, as the zone needs it.
type Service struct {
	Namespace, Name string
	// Headless says that the name stands for the endpoints and not for Addresses.
	Headless bool
	// Addresses are the ClusterSetIPs; a headless Service has none.
	Addresses []netip.Addr
	// Ports are those of the ClusterSetIP; those of a headless Service are its endpoints'.
	Ports []Port
	// Endpoints are those that are ready. Only a headless Service needs them.
	Endpoints []Endpoint
}

// Port is a port of a Service. Without a name it has no name of its own in the zone.
type Port struct {
	Name     string
	Protocol string // TCP, UDP or SCTP
	Number   uint16
}

// Endpoint is a pod of a headless Service.
type Endpoint struct {
	// Cluster is the ID of the cluster that the pod runs in.
	Cluster string
	// Hostname is the pod's; empty: its address makes one.
	Hostname  string
	Addresses []netip.Addr
	Ports     []Port
}
