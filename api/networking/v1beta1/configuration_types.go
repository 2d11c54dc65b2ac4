package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Configuration tells one cluster the network parameters of one remote cluster, and in its status under which CIDRs
// the remote cluster is reached from here. The label liqo.io/remote-cluster-id says which remote cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=conf
// +kubebuilder:printcolumn:name="Desired Pod CIDR",type=string,JSONPath=`.spec.remote.cidr.pod`
// +kubebuilder:printcolumn:name="Remapped Pod CIDR",type=string,JSONPath=`.status.remote.cidr.pod[*]`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Desired External CIDR",type=string,JSONPath=`.spec.remote.cidr.external`,priority=1
// +kubebuilder:printcolumn:name="Remapped External CIDR",type=string,JSONPath=`.status.remote.cidr.external[*]`,priority=1
// +kubebuilder:printcolumn:name="ClusterID",type=string,JSONPath=`.metadata.labels.liqo\.io/remote-cluster-id`,priority=1
type Configuration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   ConfigurationSpec   `json:"spec,omitzero"`
	Status ConfigurationStatus `json:"status,omitzero"`
}

// ConfigurationSpec holds the CIDRs that both clusters use themselves.
type ConfigurationSpec struct {
	// Local holds the CIDRs of this cluster. When absent the controller fills it in from the CIDRs given at install
	// time.
	Local *ClusterConfig `json:"local,omitempty"`
	// Remote holds the CIDRs of the remote cluster as the remote cluster itself uses them.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.cidr)",message="remote.cidr is missing: the pod and external CIDRs of the remote cluster"
	Remote ClusterConfig `json:"remote,omitzero"`
}

// ConfigurationStatus holds the CIDRs by which this cluster reaches the remote one.
type ConfigurationStatus struct {
	// Remote holds the CIDRs by which this cluster reaches the remote one. Its lists have the order of those of
	// spec.remote; an entry that equals its counterpart is not remapped.
	Remote *ClusterConfig `json:"remote,omitempty"`
	// Conditions holds the condition NetworkCIDRsConfigured.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterConfig holds the network parameters of one cluster.
type ClusterConfig struct {
	// CIDR holds the pod CIDRs and the external CIDRs of the cluster.
	CIDR ClusterCIDR `json:"cidr,omitzero"`
}

// ClusterCIDR holds the address ranges of one cluster.
type ClusterCIDR struct {
	// Pod holds the pod CIDRs: one as a string, 10.243.0.0/16, or several as a list, [10.243.0.0/16, fd00:243::/64].
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Format=cidr
	// +kubebuilder:pruning:PreserveUnknownFields
	Pod CIDRs `json:"pod,omitzero"`
	// External holds the CIDRs for addresses that do not belong to pods: a string, 10.70.0.0/16, or a list,
	// [10.70.0.0/16, fd00:70::/64].
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Format=cidr
	// +kubebuilder:pruning:PreserveUnknownFields
	External CIDRs `json:"external,omitzero"`
}

// ConfigurationList is a list of Configurations.
//
// +kubebuilder:object:root=true
type ConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Configuration `json:"items"`
}
