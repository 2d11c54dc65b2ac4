package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IP makes one address of this cluster, or one that can be reached from it, known to the remote clusters under an
// address of the external CIDR.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo
// +kubebuilder:printcolumn:name="Local IP",type=string,JSONPath=`.spec.ip`
// +kubebuilder:printcolumn:name="Remapped IP",type=string,JSONPath=`.status.ip`
// +kubebuilder:printcolumn:name="Remapped IP CIDR",type=string,JSONPath=`.status.cidr`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IPSpec   `json:"spec"`
	Status IPStatus `json:"status,omitzero"`
}

// IPSpec is the address to make reachable.
type IPSpec struct {
	// IP is the address as used in this cluster. It cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ip cannot be changed: make another IP"
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="ip must be one IPv4 or IPv6 address, such as 10.0.0.1"
	IP Address `json:"ip"`
	// NetworkRef names the Network from which the other address is taken. When absent it is the external CIDR of this
	// cluster.
	//
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0",message="networkRef needs the name of a Network"
	NetworkRef *corev1.ObjectReference `json:"networkRef,omitempty"`
	// ServiceTemplate, when present, makes a Service and an EndpointSlice for the address.
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`
	// Masquerade makes the node replace the remote source address by its own, for hosts that cannot answer to the
	// remote one.
	Masquerade *bool `json:"masquerade,omitempty"`
}

// ServiceTemplate is a Service without its name: labels, annotations and spec.
type ServiceTemplate struct {
	// Metadata is merged into that of the Service.
	Metadata metav1.ObjectMeta `json:"metadata,omitzero"`
	// Spec is that of the Service.
	Spec corev1.ServiceSpec `json:"spec,omitzero"`
}

// IPStatus is the allocated address.
type IPStatus struct {
	// IP is the address by which the remote clusters reach spec.ip. Once set it cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ip cannot be changed once set"
	IP Address `json:"ip,omitempty"`
	// CIDR is the prefix of the Network that the address was taken from. Once set it cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cidr cannot be changed once set"
	CIDR CIDR `json:"cidr,omitempty"`
	// Conditions holds the condition Allocated.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IPList is a list of IPs.
//
// +kubebuilder:object:root=true
type IPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IP `json:"items"`
}
