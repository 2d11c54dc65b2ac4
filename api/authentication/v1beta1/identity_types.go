package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IdentityType says what an identity is for.
//
// +kubebuilder:validation:Enum=ControlPlane;ResourceSlice
type IdentityType string

// The types of identities.
const (
	// ControlPlaneIdentity is that of the controllers: it asks for resources.
	ControlPlaneIdentity IdentityType = "ControlPlane"
	// ResourceSliceIdentity uses the resources of one ResourceSlice.
	ResourceSliceIdentity IdentityType = "ResourceSlice"
)

// Identity holds the credentials of a consumer for a provider. It is an object of the consumer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=id
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="KubeconfigSecret",type=string,JSONPath=`.status.kubeconfigSecretRef.name`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Identity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IdentitySpec   `json:"spec,omitzero"`
	Status IdentityStatus `json:"status,omitzero"`
}

// IdentitySpec are credentials, and for whom.
type IdentitySpec struct {
	// ClusterID is the ID of the provider.
	ClusterID ClusterID `json:"clusterID,omitempty"`
	// Type says what the identity is for.
	Type IdentityType `json:"type,omitempty"`
	// AuthParams are the credentials, as the provider granted them.
	AuthParams AuthParams `json:"authParams,omitzero"`
	// Namespace is the tenant namespace of this cluster at the provider.
	//
	// +kubebuilder:validation:MaxLength=63
	Namespace *string `json:"namespace,omitempty"`
}

// IdentityStatus says where the kubeconfig is.
type IdentityStatus struct {
	// KubeconfigSecretRef names the Secret that holds the kubeconfig.
	//
	// +structType=atomic
	KubeconfigSecretRef *corev1.LocalObjectReference `json:"kubeconfigSecretRef,omitempty"`
	// Conditions holds the condition Ready.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IdentityList is a list of Identities.
//
// +kubebuilder:object:root=true
type IdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Identity `json:"items"`
}
