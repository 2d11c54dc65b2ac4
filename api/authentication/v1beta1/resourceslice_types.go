package v1beta1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceSliceConditionType is what a provider decides on.
//
// +kubebuilder:validation:Enum=Authentication;Resources
type ResourceSliceConditionType string

// The types of conditions of a ResourceSlice.
const (
	// SliceAuthentication says whether the consumer gets credentials for the slice.
	SliceAuthentication ResourceSliceConditionType = "Authentication"
	// SliceResources says whether it gets the resources.
	SliceResources ResourceSliceConditionType = "Resources"
)

// ResourceSliceConditionStatus is a decision.
//
// +kubebuilder:validation:Enum=Accepted;Denied
type ResourceSliceConditionStatus string

// The decisions.
const (
	// SliceAccepted means that it is granted.
	SliceAccepted ResourceSliceConditionStatus = "Accepted"
	// SliceDenied means that it is not. Reason and message say why.
	SliceDenied ResourceSliceConditionStatus = "Denied"
)

// SliceClassDefault is the class that grants what is asked for. An empty class is the same.
const SliceClassDefault = "default"

// SliceClassAvailable is the class that grants what is asked for if the nodes of the provider have it left.
const SliceClassAvailable = "available"

// ResourceSlice asks a provider for resources. It is written on the consumer and copied to the provider, whose answer
// comes back in the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=rslice
// +kubebuilder:printcolumn:name="Authentication",type=string,JSONPath=`.status.conditions[?(@.type=="Authentication")].status`
// +kubebuilder:printcolumn:name="Resources",type=string,JSONPath=`.status.conditions[?(@.type=="Resources")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 63",optionalOldSelf=true,message="the name has more than 63 characters: the identity and the virtual node of the slice have it as a label"
type ResourceSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ResourceSliceSpec   `json:"spec,omitzero"`
	Status ResourceSliceStatus `json:"status,omitzero"`
}

// Cordoned tells whether the provider has cordoned the slice by itself: it keeps what it has and gets no more.
func (s *ResourceSlice) Cordoned() bool {
	v, ok := s.Annotations[AnnotationCordon]
	return ok && v != "false"
}

// Asks returns the ID of the cluster that the slice asks for resources; empty: it is a copy, by which a peer asks this
// cluster.
func (s *ResourceSlice) Asks() string {
	if s.Labels[LabelReplication] != "true" {
		return ""
	}
	return s.Labels[LabelReplicationDestination]
}

// Drained tells whether the slice was denied because the provider has drained the consumer.
func (s *ResourceSlice) Drained() bool {
	return slices.ContainsFunc(s.Status.Conditions, func(c ResourceSliceCondition) bool {
		return c.Status == SliceDenied && c.Reason == ReasonTenantDrained
	})
}

// ResourceSliceSpec is what is asked for.
type ResourceSliceSpec struct {
	// ConsumerClusterID is the ID of the cluster that asks. The controller fills it in.
	ConsumerClusterID *ClusterID `json:"consumerClusterID,omitempty"`
	// ProviderClusterID is the ID of the cluster that is asked. The controller fills it in.
	ProviderClusterID *ClusterID `json:"providerClusterID,omitempty"`
	// Resources are asked for. What is absent is up to the provider.
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Class says who at the provider decides, and how. Empty or "default": the controller grants what is asked for.
	//
	// +kubebuilder:validation:MaxLength=253
	Class string `json:"class,omitempty"`
	// CSR is the certificate signing request of the slice's identity, PEM. The controller fills it in.
	//
	// +kubebuilder:validation:MaxLength=16384
	CSR []byte `json:"csr,omitempty"`
}

// ResourceSliceStatus is the provider's answer.
type ResourceSliceStatus struct {
	// Conditions are the decisions.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []ResourceSliceCondition `json:"conditions,omitempty"`
	// Resources are granted.
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// AuthParams are the credentials of the slice.
	AuthParams *AuthParams `json:"authParams,omitempty"`
	// StorageClasses that the provider offers.
	StorageClasses []StorageClass `json:"storageClasses,omitempty"`
	// IngressClasses that the provider offers.
	IngressClasses []IngressClass `json:"ingressClasses,omitempty"`
	// LoadBalancerClasses that the provider offers.
	LoadBalancerClasses []LoadBalancerClass `json:"loadBalancerClasses,omitempty"`
	// NodeLabels are those of the virtual node.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// NodeSelector is set on the pods at the provider.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

// ResourceSliceCondition is one decision.
type ResourceSliceCondition struct {
	// Type is what is decided.
	Type ResourceSliceConditionType `json:"type"`
	// Status is the decision.
	Status ResourceSliceConditionStatus `json:"status"`
	// LastTransitionTime is when the decision changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is the reason, in one word.
	Reason string `json:"reason,omitempty"`
	// Message is the reason, in words.
	Message string `json:"message,omitempty"`
}

// StorageClass is a storage class that a provider offers.
type StorageClass struct {
	// StorageClassName is its name there.
	StorageClassName string `json:"storageClassName"`
	// Default marks the one that is used where none is named.
	Default bool `json:"default,omitempty"`
}

// IngressClass is an ingress class that a provider offers.
type IngressClass struct {
	// IngressClassName is its name there.
	IngressClassName string `json:"ingressClassName"`
	// Default marks the one that is used where none is named.
	Default bool `json:"default,omitempty"`
}

// LoadBalancerClass is a class of load balancers that a provider offers.
type LoadBalancerClass struct {
	// LoadBalancerClassName is its name there.
	LoadBalancerClassName string `json:"loadBalancerClassName"`
	// Default marks the one that is used where none is named.
	Default bool `json:"default,omitempty"`
}

// ResourceSliceList is a list of ResourceSlices.
//
// +kubebuilder:object:root=true
type ResourceSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ResourceSlice `json:"items"`
}
