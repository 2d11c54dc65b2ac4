package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Renew asks a provider to sign a certificate again before it expires.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Renew struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RenewSpec   `json:"spec,omitzero"`
	Status RenewStatus `json:"status,omitzero"`
}

// RenewSpec says what to sign, for whom.
type RenewSpec struct {
	// ConsumerClusterID is the ID of the cluster that asks.
	ConsumerClusterID ClusterID `json:"consumerClusterID,omitempty"`
	// PublicKey is that of the consumer, PEM (PKIX).
	//
	// +kubebuilder:validation:MaxLength=16384
	PublicKey []byte `json:"publicKey,omitempty"`
	// CSR is the certificate signing request, PEM.
	//
	// +kubebuilder:validation:MaxLength=16384
	CSR []byte `json:"csr,omitempty"`
	// IdentityType says which of the consumer's identities it is.
	IdentityType IdentityType `json:"identityType,omitempty"`
	// ResourceSliceRef names the slice of the identity, if it is one of a slice.
	//
	// +structType=atomic
	ResourceSliceRef *corev1.LocalObjectReference `json:"resourceSliceRef,omitempty"`
}

// RenewStatus is the provider's answer.
type RenewStatus struct {
	// AuthParams are the newest credentials.
	AuthParams *AuthParams `json:"authParams,omitempty"`
}

// RenewList is a list of Renews.
//
// +kubebuilder:object:root=true
type RenewList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Renew `json:"items"`
}
