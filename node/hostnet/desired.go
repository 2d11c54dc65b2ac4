package hostnet

import "net/netip"

const (
	// LinkPrefix begins the name of every tunnel link, as in "liqo.abcdefghij".
	LinkPrefix = "liqo."
	// AliasPrefix begins the alias of every link that is ours. What follows names
	// the object that the link is made from, and of a TUN device where it leads to.
	AliasPrefix = "sluice: "
	// MaxOwner is how long Link.Owner may be: the kernel takes 255 bytes of alias,
	// and the longest end of one is that of an IPv6 gateway.
	MaxOwner = 255 - len(AliasPrefix) - len(" (VNI 16777215, gateway [ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535)")
	// Table is the routing table that holds our routes and nothing else. The
	// number is that of the tunnels' UDP port: easy to recognize.
	Table = 6091
	// Protocol is the origin of our routes and rules (rtnetlink(7), rtm_protocol).
	// Numbers up to 4 are the kernel's; /etc/iproute2/rt_protos names no 92.
	Protocol = 92
	// RulePriority is the default place of the rule that leads to Table: behind
	// the rules with which CNIs catch packets by mark, before those by which they
	// choose an uplink by source address and before the main table.
	RulePriority = 600
	// PathMark is the firewall mark of what our rules do not hold for: nothing but
	// our questions for the way to a gateway, which must not lead into a tunnel,
	// whatever is in force.
	PathMark = 92
	// TranslationTable is our nftables table, of family inet.
	TranslationTable = "sluice-fabric"
)

// RouterLinkLocal is an address that the gateway claims on every tunnel with
// Ethernet frames, by neighbor discovery: the next hop of IPv6 routes where
// the internal network is IPv4.
var RouterLinkLocal = netip.MustParseAddr("fe80::1")

// Kind is what a tunnel link is made of.
type Kind string

// The kinds, in the order of preference.
const (
	// KindGeneve is the kernel's geneve device.
	KindGeneve Kind = "geneve"
	// KindVXLAN is the kernel's vxlan device, on the same port.
	KindVXLAN Kind = "vxlan"
	// KindTUN is a TUN device, with Geneve in the agent.
	KindTUN Kind = "tun"
)

// Kinds holds all kinds, the best first.
var Kinds = []Kind{KindGeneve, KindVXLAN, KindTUN}

// Desired is what the network namespace should hold of ours. The zero value
// asks for nothing: everything that carries our mark is to go.
type Desired struct {
	// RulePriority is that of the rules that lead to Table; zero: RulePriority.
	RulePriority uint32
	// Links are the tunnels, each with its own name.
	Links []Link
	// Keep names links that stay exactly as they are, with addresses and routes,
	// whether or not they are there: what is desired of them cannot be had, and
	// what is in force is better than nothing.
	Keep []string
	// Translation is the content of TranslationTable; the zero value: no table.
	Translation Translation
}

// Link is one tunnel to a gateway, and what is reached through it.
type Link struct {
	// Name is the interface name: LinkPrefix and at most ten bytes.
	Name string
	// Owner names the object behind it, in the alias: at most MaxOwner bytes.
	Owner string
	Kind  Kind
	// VNI has 24 bits.
	VNI uint32
	// Gateway is where the tunnel leads to on the underlay: the address of the gateway's pod.
	Gateway netip.Addr
	// Port is the UDP port at both ends.
	Port uint16
	// MAC is that of a link which was Liqo's and keeps it: Diff finds it. Zero: the
	// one that is computed.
	MAC MAC
	// MTU is the largest inner packet.
	MTU int
	// Address is the node's own inside the tunnel. It is set as a host address
	// (/32 or /128).
	Address netip.Addr
	// GatewayAddress is the gateway's inside the tunnel, of the same family.
	GatewayAddress netip.Addr
	// Routes are the prefixes behind the gateway, masked, without duplicates. IPv4
	// ones need an IPv4 GatewayAddress.
	Routes []netip.Prefix
}

// Translation is what happens to the addresses of packets to and from the
// gateways beside the translation of the gateways themselves. Slices are sets:
// sorted, without duplicates, prefixes masked and not overlapping.
type Translation struct {
	// Local holds the pod CIDRs of this cluster. Packets from there to Remote keep
	// their source: no other translation of this host may hide it.
	Local []netip.Prefix
	// Remote holds what lies behind the gateways.
	Remote []netip.Prefix
	// UnknownSource is the source that packets to Remote get which come from
	// anywhere else: node processes, hostNetwork pods, NodePort traffic. At most
	// one address of each family.
	UnknownSource []netip.Addr
	// HideAll gives the unknown source to packets from Local, too.
	HideAll bool
	// Hosts are single hosts behind this cluster that have an address of the
	// external CIDR and must not see the peer's addresses.
	Hosts []HostMapping
	// Gateways are the underlay addresses of the gateways: datagrams to Port from
	// other sources are dropped, as the kernel's vxlan device does not look at
	// them, and those to and from gateways keep their source.
	Gateways []netip.Addr
	// Port is the UDP port of the tunnels.
	Port uint16
}

// HostMapping makes Host reachable at External, for pods of this cluster and for
// the peers. Host sees this node as the source.
type HostMapping struct {
	External, Host netip.Addr // of one family
}

// Path is how the kernel would send a datagram to a gateway.
type Path struct {
	// Source is the address that the datagram would come from.
	Source netip.Addr `json:"source"`
	// Device is where it would leave.
	Device string `json:"device"`
	// MTU is what fits: that of the route if it has one, else the device's.
	MTU int `json:"mtu"`
	// Local says that the destination is an address of this very host.
	Local bool `json:"local"`
}

// Detour is a prefix behind a gateway that packets of pods do not reach through
// its link: a policy rule of somebody else comes before ours.
type Detour struct {
	Link   string
	Prefix netip.Prefix
	// Rule is the other rule, as ip(8) prints it; Priority and Table are what it
	// says. Table is zero where the rule itself drops.
	Rule     string
	Priority uint32
	Table    uint32
	// Device is where the packets go instead; empty: nowhere, and Why says so.
	Device, Why string
}

// Network is what a host reaches through a device without a router.
type Network struct {
	Prefix netip.Prefix `json:"prefix"`
	Device string       `json:"device"`
}

// KindSupport is whether links of a kind can be made here, and if not, why and
// what to do about it.
type KindSupport struct {
	Kind   Kind   `json:"kind"`
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}
