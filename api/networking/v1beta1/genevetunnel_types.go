package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GeneveTunnel is the Geneve tunnel between one gateway and one node.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=liqo,shortName=gvtn
type GeneveTunnel struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec GeneveTunnelSpec `json:"spec,omitzero"`
}

// GeneveTunnelSpec names the ends of the tunnel.
type GeneveTunnelSpec struct {
	// ID is the virtual network identifier of the tunnel, 24 bits (RFC 8926, section 3.4). It is different for every
	// pair of gateway and node.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16777215
	ID int32 `json:"id"`
	// InternalFabricRef names the gateway's end.
	//
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0",message="internalFabricRef needs the name of the InternalFabric"
	InternalFabricRef corev1.ObjectReference `json:"internalFabricRef"`
	// InternalNodeRef names the node's end.
	//
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0",message="internalNodeRef needs the name of the InternalNode"
	InternalNodeRef corev1.ObjectReference `json:"internalNodeRef"`
}

// GeneveTunnelList is a list of GeneveTunnels.
//
// +kubebuilder:object:root=true
type GeneveTunnelList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GeneveTunnel `json:"items"`
}
