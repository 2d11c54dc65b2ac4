package survey

import (
	"net/netip"

	"github.com/sluice-net/sluice/objects/manifests"
)

// FabricReport is what `fabric status -o json` prints on a node, as far as
// anybody needs it here.
type FabricReport struct {
	Link struct {
		Kind   string `json:"kind"` // geneve, vxlan, tun; empty: none can be had
		Reason string `json:"reason"`
	} `json:"link"`
	Tunnels     []FabricTunnel     `json:"tunnels"`
	Rules       []string           `json:"rules,omitempty"`
	ReportError string             `json:"reportError,omitempty"`
	Unreachable manifests.Problems `json:"unreachable,omitempty"`
	Failures    []string           `json:"failures,omitempty"`
}

// FabricTunnel is a node's end of the tunnel to one gateway.
type FabricTunnel struct {
	Name    string     `json:"name"`
	Owner   string     `json:"owner"`  // "InternalFabric tenant/milan"
	Status  string     `json:"status"` // up, missing, kept, down, surplus
	Kind    string     `json:"kind"`
	VNI     uint32     `json:"vni"`
	Gateway netip.Addr `json:"gateway,omitzero"`
	Port    uint16     `json:"port,omitempty"`
	MTU     int        `json:"mtu"`
	Routes  []string   `json:"routes,omitempty"`
	Problem string     `json:"problem,omitempty"`
}
