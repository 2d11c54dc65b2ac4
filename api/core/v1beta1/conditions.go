package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Condition is how something of a peering is. It is Liqo's and has more values than those of Kubernetes.
type Condition struct {
	// Type says what it is about.
	Type ConditionType `json:"type"`
	// Status says how that is.
	//
	// +kubebuilder:default=None
	Status ConditionStatus `json:"status"`
	// LastTransitionTime is when the status changed.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is one word.
	Reason ConditionReason `json:"reason,omitempty"`
	// Message says what is the matter and, where something is, what to do.
	Message string `json:"message,omitempty"`
}

// ConditionType says what a condition is about.
//
// +kubebuilder:validation:Enum=APIServerStatus;NetworkConnectionStatus;NetworkGatewayServerStatus;NetworkGatewayClientStatus;NetworkGatewayPresence;NetworkConfigurationStatus;AuthIdentityControlPlaneStatus;AuthTenantStatus;OffloadingVirtualNodeStatus;OffloadingNodeStatus
type ConditionType string

// The types of conditions.
const (
	// ConditionAPIServer: Established (APIServerReady), Error (APIServerNotReady).
	ConditionAPIServer ConditionType = "APIServerStatus"
	// ConditionNetworkConnection: Established (ConnectionEstablished), Pending (ConnectionPending), Error
	// (ConnectionError), NotReady (ConnectionMissing).
	ConditionNetworkConnection ConditionType = "NetworkConnectionStatus"
	// ConditionNetworkGatewayServer, of a GatewayServer: Ready (GatewaysReady), SomeNotReady (GatewaysSomeNotReady),
	// NotReady (GatewaysNotReady).
	ConditionNetworkGatewayServer ConditionType = "NetworkGatewayServerStatus"
	// ConditionNetworkGatewayClient is the same of a GatewayClient.
	ConditionNetworkGatewayClient ConditionType = "NetworkGatewayClientStatus"
	// ConditionNetworkGatewayPresence: Ready (GatewayPresence), NotReady (GatewayMissing).
	ConditionNetworkGatewayPresence ConditionType = "NetworkGatewayPresence"
	// ConditionNetworkConfiguration: Ready (NetworkConfigurationPresence), NotReady (NetworkConfigurationMissing).
	ConditionNetworkConfiguration ConditionType = "NetworkConfigurationStatus"
	// ConditionAuthIdentityControlPlane, of an Identity and of the Secret with its kubeconfig: Ready (IdentityReady),
	// NotReady (IdentityNotReady, IdentityDenied), SomeNotReady (IdentityNotReady).
	ConditionAuthIdentityControlPlane ConditionType = "AuthIdentityControlPlaneStatus"
	// ConditionAuthTenant, of a Tenant: Ready (TenantReady, TenantCordoned), NotReady (TenantNotReady).
	ConditionAuthTenant ConditionType = "AuthTenantStatus"
	// ConditionOffloadingVirtualNode, of VirtualNodes: Ready (VirtualNodesReady), SomeNotReady (VirtualNodesSomeNotReady),
	// NotReady (VirtualNodesNotReady).
	ConditionOffloadingVirtualNode ConditionType = "OffloadingVirtualNodeStatus"
	// ConditionOffloadingNode, of their Nodes: Ready (NodesReady), SomeNotReady (NodesSomeNotReady), NotReady
	// (NodesNotReady).
	ConditionOffloadingNode ConditionType = "OffloadingNodeStatus"
)

// ConditionStatus says how something is.
//
// +kubebuilder:validation:Enum=None;Pending;Established;Error;Ready;NotReady;SomeNotReady
type ConditionStatus string

// The statuses of conditions.
const (
	// StatusNone means that nothing is known.
	StatusNone ConditionStatus = "None"
	// StatusPending means not yet.
	StatusPending ConditionStatus = "Pending"
	// StatusEstablished means that a connection works.
	StatusEstablished ConditionStatus = "Established"
	// StatusError means that a connection does not work.
	StatusError ConditionStatus = "Error"
	// StatusReady means that something is there, and well.
	StatusReady ConditionStatus = "Ready"
	// StatusNotReady means that it is not.
	StatusNotReady ConditionStatus = "NotReady"
	// StatusSomeNotReady means that some of several are not.
	StatusSomeNotReady ConditionStatus = "SomeNotReady"
)

// Well tells whether nothing is the matter.
func (s ConditionStatus) Well() bool { return s == StatusReady || s == StatusEstablished }

// ConditionReason is one word for why a condition has its status.
type ConditionReason string

// Reasons of conditions.
const (
	// ReasonAPIServerReady means that the API server of the provider answers.
	ReasonAPIServerReady ConditionReason = "APIServerReady"
	// ReasonAPIServerNotReady means that the API server of the provider does not answer, or refuses the credentials.
	ReasonAPIServerNotReady ConditionReason = "APIServerNotReady"
	// ReasonConnectionEstablished means that the peer answers through the tunnel.
	ReasonConnectionEstablished ConditionReason = "ConnectionEstablished"
	// ReasonConnectionPending means that the peer has not answered yet.
	ReasonConnectionPending ConditionReason = "ConnectionPending"
	// ReasonConnectionError means that the peer answered once and does not any more.
	ReasonConnectionError ConditionReason = "ConnectionError"
	// ReasonConnectionMissing means that there is no Connection.
	ReasonConnectionMissing ConditionReason = "ConnectionMissing"
	// ReasonGatewaysReady means that all pods of the gateway are ready.
	ReasonGatewaysReady ConditionReason = "GatewaysReady"
	// ReasonGatewaysSomeNotReady means that some pods of the gateway are not ready.
	ReasonGatewaysSomeNotReady ConditionReason = "GatewaysSomeNotReady"
	// ReasonGatewaysNotReady means that no pod of the gateway is ready.
	ReasonGatewaysNotReady ConditionReason = "GatewaysNotReady"
	// ReasonGatewayPresence means that there is a GatewayServer or a GatewayClient.
	ReasonGatewayPresence ConditionReason = "GatewayPresence"
	// ReasonGatewayMissing means that there is neither.
	ReasonGatewayMissing ConditionReason = "GatewayMissing"
	// ReasonNetworkConfigurationPresence means that there is a Configuration.
	ReasonNetworkConfigurationPresence ConditionReason = "NetworkConfigurationPresence"
	// ReasonNetworkConfigurationMissing means that there is none.
	ReasonNetworkConfigurationMissing ConditionReason = "NetworkConfigurationMissing"
	// ReasonTenantReady means that the other cluster may ask for resources.
	ReasonTenantReady ConditionReason = "TenantReady"
	// ReasonTenantNotReady means that its Tenant is refused, or not judged yet.
	ReasonTenantNotReady ConditionReason = "TenantNotReady"
	// ReasonTenantCordoned means that the other cluster keeps what it has and gets no more.
	ReasonTenantCordoned ConditionReason = "TenantCordoned"
	// ReasonTenantDrained means that the other cluster has taken back what it granted, and runs no pods for this one.
	ReasonTenantDrained ConditionReason = "TenantDrained"
	// ReasonIdentityReady means that there are credentials for the other cluster.
	ReasonIdentityReady ConditionReason = "IdentityReady"
	// ReasonIdentityNotReady means that the Identity is refused, or not judged yet, or that the kubeconfig in its Secret
	// cannot be used.
	ReasonIdentityNotReady ConditionReason = "IdentityNotReady"
	// ReasonIdentityDenied means that the API server of the provider accepts the credentials, and denies their user access
	// to the tenant namespace there.
	ReasonIdentityDenied ConditionReason = "IdentityDenied"
	// ReasonVirtualNodesReady means that the process of every VirtualNode runs.
	ReasonVirtualNodesReady ConditionReason = "VirtualNodesReady"
	// ReasonVirtualNodesSomeNotReady means that those of some do not.
	ReasonVirtualNodesSomeNotReady ConditionReason = "VirtualNodesSomeNotReady"
	// ReasonVirtualNodesNotReady means that none runs.
	ReasonVirtualNodesNotReady ConditionReason = "VirtualNodesNotReady"
	// ReasonNodesReady means that the Node of every VirtualNode that is to have one is ready.
	ReasonNodesReady ConditionReason = "NodesReady"
	// ReasonNodesSomeNotReady means that some are not.
	ReasonNodesSomeNotReady ConditionReason = "NodesSomeNotReady"
	// ReasonNodesNotReady means that none is.
	ReasonNodesNotReady ConditionReason = "NodesNotReady"
)
