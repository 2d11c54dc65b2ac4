package dataplane

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/dataplane/capture"
	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// Status is what the data plane is doing now, as plain values for display.
type Status struct {
	Configured bool `json:"configured"`
	MTU        int  `json:"mtu"`
	// PathMTU is the largest packet that leaves for the peer: the MTU unless the path
	// carries less.
	PathMTU    int            `json:"pathMTU"`
	Tunnel     tunnel.Stats   `json:"tunnel"`
	Internal   []netip.Addr   `json:"internal"`
	TunnelAddr netip.Addr     `json:"tunnelAddress"`
	Nodes      []NodeStatus   `json:"nodes"`
	Remote     []nat.Mapping  `json:"remote"`
	LocalPods  []netip.Prefix `json:"localPods"`
	External   []netip.Prefix `json:"localExternal"`
	// Addresses are the IP objects.
	Addresses []AddressMapping `json:"addresses"`
	Routes    []Route          `json:"routes"`
	// Sources is how far it is checked that pods send from their own nodes.
	Sources SourceCheck `json:"sources"`
	// Filter are the chains that packets are judged by, and what they counted.
	Filter []filter.ChainStatus `json:"filter,omitempty"`
	// Flows are those of senders behind the unknown source, PodFlows those that came in
	// through the IP objects of pods.
	Flows    FlowStatus              `json:"flows"`
	PodFlows FlowStatus              `json:"podFlows"`
	Egress   DirectionStatus         `json:"egress"`
	Ingress  DirectionStatus         `json:"ingress"`
	Sockets  map[string]SocketStatus `json:"sockets"` // "geneve", "wireguard"
	// Captures are what Forwarder.Capture was used for.
	Captures capture.Status `json:"captures"`
}

// SocketStatus are the address, the counters and the offloads of a UDP socket, or of several of
// one address: sums then.
type SocketStatus struct {
	LocalAddr netip.AddrPort `json:"localAddress"`
	Sockets   int            `json:"sockets"` // how many
	underlay.Stats
}

// NodeStatus describes one node tunnel.
type NodeStatus struct {
	Name          string               `json:"name"`
	VNI           geneve.VNI           `json:"vni"`
	Underlay      netip.Addr           `json:"underlay"`
	Internal      []netip.Addr         `json:"internal"`
	MAC           string               `json:"mac"` // empty: not resolved
	Encapsulation geneve.Encapsulation `json:"encapsulation"`
	LastSeen      time.Time            `json:"lastSeen"` // zero: never
	RxPackets     uint64               `json:"rxPackets"`
	RxBytes       uint64               `json:"rxBytes"`
	TxPackets     uint64               `json:"txPackets"`
	TxBytes       uint64               `json:"txBytes"`
}

// FlowStatus describes a flow table.
type FlowStatus struct {
	Entries  int `json:"entries"`
	Capacity int `json:"capacity"`
}

// DirectionStatus counts what happened to the packets of one direction.
type DirectionStatus struct {
	Packets uint64 `json:"packets"` // inner packets forwarded, after segmentation
	Bytes   uint64 `json:"bytes"`   // inner bytes forwarded
	// Verdicts counts received packets by outcome; only those above zero.
	Verdicts map[string]uint64 `json:"verdicts"`
	// Repaired are packets whose unfinished checksum was completed.
	Repaired uint64 `json:"repairedChecksums"`
	// Segmented are super-segments that were cut.
	Segmented uint64 `json:"segmented"`
	// Fragmented are packets that were cut by IPv4 fragmentation.
	Fragmented uint64 `json:"fragmented"`
	// Fallback are packets of addresses without a route: to such a pod, sent to a node
	// that was chosen, and from one, from a node that was not checked.
	Fallback uint64 `json:"fallbackRoutes"`
}
