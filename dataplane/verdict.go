package dataplane

// Verdict is the outcome of one packet. The names of the drops appear verbatim
// as metric labels and in the tests.
type Verdict uint8

const (
	// Forwarded: sent on, whole or in pieces.
	Forwarded Verdict = iota
	// Delivered: handed to the gateway's own stack.
	Delivered
	// Answered: ARP, neighbor discovery or an OAM packet, dealt with here.
	Answered

	// DropEncapsulation: neither a valid Geneve nor a valid VXLAN header.
	DropEncapsulation
	// DropUnknownNode: outer source and VNI belong to no node tunnel.
	DropUnknownNode
	// DropControl: a Geneve control packet (O bit).
	DropControl
	// DropFrame: not an Ethernet frame for us, or of another EtherType than IP and ARP.
	DropFrame
	// DropMalformed: not a well-formed IP packet.
	DropMalformed
	// DropECN: marked on the way (CE) instead of dropped, but its transport does not take
	// part in ECN (RFC 6040 section 4.2).
	DropECN
	// DropMulticast: a router between clusters forwards none.
	DropMulticast
	// DropSpoofedSource: the source address may not come from this side.
	DropSpoofedSource
	// DropWrongNode: the pod lives on another node (Config.Sources).
	DropWrongNode
	// DropNoMapping: the destination belongs to no CIDR of the other side.
	DropNoMapping
	// DropNoAddress: the destination lies in the external CIDR, but no IP
	// object and no flow claims it.
	DropNoAddress
	// DropFilter: a filter rule or the policy of a chain says drop.
	DropFilter
	// DropFilterReject: a filter rule says reject; answered by Port Unreachable.
	DropFilterReject
	// DropHopLimit: TTL or hop limit expired here; answered by Time Exceeded.
	DropHopLimit
	// DropTooBig: larger than the MTU and not to be fragmented; answered by
	// Fragmentation Needed or Packet Too Big.
	DropTooBig
	// DropFlowConflict: another node holds a live flow with the same 5-tuple.
	DropFlowConflict
	// DropFlowTableFull: no room for one more flow.
	DropFlowTableFull
	// DropNoNode: no node tunnel is known that could take the packet.
	DropNoNode
	// DropNoNeighbor: the node's MAC address is not known yet.
	DropNoNeighbor
	// DropOwnAddress: for the gateway itself, whose stack has no room or which
	// does not accept it from this side.
	DropOwnAddress
	// DropNoConfiguration: nothing is configured yet.
	DropNoConfiguration

	numVerdicts
)

var verdictNames = [numVerdicts]string{
	Forwarded:           "Forwarded",
	Delivered:           "Delivered",
	Answered:            "Answered",
	DropEncapsulation:   "DropEncapsulation",
	DropUnknownNode:     "DropUnknownNode",
	DropControl:         "DropControl",
	DropFrame:           "DropFrame",
	DropMalformed:       "DropMalformed",
	DropECN:             "DropECN",
	DropMulticast:       "DropMulticast",
	DropSpoofedSource:   "DropSpoofedSource",
	DropWrongNode:       "DropWrongNode",
	DropNoMapping:       "DropNoMapping",
	DropNoAddress:       "DropNoAddress",
	DropFilter:          "DropFilter",
	DropFilterReject:    "DropFilterReject",
	DropHopLimit:        "DropHopLimit",
	DropTooBig:          "DropTooBig",
	DropFlowConflict:    "DropFlowConflict",
	DropFlowTableFull:   "DropFlowTableFull",
	DropNoNode:          "DropNoNode",
	DropNoNeighbor:      "DropNoNeighbor",
	DropOwnAddress:      "DropOwnAddress",
	DropNoConfiguration: "DropNoConfiguration",
}

// String returns the name as it stands above.
func (v Verdict) String() string { return verdictNames[v] }

// Dropped tells whether the packet went nowhere.
func (v Verdict) Dropped() bool { return v >= DropEncapsulation }

// Drops returns every verdict that is a drop.
func Drops() []Verdict {
	var vs []Verdict
	for v := DropEncapsulation; v < numVerdicts; v++ {
		vs = append(vs, v)
	}
	return vs
}
