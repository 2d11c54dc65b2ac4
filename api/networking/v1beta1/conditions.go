package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConditionType is the type of a condition in the status of a [Configuration].
type ConditionType string

// ConditionReason is the reason of such a condition.
type ConditionReason string

const (
	// ConditionNetworkCIDRsConfigured says whether status.remote of a Configuration is complete. Read it together
	// with its observedGeneration: an older one speaks of an older spec.
	//
	// Possible reasons for it to be True:
	//   - NetworkCIDRsConfigured
	//
	// Possible reasons for it to be False:
	//   - WaitingForNetworks
	ConditionNetworkCIDRsConfigured ConditionType = "NetworkCIDRsConfigured"

	// ReasonNetworkCIDRsConfigured means that every CIDR of the remote cluster has the one by which it is reached from
	// here.
	ReasonNetworkCIDRsConfigured ConditionReason = "NetworkCIDRsConfigured"
	// ReasonWaitingForNetworks means that the IPAM has not answered for every CIDR yet.
	ReasonWaitingForNetworks ConditionReason = "WaitingForNetworks"
)

// HostConditionType is the type of a condition that one host reports.
type HostConditionType string

const (
	// HostConditionApplied says whether the host applied the newest table.
	HostConditionApplied HostConditionType = "Applied"
	// HostConditionError says that the host could not apply it.
	HostConditionError HostConditionType = "Error"
)

// HostCondition is what one host, a gateway or a node, reports about a table that many of them apply.
type HostCondition struct {
	// Host is the name of the gateway, or of the pod that acts for a node.
	Host string `json:"host"`
	// Type is Applied or Error.
	Type HostConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status metav1.ConditionStatus `json:"status"`
	// LastTransitionTime is when the status changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
}
