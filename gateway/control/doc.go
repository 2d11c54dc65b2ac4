// Package control turns the objects of a peering into the configuration of
// a gateway's data plane and keeps the two equal. It is the control loop inside
// the gateway process.
//
//	DIR/*.yaml -> package manifests \
//	                                  Objects -> Build -> dataplane.Config -> Forwarder.Apply
//	API server -> package cluster -- /
//	DIR/status/connection.yaml, or the API server <- Report <- health ping through the tunnel
//
// The objects are those that a cluster holds, so that Build, which is pure,
// serves a gateway in a cluster as well as one outside. What it is not: it
// allocates no address, remaps no prefix and makes no key. In a cluster the
// controllers do, and write the result into the same fields that a person
// writes by hand in a directory. Where the objects come from (Feed) and where the
// state goes (Reporter) are interfaces of the Runner.
//
// # All or nothing
//
// A state of the directory is applied as a whole or refused as a whole, with
// every reason at once, each with its file, line and field. What was in force
// stays in force until a state comes that can be applied. In a cluster, where
// the objects have many authors, a bad one is left out instead: see Cluster.
//
// # Waiting is no mistake
//
// Objects may come in any order. What refers to an object that is not there yet
// - a node's tunnel, its address, the peer's key - waits, and a warning says
// so. Objects that contradict each other are a mistake.
//
// # Standing by
//
// Of several replicas one leads. The others follow the objects in the same way,
// but apply a configuration without a peer and report nothing, so that they can
// take over within milliseconds.
//
// # The address of a node
//
// An InternalNode tells two addresses: "local", from which its packets come to
// a gateway on the same node, and "remote", towards all others. Outside a
// cluster nobody knows on which node the gateway is, so packets from either are
// accepted and the answers follow what was heard last; until then they go to
// "remote", or to "local" where --node-name tells that it applies. Give only the
// one that applies where that matters.
package control
