package survey

import (
	"slices"
	"time"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// Cluster is what one cluster says of itself.
type Cluster struct {
	// Name is that of the access.Cluster: "local", "remote" or empty.
	Name string
	// ReadAt is when it was read, by the clock of this machine.
	ReadAt       time.Time
	Installation Installation
	Networks     Networks
	// Nodes are those that take part in the internal network or should, by name.
	Nodes []Node
	// Peers are the remote clusters that anything in this one speaks of, by ID.
	Peers []Peer
	// Exposed are the addresses that IPs make known to all peers, by namespace and name.
	Exposed []Exposed
	// Offloaded are the namespaces whose pods may run in other clusters, by name.
	Offloaded []OffloadedNamespace
	// Gaps is what could not be read.
	Gaps []Gap
	// Within is the only namespace where objects of peerings were looked for, as the user may not look everywhere. Empty: all.
	Within string
}

// Exposed is an address of this cluster, or one that can be reached from it, that peers
// reach by another one.
type Exposed struct {
	Namespace, Name string
	// IP is the address here, Remapped the one in the external CIDR, empty while there is
	// none. A peer reaches Remapped by the same host part in its own prefix for that CIDR.
	IP, Remapped string
	// Problem is why there is none.
	Problem string
}

// Peer returns the peer with an ID, nil if there is none.
func (c *Cluster) Peer(id string) *Peer {
	for i := range c.Peers {
		if c.Peers[i].ID == id {
			return &c.Peers[i]
		}
	}
	return nil
}

// Unread tells whether the objects of a kind could not be read, so that their
// absence means nothing.
func (c *Cluster) Unread(kind string) bool {
	return slices.ContainsFunc(c.Gaps, func(g Gap) bool { return g.Kind == kind })
}

// Gap is something that could not be read. The rest is there nevertheless.
type Gap struct {
	// What is a noun phrase: "Secrets", "Pods of namespace a", "Configuration a/b".
	What string
	// Kind is that of the objects, where they are all the objects of a kind.
	Kind string
	// Err says why, with the cluster's name and the next step.
	Err error
}

// Installation is what is installed, and how it is.
type Installation struct {
	// ClusterID is empty where it could not be read or nothing is installed.
	ClusterID string
	// Version is that of the controller; empty: not known.
	Version   string
	Namespace string
	// APIServer is the address by which it was reached, and KubernetesVersion what
	// it says of itself.
	APIServer         string
	KubernetesVersion string
	// Labels are those that the administrator gave the cluster.
	Labels     map[string]string
	Components []Component
	// ControllerReplicas is how many pods of the controller the administrator asked for; 0:
	// not known.
	ControllerReplicas int32
	// Interrupted says what is left of a takeover of Liqo's network that has not come to its end, and how to go on; empty: nothing.
	Interrupted string
}

// Component is a Deployment or a DaemonSet of the installation.
type Component struct {
	Kind      string // Deployment, DaemonSet
	Namespace string
	Name      string
	Version   string
	// LiqosProgram is which of Liqo's programs it runs, whatever its name; empty: none that is known.
	LiqosProgram string
	// Desired and Ready count pods.
	Desired, Ready int32
	// Updated counts those of the newest template.
	Updated int32
	// Outdated counts pods of an earlier template, which those of the newest are to
	// replace.
	Outdated int32
	// Pods are those that are not well; where all are ready they are not asked for.
	Pods []Pod
}

// Networks are the Networks of the installation.
type Networks struct {
	Pod, Service, External, Internal, Reserved []Network
	// Other are those in its namespace that somebody else has made there.
	Other []Network
}

// Network is one of them.
type Network struct {
	Name string
	// Desired is what was asked for, CIDR what was given; empty: nothing yet.
	Desired, CIDR string
	// Problem is why not.
	Problem string
}

// Node is a node of this cluster as an end of the internal network.
type Node struct {
	Name string
	// Created is when the Node was; zero: not known.
	Created time.Time
	// Internal is nil for a node without InternalNode.
	Internal *networkingv1beta1.InternalNode
}

// Peer is everything in this cluster that is about one remote cluster.
type Peer struct {
	// ID is empty for objects whose label with the ID is missing.
	ID string
	// Namespace is where the objects are that count.
	Namespace string
	// Configuration is the oldest; nil: none.
	Configuration *networkingv1beta1.Configuration
	// Gateway is the oldest, which is the one that serves; nil: none.
	Gateway *Gateway
	// PublicKeys are the peer's; more than one are a mistake.
	PublicKeys []networkingv1beta1.PublicKey
	// Connection is that of Gateway; nil: none.
	Connection *networkingv1beta1.Connection
	// Fabric is the gateway as the nodes know it; nil: they do not.
	Fabric *networkingv1beta1.InternalFabric
	// Tunnels are the names of the nodes that have a GeneveTunnel to the gateway.
	Tunnels []string
	// Firewall are the filters that the gateway applies because of its peer or as
	// every gateway does.
	Firewall []networkingv1beta1.FirewallConfiguration
	// Foreign is what the controller tells of the peering as a whole; nil: nothing, as one of an earlier version does not.
	Foreign *corev1beta1.ForeignCluster
	// Slices are the ResourceSlices of the peer, asked for here or there, by name.
	Slices []authv1beta1.ResourceSlice
	// VirtualNodes stand for the peer, by name.
	VirtualNodes []offloadingv1beta1.VirtualNode
	// Surplus are objects that are of no effect, because another one counts:
	// "GatewayClient default/milan".
	Surplus []string
}

// Pod is a pod of a gateway or of a component.
type Pod struct {
	Namespace, Name, Node, IP string
	// Version is the tag of its image.
	Version  string
	Ready    bool
	Active   bool // of the gateway's pods the one that leads
	OfLiqo   bool // it is of Liqo's gateway or node agent
	Restarts int32
	Created  time.Time
	// Reason is why it is not ready, in few words; empty: it is.
	Reason string
}

// Peered tells whether there is a peering: a network, or one that is asked for resources.
func (p *Peer) Peered() bool {
	return !p.Empty() || p.Foreign != nil && (p.Foreign.Status.Modules.Authentication.Enabled || p.Foreign.Status.Modules.Offloading.Enabled)
}

// Empty tells whether nothing is left of the network of a peering but, maybe, its namespace.
func (p *Peer) Empty() bool {
	return p.Configuration == nil && p.Gateway == nil && p.Connection == nil && len(p.Surplus) == 0
}
