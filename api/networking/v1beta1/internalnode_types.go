package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InternalNode is a node of this cluster as one end of the internal network, whose other ends are the gateways. It has
// the name of the node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=liqo,shortName=in;inode
// +kubebuilder:printcolumn:name="Node IP Local",type=string,JSONPath=`.status.nodeIP.local`
// +kubebuilder:printcolumn:name="Node IP Remote",type=string,JSONPath=`.status.nodeIP.remote`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type InternalNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   InternalNodeSpec   `json:"spec,omitzero"`
	Status InternalNodeStatus `json:"status,omitzero"`
}

// InternalNodeSpec describes both ends of the node's tunnels.
type InternalNodeSpec struct {
	// Interface describes the interfaces of the node's tunnels.
	Interface InternalNodeInterface `json:"interface"`
}

// InternalNodeInterface describes the interfaces at both ends of the node's tunnels.
type InternalNodeInterface struct {
	// Gateway is the interface in the gateways.
	Gateway InternalNodeGatewayInterface `json:"gateway"`
	// Node is the interface on the node.
	Node InternalNodeNodeInterface `json:"node"`
}

// InternalNodeGatewayInterface is a gateway's end of the node's tunnel.
type InternalNodeGatewayInterface struct {
	// Name is the name of the interface towards this node in every gateway.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^/:\s]+$`
	Name string `json:"name"`
}

// InternalNodeNodeInterface is the node's end of its tunnels.
type InternalNodeNodeInterface struct {
	// IP is the node's address on the internal network.
	IP Address `json:"ip"`
}

// InternalNodeStatus is what the node reports.
type InternalNodeStatus struct {
	// NodeIP holds the source addresses of the node's tunnel packets.
	NodeIP NodeIP `json:"nodeIP"`
	// Conditions holds TunnelsReady, AddressTranslationReady and, in the place of Liqo's agent, LiqoReplaced.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeIP holds the source address of a node's tunnel packets. It depends on where the gateway runs: packets to a pod
// of the same node may leave from another address than packets to other nodes.
type NodeIP struct {
	// Local is the source address towards a gateway on the same node.
	Local Address `json:"local,omitempty"`
	// Remote is the source address towards a gateway on another node.
	Remote Address `json:"remote,omitempty"`
}

// InternalNodeList is a list of InternalNodes.
//
// +kubebuilder:object:root=true
type InternalNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []InternalNode `json:"items"`
}
