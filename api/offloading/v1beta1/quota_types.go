package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LimitsEnforcement says what the containers of a consumer must state.
//
// +kubebuilder:validation:Enum=Hard;Soft;None
type LimitsEnforcement string

// The values of LimitsEnforcement.
const (
	// HardLimitsEnforcement means that requests and limits must be stated and equal.
	HardLimitsEnforcement LimitsEnforcement = "Hard"
	// SoftLimitsEnforcement means that requests of CPU and memory must be stated.
	SoftLimitsEnforcement LimitsEnforcement = "Soft"
	// NoLimitsEnforcement means that what is stated counts.
	NoLimitsEnforcement LimitsEnforcement = "None"
)

// Quota bounds what the pods of one user of a consumer may take. The provider's controller makes one for each
// ResourceSlice that it has granted.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=liqo,shortName=qt
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.limitsEnforcement`
// +kubebuilder:printcolumn:name="Cordoned",type=boolean,JSONPath=`.spec.cordoned`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.user`,priority=1
type Quota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec QuotaSpec `json:"spec"`
}

// QuotaSpec says who may take how much.
type QuotaSpec struct {
	// User is the common name of the user's certificate.
	//
	// +kubebuilder:validation:MinLength=1
	User string `json:"user"`
	// LimitsEnforcement says what containers must state: Hard, Soft or None.
	LimitsEnforcement LimitsEnforcement `json:"limitsEnforcement,omitempty"`
	// Resources are what all pods of the user may take together.
	Resources corev1.ResourceList `json:"resources"`
	// Cordoned means that the pods there are stay, and no more are made.
	Cordoned *bool `json:"cordoned,omitempty"`
}

// QuotaList is a list of Quotas.
//
// +kubebuilder:object:root=true
type QuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Quota `json:"items"`
}
