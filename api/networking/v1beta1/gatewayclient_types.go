package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GatewayClient is the end of a tunnel that dials the remote cluster's GatewayServer. The technology of the tunnel is
// that of the template it refers to. Its name is part of the name of a Service.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=gwc;gwclient
// +kubebuilder:printcolumn:name="Template Kind",type=string,JSONPath=`.spec.clientTemplateRef.kind`,priority=1
// +kubebuilder:printcolumn:name="Template Name",type=string,JSONPath=`.spec.clientTemplateRef.name`
// +kubebuilder:printcolumn:name="Template Namespace",type=string,JSONPath=`.spec.clientTemplateRef.namespace`,priority=1
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.spec.endpoint.addresses[*]`
// +kubebuilder:printcolumn:name="Port",type=string,JSONPath=`.spec.endpoint['port','ports']`
// +kubebuilder:printcolumn:name="Protocol",type=string,JSONPath=`.spec.endpoint.protocol`,priority=1
// +kubebuilder:printcolumn:name="MTU",type=integer,JSONPath=`.spec.mtu`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || size(self.metadata.name) <= 60 && !self.metadata.name.contains('.')",message="the Service gw-NAME must be a DNS label: lower-case letters, digits and dashes, at most 60 characters",optionalOldSelf=true
type GatewayClient struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   GatewayClientSpec   `json:"spec,omitzero"`
	Status GatewayClientStatus `json:"status,omitzero"`
}

// GatewayClientSpec is the desired gateway client.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.endpoint) && has(self.endpoint.protocol) && self.endpoint.protocol == 'TCP' && has(self.clientTemplateRef.kind) && self.clientTemplateRef.kind == 'WgGatewayClientTemplate')",message="endpoint.protocol: WireGuard has only UDP"
type GatewayClientSpec struct {
	// ClientTemplateRef names the template from which the gateway is rendered. Without a namespace it is one of the
	// installation's.
	//
	// +kubebuilder:default={apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayClientTemplate, name: wireguard-client}
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0",message="name the template, such as wireguard-client"
	// +kubebuilder:validation:XValidation:rule="!has(self.apiVersion) || size(self.apiVersion) == 0 || has(self.kind) && size(self.kind) > 0",message="with apiVersion goes the kind of the template, such as WgGatewayClientTemplate"
	ClientTemplateRef corev1.ObjectReference `json:"clientTemplateRef,omitzero"`
	// MTU is the largest packet carried through the tunnel. It must be the same on both sides.
	//
	// +kubebuilder:default=1340
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=65455
	MTU int `json:"mtu,omitempty"`
	// Endpoint is where the remote cluster's gateway server is reached.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.addresses) && size(self.addresses) > 0",message="addresses is empty: set the address or name by which the peer's gateway server is reached (its status.endpoint)"
	Endpoint Endpoint `json:"endpoint,omitzero"`
	// SecretRef names a Secret of the same namespace that holds the gateway's keys. When absent a pair of keys is
	// generated.
	SecretRef corev1.LocalObjectReference `json:"secretRef,omitzero"`
}

// GatewayClientStatus is the observed gateway client.
type GatewayClientStatus struct {
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
	// ClientRef names the object rendered from the template.
	ClientRef *corev1.ObjectReference `json:"clientRef,omitempty"`
	// Conditions show how far the gateway is, and what to do if it cannot go on.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GatewayClientList is a list of GatewayClients.
//
// +kubebuilder:object:root=true
type GatewayClientList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GatewayClient `json:"items"`
}
