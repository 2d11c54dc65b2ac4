package drops

import "slices"

// Reason is what a drop means for a user, and what to do about it.
type Reason struct {
	// Name is that of the counter: see dataplane/verdict.go and tunnel/stats.go.
	Name  string
	Cause string
	Fix   string
	// Harmless: noise that nobody need do anything about.
	Harmless bool
}

// Section explains all of them, on Page.
const (
	Section = "Drops by name"
	Page    = `"` + Section + `" in docs/troubleshooting.md`
)

// Explain returns what a reason means. A gateway of a later version may have some that
// are not known here.
func Explain(name string) (r Reason, known bool) {
	i := slices.IndexFunc(reasons, func(r Reason) bool { return r.Name == name })
	if i < 0 {
		return Reason{Name: name}, false
	}
	return reasons[i], true
}

// Reasons returns the names of all.
func Reasons() (names []string) {
	for _, r := range reasons {
		names = append(names, r.Name)
	}
	return names
}

var reasons = []Reason{
	{Name: "DropEncapsulation", Cause: "something that is neither Geneve nor VXLAN arrives on UDP 6091",
		Fix: "see who sends it: 'liqoctl network capture --point dropped'"},
	{Name: "DropUnknownNode", Cause: "packets come from an address or with a VNI that is no node's: a node sends from another address than its InternalNode says, or a stranger sends",
		Fix: "compare status.nodeIP of the InternalNodes with where the packets come from: 'liqoctl network capture --point dropped'"},
	{Name: "DropControl", Harmless: true, Cause: "Geneve control packets arrive (O bit), which no node of ours sends",
		Fix: "nothing, unless there are many: see who sends them to UDP 6091"},
	{Name: "DropFrame", Harmless: true, Cause: "Ethernet frames arrive that are not for the gateway, or are neither IP nor ARP",
		Fix: "nothing: nodes send such frames on every link"},
	{Name: "DropMalformed", Cause: "broken IP packets arrive",
		Fix: "look at them: 'liqoctl network capture --point dropped'"},
	{Name: "DropECN", Cause: "the network marks packets as having met congestion (CE) although their transport does not take part in ECN",
		Fix: "see which device on the way sets the ECN field: it should drop instead"},
	{Name: "DropMulticast", Harmless: true, Cause: "multicast or broadcast, which does not leave a cluster",
		Fix: "nothing"},
	{Name: "DropSpoofedSource", Cause: "the source of the packets may not come from this side: the pod CIDR of the installation is not that of the pods, or somebody forges addresses",
		Fix: "compare --pod-cidr of the installation with the addresses of the pods, and the Configurations of both clusters"},
	{Name: "DropWrongNode", Cause: "packets of a pod come from another node than its route says: somebody on a node sends as a pod of another one, or routes lag behind pods",
		Fix: "compare 'kubectl get pods -A -o wide' with 'kubectl get routeconfigurations -A -o yaml'; where pods rightly send from other nodes: --strict-source=off among the gateway's arguments"},
	{Name: "DropNoMapping", Cause: "packets for addresses that belong to no CIDR of the peer: applications use addresses that do not exist there",
		Fix: "use the remapped addresses: 'liqoctl info peer' shows the CIDRs"},
	{Name: "DropNoAddress", Cause: "packets for addresses of the external CIDR that no IP object gives to anybody",
		Fix: "make an IP object for the host, or use the right address ('kubectl get ips -A')"},
	{Name: "DropFilter", Cause: "a FirewallConfiguration drops them",
		Fix: "see 'kubectl get firewallconfigurations -A' and the counters in 'gateway status'"},
	{Name: "DropFilterReject", Cause: "a FirewallConfiguration rejects them",
		Fix: "see 'kubectl get firewallconfigurations -A' and the counters in 'gateway status'"},
	{Name: "DropHopLimit", Cause: "the hop limit of packets ends at the gateway: traceroute, or packets run in a circle",
		Fix: "if nobody traces, look for routes that lead back: 'liqoctl network capture --point dropped'"},
	{Name: "DropTooBig", Cause: "packets are larger than the MTU and must not be cut; their senders are told, but do not listen",
		Fix: "let ICMP (Fragmentation Needed, Packet Too Big) pass to pods: a NetworkPolicy or the CNI drops it"},
	{Name: "DropFlowConflict", Cause: "two nodes use the same port to the same destination from the same shared address",
		Fix: "it is rare and the sender tries again; many of them: give the pods addresses of their own (no hostNetwork)"},
	{Name: "DropFlowTableFull", Cause: "more connections of nodes at the same time than the gateway remembers",
		Fix: "let clients use pods with addresses of their own instead of hostNetwork"},
	{Name: "DropNoNode", Cause: "no node is known that could take the packets",
		Fix: "see the check of node tunnels"},
	{Name: "DropNoNeighbor", Cause: "the node that packets go to has not told its address yet: its agent is away",
		Fix: "see the check of node tunnels"},
	{Name: "DropOwnAddress", Harmless: true, Cause: "packets for the gateway itself, which has no use for them",
		Fix: "nothing"},
	{Name: "DropNoConfiguration", Harmless: true, Cause: "packets arrived before the gateway had its configuration",
		Fix: "nothing if it has just started; otherwise see the check objects-applied"},
	{Name: "DropTunnelNoEndpoint", Cause: "there is nowhere to send packets for the peer yet",
		Fix: "see the checks of endpoint and keys"},
	{Name: "DropTunnelNoSession", Cause: "the peer does not answer, and the last session has expired",
		Fix: "see the checks of UDP and keys"},
	{Name: "DropTunnelInFlight", Cause: "packets could not leave for half a second, though there was a session lately",
		Fix: "see the check of UDP; give the gateway more CPU (requests and limits of the template)"},
	{Name: "DropTunnelUnconfirmed", Cause: "neither the API server nor the peer answers the gateway: perhaps another pod leads by now, and its session is left alone",
		Fix: "mend the way of the gateway's node to the API server; a pod that stays cut off can be deleted"},
	{Name: "DropTunnelNoPeer", Cause: "packets for addresses that WireGuard has no peer for: the Configuration has changed just now, or lacks a CIDR",
		Fix: "compare the Configurations of both clusters"},
	{Name: "DropTunnelFlushed", Cause: "packets waited for a session in vain",
		Fix: "see the checks of UDP and keys"},
	{Name: "DropTunnelUnknownSession", Cause: "messages of sessions that are over arrive: the other gateway has been replaced, or two of them have one key",
		Fix: "if it goes on, see whether two gateways use the same keys"},
	{Name: "DropTunnelRejected", Cause: "messages of the peer fail authentication, are repeated, or carry packets from addresses that are not the peer's",
		Fix: "compare the Configurations of both clusters with the CIDRs that the peer really uses"},
	{Name: "DropTunnelMalformed", Cause: "something that is not WireGuard arrives on the port of the tunnel",
		Fix: "see who sends it: 'liqoctl network capture --point wire'"},
}
