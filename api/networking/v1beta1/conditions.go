package v1beta1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api/text"
)

// ConditionType is the type of a condition of this group. Every condition has observedGeneration set: read the two
// together, an older one speaks of an older spec. Messages say what to do.
type ConditionType string

// ConditionReason is the reason of such a condition.
type ConditionReason string

// The condition of a [Configuration].
const (
	// ConditionNetworkCIDRsConfigured says whether status.remote of a Configuration is complete.
	//
	// Possible reasons for it to be True:
	//   - NetworkCIDRsConfigured
	//
	// Possible reasons for it to be False:
	//   - WaitingForNetworks
	//   - WaitingForLocalNetworks
	//   - NetworkRefused
	//   - InvalidConfiguration
	//   - DuplicateConfiguration
	ConditionNetworkCIDRsConfigured ConditionType = "NetworkCIDRsConfigured"

	// ReasonNetworkCIDRsConfigured means that every CIDR of the remote cluster has the one by which it is reached from
	// here.
	ReasonNetworkCIDRsConfigured ConditionReason = "NetworkCIDRsConfigured"
	// ReasonWaitingForNetworks means that the IPAM has not answered for every CIDR yet.
	ReasonWaitingForNetworks ConditionReason = "WaitingForNetworks"
	// ReasonWaitingForLocalNetworks means that the CIDRs of this cluster are not known yet.
	ReasonWaitingForLocalNetworks ConditionReason = "WaitingForLocalNetworks"
	// ReasonNetworkRefused means that the IPAM cannot grant one of the CIDRs. The message is the Network's.
	ReasonNetworkRefused ConditionReason = "NetworkRefused"
	// ReasonInvalidConfiguration means that a CIDR or the label with the remote cluster's ID is missing or wrong.
	ReasonInvalidConfiguration ConditionReason = "InvalidConfiguration"
	// ReasonDuplicateConfiguration means that another Configuration of the namespace is for the same remote cluster.
	ReasonDuplicateConfiguration ConditionReason = "DuplicateConfiguration"
)

// Conditions of [GatewayServer] and [GatewayClient].
const (
	// ConditionTemplateRendered says whether the object of the template's kind is as the template says.
	//
	// Possible reasons for it to be True:
	//   - TemplateRendered
	//
	// Possible reasons for it to be False:
	//   - RemoteClusterIDMissing
	//   - TemplateNotFound
	//   - TemplateKindUnknown
	//   - TemplateForbidden
	//   - TemplateInvalid
	//   - TemplateOfLiqo
	//   - ObjectRefused
	ConditionTemplateRendered ConditionType = "TemplateRendered"

	// ReasonTemplateRendered means that the object exists as rendered.
	ReasonTemplateRendered ConditionReason = "TemplateRendered"
	// ReasonRemoteClusterIDMissing means that the label liqo.io/remote-cluster-id is missing or no DNS-1123 label.
	ReasonRemoteClusterIDMissing ConditionReason = "RemoteClusterIDMissing"
	// ReasonTemplateNotFound means that the object named by the template reference does not exist.
	ReasonTemplateNotFound ConditionReason = "TemplateNotFound"
	// ReasonTemplateKindUnknown means that the cluster has no such kind, or that its CRD is not labelled as one of
	// gateway templates.
	ReasonTemplateKindUnknown ConditionReason = "TemplateKindUnknown"
	// ReasonTemplateForbidden means that the controllers may not read objects of the template's kind. The message names
	// the rights that they need.
	ReasonTemplateForbidden ConditionReason = "TemplateForbidden"
	// ReasonTemplateInvalid means that the template cannot be rendered. The message names template, field and error.
	ReasonTemplateInvalid ConditionReason = "TemplateInvalid"
	// ReasonTemplateOfLiqo means that the template makes pods of Liqo's gateway in a cluster of Liqo whose network was taken
	// over. What was made before stays. The message has the command that hands the gateway over.
	ReasonTemplateOfLiqo ConditionReason = "TemplateOfLiqo"
	// ReasonObjectRefused means that the API server refused an object that the controller made. The message is its.
	ReasonObjectRefused ConditionReason = "ObjectRefused"

	// ConditionAllPortsServed is there where a gateway serves fewer ports than its endpoint has.
	//
	// Possible reasons for it to be False:
	//   - FirstPortOnly
	ConditionAllPortsServed ConditionType = "AllPortsServed"

	// ReasonFirstPortOnly means that the template, or the controller of another technology, gives the gateway no more than
	// the first of the ports. The message says why.
	ReasonFirstPortOnly ConditionReason = "FirstPortOnly"

	// ConditionInternalNetworkReady says whether the nodes of this cluster know the gateway.
	//
	// Possible reasons for it to be True:
	//   - InternalFabricReady
	//
	// Possible reasons for it to be False:
	//   - WaitingForGatewayPod
	//   - WaitingForConfiguration
	//   - WaitingForInternalCIDR
	//   - InternalCIDRExhausted
	//   - DuplicateGateway
	ConditionInternalNetworkReady ConditionType = "InternalNetworkReady"

	// ReasonInternalFabricReady means that the InternalFabric and its GeneveTunnels exist.
	ReasonInternalFabricReady ConditionReason = "InternalFabricReady"
	// ReasonWaitingForGatewayPod means that there is no active gateway pod.
	ReasonWaitingForGatewayPod ConditionReason = "WaitingForGatewayPod"
	// ReasonWaitingForConfiguration means that the Configuration of the remote cluster is missing or not ready.
	ReasonWaitingForConfiguration ConditionReason = "WaitingForConfiguration"
	// ReasonWaitingForInternalCIDR means that the Network internal-cidr is missing or not granted yet.
	ReasonWaitingForInternalCIDR ConditionReason = "WaitingForInternalCIDR"
	// ReasonInternalCIDRExhausted means that the internal CIDR has no free address.
	ReasonInternalCIDRExhausted ConditionReason = "InternalCIDRExhausted"
	// ReasonDuplicateGateway means that another gateway of the namespace is for the same remote cluster, or has the same
	// name.
	ReasonDuplicateGateway ConditionReason = "DuplicateGateway"
)

// Conditions of [WgGatewayServer] and [WgGatewayClient]. Those of their gateway include them.
const (
	// ConditionKeysReady says whether there is a Secret with a usable pair of keys.
	//
	// Possible reasons for it to be True:
	//   - KeysGenerated
	//   - KeysProvided
	//
	// Possible reasons for it to be False:
	//   - SecretNotFound
	//   - SecretDeleted
	//   - SecretInvalid
	//   - SecretAmbiguous
	ConditionKeysReady ConditionType = "KeysReady"

	// ReasonKeysGenerated means that the controller made the keys.
	ReasonKeysGenerated ConditionReason = "KeysGenerated"
	// ReasonKeysProvided means that the Secret of spec.secretRef holds them.
	ReasonKeysProvided ConditionReason = "KeysProvided"
	// ReasonSecretNotFound means that the Secret of spec.secretRef does not exist.
	ReasonSecretNotFound ConditionReason = "SecretNotFound"
	// ReasonSecretDeleted means that the Secret with the generated keys was deleted, and the gateway goes on with them: it
	// connects as before, but another pod of it could not start. An empty Secret of that name, labelled liqo.io/managed=true,
	// asks for new keys; the peer must be told them.
	ReasonSecretDeleted ConditionReason = "SecretDeleted"
	// ReasonSecretInvalid means that the Secret has no private key of 32 bytes, or a public key that is not its.
	ReasonSecretInvalid ConditionReason = "SecretInvalid"
	// ReasonSecretAmbiguous means that several Secrets are labelled as the gateway's keys.
	ReasonSecretAmbiguous ConditionReason = "SecretAmbiguous"

	// ConditionPeerKeyReady says whether the peer's public key is known.
	//
	// Possible reasons for it to be True:
	//   - PeerKeyAccepted
	//
	// Possible reasons for it to be False:
	//   - PeerKeyMissing
	//   - PeerKeyInvalid
	//   - PeerKeyAmbiguous
	ConditionPeerKeyReady ConditionType = "PeerKeyReady"

	// ReasonPeerKeyAccepted means that there is one PublicKey of the peer, of 32 bytes.
	ReasonPeerKeyAccepted ConditionReason = "PeerKeyAccepted"
	// ReasonPeerKeyMissing means that there is none yet.
	ReasonPeerKeyMissing ConditionReason = "PeerKeyMissing"
	// ReasonPeerKeyInvalid means that it is not 32 bytes long, all zeros, or this gateway's own.
	ReasonPeerKeyInvalid ConditionReason = "PeerKeyInvalid"
	// ReasonPeerKeyAmbiguous means that there are several.
	ReasonPeerKeyAmbiguous ConditionReason = "PeerKeyAmbiguous"

	// ConditionDeployed says whether ServiceAccount, roles, Deployment and Service are as described, and a pod is ready.
	//
	// Possible reasons for it to be True:
	//   - DeploymentReady
	//
	// Possible reasons for it to be False:
	//   - DeploymentNotReady
	//   - ObjectRefused
	//   - DuplicateGateway
	ConditionDeployed ConditionType = "Deployed"

	// ReasonDeploymentReady means that at least one pod is ready.
	ReasonDeploymentReady ConditionReason = "DeploymentReady"
	// ReasonDeploymentNotReady means that no pod is ready. The message is the Deployment's.
	ReasonDeploymentNotReady ConditionReason = "DeploymentNotReady"

	// ConditionEndpointReady says whether the gateway can be reached: by the nodes of this cluster and, if it is a
	// server, by the peer.
	//
	// Possible reasons for it to be True:
	//   - EndpointReady
	//
	// Possible reasons for it to be False:
	//   - WaitingForGatewayPod
	//   - WaitingForLoadBalancer
	//   - NodeNotReady
	//   - ServiceTypeUnsupported
	//   - ObjectRefused
	ConditionEndpointReady ConditionType = "EndpointReady"

	// ReasonEndpointReady means that the endpoints in the status are complete.
	ReasonEndpointReady ConditionReason = "EndpointReady"
	// ReasonWaitingForLoadBalancer means that the cloud has not given an address to the Service yet.
	ReasonWaitingForLoadBalancer ConditionReason = "WaitingForLoadBalancer"
	// ReasonNodeNotReady means that the node of the active pod is not Ready or has no address.
	ReasonNodeNotReady ConditionReason = "NodeNotReady"
	// ReasonServiceTypeUnsupported means that a gateway cannot be exposed by this type of Service.
	ReasonServiceTypeUnsupported ConditionReason = "ServiceTypeUnsupported"
)

// Conditions of a [Connection]. The gateway writes them.
const (
	// ConditionConfigurationApplied says whether the gateway works by the newest objects.
	//
	// Possible reasons for it to be True:
	//   - Applied
	//
	// Possible reasons for it to be False:
	//   - Refused
	//   - WaitingForObjects
	ConditionConfigurationApplied ConditionType = "ConfigurationApplied"

	// ReasonApplied means that the newest state of the objects is in force.
	ReasonApplied ConditionReason = "Applied"
	// ReasonRefused means that it cannot be, and that the one before stays in force. The message says why.
	ReasonRefused ConditionReason = "Refused"
	// ReasonWaitingForObjects means that nothing is in force yet, as objects of the peering are missing.
	ReasonWaitingForObjects ConditionReason = "WaitingForObjects"

	// ConditionPeerAnswers says whether the peer's gateway answers through the tunnel, and else why not, as far as this
	// one can tell. Absent while it has not been tried for long enough.
	//
	// Possible reasons for it to be True:
	//   - PeerAnswers
	//
	// Possible reasons for it to be False:
	//   - PeerKeyMissing
	//   - EndpointNotFound
	//   - NoHandshake
	//   - NoAnswer
	ConditionPeerAnswers ConditionType = "PeerAnswers"

	// ReasonPeerAnswers means that it does.
	ReasonPeerAnswers ConditionReason = "PeerAnswers"
	// ReasonEndpointNotFound means that no address is known for the name in the endpoint of a GatewayClient.
	ReasonEndpointNotFound ConditionReason = "EndpointNotFound"
	// ReasonNoHandshake means that there is no WireGuard session: nothing comes from the peer, or nothing that its key
	// made.
	ReasonNoHandshake ConditionReason = "NoHandshake"
	// ReasonNoAnswer means that there was a WireGuard session lately, but nothing comes back through it.
	ReasonNoAnswer ConditionReason = "NoAnswer"

	// ConditionMTUMatches says whether both gateways have the same MTU. Absent while the peer's is not known.
	//
	// Possible reasons for it to be True:
	//   - MTUMatches
	//
	// Possible reasons for it to be False:
	//   - MTUMismatch
	ConditionMTUMatches ConditionType = "MTUMatches"

	// ReasonMTUMatches means that they are equal.
	ReasonMTUMatches ConditionReason = "MTUMatches"
	// ReasonMTUMismatch means that large packets get lost in one direction.
	ReasonMTUMismatch ConditionReason = "MTUMismatch"

	// ConditionPeerUnique is there, and False, while several gateways speak with the peer's key, of which each believes
	// to lead.
	//
	// Possible reasons for it to be False:
	//   - SeveralPeers
	ConditionPeerUnique ConditionType = "PeerUnique"

	// ReasonSeveralPeers means that they take the tunnel from each other. The message has their addresses.
	ReasonSeveralPeers ConditionReason = "SeveralPeers"

	// ConditionAllTunnelsCarry is there, and False, while packets go by some of several tunnels only.
	//
	// Possible reasons for it to be False:
	//   - TunnelsLeftOut
	ConditionAllTunnelsCarry ConditionType = "AllTunnelsCarry"

	// ReasonTunnelsLeftOut means that the peer does not answer by some tunnels. The message names their ports.
	ReasonTunnelsLeftOut ConditionReason = "TunnelsLeftOut"
)

// Conditions of an [InternalNode]. The node's agent writes them.
const (
	// ConditionTunnelsReady says whether the node has a tunnel to every gateway, with addresses and routes as described.
	//
	// Possible reasons for it to be True:
	//   - TunnelsReady
	//
	// Possible reasons for it to be False:
	//   - TunnelRefused
	//   - TrafficDiverted
	//   - GatewayUnreachable
	//   - LinkKindUnavailable
	//   - NotPermitted
	ConditionTunnelsReady ConditionType = "TunnelsReady"

	// ReasonTunnelsReady means that every tunnel is as described. That packets come through is what a gateway's
	// Connection says.
	ReasonTunnelsReady ConditionReason = "TunnelsReady"
	// ReasonTunnelRefused means that one of the tunnels cannot be as described: its objects contradict each other, a link
	// of its name is somebody else's, or the kernel refused it. The message names it. The others work.
	ReasonTunnelRefused ConditionReason = "TunnelRefused"
	// ReasonTrafficDiverted means that a policy rule of another program, which comes before the agent's, takes packets of
	// pods past one of the tunnels. The message names the rule, its table and where they go. The others work.
	ReasonTrafficDiverted ConditionReason = "TrafficDiverted"
	// ReasonGatewayUnreachable means that the node has no route to one of the gateways. The message names it. The others
	// work.
	ReasonGatewayUnreachable ConditionReason = "GatewayUnreachable"
	// ReasonLinkKindUnavailable means that this node can have no link of the kind that was asked for, or of any kind. The
	// message says what is missing.
	ReasonLinkKindUnavailable ConditionReason = "LinkKindUnavailable"
	// ReasonNotPermitted means that the agent may not change the node's network. The message says what to grant.
	ReasonNotPermitted ConditionReason = "NotPermitted"

	// ConditionAddressTranslationReady says whether packets to and from the gateways keep or get the source address that
	// they should have on their way through the node.
	//
	// Possible reasons for it to be True:
	//   - AddressTranslationReady
	//
	// Possible reasons for it to be False:
	//   - NFTablesUnavailable
	//   - TranslationRefused
	ConditionAddressTranslationReady ConditionType = "AddressTranslationReady"

	// ReasonAddressTranslationReady means that the node's table of address translation is as described.
	ReasonAddressTranslationReady ConditionReason = "AddressTranslationReady"
	// ReasonNFTablesUnavailable means that the node's kernel has no nf_tables, or not all of it that is needed. Tunnels
	// work; the node may hide the addresses of its pods from the remote clusters. The message says what is missing.
	ReasonNFTablesUnavailable ConditionReason = "NFTablesUnavailable"
	// ReasonTranslationRefused means that the kernel refused the table. What was there before stays in force.
	ReasonTranslationRefused ConditionReason = "TranslationRefused"

	// ConditionLiqoReplaced is there where the agent takes the place of Liqo's. It says whether what that has made is gone.
	//
	// Possible reasons for it to be True:
	//   - LiqoReplaced
	//
	// Possible reasons for it to be False:
	//   - LiqoLeft
	ConditionLiqoReplaced ConditionType = "LiqoReplaced"

	// ReasonLiqoReplaced means that nothing of Liqo's agent is left.
	ReasonLiqoReplaced ConditionReason = "LiqoReplaced"
	// ReasonLiqoLeft means that rules, routes or tables of Liqo's agent are left on the node. The message says why, and names
	// the objects for which the agent waits.
	ReasonLiqoLeft ConditionReason = "LiqoLeft"
)

// ConditionOptionsRead, of a ServiceExport, says by which annotations its other conditions were decided: annotations do not
// change the generation of an object. The message is [ExportOptions].
const ConditionOptionsRead ConditionType = "OptionsRead"

// ExportOptions says what the annotations of a ServiceExport ask for, in no more than 1000 bytes.
func ExportOptions(annotations map[string]string) string {
	to, some := annotations[AnnotationExportTo]
	if some {
		to = fmt.Sprintf("the clusters %q", to)
	} else {
		to = "all peers"
	}
	prefer := ""
	if annotations[AnnotationPreferLocal] == LabelTrue {
		prefer = "Local endpoints are preferred; "
	}
	return text.Cut(prefer+"For "+to, 1000)
}

// ConditionAlias, of a ServiceImport, says whether its Service has its own name in the namespace. It is
// there only where that is wanted and not possible.
//
// Possible reasons for it to be False:
//   - NameTaken
const ConditionAlias ConditionType = "Alias"

// Conditions of an [ImportedService]. The controller writes them.
const (
	// ConditionAccepted says whether the Service is part of a ServiceImport of this cluster.
	//
	// Possible reasons for it to be True:
	//   - Accepted
	//
	// Possible reasons for it to be False:
	//   - InvalidService
	//   - NoPeering
	//   - NamespaceReserved
	//   - NotWanted
	//   - NamespaceNotFound
	//   - TooManyNamespaces
	//   - NameTaken
	ConditionAccepted ConditionType = "Accepted"

	// ReasonAccepted means that it is.
	ReasonAccepted ConditionReason = "Accepted"
	// ReasonInvalidService means that what the peer says is not a Service, or none that the API server takes.
	ReasonInvalidService ConditionReason = "InvalidService"
	// ReasonNoPeering means that the object is of no peering of this cluster.
	ReasonNoPeering ConditionReason = "NoPeering"
	// ReasonNamespaceReserved means that the namespace is one of Kubernetes, or of the connections between clusters.
	ReasonNamespaceReserved ConditionReason = "NamespaceReserved"
	// ReasonNotWanted means that the annotation liqo.io/import-services of the Configuration of the peer does not name it.
	ReasonNotWanted ConditionReason = "NotWanted"
	// ReasonNamespaceNotFound means that this cluster has no namespace of that name, and the annotation
	// liqo.io/create-namespaces of the Configuration of the peer does not name it.
	ReasonNamespaceNotFound ConditionReason = "NamespaceNotFound"
	// ReasonTooManyNamespaces means that so many namespaces were created for the peer that it gets no more.
	ReasonTooManyNamespaces ConditionReason = "TooManyNamespaces"
	// ReasonNameTaken means that an object of a user has the name of one that would be made.
	ReasonNameTaken ConditionReason = "NameTaken"
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
	// ObservedGeneration is the generation of the spec that the host reports about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Reason is one word for the cause.
	Reason string `json:"reason,omitempty"`
	// Message says what the host does not apply, and what to write instead.
	Message string `json:"message,omitempty"`
	// LastTransitionTime is when the status changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
}
