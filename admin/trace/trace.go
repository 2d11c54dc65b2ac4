package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Hop is a place that a packet passes. Its JSON form is what scripts read: fields are
// added, not renamed.
type Hop struct {
	Cluster string `json:"cluster"` // local, remote
	Kind    string `json:"kind"`    // pod, node, gateway, translation, tunnel
	Name    string `json:"name"`
	// Source and Destination are the packet's when it leaves the hop.
	Source      netip.Addr `json:"source,omitzero"`
	Destination netip.Addr `json:"destination,omitzero"`
	// Facts tell of routes, links, MTU, sessions.
	Facts []string `json:"facts,omitempty"`
	// DecidedBy is the object that decides here: "Configuration liqo-tenant-milan/milan".
	DecidedBy string `json:"decidedBy,omitempty"`
	// Live is how many matching packets a watch has seen here.
	Live []Sight `json:"live,omitempty"`
	// NotCounted is why matching packets could not be counted at this node.
	NotCounted string `json:"notCounted,omitempty"`
	// Unknown is what could not be read here, and why.
	Unknown string `json:"unknown,omitempty"`
	// Problem is why the packet stops here, nil if it goes on as far as is known.
	Problem *Problem `json:"problem,omitempty"`
}

// Way is the path of a packet and of its answer. If the packet stops, there is no path of
// an answer.
type Way struct {
	There []Hop `json:"there"`
	Back  []Hop `json:"back,omitempty"`
}

// Stop is the hop where the packet or its answer stops, nil if none is known.
func (w *Way) Stop() *Hop {
	for _, hops := range [][]Hop{w.There, w.Back} {
		for i := range hops {
			if hops[i].Problem != nil {
				return &hops[i]
			}
		}
	}
	return nil
}

// Trace follows the packet.
func Trace(f *Facts) *Way {
	there := &walk{dst: f.To, port: f.Port}
	there.src = f.From.addr(f.To)
	way := &Way{}
	passed := there.leave(&f.Local, &f.From)
	if passed && f.Remote != nil {
		passed = there.arrive(f.Remote, f.Remote.Target)
	} else if passed {
		unknown := "only that cluster can tell what happens there: name it with --remote-kubeconfig or --remote-context"
		if f.RemoteErr != nil {
			unknown = "only that cluster can tell what happens there: " + f.RemoteErr.Error()
		}
		there.hop(Hop{Cluster: "remote", Kind: "gateway", Name: f.Local.Peer.ID, Unknown: unknown})
	}
	way.There = there.hops
	if !passed {
		return way
	}
	// The answer: the same two ends in the other direction.
	back := &walk{answer: true, port: f.Port}
	if f.Remote != nil {
		back.src, back.dst = there.dst, there.src
		if f.Remote.Target == nil || !back.leave(f.Remote, f.Remote.Target) {
			way.Back = back.hops
			return way
		}
	} else {
		back.src, back.dst = there.dst, there.src
	}
	back.arrive(&f.Local, &f.From)
	way.Back = back.hops
	return way
}

// walk is a packet on its path.
type walk struct {
	src, dst netip.Addr
	port     uint16 // of the server
	answer   bool
	hops     []Hop
}

// hop adds a hop with the packet's addresses, and reports whether it is passed.
func (w *walk) hop(h Hop) bool {
	h.Source, h.Destination = w.src, w.dst
	h.Unknown = plain(h.Unknown)
	for i := range h.Facts {
		h.Facts[i] = plain(h.Facts[i])
	}
	if p := h.Problem; p != nil {
		h.Problem = &Problem{plain(p.Message), plain(p.Cause), plain(p.Fix)}
	}
	w.hops = append(w.hops, h)
	return h.Problem == nil
}

// leave follows the packet from a pod into the tunnel.
func (w *walk) leave(s *Side, from *Pod) bool {
	h := Hop{Cluster: s.Name, Kind: "pod", Name: from.String(), Facts: []string{"on node " + from.Node}}
	switch {
	case from.Node == "":
		h.Facts = nil
		h.Problem = &Problem{"the pod is not on a node", "the pod is " + cmp.Or(from.Phase, "not scheduled"), "see 'kubectl -n " + from.Namespace + " describe pod " + from.Name + "'"}
	case !w.src.IsValid():
		h.Problem = &Problem{fmt.Sprintf("the pod has no address in the family of %s", w.dst), "the pod is " + from.Phase + ", or its network is single-stack", "use an address of the other family, or wait until the pod is running"}
	}
	return w.hop(h) && w.node(s, from.Node, true) && w.gatewayFromNode(s, from.Node) && w.translateOut(s) && w.tunnel(s)
}

// arrive follows the packet from the tunnel to a pod.
func (w *walk) arrive(s *Side, to *Pod) bool {
	if !w.translateIn(s) {
		return false
	}
	if w.answer {
		return w.gatewayToNode(s, to.Node) && w.node(s, to.Node, false) && w.hop(Hop{Cluster: s.Name, Kind: "pod", Name: to.String()})
	}
	h := Hop{Cluster: s.Name, Kind: "pod", Name: w.dst.String()}
	switch {
	case to == nil && s.exposed(w.dst) != nil: // a host behind this cluster
		h.Kind = "host"
		h.Unknown = "how nodes of this cluster reach the host and how it answers (not examined)"
		return w.hop(h)
	case to == nil && s.TargetErr != nil:
		h.Unknown = "the pod with this address could not be determined: " + s.TargetErr.Error()
		return w.hop(h)
	case to == nil:
		h.Problem = &Problem{fmt.Sprintf("no pod in this cluster has the address %s", w.dst), "the pod was replaced, or the address is wrong", "look up its current address: 'kubectl get pods -A -o wide' in that cluster"}
		return w.hop(h)
	}
	h.Name, h.Facts = to.String(), []string{"on node " + to.Node}
	if to.Phase != "Running" {
		h.Problem = &Problem{"the pod is not running: it is " + to.Phase, "", "see 'kubectl -n " + to.Namespace + " describe pod " + to.Name + "' in that cluster"}
	}
	return w.gatewayToNode(s, to.Node) && w.node(s, to.Node, false) && w.hop(h)
}

// exposed is the IP object of this cluster that stands for an address.
func (s *Side) exposed(inside netip.Addr) *survey.Exposed {
	for i := range s.Exposed {
		if a, err := netip.ParseAddr(s.Exposed[i].IP); err == nil && a == inside {
			return &s.Exposed[i]
		}
	}
	return nil
}

const seeFabric = "run 'fabric status' in the agent pod on the node"

// node is a node between a pod and the gateway, as its agent reports it.
func (w *walk) node(s *Side, name string, leaving bool) bool {
	h := Hop{Cluster: s.Name, Kind: "node", Name: name}
	i := slices.IndexFunc(s.Nodes, func(n survey.Node) bool { return n.Name == name })
	if i >= 0 && s.Nodes[i].Internal != nil {
		for _, t := range []networkingv1beta1.ConditionType{networkingv1beta1.ConditionTunnelsReady, networkingv1beta1.ConditionAddressTranslationReady} {
			if c := meta.FindStatusCondition(s.Nodes[i].Internal.Status.Conditions, string(t)); c != nil && c.Status != metav1.ConditionTrue {
				h.DecidedBy = "InternalNode " + name
				h.Problem = &Problem{c.Reason, c.Message, seeFabric}
				return w.hop(h)
			}
		}
	}
	if s.Peer.Fabric == nil {
		h.Problem = &Problem{"the node does not know the gateway: there is no InternalFabric for the peering", "no pod of the gateway is the leader, or the controller is not running", "see 'liqoctl network doctor', checks gateway-pods and nodes"}
		return w.hop(h)
	}
	fabric := s.Peer.Fabric.Namespace + "/" + s.Peer.Fabric.Name
	h.DecidedBy = "InternalFabric " + fabric
	agent := s.Agents[name]
	if agent.Report == nil {
		h.Unknown = "the node's agent cannot be queried"
		if agent.Err != nil {
			h.Unknown += ": " + agent.Err.Error()
		}
		return w.hop(h)
	}
	r := agent.Report
	t := s.link(r)
	if t == nil {
		h.Problem = &Problem{"the node has no link to the gateway", cmp.Or(r.Link.Reason, "its agent has not created it"), seeFabric}
		return w.hop(h)
	}
	route := slices.IndexFunc(t.Routes, func(text string) bool {
		p, err := netip.ParsePrefix(strings.Fields(text + " -")[0])
		return err == nil && p.Contains(w.dst)
	})
	switch {
	case t.Problem != "":
		h.Problem = &Problem{"link " + t.Name + ": " + t.Problem, "", seeFabric}
	case t.Status != "up" && t.Status != "kept":
		h.Problem = &Problem{fmt.Sprintf("link %s is %s", t.Name, t.Status), "its agent has not created it, or another program has changed it", seeFabric}
	case leaving && route < 0:
		h.Problem = &Problem{fmt.Sprintf("the node has no route that sends %s into link %s", w.dst, t.Name), "the Configuration has just changed, or the agent rejects the prefix", seeFabric + ", and see spec.remoteCIDRs of InternalFabric " + fabric}
	case leaving:
		h.Facts = append(h.Facts, "route "+t.Routes[route])
		h.Facts = append(h.Facts, rulesOf(r)...)
	}
	h.Facts = append(h.Facts, fmt.Sprintf("link %s: %s, VNI %d, MTU %d, to the gateway pod %s port %d", t.Name, t.Kind, t.VNI, t.MTU, t.Gateway, t.Port))
	return w.hop(h)
}

// link is the node's link to the gateway of the peering, nil if it has none. The peering
// must have an InternalFabric.
func (s *Side) link(r *survey.FabricReport) *survey.FabricTunnel {
	owner := "InternalFabric " + s.Peer.Fabric.Namespace + "/" + s.Peer.Fabric.Name
	if i := slices.IndexFunc(r.Tunnels, func(t survey.FabricTunnel) bool { return t.Owner == owner }); i >= 0 {
		return &r.Tunnels[i]
	}
	return nil
}

func rulesOf(r *survey.FabricReport) (out []string) {
	for _, rule := range r.Rules {
		out = append(out, "rule "+rule)
	}
	return out
}

// longestSilence is the longest time that a working node sends nothing: see how the gateway
// maintains its neighbors.
const longestSilence = 45 * time.Second

// recent is how old a dropped packet may be to count as evidence of what happens now.
const recent = time.Minute
