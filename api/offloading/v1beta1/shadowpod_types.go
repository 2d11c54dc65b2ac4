package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShadowPod asks a provider for a pod of the same name, which the provider's controller makes and, whenever it vanishes,
// makes again, also while the consumer is away.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=shp;shpod
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ShadowPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ShadowPodSpec   `json:"spec,omitzero"`
	Status ShadowPodStatus `json:"status,omitzero"`
}

// ShadowPodSpec is what is asked for.
type ShadowPodSpec struct {
	// Pod is the spec of the pod. Its schema is that of an object with any fields: the provider judges them.
	//
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Pod corev1.PodSpec `json:"pod,omitzero"`
}

// ShadowPodStatus is how the pod is.
type ShadowPodStatus struct {
	// Phase is that of the pod; Pending while there is none.
	//
	// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Unknown
	// +kubebuilder:default=Unknown
	Phase corev1.PodPhase `json:"phase"`
	// Reason is why there is no pod, in one word, as the Event about it has it; empty: there is one, or it is being made.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message is the same as a sentence.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ShadowPodList is a list of ShadowPods.
//
// +kubebuilder:object:root=true
type ShadowPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ShadowPod `json:"items"`
}
