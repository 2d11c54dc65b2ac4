package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Network is a prefix that this cluster uses, or by which it reaches something. The IPAM answers in the status with
// the same prefix or, when that is taken and may be changed, with a free one of the same length.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=net
// +kubebuilder:printcolumn:name="Desired CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Remapped CIDR",type=string,JSONPath=`.status.cidr`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NetworkSpec   `json:"spec"`
	Status NetworkStatus `json:"status,omitzero"`
}

// NetworkSpec is the requested prefix.
//
// +kubebuilder:validation:XValidation:rule="(has(self.preAllocated) ? self.preAllocated : 0) == (has(oldSelf.preAllocated) ? oldSelf.preAllocated : 0)",message="preAllocated cannot be changed: make another Network"
type NetworkSpec struct {
	// CIDR is the requested prefix. It cannot be changed.
	//
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cidr cannot be changed: make another Network"
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="cidr must be an IPv4 or IPv6 prefix with no bits set behind its length, such as 10.70.0.0/16"
	CIDR CIDR `json:"cidr"`
	// PreAllocated is how many addresses at the beginning of the prefix are never handed out. It cannot be changed.
	//
	// +kubebuilder:validation:Minimum=0
	PreAllocated int32 `json:"preAllocated,omitempty"`
}

// NetworkStatus is the allocated prefix.
type NetworkStatus struct {
	// CIDR is the allocated prefix.
	CIDR CIDR `json:"cidr,omitempty"`
	// Conditions holds the condition Allocated.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NetworkList is a list of Networks.
//
// +kubebuilder:object:root=true
type NetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Network `json:"items"`
}
