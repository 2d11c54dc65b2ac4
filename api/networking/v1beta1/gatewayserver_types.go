package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GatewayServer is the end of a tunnel that waits for the remote cluster's GatewayClient. The technology of the tunnel
// is that of the template it refers to. Its name is part of the name of a Service.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=gws;gwserver
// +kubebuilder:printcolumn:name="Template Kind",type=string,JSONPath=`.spec.serverTemplateRef.kind`,priority=1
// +kubebuilder:printcolumn:name="Template Name",type=string,JSONPath=`.spec.serverTemplateRef.name`
// +kubebuilder:printcolumn:name="Template Namespace",type=string,JSONPath=`.spec.serverTemplateRef.namespace`,priority=1
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.status.endpoint.addresses[*]`
// +kubebuilder:printcolumn:name="Port",type=string,JSONPath=`.status.endpoint['port','ports']`
// +kubebuilder:printcolumn:name="Protocol",type=string,JSONPath=`.status.endpoint.protocol`,priority=1
// +kubebuilder:printcolumn:name="MTU",type=integer,JSONPath=`.spec.mtu`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || size(self.metadata.name) <= 60 && !self.metadata.name.contains('.')",message="the Service gw-NAME must be a DNS label: lower-case letters, digits and dashes, at most 60 characters",optionalOldSelf=true
type GatewayServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   GatewayServerSpec   `json:"spec,omitzero"`
	Status GatewayServerStatus `json:"status,omitzero"`
}

// GatewayServerSpec is the desired gateway server.
type GatewayServerSpec struct {
	// ServerTemplateRef names the template from which the gateway is rendered. Without a namespace it is one of the
	// installation's.
	//
	// +kubebuilder:default={apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServerTemplate, name: wireguard-server}
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0",message="name the template, such as wireguard-server"
	// +kubebuilder:validation:XValidation:rule="!has(self.apiVersion) || size(self.apiVersion) == 0 || has(self.kind) && size(self.kind) > 0",message="with apiVersion goes the kind of the template, such as WgGatewayServerTemplate"
	ServerTemplateRef corev1.ObjectReference `json:"serverTemplateRef,omitzero"`
	// MTU is the largest packet carried through the tunnel. It must be the same on both sides.
	//
	// +kubebuilder:default=1340
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=65455
	MTU int `json:"mtu,omitempty"`
	// Endpoint says how the gateway is exposed to the remote cluster.
	//
	// +required
	Endpoint ServerEndpoint `json:"endpoint,omitzero"`
	// SecretRef names a Secret of the same namespace that holds the gateway's keys. When absent a pair of keys is
	// generated.
	SecretRef corev1.LocalObjectReference `json:"secretRef,omitzero"`
	// ServiceAnnotations are set on the gateway's Service; they win over those of the template.
	ServiceAnnotations map[string]string `json:"serviceAnnotations,omitempty"`
	// ServiceLabels are set on the gateway's Service; they win over those of the template.
	ServiceLabels map[string]string `json:"serviceLabels,omitempty"`
}

// ServerEndpoint says how a gateway server is exposed: the Service before it, and its ports, one for each tunnel.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.port) && has(self.ports))",message="port and ports exclude each other: set one of them"
// +kubebuilder:validation:XValidation:rule="!(has(self.nodePort) && has(self.nodePorts))",message="nodePort and nodePorts exclude each other: set one of them"
// +kubebuilder:validation:XValidation:rule="has(self.port) || (has(self.ports) && size(self.ports) > 0)",message="set port, or ports with at least one entry"
// +kubebuilder:validation:XValidation:rule="!(has(self.ports)) || self.ports.all(p, self.ports.filter(q, q == p).size() == 1)",message="every entry of ports must be different"
// +kubebuilder:validation:XValidation:rule="!(has(self.nodePorts)) || self.nodePorts.all(p, self.nodePorts.filter(q, q == p).size() == 1)",message="every entry of nodePorts must be different"
// +kubebuilder:validation:XValidation:rule="!has(self.nodePorts) || size(self.nodePorts) <= (has(self.ports) ? size(self.ports) : 1)",message="nodePorts has more entries than there are ports"
// +kubebuilder:validation:XValidation:rule="!(has(self.nodePort) || has(self.nodePorts)) || self.serviceType in ['NodePort', 'LoadBalancer']",message="a node port needs serviceType NodePort or LoadBalancer"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerIP) || size(self.loadBalancerIP) == 0 || self.serviceType == 'LoadBalancer'",message="loadBalancerIP needs serviceType LoadBalancer"
type ServerEndpoint struct {
	// Port is the Service port of the only tunnel. Excludes ports.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Ports holds the Service port of each tunnel. Excludes port.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	Ports []int32 `json:"ports,omitempty"`
	// ServiceType is the type of the Service. ExternalName is accepted and of no use.
	//
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer;ExternalName
	// +kubebuilder:default=ClusterIP
	ServiceType corev1.ServiceType `json:"serviceType,omitempty"`
	// NodePort asks for this node port instead of any free one. Excludes nodePorts.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort,omitempty"`
	// NodePorts asks for a node port for each tunnel. Excludes nodePort.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	NodePorts []int32 `json:"nodePorts,omitempty"`
	// LoadBalancerIP asks for this address of the load balancer. Only with service type LoadBalancer; not every
	// provider honours it.
	//
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || isIP(self)",message="loadBalancerIP is an IP address"
	LoadBalancerIP string `json:"loadBalancerIP,omitempty"`
}

// GatewayServerStatus is the observed gateway server.
type GatewayServerStatus struct {
	// Endpoint is where the remote cluster's client finds this gateway.
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// InternalEndpoint is where this cluster's nodes find it.
	InternalEndpoint *InternalEndpoint `json:"internalEndpoint,omitempty"`
	// SecretRef names the Secret with the gateway's keys.
	SecretRef *corev1.ObjectReference `json:"secretRef,omitempty"`
	// PublicKey is the public one of these keys, for the peer's PublicKey: nobody has to read the Secret to know it.
	// Absent before there are usable keys.
	//
	// +kubebuilder:validation:Format=""
	PublicKey []byte `json:"publicKey,omitempty"`
	// PublicKeyTime is since when these keys are the gateway's: when the Secret was made, or when others were found in it.
	PublicKeyTime metav1.Time `json:"publicKeyTime,omitzero"`
	// ServerRef names the object rendered from the template.
	ServerRef *corev1.ObjectReference `json:"serverRef,omitempty"`
	// Conditions show how far the gateway is, and what to do if it cannot go on.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GatewayServerList is a list of GatewayServers.
//
// +kubebuilder:object:root=true
type GatewayServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GatewayServer `json:"items"`
}
