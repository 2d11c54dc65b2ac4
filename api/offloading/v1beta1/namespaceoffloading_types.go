package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceMappingStrategy says what a namespace is called at the providers.
//
// +kubebuilder:validation:Enum=DefaultName;EnforceSameName;SelectedName
type NamespaceMappingStrategy string

// The mapping strategies.
const (
	// DefaultNameMappingStrategy means the name of the namespace, a dash and the ID of the consumer.
	DefaultNameMappingStrategy NamespaceMappingStrategy = "DefaultName"
	// EnforceSameNameMappingStrategy means the same name.
	EnforceSameNameMappingStrategy NamespaceMappingStrategy = "EnforceSameName"
	// SelectedNameMappingStrategy means the name in remoteNamespaceName.
	SelectedNameMappingStrategy NamespaceMappingStrategy = "SelectedName"
)

// PodOffloadingStrategy says where the pods of a namespace run.
//
// +kubebuilder:validation:Enum=LocalAndRemote;Local;Remote
type PodOffloadingStrategy string

// The pod strategies.
const (
	// LocalAndRemotePodOffloadingStrategy means on any node.
	LocalAndRemotePodOffloadingStrategy PodOffloadingStrategy = "LocalAndRemote"
	// LocalPodOffloadingStrategy means on nodes of this cluster. Services are reflected all the same.
	LocalPodOffloadingStrategy PodOffloadingStrategy = "Local"
	// RemotePodOffloadingStrategy means on virtual nodes.
	RemotePodOffloadingStrategy PodOffloadingStrategy = "Remote"
)

// OffloadingPhase sums up how the offloading of a namespace is.
//
// +kubebuilder:validation:Enum=Ready;NoClusterSelected;InProgress;SomeFailed;AllFailed;Terminating
type OffloadingPhase string

// The phases.
const (
	// OffloadingReady means that every selected cluster has the namespace.
	OffloadingReady OffloadingPhase = "Ready"
	// OffloadingNoClusterSelected means that the selector matches no virtual node.
	OffloadingNoClusterSelected OffloadingPhase = "NoClusterSelected"
	// OffloadingInProgress means that not all answers have come in.
	OffloadingInProgress OffloadingPhase = "InProgress"
	// OffloadingSomeFailed means that some of the selected clusters cannot make the namespace.
	OffloadingSomeFailed OffloadingPhase = "SomeFailed"
	// OffloadingAllFailed means that none of them can.
	OffloadingAllFailed OffloadingPhase = "AllFailed"
	// OffloadingTerminating means that the namespaces are being removed.
	OffloadingTerminating OffloadingPhase = "Terminating"
)

// NamespaceOffloading lets the pods of its namespace run in other clusters. There is one in a namespace, named
// "offloading".
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=nso;nsof;nsoff;nsoffloading
// +kubebuilder:printcolumn:name="NamespaceMappingStrategy",type=string,JSONPath=`.spec.namespaceMappingStrategy`
// +kubebuilder:printcolumn:name="PodOffloadingStrategy",type=string,JSONPath=`.spec.podOffloadingStrategy`
// +kubebuilder:printcolumn:name="OffloadingPhase",type=string,JSONPath=`.status.offloadingPhase`
// +kubebuilder:printcolumn:name="RemoteNamespaceName",type=string,JSONPath=`.status.remoteNamespaceName`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'offloading'",message="the name must be offloading: there is one NamespaceOffloading in a namespace"
type NamespaceOffloading struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NamespaceOffloadingSpec   `json:"spec"`
	Status NamespaceOffloadingStatus `json:"status,omitzero"`
}

// NamespaceOffloadingSpec says where the pods may run, and in which namespaces there.
//
// +kubebuilder:validation:XValidation:rule="self.namespaceMappingStrategy != 'SelectedName' || has(self.remoteNamespaceName) && size(self.remoteNamespaceName) > 0",message="namespaceMappingStrategy SelectedName needs remoteNamespaceName"
// +kubebuilder:validation:XValidation:rule="self.namespaceMappingStrategy == oldSelf.namespaceMappingStrategy",message="namespaceMappingStrategy cannot be changed: delete the NamespaceOffloading and make another one"
// +kubebuilder:validation:XValidation:rule="has(self.remoteNamespaceName) == has(oldSelf.remoteNamespaceName) && (!has(self.remoteNamespaceName) || self.remoteNamespaceName == oldSelf.remoteNamespaceName)",message="remoteNamespaceName cannot be changed: delete the NamespaceOffloading and make another one"
type NamespaceOffloadingSpec struct {
	// NamespaceMappingStrategy says what the namespace is called at the providers: DefaultName (NAME-CLUSTERID),
	// EnforceSameName or SelectedName. It cannot be changed.
	//
	// +kubebuilder:default=DefaultName
	NamespaceMappingStrategy NamespaceMappingStrategy `json:"namespaceMappingStrategy,omitempty"`
	// RemoteNamespaceName is the name at the providers, with SelectedName. It cannot be changed.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	RemoteNamespaceName string `json:"remoteNamespaceName,omitempty"`
	// PodOffloadingStrategy says where pods run: LocalAndRemote, Local or Remote.
	//
	// +kubebuilder:default=LocalAndRemote
	PodOffloadingStrategy PodOffloadingStrategy `json:"podOffloadingStrategy,omitempty"`
	// ClusterSelector selects virtual nodes by their labels. Without terms it selects all of them.
	ClusterSelector corev1.NodeSelector `json:"clusterSelector,omitzero"`
}

// NamespaceOffloadingStatus is how far it is.
type NamespaceOffloadingStatus struct {
	// RemoteNamespaceName is the name at the providers.
	RemoteNamespaceName string `json:"remoteNamespaceName,omitempty"`
	// OffloadingPhase sums up the conditions.
	OffloadingPhase OffloadingPhase `json:"offloadingPhase,omitempty"`
	// RemoteNamespacesConditions says how it is at each provider, by its ID.
	RemoteNamespacesConditions map[string]RemoteNamespaceConditions `json:"remoteNamespacesConditions,omitempty"`
	// ObservedGeneration is the generation of the spec that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// RemoteNamespaceConditions are the conditions of the namespace at one provider.
type RemoteNamespaceConditions []RemoteNamespaceCondition

// RemoteNamespaceConditionType is what a condition is about.
//
// +kubebuilder:validation:Enum=OffloadingRequired;Ready
type RemoteNamespaceConditionType string

// RemoteNamespaceCondition says one thing about the namespace at a provider.
type RemoteNamespaceCondition struct {
	// Type is what it is about.
	Type RemoteNamespaceConditionType `json:"type"`
	// Status is True, False or Unknown.
	//
	// +kubebuilder:validation:Enum=True;False;Unknown
	Status corev1.ConditionStatus `json:"status"`
	// LastTransitionTime is when the status changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is the reason, in one word.
	Reason string `json:"reason,omitempty"`
	// Message is the reason, in words.
	Message string `json:"message,omitempty"`
}

// NamespaceOffloadingList is a list of NamespaceOffloadings.
//
// +kubebuilder:object:root=true
type NamespaceOffloadingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NamespaceOffloading `json:"items"`
}
