package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

// nodeTunnels judges the tunnels between the nodes of a cluster and its gateway,
// from the objects to the packets that arrive. Nodes with the same problem are one
// finding.
func nodeTunnels(e *end) []Finding {
	if why := e.cluster.unread("InternalNode", "Node"); why != "" {
		return []Finding{skip("%s", why)}
	}
	g := e.gateway()
	if out := conditionFindings(g.String(), g.Conditions, networkingv1beta1.ConditionInternalNetworkReady); len(out) > 0 {
		return out
	}
	var groups nodeProblems
	for i := range e.cluster.Nodes {
		n := &e.cluster.Nodes[i]
		if f, bad := e.nodeProblem(n); bad {
			groups.add(n.Name, f)
		}
	}
	if len(groups) > 0 {
		return groups.findings(len(e.cluster.Nodes))
	}
	if len(e.cluster.Nodes) == 0 {
		return []Finding{fail("the cluster has no nodes that take part in the network")}
	}
	if e.after == nil && e.cluster.MayBeOfLiqo() && !slices.ContainsFunc(e.cluster.Nodes, saysReady) {
		return []Finding{skip("by the objects %d nodes are joined to the gateway; whether packets pass is not known: no node agent tells, "+
			"and the gateway was not asked", len(e.cluster.Nodes))}
	}
	return []Finding{pass("%d nodes are joined to the gateway%s", len(e.cluster.Nodes), e.linkKinds())}
}

// saysReady tells whether the agent of a node has said that its tunnels work.
func saysReady(n survey.Node) bool {
	return n.Internal != nil && meta.IsStatusConditionTrue(n.Internal.Status.Conditions, string(networkingv1beta1.ConditionTunnelsReady))
}

// nodeProblem finds the first thing that is missing between a node and the
// gateway.
func (e *end) nodeProblem(n *survey.Node) (f Finding, bad bool) {
	if n.Internal == nil {
		return fail("has no InternalNode").because("the controller creates one for each node").fix("see the log of the controller"), true
	}
	for _, t := range []networkingv1beta1.ConditionType{networkingv1beta1.ConditionTunnelsReady, networkingv1beta1.ConditionAddressTranslationReady} {
		if c := meta.FindStatusCondition(n.Internal.Status.Conditions, string(t)); c != nil && c.Status != metav1.ConditionTrue {
			return fail("%s: %s", c.Reason, c.Message).fix("see 'fabric status' in the agent's pod of the node"), true
		}
	}
	if ip := n.Internal.Status.NodeIP; ip.Local == "" && ip.Remote == "" {
		return fail("has reported nothing").because("no agent runs on it, or it cannot reach the API server: the gateway does not know where its packets come from").
			fix("%s", e.agentHint(n.Name)), true
	}
	if e.peer.Fabric != nil && !e.cluster.Unread("GeneveTunnel") && !slices.Contains(e.peer.Tunnels, n.Name) {
		return fail("has no GeneveTunnel to the gateway").because("the controller creates one for each node").fix("see the log of the controller"), true
	}
	if f, bad := e.neverReceived(n.Name); bad {
		return f, true
	}
	if f, bad := e.withoutAgent(n.Name); bad {
		return f, true
	}
	if c := meta.FindStatusCondition(n.Internal.Status.Conditions, string(networkingv1beta1.ConditionLiqoReplaced)); c != nil && c.Status != metav1.ConditionTrue {
		return warn("%s", c.Message).because("what Liqo's agent has made there follows no changes, and its rules serve whatever those of Sluice's do not").
			fix("correct or delete the objects that are named: the agent removes what is Liqo's when everything of its own is in force; see 'fabric status' in its pod"), true
	}
	return f, false
}

// withoutAgent finds a node whose tunnel works, but whose agent does not run.
func (e *end) withoutAgent(node string) (f Finding, bad bool) {
	agents := e.cluster.agents
	onNode := func(p corev1.Pod) bool { return p.Spec.NodeName == node }
	if agents.err != nil || len(agents.items) == 0 || slices.ContainsFunc(agents.items, onNode) {
		return f, false
	}
	return warn("there is no agent pod on it").because("its tunnel stays as it is, but no longer follows changes").
		fix("check that tolerations and node selector of the node agent's DaemonSet admit this node"), true
}

// neverReceived tells whether packets of a node have never arrived at the gateway, which
// asks every node for its address.
func (e *end) neverReceived(node string) (f Finding, bad bool) {
	if e.after == nil || !e.after.DataPlane.Configured {
		return f, false
	}
	problem, known := e.after.Unheard(node)
	switch {
	case !known:
		return fail("%s", problem).because("the gateway has not added the node yet, or leaves it out").fix("see 'gateway status' in the gateway's pod"), true
	case problem == "":
		return f, false
	}
	t := e.after.DataPlane.Nodes[slices.IndexFunc(e.after.DataPlane.Nodes, func(t survey.NodeTunnel) bool { return t.Name == node })]
	f = fail("%s", problem)
	f = f.
		because("the agent of the node does not run, or UDP %d between node and gateway pod is blocked, or the node sends from another address than %s", e.nodePort(), t.Underlay).
		fix("%s; let firewalls and NetworkPolicies pass UDP %d between nodes and gateway pods", e.agentHint(node), e.nodePort())
	return byAgent(f, e.agents[node]), true
}

// byAgent adds what the agent of the node says; nil: it was not asked, or in vain.
func byAgent(f Finding, r *survey.FabricReport) Finding {
	if r == nil {
		return f
	}
	for i := range r.Tunnels {
		if t := &r.Tunnels[i]; t.Problem != "" {
			return f.because("its agent says: %s", t.Problem)
		}
	}
	switch {
	case r.Link.Kind == "":
		return f.because("its agent can make no tunnel: %s", r.Link.Reason)
	case len(r.Unreachable) > 0:
		return f.because("its agent says: %s", r.Unreachable[0])
	case len(r.Failures) > 0:
		return f.because("its agent says: %s", r.Failures[0])
	case r.ReportError != "":
		return f.because("its agent cannot tell its state: %s", r.ReportError)
	}
	return f
}

// agentHint says how to look at the agent of a node.
func (e *end) agentHint(node string) string {
	for i := range e.cluster.agents.items {
		p := &e.cluster.agents.items[i]
		if p.Spec.NodeName != node {
			continue
		}
		if !survey.PodReady(p) {
			return fmt.Sprintf("the agent of the node, pod %s/%s, is not ready: see its log", p.Namespace, p.Name)
		}
		if survey.OfLiqo(&p.Spec) {
			return fmt.Sprintf("see the log of Liqo's node agent there, pod %s/%s", p.Namespace, p.Name)
		}
		return fmt.Sprintf("see 'kubectl -n %s exec %s -- fabric status'", p.Namespace, p.Name)
	}
	if e.cluster.agents.err != nil {
		return "see the pod of the node agent there, which could not be read"
	}
	return "there is no agent pod on the node: check that the DaemonSet of the node agent exists, and that its tolerations and node selector admit this node"
}

// linkKinds says of what kind the nodes' links are, where agents were asked.
func (e *end) linkKinds() string {
	var kinds []string
	if e.after == nil {
		return ""
	}
	for _, n := range e.after.DataPlane.Nodes {
		if k := n.Encapsulation; k != "" && !n.LastSeen.IsZero() && !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	return " by " + strings.Join(kinds, " and ")
}

// nodeProblems are findings with the nodes that they are about.
type nodeProblems []nodeProblem

type nodeProblem struct {
	finding Finding
	nodes   []string
}

func (g *nodeProblems) add(node string, f Finding) {
	for i := range *g {
		if p := &(*g)[i]; p.finding.Message == f.Message {
			p.nodes = append(p.nodes, node)
			return
		}
	}
	*g = append(*g, nodeProblem{f, []string{node}})
}

// findings are one for each problem. That some nodes work is a warning no more:
// pods on the others are cut off.
func (g nodeProblems) findings(all int) (out []Finding) {
	for _, p := range g {
		f := p.finding
		object := "node " + p.nodes[0]
		if len(p.nodes) > 1 {
			object = fmt.Sprintf("%d of %d nodes: %s", len(p.nodes), all, text.Few(p.nodes))
		}
		out = append(out, f.on(object))
	}
	return out
}
