package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds on what one cluster tells another about its Services. Both gateways keep to them: the one that tells leaves out
// what is beyond them, the one that is told refuses it.
const (
	// MaxServices is how many Services a peering has in one direction.
	MaxServices = 2000
	// MaxServiceEndpoints is how many endpoints one Service has, in all of its slices together. An EndpointSlice has no more.
	MaxServiceEndpoints = 1000
	// MaxServiceEndpointsTotal is how many endpoints all Services of a peering have together, in one direction.
	MaxServiceEndpointsTotal = 20000
	// MaxServicePorts is how many ports a Service and each of its slices have. An EndpointSlice has no more.
	MaxServicePorts = 100
	// MaxServiceSlices is how many slices a Service has.
	MaxServiceSlices = 100
	// MaxServiceLabels is how many labels a Service has for other clusters, and how many annotations.
	MaxServiceLabels = 32
	// MaxServiceAnnotation is how many bytes the value of such an annotation has.
	MaxServiceAnnotation = 1024
	// MaxServiceAddresses is how many addresses an endpoint has. Kubernetes itself never writes more than one.
	MaxServiceAddresses = 8
	// MaxServiceSizeTotal is how many bytes the descriptions of all Services of a peering have together as JSON, in one
	// direction: three times what the other bounds allow where each Service has the same ports in all of its slices.
	MaxServiceSizeTotal = 16 << 20
	// MaxCreatedNamespaces is how many namespaces a cluster creates for Services of one peer.
	MaxCreatedNamespaces = 100
	// MaxPassedOn is for how many endpoints of one cluster a hub has addresses, to pass them on to others.
	MaxPassedOn = 1000
	// MaxServiceSize is how many bytes the description of a Service has as JSON: far from what etcd takes, far above what
	// 1000 endpoints need.
	MaxServiceSize = 512 << 10
)

// ExportedService is a Service of this cluster that the peer may use. The controller writes it into the tenant namespace of
// the peering, for each Service that is exported; the gateway tells the peer. Its name is that of the namespace of the
// Service, a dot and the name of the Service.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=liqo,shortName=exsvc
// +kubebuilder:printcolumn:name="Service Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.__namespace__ + '.' + self.spec.name",message="the name must be spec.namespace, a dot and spec.name"
type ExportedService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec ServiceDescription `json:"spec,omitzero"`
}

// ImportedService is a Service of the peer, as the peer's gateway told the gateway of this cluster, which writes it into the
// tenant namespace of the peering. Nothing in it is to be trusted but that it keeps to the schema and to the bounds of this
// package: the controller judges it. Its name is as that of an ExportedService.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=imsvc
// +kubebuilder:printcolumn:name="Service Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.__namespace__ + '.' + self.spec.name",message="the name must be spec.namespace, a dot and spec.name"
type ImportedService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   ServiceDescription    `json:"spec,omitzero"`
	Status ImportedServiceStatus `json:"status,omitzero"`
}

// ServiceDescription is what one cluster tells another about a Service. Addresses are those that the exporting cluster
// itself uses; the importing one translates them by its Configuration.
type ServiceDescription struct {
	// Namespace is the namespace of the Service in the exporting cluster.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the Service in the exporting cluster.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// Type says whether the Service has an address of its own.
	//
	// +required
	Type ServiceType `json:"type,omitempty"`
	// Ports are the ports of the Service.
	//
	// +kubebuilder:validation:MaxItems=100
	Ports []ServicePort `json:"ports,omitempty"`
	// SessionAffinity is None or ClientIP.
	//
	// +kubebuilder:validation:Enum=None;ClientIP
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`
	// SessionAffinityTimeoutSeconds is for how long a client is remembered.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	SessionAffinityTimeoutSeconds *int32 `json:"sessionAffinityTimeoutSeconds,omitempty"`
	// InternalTrafficPolicy is Cluster, which is the default, or Local: only endpoints on the node of the client.
	//
	// +kubebuilder:validation:Enum=Cluster;Local
	InternalTrafficPolicy corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`
	// TrafficDistribution is which endpoints are preferred, such as PreferClose.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z]*$`
	TrafficDistribution string `json:"trafficDistribution,omitempty"`
	// Labels are for the ServiceImport, as the ServiceExport names them.
	//
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are for the ServiceImport, as the ServiceExport names them.
	//
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
	// ExportedAt is when the Service was exported. Of contradicting exports the oldest one wins.
	ExportedAt metav1.Time `json:"exportedAt,omitzero"`
	// Slices are the endpoints of the Service, 1000 at most in all of them.
	//
	// +kubebuilder:validation:MaxItems=100
	Slices []ServiceSlice `json:"slices,omitempty"`
}

// ObjectName is the name of the ExportedService and of the ImportedService. It is unique, as the name of a namespace has no
// dot.
func (d *ServiceDescription) ObjectName() string { return d.Namespace + "." + d.Name }

// ServiceType says whether an exported Service has an address of its own.
//
// +kubebuilder:validation:Enum=ClusterSetIP;Headless
type ServiceType string

// The types of exported Services, named as in the Multi-Cluster Services API.
const (
	// ServiceClusterSetIP has one address in each cluster that imports it.
	ServiceClusterSetIP ServiceType = "ClusterSetIP"
	// ServiceHeadless has the addresses of its endpoints.
	ServiceHeadless ServiceType = "Headless"
)

// ServicePort is a port of a Service or of a slice of its endpoints.
type ServicePort struct {
	// Name is the name of the port; the same in the Service and its slices.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Name string `json:"name,omitempty"`
	// Protocol is TCP, UDP or SCTP.
	//
	// +required
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol,omitempty"`
	// AppProtocol is what is spoken on it, such as kubernetes.io/h2c.
	//
	// +kubebuilder:validation:MaxLength=317
	AppProtocol *string `json:"appProtocol,omitempty"`
	// Port is its number.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// ServiceSlice holds endpoints of a Service that have the same ports.
type ServiceSlice struct {
	// Cluster is the ID of the cluster whose endpoints these are, where the exporting one, a hub, passes them on. Their addresses
	// are of its external CIDR then.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Cluster string `json:"cluster,omitempty"`
	// AddressType is the family of all addresses of the slice.
	//
	// +required
	// +kubebuilder:validation:Enum=IPv4;IPv6
	AddressType discoveryv1.AddressType `json:"addressType,omitempty"`
	// Ports are the ports of every endpoint of the slice.
	//
	// +kubebuilder:validation:MaxItems=100
	Ports []ServicePort `json:"ports,omitempty"`
	// Endpoints are the endpoints.
	//
	// +kubebuilder:validation:MaxItems=1000
	Endpoints []ServiceEndpoint `json:"endpoints,omitempty"`
}

// ServiceEndpoint is one endpoint of a Service.
type ServiceEndpoint struct {
	// Addresses are those of the endpoint, as the exporting cluster uses them. All lead to the same.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=45
	Addresses []string `json:"addresses,omitempty"`
	// Hostname is the name of the endpoint in the DNS of a headless Service.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Hostname *string `json:"hostname,omitempty"`
	// Ready, Serving and Terminating are the conditions of an EndpointSlice's endpoint.
	Ready       bool `json:"ready,omitempty"`
	Serving     bool `json:"serving,omitempty"`
	Terminating bool `json:"terminating,omitempty"`
}

// ImportedServiceStatus is what the controller made of an ImportedService.
type ImportedServiceStatus struct {
	// Conditions say whether the Service is accepted, and why not.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ExportedServiceList is a list of ExportedServices.
//
// +kubebuilder:object:root=true
type ExportedServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExportedService `json:"items"`
}

// ImportedServiceList is a list of ImportedServices.
//
// +kubebuilder:object:root=true
type ImportedServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ImportedService `json:"items"`
}
