package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// VirtualNodeConditionType is what a condition of a VirtualNode is about.
//
// +kubebuilder:validation:Enum=VirtualKubelet;Node
type VirtualNodeConditionType string

// The types of conditions of a VirtualNode.
const (
	// VirtualNodeVirtualKubelet is about the process that keeps the node.
	VirtualNodeVirtualKubelet VirtualNodeConditionType = "VirtualKubelet"
	// VirtualNodeNode is about the Node.
	VirtualNodeNode VirtualNodeConditionType = "Node"
)

// VirtualNodeConditionStatus is how it is.
//
// +kubebuilder:validation:Enum=None;Creating;Running;Draining;Deleting
type VirtualNodeConditionStatus string

// The values of VirtualNodeConditionStatus.
const (
	// VirtualNodeNone means that there is none.
	VirtualNodeNone VirtualNodeConditionStatus = "None"
	// VirtualNodeCreating means that it is being made.
	VirtualNodeCreating VirtualNodeConditionStatus = "Creating"
	// VirtualNodeRunning means that it is there.
	VirtualNodeRunning VirtualNodeConditionStatus = "Running"
	// VirtualNodeDraining means that its pods are being evicted.
	VirtualNodeDraining VirtualNodeConditionStatus = "Draining"
	// VirtualNodeDeleting means that it is being removed.
	VirtualNodeDeleting VirtualNodeConditionStatus = "Deleting"
)

// VirtualNode asks for a Node that stands for another cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=vn;vnode;virno;vno
// +kubebuilder:printcolumn:name="ClusterID",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Create Node",type=boolean,JSONPath=`.spec.createNode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.conditions[?(@.type=="Node")].status`,priority=1
// +kubebuilder:printcolumn:name="VirtualKubelet",type=string,JSONPath=`.status.conditions[?(@.type=="VirtualKubelet")].status`,priority=1
type VirtualNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VirtualNodeSpec   `json:"spec,omitzero"`
	Status VirtualNodeStatus `json:"status,omitzero"`
}

// VirtualNodeSpec says which cluster it is, what it has to offer and how it is reached.
type VirtualNodeSpec struct {
	// ClusterID is the ID of the provider.
	ClusterID ClusterID `json:"clusterID,omitempty"`
	// Template is that of a Deployment of another implementation, with metadata and spec, and kept as it is. Ours has one
	// process for each provider and does not read it.
	//
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Template *runtime.RawExtension `json:"template,omitempty"`
	// OffloadingPatch is added to the pods at the provider.
	OffloadingPatch *OffloadingPatch `json:"offloadingPatch,omitempty"`
	// CreateNode is false if no Node is to be made: services are reflected, pods are not. Absent: true.
	CreateNode *bool `json:"createNode,omitempty"`
	// DisableNetworkCheck lets the node be ready while the network of the peering is down.
	DisableNetworkCheck *bool `json:"disableNetworkCheck,omitempty"`
	// KubeconfigSecretRef names the Secret with the kubeconfig for the provider, in the same namespace.
	KubeconfigSecretRef *corev1.LocalObjectReference `json:"kubeconfigSecretRef,omitempty"`
	// Images are shown as present on the node.
	Images []corev1.ContainerImage `json:"images,omitempty"`
	// ResourceQuota says in hard how much the node has. The rest of it is ignored.
	ResourceQuota corev1.ResourceQuotaSpec `json:"resourceQuota,omitzero"`
	// Labels of the node.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the node.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Taints of the node, besides that of all virtual nodes.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// StorageClasses that the provider offers.
	StorageClasses []StorageClass `json:"storageClasses,omitempty"`
	// IngressClasses that the provider offers.
	IngressClasses []IngressClass `json:"ingressClasses,omitempty"`
	// LoadBalancerClasses that the provider offers.
	LoadBalancerClasses []LoadBalancerClass `json:"loadBalancerClasses,omitempty"`
	// VkOptionsTemplateRef names the VkOptionsTemplate; absent: that of the installation.
	VkOptionsTemplateRef *corev1.ObjectReference `json:"vkOptionsTemplateRef,omitempty"`
}

// OffloadingPatch is what is changed of pods and other objects on their way to the provider.
type OffloadingPatch struct {
	// AnnotationsNotReflected are the keys of annotations that stay here.
	AnnotationsNotReflected []string `json:"annotationsNotReflected,omitempty"`
	// LabelsNotReflected are the keys of labels that stay here.
	LabelsNotReflected []string `json:"labelsNotReflected,omitempty"`
	// NodeSelector is added to the pods.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations are added to the pods.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Affinity is added to the pods.
	Affinity *Affinity `json:"affinity,omitempty"`
	// RuntimeClassName is that of pods that name none.
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`
}

// Affinity is the part of a pod's affinity that can be added.
type Affinity struct {
	// NodeAffinity is about the provider's nodes.
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
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

// VirtualNodeStatus is how far it is.
type VirtualNodeStatus struct {
	// Conditions are about the process and the Node.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []VirtualNodeCondition `json:"conditions,omitempty"`
}

// VirtualNodeCondition says how one part of it is.
type VirtualNodeCondition struct {
	// Type is what it is about.
	Type VirtualNodeConditionType `json:"type"`
	// Status is how it is.
	//
	// +kubebuilder:default=None
	Status VirtualNodeConditionStatus `json:"status"`
	// LastTransitionTime is when the status changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is the reason, in one word.
	Reason string `json:"reason,omitempty"`
	// Message is the reason, in words.
	Message string `json:"message,omitempty"`
}

// VirtualNodeList is a list of VirtualNodes.
//
// +kubebuilder:object:root=true
type VirtualNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []VirtualNode `json:"items"`
}
