package survey

import (
	"cmp"
	"net"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Status is how one end of a peering is, in numbers: a line of `network status`,
// and an element of its JSON. What is not known is left out.
type Status struct {
	// Cluster is "local" or "remote" where there are two.
	Cluster string `json:"cluster,omitempty"`
	// Self is the ID of the cluster whose end it is, Peer that of the other.
	Self      string `json:"self"`
	Peer      string `json:"peer"`
	Namespace string `json:"namespace"`
	Health    Health `json:"health"`
	// State is that of the Connection; empty: there is none.
	State   string        `json:"state,omitempty"`
	Latency string        `json:"latency,omitempty"`
	Gateway *GatewayState `json:"gateway,omitempty"`
	Traffic *Traffic      `json:"traffic,omitempty"`
	Keys    *KeyState     `json:"keys,omitempty"`
	Nodes   *NodeState    `json:"nodes,omitempty"`
	Alerts  []StatusAlert `json:"alerts,omitempty"`
	// Authentication is how the identities between the clusters are; nil: there are none, or nobody tells.
	Authentication *ModuleState `json:"authentication,omitempty"`
	// Offloading is how the virtual nodes of the peer are; nil: there are none, or nobody tells.
	Offloading *ModuleState `json:"offloading,omitempty"`
	// Services counts those that the gateways have told each other; nil: they do not, or nobody tells.
	Services *ServiceCount `json:"services,omitempty"`
}

// ServiceCount is how many Services go which way.
type ServiceCount struct {
	Exported int `json:"exported"`
	Imported int `json:"imported"`
}

// ModuleState is how a part of a peering is beside the network.
type ModuleState struct {
	Health Health `json:"health"`
	// Alerts say what is not as it should be.
	Alerts []string `json:"alerts,omitempty"`
}

// GatewayState is what is known of a gateway.
type GatewayState struct {
	Kind     string                           `json:"kind"`
	Name     string                           `json:"name"`
	Role     networkingv1beta1.ConnectionType `json:"role"`
	Endpoint string                           `json:"endpoint,omitempty"` // the server's
	MTU      int                              `json:"mtu"`
	// PathMTU is the largest packet that leaves for the peer, where the path carries less than MTU.
	PathMTU  int    `json:"pathMTU,omitempty"`
	PeerMTU  int    `json:"peerMTU,omitempty"`
	Version  string `json:"version,omitempty"`
	Replicas int    `json:"replicas"`
	Ready    int    `json:"ready"`
	// PodsUnread says that the pods could not be read: their numbers, and who is active, mean nothing.
	PodsUnread bool `json:"podsUnread,omitempty"`
	// ActivePod is the pod that forwards, on ActiveNode.
	ActivePod  string `json:"activePod,omitempty"`
	ActiveNode string `json:"activeNode,omitempty"`
	Restarts   int32  `json:"restarts"`
}

// Traffic is what a gateway counted since it started.
type Traffic struct {
	Started time.Time `json:"started"`
	Egress  Counted   `json:"egress"`
	Ingress Counted   `json:"ingress"`
	// Drops are those of both directions by their reasons.
	Drops []Drop `json:"drops,omitempty"`
	// Window is how long the rates were measured, in seconds; zero: there are none.
	Window float64 `json:"windowSeconds,omitempty"`
}

// Counted is one direction of Traffic.
type Counted struct {
	Bytes   uint64 `json:"bytes"`
	Packets uint64 `json:"packets"`
	Dropped uint64 `json:"dropped"`
	// Rate is nil where it is not known.
	Rate *Rate `json:"rate,omitempty"`
}

// KeyState is what is known of the keys of a connection.
type KeyState struct {
	// Since is when this end got its own key, PeerSince when it was told the
	// peer's.
	Since     time.Time `json:"since,omitzero"`
	PeerSince time.Time `json:"peerSince,omitzero"`
	// Handshake is when the last one was complete, by the clock of this machine.
	Handshake time.Time `json:"lastHandshake,omitzero"`
}

// NodeState counts the nodes of the cluster: all, those that are joined to the
// gateway, and those that the gateway has heard from.
type NodeState struct {
	Known  int `json:"known"`
	Joined int `json:"joined"`
	Heard  int `json:"heard,omitempty"`
}

// StatusAlert is an Alert in JSON.
type StatusAlert struct {
	Severity string `json:"severity"` // severityError or severityWarning
	Object   string `json:"object"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	// Idle says that nothing is forwarded because of it.
	Idle bool `json:"idle,omitempty"`
}

const (
	severityError   = "error"
	severityWarning = "warning"
)

// Status is the alert in JSON.
func (a Alert) Status() StatusAlert {
	s := StatusAlert{severityError, a.Object, a.Reason, a.Message, a.Idle}
	if a.Warning {
		s.Severity = severityWarning
	}
	return s
}

// Status sums up what is known of a peer. Before is an earlier report of its
// gateway, to which the present one is compared; nil: there is none.
func (c *Cluster) Status(p *Peer, before *GatewayReport) Status {
	health, alerts := c.Health(p)
	s := Status{Cluster: c.Name, Self: c.Installation.ClusterID, Peer: p.ID, Namespace: p.Namespace, Health: health}
	for _, a := range alerts {
		s.Alerts = append(s.Alerts, a.Status())
	}
	if o := p.Connection; o != nil {
		s.State, s.Latency = string(o.Status.Value), o.Status.Latency.Value
	}
	if h, alerts := c.Authentication(p); h != Disabled && h != Unknown {
		s.Authentication = &ModuleState{h, alerts}
	}
	if h, alerts := c.Offloading(p); h != Disabled && h != Unknown {
		s.Offloading = &ModuleState{h, alerts}
	}
	g := p.Gateway
	if g == nil {
		return s
	}
	s.Gateway, s.Keys = g.state(), c.keyState(p)
	s.Gateway.PodsUnread = c.Unread("Pod")
	if !c.Unread("InternalNode") && !c.Unread("GeneveTunnel") {
		joined, known, _ := c.Joined(p)
		s.Nodes = &NodeState{Known: known, Joined: joined}
	}
	r := g.Report
	if r == nil {
		return s
	}
	s.Latency = cmp.Or(r.Sync.Peer.LatencyText, s.Latency)
	s.Traffic = trafficOf(before, r)
	if x := r.Services; x != nil {
		s.Services = &ServiceCount{Exported: x.Exported, Imported: len(x.Imported)}
	}
	if s.Nodes == nil {
		s.Nodes = &NodeState{Known: len(r.DataPlane.Nodes)}
	}
	for _, n := range r.DataPlane.Nodes {
		if !n.LastSeen.IsZero() {
			s.Nodes.Heard++
		}
	}
	return s
}

func (g *Gateway) state() *GatewayState {
	s := &GatewayState{Kind: g.Kind, Name: g.Name, Role: g.Role, MTU: g.MTU, Replicas: len(g.Pods), Endpoint: endpointText(g.Endpoint)}
	for _, pod := range g.Pods {
		s.Restarts += pod.Restarts
		if pod.Ready {
			s.Ready++
		}
	}
	if pod := g.Active(); pod != nil {
		s.ActivePod, s.ActiveNode, s.Version = pod.Name, pod.Node, pod.Version
	}
	if r := g.Report; r != nil {
		s.MTU, s.PeerMTU, s.Version = cmp.Or(r.DataPlane.MTU, s.MTU), r.Sync.Peer.MTU, cmp.Or(r.Version, s.Version)
		if r.DataPlane.PathMTU < r.DataPlane.MTU {
			s.PathMTU = r.DataPlane.PathMTU
		}
	}
	return s
}

// endpointText is the first address of an endpoint with its ports.
func endpointText(e *networkingv1beta1.Endpoint) string {
	if e == nil || len(e.Addresses) == 0 {
		return ""
	}
	return net.JoinHostPort(e.Addresses[0], networkingv1beta1.PortsText(e.AllPorts()))
}

func (c *Cluster) keyState(p *Peer) *KeyState {
	var s KeyState
	if k := p.Gateway.Keys; k != nil {
		s.Since = k.Since
	}
	if len(p.PublicKeys) == 1 {
		s.PeerSince = publicKeySince(&p.PublicKeys[0])
	}
	if r := p.Gateway.Report; r != nil && !r.DataPlane.Tunnel.LastHandshake.IsZero() {
		// The gateway's clock may be another: only the difference tells.
		s.Handshake = c.ReadAt.Add(r.DataPlane.Tunnel.LastHandshake.Sub(r.Time)).UTC().Truncate(time.Second)
	}
	if s == (KeyState{}) {
		return nil
	}
	return &s
}

func trafficOf(before, r *GatewayReport) *Traffic {
	t := &Traffic{Started: r.Started, Drops: r.Drops()}
	dropped := r.dropsByDirection()
	t.Egress = Counted{Bytes: r.DataPlane.Egress.Bytes, Packets: r.DataPlane.Egress.Packets, Dropped: dropped[Egress]}
	t.Ingress = Counted{Bytes: r.DataPlane.Ingress.Bytes, Packets: r.DataPlane.Ingress.Packets, Dropped: dropped[Ingress]}
	if rates, ok := RatesOf(before, r); ok {
		t.Window, t.Egress.Rate, t.Ingress.Rate = rates.Window.Seconds(), &rates.Egress, &rates.Ingress
	}
	return t
}
