package v1beta1

import corev1 "k8s.io/api/core/v1"

// Endpoint is where a gateway server can be reached: one tunnel for each port.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.port) && has(self.ports))",message="port and ports exclude each other: set one of them"
// +kubebuilder:validation:XValidation:rule="has(self.port) || (has(self.ports) && size(self.ports) > 0)",message="set port, or ports with at least one entry"
// +kubebuilder:validation:XValidation:rule="!(has(self.ports)) || self.ports.all(p, self.ports.filter(q, q == p).size() == 1)",message="every entry of ports must be different"
type Endpoint struct {
	// Addresses holds IP addresses or DNS names. The first one is dialled.
	Addresses []string `json:"addresses,omitempty"`
	// Port is the port of the only tunnel. Excludes ports.
	Port int32 `json:"port,omitempty"`
	// Ports holds the port of each tunnel. Excludes port.
	//
	// +kubebuilder:validation:MaxItems=64
	Ports []int32 `json:"ports,omitempty"`
	// Protocol is the transport protocol of the tunnel.
	//
	// +kubebuilder:validation:Enum=TCP;UDP
	Protocol corev1.Protocol `json:"protocol,omitempty"`
}

// InternalEndpoint is where the nodes of the gateway's own cluster reach the active gateway pod.
type InternalEndpoint struct {
	// IP is the address of the active gateway pod.
	IP Address `json:"ip,omitempty"`
	// Node is the name of the node on which it runs.
	Node string `json:"node,omitempty"`
}
