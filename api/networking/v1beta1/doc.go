// Package v1beta1 holds the Go types of the API group networking.liqo.io, version v1beta1: what a user, the
// controllers and the gateway tell each other about the network between two clusters.
//
// It is the contract and nothing more: fields, enumerations, defaults and validation rules, which controller-gen turns
// into the CustomResourceDefinitions in deploy/crds. No controller's logic lives here, and the package imports only
// apimachinery and core types (two kinds embed Service and Deployment specs), so that everything else may
// import it.
//
// Who writes what:
//
//	Configuration                          user; status: controller. CIDRs of both clusters, and what they are remapped to
//	GatewayServer, GatewayClient           user; status: controller. One end of the tunnel, whatever its technology
//	WgGatewayServer, WgGatewayClient       rendered from a template; the WireGuard gateway as Deployment and Service
//	WgGatewayServerTemplate, ...Client...  administrator; what a gateway is rendered from
//	PublicKey                              user; the peer's WireGuard key
//	Connection                             gateway; state and latency of the tunnel
//	InternalNode                           controller; status: node agent. A node as an end of the internal network
//	InternalFabric                         controller; a gateway as the other end of the internal network
//	GeneveTunnel                           controller; the VNI between one InternalFabric and one InternalNode
//	RouteConfiguration                     controller or user; one routing table of gateways or nodes
//	FirewallConfiguration                  controller or user; one packet filter table of gateways or nodes
//	ExportedService                        controller; a Service that the peer may use
//	ImportedService                        gateway; status: controller. A Service of the peer, as its gateway tells it
//
// Invariants:
//   - Wherever an address or a prefix stands, IPv4 and IPv6 are both valid (see [Address] and [CIDR]).
//   - The pod and external prefixes of a Configuration are written either as one string or as a list, and come back
//     in the shape they came in (see [CIDRs]).
//   - A reference to another object is replaced as a whole and never merged field by field (x-kubernetes-map-type
//     atomic): half of one reference and half of another would name an object that nobody meant.
//
// +kubebuilder:object:generate=true
// +groupName=networking.liqo.io
package v1beta1
