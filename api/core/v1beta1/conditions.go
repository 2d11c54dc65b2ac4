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
	Reason string `json:"reason,omitempty"`
	// Message says what is the matter and, where something is, what to do.
	Message string `json:"message,omitempty"`
}

// ConditionType says what a condition is about.
//
// +kubebuilder:validation:Enum=APIServerStatus;NetworkConnectionStatus;NetworkGatewayServerStatus;NetworkGatewayClientStatus;NetworkGatewayPresence;NetworkConfigurationStatus;AuthIdentityControlPlaneStatus;AuthTenantStatus;OffloadingVirtualNodeStatus;OffloadingNodeStatus
type ConditionType string

// The types of conditions. Those of offloading are Liqo's; no controller of this project writes them.
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
	// ConditionAuthIdentityControlPlane, of an Identity: Ready (IdentityReady), NotReady (IdentityNotReady).
	ConditionAuthIdentityControlPlane ConditionType = "AuthIdentityControlPlaneStatus"
	// ConditionAuthTenant, of a Tenant: Ready (TenantReady), NotReady (TenantNotReady).
	ConditionAuthTenant ConditionType = "AuthTenantStatus"
	// ConditionOffloadingVirtualNode is about virtual nodes.
	ConditionOffloadingVirtualNode ConditionType = "OffloadingVirtualNodeStatus"
	// ConditionOffloadingNode is about the nodes of these.
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

// Reasons of conditions.
const (
	ReasonAPIServerReady    = "APIServerReady"
	ReasonAPIServerNotReady = "APIServerNotReady"

	ReasonConnectionEstablished = "ConnectionEstablished"
	ReasonConnectionPending     = "ConnectionPending"
	ReasonConnectionError       = "ConnectionError"
	ReasonConnectionMissing     = "ConnectionMissing"

	ReasonGatewaysReady        = "GatewaysReady"
	ReasonGatewaysSomeNotReady = "GatewaysSomeNotReady"
	ReasonGatewaysNotReady     = "GatewaysNotReady"
	ReasonGatewayPresence      = "GatewayPresence"
	ReasonGatewayMissing       = "GatewayMissing"

	ReasonNetworkConfigurationPresence = "NetworkConfigurationPresence"
	ReasonNetworkConfigurationMissing  = "NetworkConfigurationMissing"

	ReasonTenantReady      = "TenantReady"
	ReasonTenantNotReady   = "TenantNotReady"
	ReasonIdentityReady    = "IdentityReady"
	ReasonIdentityNotReady = "IdentityNotReady"
)
