package v1beta1

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShadowEndpointSlice asks a provider for an EndpointSlice of the same name, with endpoints that are not in the
// provider's cluster. Its addresses are those that the consumer has for them; the provider's controller translates them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=liqo,shortName=shes;sheps;seps
type ShadowEndpointSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ShadowEndpointSliceSpec `json:"spec,omitzero"`
}

// ShadowEndpointSliceSpec is what is asked for.
type ShadowEndpointSliceSpec struct {
	// Template is the EndpointSlice.
	Template EndpointSliceTemplate `json:"template,omitzero"`
}

// EndpointSliceTemplate is an EndpointSlice of discovery.k8s.io/v1 without metadata.
type EndpointSliceTemplate struct {
	// Endpoints are the endpoints.
	//
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	Endpoints []discoveryv1.Endpoint `json:"endpoints,omitempty"`
	// Ports are those of every endpoint.
	//
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	Ports []discoveryv1.EndpointPort `json:"ports,omitempty"`
	// AddressType is the type of all addresses: IPv4, IPv6 or FQDN.
	AddressType discoveryv1.AddressType `json:"addressType,omitempty"`
}

// ShadowEndpointSliceList is a list of ShadowEndpointSlices.
//
// +kubebuilder:object:root=true
type ShadowEndpointSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ShadowEndpointSlice `json:"items"`
}
