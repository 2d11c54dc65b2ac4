package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FirewallConfiguration is one packet filter table, as in nftables. Its labels say whether gateways or
// nodes, and which of them, apply it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=fw;fwconfig;fwcfg
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type FirewallConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   FirewallConfigurationSpec   `json:"spec,omitzero"`
	Status FirewallConfigurationStatus `json:"status,omitzero"`
}

// FirewallConfigurationSpec holds the table.
type FirewallConfigurationSpec struct {
	// Table is the packet filter table.
	Table FirewallTable `json:"table"`
}

// FirewallTable is one packet filter table.
//
// +kubebuilder:validation:XValidation:rule="!has(self.chains) || self.chains.all(c, c.type != 'nat' || self.family in ['INET', 'IPV4', 'IPV6'] && c.hook in ['prerouting', 'input', 'output', 'postrouting'])",message="a chain of type nat has hook prerouting, input, output or postrouting, in a table of family INET, IPV4 or IPV6"
// +kubebuilder:validation:XValidation:rule="!has(self.chains) || self.chains.all(c, c.type != 'route' || self.family in ['INET', 'IPV4', 'IPV6'] && c.hook == 'output')",message="a chain of type route has hook output, in a table of family INET, IPV4 or IPV6"
// +kubebuilder:validation:XValidation:rule="!has(self.chains) || self.chains.all(c, c.hook != 'ingress' || self.family in ['INET', 'NETDEV'])",message="hook ingress belongs to tables of family INET and NETDEV"
// +kubebuilder:validation:XValidation:rule="!has(self.chains) || self.chains.all(c, self.family != 'NETDEV' || c.hook == 'ingress')",message="a table of family NETDEV has hook ingress only"
// +kubebuilder:validation:XValidation:rule="!has(self.chains) || self.chains.all(c, self.family != 'ARP' || c.hook in ['input', 'output'])",message="a table of family ARP has hooks input and output only"
type FirewallTable struct {
	// Name names the table. It cannot be changed.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the name of a table cannot be changed"
	Name string `json:"name"`
	// Family is the address family of the table.
	Family FirewallFamily `json:"family"`
	// Chains holds the chains of the table.
	//
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b.name == a.name))",message="every chain of a table needs a name of its own"
	Chains []FirewallChain `json:"chains,omitempty"`
}

// FirewallFamily is the address family of a table.
//
// +kubebuilder:validation:Enum=INET;IPV4;IPV6;ARP;NETDEV;BRIDGE
type FirewallFamily string

// The address families of a table.
const (
	FamilyINET   FirewallFamily = "INET"
	FamilyIPv4   FirewallFamily = "IPV4"
	FamilyIPv6   FirewallFamily = "IPV6"
	FamilyARP    FirewallFamily = "ARP"
	FamilyNetdev FirewallFamily = "NETDEV"
	FamilyBridge FirewallFamily = "BRIDGE"
)

// FirewallChain is a list of rules, and the hook at which they apply.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'filter' || !has(self.rules.filterRules) || size(self.rules.filterRules) == 0",message="filterRules belong to a chain of type filter"
// +kubebuilder:validation:XValidation:rule="self.type == 'nat' || !has(self.rules.natRules) || size(self.rules.natRules) == 0",message="natRules belong to a chain of type nat"
// +kubebuilder:validation:XValidation:rule="self.type == 'route' || !has(self.rules.routeRules) || size(self.rules.routeRules) == 0",message="routeRules belong to a chain of type route"
// +kubebuilder:validation:XValidation:rule="!has(self.rules.natRules) || self.rules.natRules.all(r, r.natType != 'snat' || self.hook in ['input', 'postrouting'])",message="snat works in a chain with hook postrouting or input"
// +kubebuilder:validation:XValidation:rule="!has(self.rules.natRules) || self.rules.natRules.all(r, r.natType != 'dnat' || self.hook in ['prerouting', 'output'])",message="dnat works in a chain with hook prerouting or output"
// +kubebuilder:validation:XValidation:rule="!has(self.rules.natRules) || self.rules.natRules.all(r, r.natType != 'masquerade' || self.hook == 'postrouting')",message="masquerade works in a chain with hook postrouting"
// +kubebuilder:validation:XValidation:rule="self.hook != 'postrouting' || !has(self.rules.filterRules) || self.rules.filterRules.all(r, r.action != 'reject')",message="reject does not work in a chain with hook postrouting, where a sender cannot be told any more: drop, or use hook forward"
// +kubebuilder:validation:XValidation:rule="self.type != 'nat' || self.priority > -200",message="a chain of type nat needs a priority above -200, as connections are not known before"
type FirewallChain struct {
	// Name names the chain within its table.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Type says which set of rules the chain holds: filterRules, natRules or routeRules.
	Type ChainType `json:"type"`
	// Hook is the point of the packet path at which the chain applies.
	Hook ChainHook `json:"hook"`
	// Priority orders the chains of a hook: the lowest comes first.
	//
	// +kubebuilder:default=0
	Priority ChainPriority `json:"priority"`
	// Policy is the verdict for packets that no rule decided.
	Policy ChainPolicy `json:"policy"`
	// Rules holds the rules. Only the set that belongs to the chain's type may be filled.
	Rules FirewallRules `json:"rules"`
}

// ChainType says what the rules of a chain may do.
//
// +kubebuilder:validation:Enum=filter;route;nat
type ChainType string

// The types of a chain.
const (
	ChainFilter ChainType = "filter"
	ChainRoute  ChainType = "route"
	ChainNAT    ChainType = "nat"
)

// ChainHook is a point of the packet path.
//
// +kubebuilder:validation:Enum=prerouting;input;forward;output;postrouting;ingress
type ChainHook string

// The points of the packet path.
const (
	HookPrerouting  ChainHook = "prerouting"
	HookInput       ChainHook = "input"
	HookForward     ChainHook = "forward"
	HookOutput      ChainHook = "output"
	HookPostrouting ChainHook = "postrouting"
	HookIngress     ChainHook = "ingress"
)

// ChainPriority orders the chains of a hook.
type ChainPriority int32

// The priorities that have a name in the kernel.
const (
	PriorityRaw       ChainPriority = -300
	PriorityConntrack ChainPriority = -200
	PriorityMangle    ChainPriority = -150
	PriorityNATDest   ChainPriority = -100
	PriorityFilter    ChainPriority = 0
	PriorityNATSource ChainPriority = 100
)

// ChainPolicy is the verdict for packets that no rule decided.
//
// +kubebuilder:validation:Enum=drop;accept
type ChainPolicy string

// The policies of a chain.
const (
	PolicyDrop   ChainPolicy = "drop"
	PolicyAccept ChainPolicy = "accept"
)

// FirewallRules holds the rules of a chain, in order.
type FirewallRules struct {
	// FilterRules belong to a chain of type filter.
	//
	// +kubebuilder:validation:MaxItems=500
	FilterRules []FilterRule `json:"filterRules,omitempty"`
	// NATRules belong to a chain of type nat.
	//
	// +kubebuilder:validation:MaxItems=500
	NATRules []NATRule `json:"natRules,omitempty"`
	// RouteRules belong to a chain of type route.
	//
	// +kubebuilder:validation:MaxItems=500
	RouteRules []RouteRule `json:"routeRules,omitempty"`
}

// FilterRule decides about packets or marks them.
//
// +kubebuilder:validation:XValidation:rule="self.action != 'tcpmssclamp' || self.match.exists(m, has(m.proto) && m.proto.value == 'tcp')",message="action tcpmssclamp needs a match of proto tcp"
// +kubebuilder:validation:XValidation:rule="self.action != 'tcpmssclamp' || !has(self.value) || size(self.value) == 0 || self.value.matches('^[0-9]{1,5}$') && int(self.value) <= 65495",message="value of action tcpmssclamp is the segment size, or 0 for what fits the MTU"
// +kubebuilder:validation:XValidation:rule="self.action != 'ctmark' || has(self.value) && self.value.matches('^(0|[1-9][0-9]{0,9})$') && int(self.value) <= 4294967295",message="action ctmark needs the mark in value: a number from 0 to 4294967295"
type FilterRule struct {
	// Name names the rule within its chain. It may be left out.
	//
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Match selects the packets; all entries must match.
	//
	// +kubebuilder:validation:MaxItems=8
	Match []Match `json:"match"`
	// Action is what happens to them.
	Action FilterAction `json:"action"`
	// Value belongs to the actions that need one: the mark, or the segment size (0: from the route's MTU).
	//
	// +kubebuilder:validation:MaxLength=32
	Value string `json:"value,omitempty"`
	// Counter counts the packets that match.
	//
	// +kubebuilder:default=true
	Counter bool `json:"counter"`
}

// FilterAction is what a filter rule does.
//
// +kubebuilder:validation:Enum=ctmark;metamarkfromctmark;tcpmssclamp;accept;drop;reject;notrack
type FilterAction string

// The actions of a filter rule.
const (
	// ActionCtMark writes Value into the mark of the packet's connection.
	ActionCtMark FilterAction = "ctmark"
	// ActionMetaMarkFromCtMark copies the connection's mark to the packet.
	ActionMetaMarkFromCtMark FilterAction = "metamarkfromctmark"
	// ActionTCPMSSClamp lowers the MSS option of a SYN to Value.
	ActionTCPMSSClamp FilterAction = "tcpmssclamp"
	// ActionAccept lets the packet pass.
	ActionAccept FilterAction = "accept"
	// ActionDrop drops the packet silently.
	ActionDrop FilterAction = "drop"
	// ActionReject drops the packet and answers with an ICMP error.
	ActionReject FilterAction = "reject"
	// ActionNoTrack keeps the packet out of connection tracking.
	ActionNoTrack FilterAction = "notrack"
)

// NATRule rewrites addresses.
//
// +kubebuilder:validation:XValidation:rule="self.natType == 'masquerade' || has(self.to) && size(self.to) > 0",message="dnat and snat need the new address in to"
// +kubebuilder:validation:XValidation:rule="self.natType != 'masquerade' || !has(self.to) || size(self.to) == 0",message="masquerade takes the address of the interface: leave out to"
type NATRule struct {
	// Name names the rule within its chain. It may be left out.
	//
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Match selects the packets; all entries must match.
	//
	// +kubebuilder:validation:MaxItems=8
	Match []Match `json:"match"`
	// NATType says which address is rewritten.
	NATType NATType `json:"natType"`
	// To is the new address or prefix; of a prefix the host bits are kept. Not with masquerade.
	//
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || isIP(self) || isCIDR(self)",message="to is an address or a prefix, such as 10.70.0.0/16"
	To string `json:"to,omitempty"`
	// TargetRef names the object for which the rule exists. It is informative.
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`
}

// NATType says which address of a packet is rewritten.
//
// +kubebuilder:validation:Enum=dnat;snat;masquerade
type NATType string

// The kinds of address translation.
const (
	// NATDestination rewrites the destination address.
	NATDestination NATType = "dnat"
	// NATSource rewrites the source address.
	NATSource NATType = "snat"
	// NATMasquerade rewrites the source address to that of the interface by which the packet leaves.
	NATMasquerade NATType = "masquerade"
)

// RouteRule is a rule of a chain of type route. It has no content yet.
type RouteRule struct {
	// Name names the rule within its chain. It may be left out.
	//
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// Match selects packets. The fields that are set are ANDed.
type Match struct {
	// Op says whether IP, Port and Dev must be equal or must differ. Proto is always compared for equality.
	Op MatchOp `json:"op"`
	// IP compares an address of the packet.
	IP *MatchIP `json:"ip,omitempty"`
	// Port compares a port of the packet.
	Port *MatchPort `json:"port,omitempty"`
	// Proto compares the transport protocol.
	Proto *MatchProto `json:"proto,omitempty"`
	// Dev compares an interface.
	Dev *MatchDev `json:"dev,omitempty"`
}

// MatchOp is how a match compares.
//
// +kubebuilder:validation:Enum=eq;neq
type MatchOp string

// How a match compares.
const (
	MatchEqual    MatchOp = "eq"
	MatchNotEqual MatchOp = "neq"
)

// MatchPosition says which end of a packet is compared.
//
// +kubebuilder:validation:Enum=src;dst
type MatchPosition string

// The ends of a packet.
const (
	MatchSrc MatchPosition = "src"
	MatchDst MatchPosition = "dst"
)

// MatchIP compares an address.
type MatchIP struct {
	// Value is an address, a prefix in CIDR notation, or a range of addresses a-b.
	//
	// +kubebuilder:validation:MaxLength=79
	// +kubebuilder:validation:XValidation:rule="isIP(self) || isCIDR(self) || self.contains('-') && isIP(self.substring(0, self.indexOf('-'))) && isIP(self.substring(self.indexOf('-') + 1))",message="an ip value is an address, a prefix such as 10.0.0.0/8, or a range of addresses such as 10.0.0.1-10.0.0.9"
	Value string `json:"value"`
	// Position says whether the source or the destination is compared.
	Position MatchPosition `json:"position"`
}

// MatchPort compares a port.
type MatchPort struct {
	// Value is a port or a range of ports a-b.
	//
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,5}(-[0-9]{1,5})?$') && (self.contains('-') ? int(self.substring(0, self.indexOf('-'))) <= int(self.substring(self.indexOf('-') + 1)) && int(self.substring(self.indexOf('-') + 1)) <= 65535 : int(self) <= 65535)",message="a port value is a port or a range of ports, such as 80 or 8000-8099"
	Value string `json:"value"`
	// Position says whether the source or the destination is compared.
	Position MatchPosition `json:"position"`
}

// MatchProto compares the transport protocol.
type MatchProto struct {
	// Value is the protocol.
	Value MatchProtocol `json:"value"`
}

// MatchProtocol is a transport protocol that a match can select.
//
// +kubebuilder:validation:Enum=tcp;udp
type MatchProtocol string

// The protocols that a match can select.
const (
	MatchTCP MatchProtocol = "tcp"
	MatchUDP MatchProtocol = "udp"
)

// MatchDev compares an interface.
type MatchDev struct {
	// Value is the name of the interface.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Value string `json:"value"`
	// Position says which interface is compared: the one of arrival or the one of departure.
	Position DevPosition `json:"position"`
}

// DevPosition says which interface of a packet is compared.
//
// +kubebuilder:validation:Enum=in;out
type DevPosition string

// The interfaces of a packet.
const (
	DevIn  DevPosition = "in"
	DevOut DevPosition = "out"
)

// FirewallConfigurationStatus is what the hosts report that apply the table.
type FirewallConfigurationStatus struct {
	// Conditions holds one condition for each host.
	//
	// +listType=map
	// +listMapKey=host
	// +listMapKey=type
	Conditions []HostCondition `json:"conditions,omitempty"`
}

// FirewallConfigurationList is a list of FirewallConfigurations.
//
// +kubebuilder:object:root=true
type FirewallConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []FirewallConfiguration `json:"items"`
}
