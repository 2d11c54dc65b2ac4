package drops

import "slices"

// Reason is what a drop means for a user, and what to do about it.
type Reason struct {
	// Name is that of the counter: see dataplane/verdict.go and tunnel/stats.go.
	Name  string
	Cause string
	Fix   string
	// Harmless: noise that needs no action.
	Harmless bool
}

// Section explains all of them, on Page.
const (
	Section = "Drops by name"
	Page    = `"` + Section + `" in docs/troubleshooting.md`
)

// Explain returns what a reason means. A gateway of a later version may report reasons
// that are not known here.
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
	{Name: "DropEncapsulation", Cause: "packets that are neither Geneve nor VXLAN arrive on UDP 6091",
		Fix: "find out who sends them: 'liqoctl network capture --point dropped'"},
	{Name: "DropUnknownNode", Cause: "packets come from an address, or with a VNI, that does not belong to any node: a node sends from an address other than that in its InternalNode, or the sender is not a node",
		Fix: "compare status.nodeIP of the InternalNodes with the source of the packets: 'liqoctl network capture --point dropped'"},
	{Name: "DropControl", Harmless: true, Cause: "Geneve control packets arrive (O bit), which the node agents never send",
		Fix: "nothing, unless there are many: then find out who sends them to UDP 6091"},
	{Name: "DropFrame", Harmless: true, Cause: "Ethernet frames arrive that are not for the gateway, or are neither IP nor ARP",
		Fix: "nothing: nodes send such frames on every link"},
	{Name: "DropMalformed", Cause: "broken IP packets arrive",
		Fix: "look at them: 'liqoctl network capture --point dropped'"},
	{Name: "DropECN", Cause: "the network marks packets with congestion (CE) although their transport does not support ECN",
		Fix: "find the device on the path that sets the ECN field: it should drop packets instead"},
	{Name: "DropMulticast", Harmless: true, Cause: "multicast or broadcast packets, which do not leave a cluster",
		Fix: "nothing"},
	{Name: "DropSpoofedSource", Cause: "the source address of the packets does not belong to this side: the installation's pod CIDR is not that of the pods, or somebody spoofs addresses",
		Fix: "compare --pod-cidr of the installation with the addresses of the pods, and the Configurations of both clusters"},
	{Name: "DropWrongNode", Cause: "a pod's packets come from a node other than the one in its route: somebody on a node sends as a pod of another node, or routes lag behind pods",
		Fix: "compare 'kubectl get pods -A -o wide' with 'kubectl get routeconfigurations -A -o yaml'; if pods legitimately send from other nodes, add --strict-source=off to the gateway's arguments"},
	{Name: "DropNoMapping", Cause: "packets are sent to addresses outside the peer's CIDRs: applications use addresses that do not exist there",
		Fix: "use the remapped addresses: 'liqoctl info peer' shows the CIDRs"},
	{Name: "DropNoAddress", Cause: "packets are sent to addresses of the external CIDR that no IP object assigns",
		Fix: "create an IP object for the host, or use the right address ('kubectl get ips -A')"},
	{Name: "DropFilter", Cause: "a FirewallConfiguration drops them",
		Fix: "see 'kubectl get firewallconfigurations -A' and the counters in 'gateway status'"},
	{Name: "DropFilterReject", Cause: "a FirewallConfiguration rejects them",
		Fix: "see 'kubectl get firewallconfigurations -A' and the counters in 'gateway status'"},
	{Name: "DropHopLimit", Cause: "the hop limit of packets expires at the gateway: traceroute, or a routing loop",
		Fix: "if nobody is using traceroute, look for routes that form a loop: 'liqoctl network capture --point dropped'"},
	{Name: "DropTooBig", Cause: "packets are larger than the MTU and must not be fragmented; their senders are informed, but do not react",
		Fix: "allow ICMP (Fragmentation Needed, Packet Too Big) to pods: a NetworkPolicy or the CNI drops it"},
	{Name: "DropFlowConflict", Cause: "two nodes use the same source port, from the same shared address, to the same destination",
		Fix: "this is rare and the sender tries again; if there are many, give the pods addresses of their own (no hostNetwork)"},
	{Name: "DropFlowTableFull", Cause: "nodes have more simultaneous connections than the gateway can track",
		Fix: "let clients use pods with addresses of their own instead of hostNetwork"},
	{Name: "DropNoNode", Cause: "the gateway knows no node that could receive the packets",
		Fix: "see 'liqoctl network doctor', check nodes"},
	{Name: "DropNoNeighbor", Cause: "the destination node has not reported its address yet: its agent is not running",
		Fix: "see 'liqoctl network doctor', check nodes"},
	{Name: "DropOwnAddress", Harmless: true, Cause: "packets are addressed to the gateway itself, which does not process them",
		Fix: "nothing"},
	{Name: "DropNoConfiguration", Harmless: true, Cause: "packets arrived before the gateway had its configuration",
		Fix: "nothing if it has just started; otherwise see 'liqoctl network doctor', check objects-applied"},
	{Name: "DropTunnelNoEndpoint", Cause: "there is nowhere to send packets for the peer yet",
		Fix: "see 'liqoctl network doctor', checks endpoint and keys"},
	{Name: "DropTunnelNoSession", Cause: "there is no session, as the peer does not answer, and only the last 64 packets wait for one",
		Fix: "see 'liqoctl network doctor', checks reachability and keys"},
	{Name: "DropTunnelUnconfirmed", Cause: "neither the API server nor the peer answers the gateway: another pod may be the leader by now, so this one leaves the session alone",
		Fix: "restore the connection from the gateway's node to the API server; a pod that stays cut off can be deleted"},
	{Name: "DropTunnelNoPeer", Cause: "packets are sent to addresses that no WireGuard peer has: the Configuration has just changed, or lacks a CIDR",
		Fix: "compare the Configurations of both clusters"},
	{Name: "DropTunnelFlushed", Cause: "packets waited for a session that was not established in time",
		Fix: "see 'liqoctl network doctor', checks reachability and keys"},
	{Name: "DropTunnelUnknownSession", Cause: "messages of expired sessions arrive: the other gateway has been replaced, or two gateways have the same key",
		Fix: "if it continues, check whether two gateways use the same keys"},
	{Name: "DropTunnelRejected", Cause: "messages from the peer fail authentication, are replays, or carry packets from addresses that are not the peer's",
		Fix: "compare the Configurations of both clusters with the CIDRs that the peer actually uses"},
	{Name: "DropTunnelMalformed", Cause: "packets that are not WireGuard arrive on the tunnel's port",
		Fix: "find out who sends them: 'liqoctl network capture --point wire'"},
	{Name: "DropTunnelHandshakeLimit", Cause: "more WireGuard handshakes arrive than are looked at, at most 20 000 per second: somebody floods the tunnel's port",
		Fix: "have a firewall admit only the peer's address to the tunnel's port"},
}
