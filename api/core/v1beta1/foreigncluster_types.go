package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterID is the ID of a cluster: a DNS label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type ClusterID string

// Role says what the other cluster is in a peering.
//
// +kubebuilder:validation:Enum=Consumer;Provider;ConsumerAndProvider;Unknown
type Role string

// The roles.
const (
	// ConsumerRole means that the other cluster may ask this one for resources.
	ConsumerRole Role = "Consumer"
	// ProviderRole means that this cluster may ask the other one for resources.
	ProviderRole Role = "Provider"
	// ConsumerAndProviderRole means both.
	ConsumerAndProviderRole Role = "ConsumerAndProvider"
	// UnknownRole means that neither may: there is a network at most.
	UnknownRole Role = "Unknown"
)

// FinalizerAPIServerChecker is what Liqo's controller puts on a ForeignCluster. Ours does not, and removes it from one that
// is being deleted.
const FinalizerAPIServerChecker = "api-server-checker.liqo.io/finalizer"

// ForeignCluster shows the peering with another cluster, as seen from this one. The controller makes it, with the ID of
// the other cluster as its name, while anything in this cluster is about that one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=fc,scope=Cluster
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.status.role`
// +kubebuilder:printcolumn:name="ClusterID",type=string,JSONPath=`.spec.clusterID`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec) || has(self.spec)",message="clusterID cannot be changed: make another ForeignCluster"
type ForeignCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ForeignClusterSpec   `json:"spec,omitzero"`
	Status ForeignClusterStatus `json:"status,omitzero"`
}

// ForeignClusterSpec says which cluster it is.
type ForeignClusterSpec struct {
	// ClusterID is the ID of the other cluster. It cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID cannot be changed: make another ForeignCluster"
	ClusterID ClusterID `json:"clusterID"`
}

// ForeignClusterStatus is how the peering is.
type ForeignClusterStatus struct {
	// Role is that of the other cluster.
	//
	// +kubebuilder:default=Unknown
	Role Role `json:"role"`
	// ObservedGeneration is the generation of the spec that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Modules are the parts of the peering.
	Modules Modules `json:"modules,omitzero"`
	// APIServerURL is the URL of the API server of a provider.
	APIServerURL string `json:"apiServerUrl,omitempty"`
	// ForeignProxyURL is the URL of the HTTP proxy by which that is reached.
	ForeignProxyURL string `json:"foreignProxyUrl,omitempty"`
	// TenantNamespace are the namespaces of a consumer or provider.
	TenantNamespace TenantNamespace `json:"tenantNamespace,omitzero"`
	// Conditions holds the condition APIServerStatus, of a provider.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// Modules are the parts of a peering.
type Modules struct {
	// Networking is about the tunnel.
	Networking Module `json:"networking"`
	// Authentication is about who may ask whom for resources.
	Authentication Module `json:"authentication"`
	// Offloading is about virtual nodes.
	Offloading Module `json:"offloading"`
}

// Module is one part of a peering.
type Module struct {
	// Enabled is true while there is anything of it.
	Enabled bool `json:"enabled"`
	// Conditions say how it is.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// TenantNamespace are the two namespaces of a peering.
type TenantNamespace struct {
	// Local is the one in this cluster.
	Local string `json:"local,omitempty"`
	// Remote is the one in the other cluster.
	Remote string `json:"remote,omitempty"`
}

// ForeignClusterList is a list of ForeignClusters.
//
// +kubebuilder:object:root=true
type ForeignClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ForeignCluster `json:"items"`
}
