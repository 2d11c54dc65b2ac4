package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReflectionType says which objects of a kind are reflected.
//
// +kubebuilder:validation:Enum=DenyList;AllowList;CustomLiqo
type ReflectionType string

// The values of ReflectionType.
const (
	// DenyList means all but those with the annotation liqo.io/skip-reflection.
	DenyList ReflectionType = "DenyList"
	// AllowList means only those with the annotation liqo.io/allow-reflection.
	AllowList ReflectionType = "AllowList"
	// CustomLiqo means that the kind has rules of its own.
	CustomLiqo ReflectionType = "CustomLiqo"
)

// VkOptionsTemplate says how virtual kubelets are run.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=liqo,shortName=vkot;vkopt
type VkOptionsTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec VkOptionsTemplateSpec `json:"spec,omitzero"`
}

// VkOptionsTemplateSpec holds the options.
type VkOptionsTemplateSpec struct {
	// ContainerImage is the image of the virtual kubelet.
	ContainerImage string `json:"containerImage"`
	// CreateNode is that of VirtualNodes that do not say.
	CreateNode bool `json:"createNode"`
	// DisableNetworkCheck is that of VirtualNodes that do not say.
	DisableNetworkCheck bool `json:"disableNetworkCheck"`
	// MetricsEnabled has the virtual kubelet serve metrics.
	MetricsEnabled bool `json:"metricsEnabled"`
	// MetricsAddress is where it does.
	MetricsAddress string `json:"metricsAddress,omitempty"`
	// LabelsNotReflected are the keys of labels that stay here.
	LabelsNotReflected []string `json:"labelsNotReflected,omitempty"`
	// AnnotationsNotReflected are the keys of annotations that stay here.
	AnnotationsNotReflected []string `json:"annotationsNotReflected,omitempty"`
	// ReflectorsConfig says, by resource, how many workers reflect it and which objects.
	ReflectorsConfig map[string]ReflectorConfig `json:"reflectorsConfig,omitempty"`
	// Resources are the requests and limits of the container.
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// ExtraArgs are more arguments of the program.
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// ExtraAnnotations of the pods.
	ExtraAnnotations map[string]string `json:"extraAnnotations,omitempty"`
	// ExtraLabels of the pods.
	ExtraLabels map[string]string `json:"extraLabels,omitempty"`
	// NodeExtraAnnotations of the virtual nodes.
	NodeExtraAnnotations map[string]string `json:"nodeExtraAnnotations,omitempty"`
	// NodeExtraLabels of the virtual nodes.
	NodeExtraLabels map[string]string `json:"nodeExtraLabels,omitempty"`
	// Replicas of the virtual kubelet.
	Replicas *int32 `json:"replicas,omitempty"`
	// ImagePullSecrets name the Secrets with the credentials of the registry.
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// PullPolicy says when nodes fetch the image.
	PullPolicy corev1.PullPolicy `json:"pullPolicy,omitempty"`
	// Tolerations of the pods.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// ReflectorConfig says how one kind is reflected.
type ReflectorConfig struct {
	// NumWorkers is how many objects of the kind are reflected at the same time; 0: none.
	//
	// +kubebuilder:validation:Minimum=0
	NumWorkers int32 `json:"workers"`
	// Type says which objects.
	Type ReflectionType `json:"type,omitempty"`
}

// VkOptionsTemplateList is a list of VkOptionsTemplates.
//
// +kubebuilder:object:root=true
type VkOptionsTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []VkOptionsTemplate `json:"items"`
}
