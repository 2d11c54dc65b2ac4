package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/reflection"
)

// Facts are what is known about a packet's path.
type Facts struct {
	From Pod
	// To is the destination as From's cluster calls it. Port 0: any.
	To    netip.Addr
	Port  uint16
	Local Side
	// Remote is nil if the other cluster cannot be read. RemoteErr is why a cluster that was
	// named does not answer.
	Remote    *Side
	RemoteErr error
}

// Pod is one end of the path.
type Pod struct {
	Namespace, Name, Node string
	Addrs                 []netip.Addr
	// Phase is the pod's: "Running".
	Phase string
	// HostNetwork: its address is the node's.
	HostNetwork bool
}

// Side is one of the two clusters.
type Side struct {
	// Name is "local" or "remote", ID that of the cluster.
	Name, ID string
	Nodes    []survey.Node
	// Peer is the other cluster as this one knows it, nil if it does not.
	Peer *survey.Peer
	// Exposed are this cluster's IPs.
	Exposed []survey.Exposed
	// Agents are those of the nodes on the path.
	Agents map[string]Agent
	// Target is the pod of this cluster that the packet is for, nil if none has its address.
	// TargetErr is why it is not known.
	Target    *Pod
	TargetErr error
	// Drops are packets that the gateway dropped recently.
	Drops []drops.Drop
}

// Agent is what the agent of a node said, or why it said nothing.
type Agent struct {
	Report *survey.FabricReport
	Err    error
	// Pod is the agent's pod, which sent Report.
	Pod types.NamespacedName
}

// report is what the gateway reported, nil if nothing.
func (s *Side) report() *survey.GatewayReport {
	if s.Peer == nil || s.Peer.Gateway == nil {
		return nil
	}
	return s.Peer.Gateway.Report
}

// Problem is why a packet goes no further.
type Problem struct {
	Message string `json:"message"`
	Cause   string `json:"cause,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

// PeerFor finds the peer that an address leads to. If there is none, the Problem says what
// is wrong with the address.
func PeerFor(c *survey.Cluster, to netip.Addr) (*survey.Peer, *Problem) {
	reason, _ := drops.Explain("DropNoMapping")
	problem := &Problem{
		Message: fmt.Sprintf("%s is not in a CIDR of any peer: the packet does not reach a gateway", to), Cause: reason.Cause, Fix: reason.Fix,
	}
	for i := range c.Peers {
		p := &c.Peers[i]
		if p.Configuration == nil {
			continue
		}
		own, here := cidrs(&p.Configuration.Spec.Remote), cidrs(p.Configuration.Status.Remote)
		if slices.ContainsFunc(here, func(q netip.Prefix) bool { return q.Contains(to) }) {
			return p, nil
		}
		if j := slices.IndexFunc(own, func(q netip.Prefix) bool { return q.Contains(to) }); j >= 0 && j < len(here) {
			problem.Message = fmt.Sprintf("%s is an address that %s itself uses; in this cluster it is remapped", to, p.ID)
			problem.Cause = fmt.Sprintf("%s of %s is remapped to %s here", own[j], p.ID, here[j])
			problem.Fix = fmt.Sprintf("use %s", reflection.Remapped(to, here[j]))
		}
	}
	return nil, problem
}

// cidrs are all of one cluster, those of pods first.
func cidrs(c *networkingv1beta1.ClusterConfig) (out []netip.Prefix) {
	if c == nil {
		return nil
	}
	for _, text := range slices.Concat(c.CIDR.Pod.List, c.CIDR.External.List) {
		if p, err := text.Prefix(); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// through translates an address of the peer by the mappings of a gateway: from the address
// in this cluster to the one in the tunnel or, inward, back.
func through(ms []survey.Mapping, a netip.Addr, inward bool) (netip.Addr, survey.Mapping, bool) {
	for _, m := range ms {
		from, to := m.Inside, m.Outside
		if inward {
			from, to = to, from
		}
		if from.Contains(a) {
			return reflection.Remapped(a, to), m, true
		}
	}
	return netip.Addr{}, survey.Mapping{}, false
}

// mappings are those in force at the gateway or, if it cannot be queried, those of the
// Configuration.
func (s *Side) mappings() (out []survey.Mapping) {
	if r := s.report(); r != nil {
		return r.DataPlane.Remote
	}
	if c := s.Peer.Configuration; c != nil {
		own, here := cidrs(&c.Spec.Remote), cidrs(c.Status.Remote)
		for i := range min(len(own), len(here)) {
			out = append(out, survey.Mapping{Inside: here[i], Outside: own[i]})
		}
	}
	return out
}

// addr is the pod's address in a family, not valid if it has none.
func (p *Pod) addr(like netip.Addr) netip.Addr {
	for _, a := range p.Addrs {
		if a.Is4() == like.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

// plain is the text of another program on one line, without control characters that a
// terminal would obey.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return ' '
		}
		return r
	}, s)
	const most = 400
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return s
}
