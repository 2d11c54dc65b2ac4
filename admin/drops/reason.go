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
	{Name: "DropUnknownNode", Cause: "packets come from an address or with a VNI that belongs to no node: a node sends from another address than its InternalNode has, or the sender is not a node",
		Fix: "compare status.nodeIP of the InternalNodes with the source of the packets: 'liqoctl network capture --point dropped'"},
	{Name: "DropControl", Harmless: true, Cause: "Geneve control packets arrive (O bit), which no node of ours sends",
		Fix: "nothing, unless there are many: see who sends them to UDP 6091"},
	{Name: "DropFrame", Harmless: true, Cause: "Ethernet frames arrive that are not for the gateway, or are neither IP nor ARP",
		Fix: "nothing: nodes send such frames on every link"},
	{Name: "DropMalformed", Cause: "broken IP packets arrive",
		Fix: "look at them: 'liqoctl network capture --point dropped'"},
	{Name: "DropECN", Cause: "the network marks packets with congestion (CE) although their transport does not support ECN",
		Fix: "see which device on the way sets the ECN field: it should drop instead"},
	{Name: "DropMulticast", Harmless: true, Cause: "multicast or broadcast, which does not leave a cluster",
		Fix: "nothing"},
	{Name: "DropSpoofedSource", Cause: "the source of the packets does not belong to this side: the pod CIDR of the installation is not that of the pods, or somebody spoofs addresses",
		Fix: "compare --pod-cidr of the installation with the addresses of the pods, and the Configurations of both clusters"},
	{Name: "DropWrongNode", Cause: "packets of a pod come from a node other than that of its route: somebody on a node sends as a pod of another node, or routes lag behind pods",
		Fix: "compare 'kubectl get pods -A -o wide' with 'kubectl get routeconfigurations -A -o yaml'; if pods legitimately send from other nodes, add --strict-source=off to the gateway's arguments"},
	{Name: "DropNoMapping", Cause: "packets for addresses that belong to no CIDR of the peer: applications use addresses that do not exist there",
		Fix: "use the remapped addresses: 'liqoctl info peer' shows the CIDRs"},
	{Name: "DropNoAddress", Cause: "packets for addresses of the external CIDR that no IP object assigns",
		Fix: "create an IP object for the host, or use the right address ('kubectl get ips -A')"},
	{Name: "DropFilter", Cause: "a FirewallConfiguration drops them",
		Fix: "see 'kubectl get firewallconfigurations -A' and the counters in 'gateway status'"},
	{Name: "DropFilterReject", Cause: "a FirewallConfiguration rejects them",
		Fix: "see 'kubectl get firewallconfigurations -A' and the counters in 'gateway status'"},
	{Name: "DropHopLimit", Cause: "the hop limit of packets expires at the gateway: traceroute, or a routing loop",
		Fix: "if nobody uses traceroute, look for routes that lead back: 'liqoctl network capture --point dropped'"},
	{Name: "DropTooBig", Cause: "packets are larger than the MTU and must not be fragmented; their senders are informed, but do not react",
		Fix: "allow ICMP (Fragmentation Needed, Packet Too Big) to pods: a NetworkPolicy or the CNI drops it"},
	{Name: "DropFlowConflict", Cause: "two nodes use the same port to the same destination from the same shared address",
		Fix: "this is rare and the sender tries again; if there are many, give the pods addresses of their own (no hostNetwork)"},
	{Name: "DropFlowTableFull", Cause: "nodes have more connections at the same time than the gateway can track",
		Fix: "let clients use pods with addresses of their own instead of hostNetwork"},
	{Name: "DropNoNode", Cause: "no node is known that could receive the packets",
		Fix: "see the check of node tunnels"},
	{Name: "DropNoNeighbor", Cause: "the destination node has not reported its address yet: its agent does not run",
		Fix: "see the check of node tunnels"},
	{Name: "DropOwnAddress", Harmless: true, Cause: "packets for the gateway itself, which does not process them",
		Fix: "nothing"},
	{Name: "DropNoConfiguration", Harmless: true, Cause: "packets arrived before the gateway had its configuration",
		Fix: "nothing if it has just started; otherwise see the check objects-applied"},
	{Name: "DropTunnelNoEndpoint", Cause: "there is nowhere to send packets for the peer yet",
		Fix: "see the checks of endpoint and keys"},
	{Name: "DropTunnelNoSession", Cause: "the peer does not answer, and the last session has expired",
		Fix: "see the checks of UDP and keys"},
	{Name: "DropTunnelInFlight", Cause: "packets could not leave for half a second, although there was a session recently",
		Fix: "see the check of UDP; give the gateway more CPU (requests and limits of the template)"},
	{Name: "DropTunnelUnconfirmed", Cause: "neither the API server nor the peer answers the gateway: another pod may lead by now, so this one does not touch its session",
		Fix: "restore the connection from the gateway's node to the API server; a pod that stays cut off can be deleted"},
	{Name: "DropTunnelNoPeer", Cause: "packets for addresses that WireGuard has no peer for: the Configuration has just changed, or lacks a CIDR",
		Fix: "compare the Configurations of both clusters"},
	{Name: "DropTunnelFlushed", Cause: "packets waited for a session in vain",
		Fix: "see the checks of UDP and keys"},
	{Name: "DropTunnelUnknownSession", Cause: "messages of ended sessions arrive: the other gateway has been replaced, or two gateways have the same key",
		Fix: "if it continues, check whether two gateways use the same keys"},
	{Name: "DropTunnelRejected", Cause: "messages of the peer fail authentication, are replays, or carry packets from addresses that are not the peer's",
		Fix: "compare the Configurations of both clusters with the CIDRs that the peer really uses"},
	{Name: "DropTunnelMalformed", Cause: "something that is not WireGuard arrives on the port of the tunnel",
		Fix: "see who sends it: 'liqoctl network capture --point wire'"},
}
