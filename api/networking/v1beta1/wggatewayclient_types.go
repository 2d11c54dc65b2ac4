package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WgGatewayClient is a WireGuard gateway client as a Deployment. It is rendered from a WgGatewayClientTemplate for a
// GatewayClient.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=wgc;wggc
type WgGatewayClient struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   WgGatewayClientSpec   `json:"spec,omitzero"`
	Status WgGatewayClientStatus `json:"status,omitzero"`
}

// WgGatewayClientSpec is the desired WireGuard gateway client.
type WgGatewayClientSpec struct {
	// Deployment runs the gateway.
	Deployment DeploymentTemplate `json:"deployment"`
	// Metrics says whether and how the gateway's metrics are scraped.
	Metrics *Metrics `json:"metrics,omitempty"`
	// SecretRef names a Secret of the same namespace that holds the gateway's keys. When absent a pair of keys is
	// generated.
	SecretRef corev1.LocalObjectReference `json:"secretRef,omitzero"`
}

// WgGatewayClientStatus is the observed WireGuard gateway client.
type WgGatewayClientStatus struct {
	// InternalEndpoint is where this cluster's nodes find the gateway.
	InternalEndpoint *InternalEndpoint `json:"internalEndpoint,omitempty"`
	// SecretRef names the Secret with the gateway's keys.
	SecretRef *corev1.ObjectReference `json:"secretRef,omitempty"`
	// PublicKey is the public one of these keys, for the peer's PublicKey: nobody has to read the Secret to know it.
	// Absent before there are usable keys.
	//
	// +kubebuilder:validation:Format=""
	PublicKey []byte `json:"publicKey,omitempty"`
	// PublicKeyTime is since when these keys are the gateway's: when the Secret was made, or when others were found in it.
	PublicKeyTime metav1.Time `json:"publicKeyTime,omitzero"`
	// Conditions show how far the gateway is, and what to do if it cannot go on.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WgGatewayClientList is a list of WgGatewayClients.
//
// +kubebuilder:object:root=true
type WgGatewayClientList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WgGatewayClient `json:"items"`
}
