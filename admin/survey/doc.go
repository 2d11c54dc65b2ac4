// Package survey reads what one cluster says of its installation and of its
// peerings: objects through the API server, and what running gateways and node
// agents tell when they are asked. It changes nothing.
//
//	Read      objects -> Cluster, as complete as the user's rights allow
//	AskGateways, ReadGateway, ReadFabric, ReadDrops      what a process knows of itself, by exec
//	Peer.Health, Cluster.Alerts, RatesOf      what follows from that: pure
//
// What cannot be read is a Gap and hides nothing else: neither a kind that the
// user may not list, nor an object that cannot be decoded, nor a gateway that
// does not answer.
package survey
