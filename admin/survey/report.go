package survey

import (
	"net/netip"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
)

// GatewayReport is what `gateway status -o json` prints, as far as anybody needs
// it here. A gateway of another version may leave things out: they are zero.
type GatewayReport struct {
	Version string    `json:"version"`
	Time    time.Time `json:"time"` // by the gateway's clock
	Started time.Time `json:"started"`
	// Cluster is nil for a gateway outside of a cluster.
	Cluster   *GatewayCluster `json:"cluster,omitempty"`
	Sync      GatewayControl  `json:"sync"`
	DataPlane DataPlane       `json:"dataPlane"`
	Memory    Memory          `json:"memory"`
	// Services is nil where none are exchanged with the peer.
	Services *ExchangeState `json:"services,omitempty"`
}

// ExchangeState is which Services the gateways of a peering have told each other.
type ExchangeState struct {
	Exported int `json:"exported"` // the peer may use
	// LeftOut says which are not told, and why.
	LeftOut  []string   `json:"leftOut,omitempty"`
	Imported []struct{} `json:"imported"` // the peer has told
	// Heard says that the peer tells all there is; Problem why not.
	Heard   bool   `json:"heard"`
	Problem string `json:"problem,omitempty"`
	// Refused counts by reason what the peer told and must not have.
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// GatewayCluster is what a gateway says of its API server.
type GatewayCluster struct {
	API struct {
		Connected bool   `json:"connected"`
		Error     string `json:"error,omitempty"`
	} `json:"api"`
}

// GatewayControl is what a gateway made of the objects of its peering.
type GatewayControl struct {
	Role    string             `json:"role"` // active or standby
	Waiting manifests.Problems `json:"waiting,omitempty"`
	Ignored manifests.Problems `json:"ignored,omitempty"`
	Refused manifests.Problems `json:"refused,omitempty"`
	Peer    PingState          `json:"peer"`
}

// PingState is the peer's health as the ping through the tunnel sees it.
type PingState struct {
	Value       networkingv1beta1.ConnectionValue `json:"value"`
	Latency     time.Duration                     `json:"latencyNanoseconds"`
	LatencyText string                            `json:"latency"`
	// Lost counts pings in a row without an answer, long before Value says so.
	Lost    int `json:"lostPings,omitempty"`
	Silence struct {
		Message string `json:"message"`
	} `json:"silence,omitzero"`
	MTU         int    `json:"mtu,omitempty"` // the peer's
	MTUMismatch string `json:"mtuMismatch,omitempty"`
}

// DataPlane is what a gateway's packet path does.
type DataPlane struct {
	Configured bool `json:"configured"`
	MTU        int  `json:"mtu"`
	// PathMTU is the largest packet that leaves for the peer: MTU unless the gateway has found
	// that the path carries less. 0: an older gateway does not say so.
	PathMTU   int            `json:"pathMTU,omitempty"`
	Tunnel    TunnelStats    `json:"tunnel"`
	Nodes     []NodeTunnel   `json:"nodes"`
	Remote    []Mapping      `json:"remote"`
	LocalPods []netip.Prefix `json:"localPods"`
	External  []netip.Prefix `json:"localExternal"`
	// Sources is what --strict-source of the gateway says.
	Sources string            `json:"sources"`
	Filter  []FilterChain     `json:"filter,omitempty"`
	Egress  Direction         `json:"egress"`
	Ingress Direction         `json:"ingress"`
	Sockets map[string]Socket `json:"sockets"` // "geneve", "wireguard"
}

// Mapping is a prefix of the peer: as this cluster calls it and as the tunnel
// carries it.
type Mapping struct {
	Inside, Outside netip.Prefix
}

// TunnelStats is what WireGuard counted. The reasons of its drops are explained
// in tunnel/stats.go; see also Drops.
type TunnelStats struct {
	// Self and Peer are public keys in base64; empty: not known yet. FormerPeer is
	// one that is still honoured, while nothing has come by the new one.
	Self               string         `json:"self"`
	Peer               string         `json:"peer"`
	FormerPeer         string         `json:"formerPeer,omitempty"`
	Endpoint           netip.AddrPort `json:"endpoint"`
	LookupError        string         `json:"lookupError,omitempty"`
	ListenPort         uint16         `json:"listenPort"`
	LastHandshake      time.Time      `json:"lastHandshake"` // zero: never
	RxBytes            uint64         `json:"rxBytes"`
	TxBytes            uint64         `json:"txBytes"`
	DropNoEndpoint     uint64         `json:"dropNoEndpoint"`
	DropNoSession      uint64         `json:"dropNoSession"`
	DropUnconfirmed    uint64         `json:"dropUnconfirmed"`
	DropNoPeer         uint64         `json:"dropNoPeer"`
	DropFlushed        uint64         `json:"dropFlushed"`
	DropUnknownSession uint64         `json:"dropUnknownSession"`
	DropRejected       uint64         `json:"dropRejected"`
	DropMalformed      uint64         `json:"dropMalformed"`
	DropHandshakeLimit uint64         `json:"dropHandshakeLimit"`
	RxHandshakes       uint64         `json:"rxHandshakes"`
	RxInitiations      uint64         `json:"rxInitiations"`
	RxResponses        uint64         `json:"rxResponses"`
	TxInitiations      uint64         `json:"txInitiations"`
	TxResponses        uint64         `json:"txResponses"`
	LastInitiation     time.Time      `json:"lastInitiation"` // received; zero: never
	LastResponse       time.Time      `json:"lastResponse"`   // sent
}

// NodeTunnel is a gateway's end of the tunnel to one node.
type NodeTunnel struct {
	Name          string     `json:"name"`
	VNI           uint32     `json:"vni"`
	Underlay      netip.Addr `json:"underlay"`
	Encapsulation string     `json:"encapsulation"` // geneve, geneve-ip or vxlan
	LastSeen      time.Time  `json:"lastSeen"`      // zero: never
}

// Direction counts the packets of one direction: egress is from this cluster to
// the peer.
type Direction struct {
	Packets uint64 `json:"packets"` // forwarded
	Bytes   uint64 `json:"bytes"`
	// Verdicts counts packets by outcome; see dataplane/verdict.go.
	Verdicts map[string]uint64 `json:"verdicts"`
	Fallback uint64            `json:"fallbackRoutes"`
}

// FilterChain is a chain of a FirewallConfiguration.
type FilterChain struct {
	Table  string     `json:"table"`
	Chain  string     `json:"chain"`
	Policy string     `json:"policy"`
	Rules  []struct{} `json:"rules"`
}

// Socket is one of a gateway's UDP sockets.
type Socket struct {
	LocalAddr netip.AddrPort `json:"localAddress"`
	Overruns  uint64         `json:"overruns"` // datagrams that the kernel dropped, as the buffer was full
}

// Memory is what a process takes.
type Memory struct {
	Resident uint64 `json:"residentBytes"`
}
