package doctor

import (
	"fmt"
	"time"

	"github.com/sluice-net/sluice/admin/survey"
)

// meaning is what a drop means for a user, and what to do about it.
type meaning struct{ cause, fix string }

// meanings are those of dataplane/verdict.go and tunnel/stats.go that somebody can
// do something about. What is not here is noise, such as multicast, or follows
// from what other checks find.
var meanings = map[string]meaning{
	"DropUnknownNode": {"packets come from an address or with a VNI that is no node's: a node sends from another address than its InternalNode says, or a stranger sends",
		"compare status.nodeIP of the InternalNodes with where the packets come from: 'liqoctl network capture --point dropped'"},
	"DropEncapsulation": {"something that is neither Geneve nor VXLAN arrives on UDP 6091", "see who sends it: 'liqoctl network capture --point dropped'"},
	"DropMalformed":     {"broken IP packets arrive", "look at them: 'liqoctl network capture --point dropped'"},
	"DropECN":           {"the network marks packets as having met congestion (CE) although their transport does not take part in ECN", "see which device on the way sets the ECN field: it should drop instead"},
	"DropSpoofedSource": {"the source of the packets may not come from this side: the pod CIDR of the installation is not that of the pods, or somebody forges addresses",
		"compare --pod-cidr of the installation with the addresses of the pods, and the Configurations of both clusters"},
	"DropWrongNode":        {"packets of a pod come from another node than its route says: somebody on a node sends as a pod of another one, or routes lag behind pods", "compare 'kubectl get pods -A -o wide' with 'kubectl get routeconfigurations -A -o yaml'; where pods rightly send from other nodes: --strict-source=off among the gateway's arguments"},
	"DropNoMapping":        {"packets for addresses that belong to no CIDR of the peer: applications use addresses that do not exist there", "use the remapped addresses: 'liqoctl info peer' shows the CIDRs"},
	"DropNoAddress":        {"packets for addresses of the external CIDR that no IP object gives to anybody", "make an IP object for the host, or use the right address ('kubectl get ips -A')"},
	"DropFilter":           {"a FirewallConfiguration drops them", "see 'kubectl get firewallconfigurations -A' and the counters in 'gateway status'"},
	"DropFilterReject":     {"a FirewallConfiguration rejects them", "see 'kubectl get firewallconfigurations -A' and the counters in 'gateway status'"},
	"DropHopLimit":         {"the hop limit of packets ends at the gateway: traceroute, or packets run in a circle", "if nobody traces, look for routes that lead back: 'liqoctl network capture --point dropped'"},
	"DropTooBig":           {"packets are larger than the MTU and must not be cut; their senders are told, but do not listen", "let ICMP (Fragmentation Needed, Packet Too Big) pass to pods: a NetworkPolicy or the CNI drops it"},
	"DropFlowConflict":     {"two nodes use the same port to the same destination from the same shared address", "it is rare and the sender tries again; many of them: give the pods addresses of their own (no hostNetwork)"},
	"DropFlowTableFull":    {"more connections of nodes at the same time than the gateway remembers", "let clients use pods with addresses of their own instead of hostNetwork"},
	"DropNoNode":           {"no node is known that could take the packets", "see the check of node tunnels"},
	"DropNoNeighbor":       {"the node that packets go to has not told its address yet: its agent is away", "see the check of node tunnels"},
	"DropTunnelNoEndpoint": {"there is nowhere to send packets for the peer yet", "see the checks of endpoint and keys"},
	"DropTunnelNoSession":  {"the peer does not answer, and the last session has expired", "see the checks of UDP and keys"},
	"DropTunnelInFlight":   {"packets could not leave for half a second, though there was a session lately", "see the check of UDP; give the gateway more CPU (requests and limits of the template)"},
	"DropTunnelNoPeer":     {"packets for addresses that WireGuard has no peer for: the Configuration has changed just now, or lacks a CIDR", "compare the Configurations of both clusters"},
	"DropTunnelFlushed":    {"packets waited for a session in vain", "see the checks of UDP and keys"},
	"DropTunnelUnknownSession": {"messages of sessions that are over arrive: the other gateway has been replaced, or two of them have one key",
		"if it goes on, see whether two gateways use the same keys"},
	"DropTunnelRejected":  {"messages of the peer fail authentication, are repeated, or carry packets from addresses that are not the peer's", "compare the Configurations of both clusters with the CIDRs that the peer really uses"},
	"DropTunnelMalformed": {"something that is not WireGuard arrives on the port of the tunnel", "see who sends it: 'liqoctl network capture --point wire'"},
}

// meaningOf is the meaning of a drop where the peer answers, or does not.
func meaningOf(reason string, connected bool) (m meaning, known bool) {
	m, known = meanings[reason]
	if reason == "DropTunnelInFlight" && !connected {
		m = meanings["DropTunnelNoSession"] // more CPU brings no peer back
	}
	return m, known
}

// drops tells which named drops rise now. What was dropped long ago is no news.
func drops(e *end) (out []Finding) {
	if !e.asked() {
		return []Finding{skip("the gateway cannot be asked: %s", e.silent())}
	}
	before := make(map[string]uint64)
	if e.before.Started.Equal(e.after.Started) {
		for _, d := range e.before.Drops() {
			before[d.Direction+d.Reason] = d.Count
		}
	}
	window := e.after.Time.Sub(e.before.Time).Round(100 * time.Millisecond)
	var old []string
	for _, d := range e.after.Drops() {
		m, known := meaningOf(d.Reason, e.connected())
		if !known {
			continue
		}
		rising := d.Count - min(before[d.Direction+d.Reason], d.Count)
		if rising == 0 {
			old = append(old, fmt.Sprintf("%s %d", d.Reason, d.Count))
			continue
		}
		out = append(out, warn("%d packets in %v were dropped %s, for %s", rising, window, directionText(d.Direction), d.Reason).on(e.gateway().String()).
			because("%s", m.cause).fix("%s", m.fix))
	}
	for name, s := range e.after.DataPlane.Sockets {
		if rising := s.Overruns - min(e.before.DataPlane.Sockets[name].Overruns, s.Overruns); rising > 0 {
			out = append(out, warn("the kernel dropped %d datagrams of the socket %s in %v: its buffer was full", rising, name, window).on(e.gateway().String()).
				because("more arrives than the gateway can take").fix("give the gateway more CPU, or raise net.core.rmem_max on its node"))
		}
	}
	if f := unchecked(e); f != nil {
		out = append(out, *f)
	}
	switch {
	case len(out) > 0:
		return out
	case len(old) > 0:
		return []Finding{pass("none rises; since the start: %s", shorten(old, 3))}
	}
	return []Finding{pass("none")}
}

func directionText(d string) string {
	if d == survey.Egress {
		return "on the way to the peer"
	}
	return "on the way from the peer"
}

// unchecked tells whether the gateway takes packets of pods from any node.
func unchecked(e *end) *Finding {
	p := e.after.DataPlane
	rising := p.Egress.Fallback - min(e.before.DataPlane.Egress.Fallback, p.Egress.Fallback)
	if !e.before.Started.Equal(e.after.Started) {
		rising = 0
	}
	var f Finding
	switch {
	case p.Sources == "off":
		f = warn("any node can send as any pod: the gateway does not check where packets of pods come from").
			because("--strict-source=off is among its arguments").fix("leave it out, unless pods send from other nodes than their own")
	case rising > 0 && p.Sources == "routed":
		f = warn("it was not checked from which node %d packets of pods came", rising).
			because("the pods have no route: they are newer than their routes, or there are none").
			fix("if it goes on, see 'kubectl get routeconfigurations -A' and the log of the controller")
	default:
		return nil
	}
	f = f.on(e.gateway().String())
	return &f
}
