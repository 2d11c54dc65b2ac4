package v1beta1

import corev1 "k8s.io/api/core/v1"

// Endpoint is where a gateway server can be reached: one tunnel for each port.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.port) && has(self.ports))",message="port and ports exclude each other: set one of them"
// +kubebuilder:validation:XValidation:rule="has(self.port) || (has(self.ports) && size(self.ports) > 0)",message="set port, or ports with at least one entry"
// +kubebuilder:validation:XValidation:rule="!(has(self.ports)) || self.ports.all(p, self.ports.filter(q, q == p).size() == 1)",message="every entry of ports must be different"
type Endpoint struct {
	// Addresses holds IP addresses or DNS names. The first one is dialled.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || self.matches('^[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?([.][A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*[.]?$')",message="an address is an IP address or a DNS name, without a port (that is in port) and without brackets"
	Addresses []string `json:"addresses,omitempty"`
	// Port is the port of the only tunnel. Excludes ports.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Ports holds the port of each tunnel. Excludes port.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	Ports []int32 `json:"ports,omitempty"`
	// Protocol is the transport protocol of the tunnel.
	//
	// +kubebuilder:validation:Enum=TCP;UDP
	// +kubebuilder:default=UDP
	Protocol corev1.Protocol `json:"protocol,omitempty"`
}

// InternalEndpoint is where the nodes of the gateway's own cluster reach the active gateway pod.
type InternalEndpoint struct {
	// IP is the address of the active gateway pod.
	IP Address `json:"ip,omitempty"`
	// Node is the name of the node on which it runs.
	Node string `json:"node,omitempty"`
}
