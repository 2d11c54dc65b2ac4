package survey

import (
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
)

// FabricReport is what `fabric status -o json` prints on a node, as far as
// anybody needs it here.
type FabricReport struct {
	Version string    `json:"version"`
	Running bool      `json:"running"`
	Time    time.Time `json:"time"` // by the node's clock
	Started time.Time `json:"started,omitzero"`
	Node    string    `json:"node,omitempty"`
	Link    struct {
		Kind   string `json:"kind"` // geneve, vxlan, tun; empty: none can be had
		Reason string `json:"reason"`
		Forced bool   `json:"forced"`
	} `json:"link"`
	Port        uint16         `json:"port,omitempty"`
	Generation  uint64         `json:"generation"`
	AppliedAt   time.Time      `json:"appliedAt,omitzero"`
	Tunnels     []FabricTunnel `json:"tunnels"`
	Rules       []string       `json:"rules,omitempty"`
	Translation struct {
		Available bool   `json:"available"`
		Reason    string `json:"reason,omitempty"`
		Exists    bool   `json:"exists"`
	} `json:"translation"`
	NodeIP       networkingv1beta1.NodeIP `json:"nodeIP"`
	Conditions   []metav1.Condition       `json:"conditions"`
	ReportError  string                   `json:"reportError,omitempty"`
	Drift        []string                 `json:"drift,omitempty"`
	Waiting      manifests.Problems       `json:"waiting,omitempty"`
	Ignored      manifests.Problems       `json:"ignored,omitempty"`
	Unreachable  manifests.Problems       `json:"unreachable,omitempty"`
	Untranslated manifests.Problems       `json:"untranslated,omitempty"`
	Refused      manifests.Problems       `json:"refused,omitempty"`
	Warnings     manifests.Problems       `json:"warnings,omitempty"`
	Failures     []string                 `json:"failures,omitempty"`
	Contested    string                   `json:"contested,omitempty"`
	Memory       Memory                   `json:"memory"`
}

// FabricTunnel is a node's end of the tunnel to one gateway.
type FabricTunnel struct {
	Name           string     `json:"name"`
	Owner          string     `json:"owner"`  // "InternalFabric tenant/milan"
	Status         string     `json:"status"` // up, missing, kept, down, surplus
	Kind           string     `json:"kind"`
	VNI            uint32     `json:"vni"`
	Gateway        netip.Addr `json:"gateway,omitzero"`
	Port           uint16     `json:"port,omitempty"`
	MTU            int        `json:"mtu"`
	Address        netip.Addr `json:"address,omitzero"`
	GatewayAddress netip.Addr `json:"gatewayAddress,omitzero"`
	Routes         []string   `json:"routes,omitempty"`
	Path           *struct {
		Source netip.Addr `json:"source"`
		Device string     `json:"device"`
		MTU    int        `json:"mtu"`
		Local  bool       `json:"local"`
	} `json:"path,omitempty"` // nil: no way to the gateway is known
	Neighbor  string            `json:"neighbor,omitempty"`
	RxPackets uint64            `json:"rxPackets"`
	RxBytes   uint64            `json:"rxBytes"`
	RxDropped uint64            `json:"rxDropped"`
	TxPackets uint64            `json:"txPackets"`
	TxBytes   uint64            `json:"txBytes"`
	TxDropped uint64            `json:"txDropped"`
	Drops     map[string]uint64 `json:"drops,omitempty"`
	LastSeen  time.Time         `json:"lastSeen,omitzero"`
	Problem   string            `json:"problem,omitempty"`
}
