// Package fabric is the node agent's control loop: it keeps the node's end of
// the tunnels to the gateways equal to the objects that describe them.
//
//	DIR/*.yaml -> package manifests \
//	                                  Objects -> Build -> Plan -> hostnet.Diff -> Host.Apply -> kernel
//	API server -> package cluster -- /     ^               \-> Ends.Apply (links of kind TUN)
//	                                       | paths to the gateways, what is in force
//	                                       Host.Path, Host.Read <- Host.Watch: something changed
//	DIR/status/internalnode.yaml, or the API server <- Report
//
// Build is pure and makes every decision but one: the kind of links, which
// chooseKind decides. The Runner joins it with the kernel and with the objects,
// both of which are interfaces here.
//
// # Nothing is removed by mistake
//
// What is in force is in the kernel and needs no agent, but for links of kind
// TUN. An agent that starts, or that loses its API server, changes nothing until
// it has read every list of objects completely once. What is wrong with one
// tunnel leaves that tunnel as it is.
//
// # Level, not edge
//
// The Runner looks at the objects, at the paths and at the kernel, never at the
// event that woke it. Events say where to look: our own links, routes, rules and
// tables were touched; somebody else's changed, so that a gateway may be reached
// in another way; objects changed. A slow look at everything backs them up.
package fabric
