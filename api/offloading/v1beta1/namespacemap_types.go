package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MappingPhase says how a namespace at a provider is.
//
// +kubebuilder:validation:Enum=Accepted;CreationLoopBackOff;Terminating
type MappingPhase string

// The phases.
const (
	// MappingAccepted means that the namespace is there and the consumer may use it.
	MappingAccepted MappingPhase = "Accepted"
	// MappingCreationLoopBackOff means that the provider cannot make it, or will not, and tries again.
	MappingCreationLoopBackOff MappingPhase = "CreationLoopBackOff"
	// MappingTerminating means that it is being removed.
	MappingTerminating MappingPhase = "Terminating"
)

// NamespaceMap asks a provider for namespaces. The consumer's controller makes one for each provider, with the
// provider's ID as its name, and a copy of it goes to the provider, whose answer comes back in the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=nm;nsmap
// +kubebuilder:printcolumn:name="Local",type=string,JSONPath=`.metadata.labels.liqo\.io/replication`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NamespaceMapSpec   `json:"spec,omitzero"`
	Status NamespaceMapStatus `json:"status,omitzero"`
}

// NamespaceMapSpec is what is asked for.
type NamespaceMapSpec struct {
	// DesiredMapping says, by the name of a namespace of the consumer, what it is to be called at the provider.
	// +kubebuilder:validation:MaxProperties=1000
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 253 && size(self[name]) <= 253)",message="a name of a namespace has at most 253 characters"
	DesiredMapping map[string]string `json:"desiredMapping,omitempty"`
}

// NamespaceMapStatus is the provider's answer.
type NamespaceMapStatus struct {
	// CurrentMapping says what there is, by the name of a namespace of the consumer. An empty one says that nothing is left;
	// without one nobody has answered yet.
	CurrentMapping map[string]RemoteNamespaceStatus `json:"currentMapping,omitzero"`
}

// RemoteNamespaceStatus is how one namespace is.
type RemoteNamespaceStatus struct {
	// RemoteNamespace is its name at the provider.
	RemoteNamespace string `json:"remoteNamespace,omitempty"`
	// Phase says how it is.
	Phase MappingPhase `json:"phase,omitempty"`
	// Message says why, where it is CreationLoopBackOff. Other implementations do not have it.
	Message string `json:"message,omitempty"`
}

// NamespaceMapList is a list of NamespaceMaps.
//
// +kubebuilder:object:root=true
type NamespaceMapList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NamespaceMap `json:"items"`
}
