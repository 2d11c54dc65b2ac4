package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InternalFabric is a gateway as one end of the internal network, whose other ends are the nodes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=liqo,shortName=if;ifabric
// +kubebuilder:printcolumn:name="Gateway IP",type=string,JSONPath=`.spec.gatewayIP`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type InternalFabric struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec InternalFabricSpec `json:"spec,omitzero"`
}

// InternalFabricSpec describes the gateway as the nodes see it.
type InternalFabricSpec struct {
	// MTU is the largest packet carried through the gateway.
	//
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=65455
	MTU int `json:"mtu,omitempty"`
	// GatewayIP is the address of the active gateway pod.
	GatewayIP Address `json:"gatewayIP"`
	// Interface describes the interfaces of the gateway's tunnels.
	Interface InternalFabricInterface `json:"interface"`
	// RemoteCIDRs holds the prefixes behind this gateway, as used in this cluster.
	//
	// +kubebuilder:validation:MaxItems=4096
	RemoteCIDRs []CIDR `json:"remoteCIDRs,omitempty"`
}

// InternalFabricInterface describes the interfaces at both ends of the gateway's tunnels.
type InternalFabricInterface struct {
	// Node is the interface on the nodes.
	Node InternalFabricNodeInterface `json:"node"`
	// Gateway is the interface in the gateway.
	Gateway InternalFabricGatewayInterface `json:"gateway"`
}

// InternalFabricNodeInterface is a node's end of the gateway's tunnel.
type InternalFabricNodeInterface struct {
	// Name is the name of the interface towards this gateway on every node.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^/:\s]+$`
	Name string `json:"name"`
}

// InternalFabricGatewayInterface is the gateway's end of its tunnels.
type InternalFabricGatewayInterface struct {
	// IP is the gateway's address on the internal network.
	IP Address `json:"ip"`
}

// InternalFabricList is a list of InternalFabrics.
//
// +kubebuilder:object:root=true
type InternalFabricList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []InternalFabric `json:"items"`
}
