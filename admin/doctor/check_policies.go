package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

const (
	// defaultNodePort is where gateways take packets from nodes, unless their
	// template says otherwise.
	defaultNodePort = 6091
	// defaultTunnelPort is where servers take packets of the peer.
	defaultTunnelPort = 51840
)

// networkPolicies finds policies that keep the gateway's packets from passing. It
// judges by the objects: whether anything enforces them, only traffic tells.
func networkPolicies(e *end) (out []Finding) {
	if e.policies.err != nil {
		return []Finding{skip("%s", plain(e.policies.err))}
	}
	pod := e.activePod()
	if pod == nil {
		if e.pods.err != nil {
			return []Finding{skip("%s", plain(e.pods.err))}
		}
		if len(e.pods.items) == 0 {
			return []Finding{skip("the gateway has no pod that policies could select")}
		}
		pod = &e.pods.items[0]
	}
	spare := false
	for _, f := range e.flows() {
		blocking := blockingPolicies(e.policies.items, pod, f.flow)
		if len(blocking) == 0 || f.spare && spare {
			continue
		}
		spare = f.spare
		found := fail("it keeps %s from gateway pods: no policy lets UDP %d pass there", f.what, f.port).on(policyNames(blocking)).
			because("NetworkPolicies select the gateway's pod for %s, and packets that none of them allows are dropped", strings.ToLower(string(f.direction))).
			fix("let a policy of namespace %s that selects networking.liqo.io/component=gateway pass UDP %d %s", e.peer.Namespace, f.port, f.scope())
		switch {
		case f.spare:
			found.Status = Warning
			found = found.because("the tunnel of this port carries nothing; the other tunnels carry the traffic")
		case f.flows:
			found.Status = Warning
			found = found.because("packets pass nevertheless: nothing enforces the policy, or it is newer than the flow; a new gateway pod may be cut off")
		}
		out = append(out, found)
	}
	switch {
	case len(out) > 0:
		return out
	case e.cluster.nodes.err != nil && len(e.policies.items) > 0:
		return []Finding{skip("whether the nodes' packets pass is not known: %s", plain(e.cluster.nodes.err))}
	}
	return []Finding{pass("%s%s", e.policyCount(), e.otherPolicies())}
}

// judgedFlow is a flow, and whether it is known to pass. A spare one is of a tunnel besides
// the first.
type judgedFlow struct {
	flow
	flows, spare bool
}

// scope says for whom a policy must open.
func (f flow) scope() string {
	way := "from"
	if f.direction == networkingv1.PolicyTypeEgress {
		way = "to"
	}
	if len(f.hosts) == 0 {
		return way + " 0.0.0.0/0"
	}
	var texts []string
	for _, h := range f.hosts {
		texts = append(texts, netip.PrefixFrom(h, h.BitLen()).String())
	}
	return way + " " + text.Few(texts)
}

// flows are those that a gateway lives by.
func (e *end) flows() (out []judgedFlow) {
	var nodes []netip.Addr
	for _, a := range e.cluster.nodeAddresses() {
		if !a.prefix.Addr().IsLoopback() { // which no policy is about
			nodes = append(nodes, a.prefix.Addr())
		}
	}
	if len(nodes) > 0 {
		out = append(out,
			judgedFlow{flow{"packets from the nodes", networkingv1.PolicyTypeIngress, nodes, e.nodePort()}, e.receivesFromNodes(), false},
			judgedFlow{flow{"packets to the nodes", networkingv1.PolicyTypeEgress, nodes, e.nodePort()}, e.receivesFromNodes(), false})
	}
	g, f := e.gateway(), flow{"packets to the server", networkingv1.PolicyTypeEgress, addressesOf(e.gateway().Endpoint), portOf(e.gateway().Endpoint)}
	if g.Role == networkingv1beta1.ConnectionServer {
		f = flow{what: "the client's packets", direction: networkingv1.PolicyTypeIngress, port: e.tunnelPort()}
	}
	out = append(out, judgedFlow{f, e.connected(), false})
	for _, port := range e.sparePorts() {
		if port != f.port {
			f.port = port
			out = append(out, judgedFlow{f, false, true})
		}
	}
	return out
}

// sparePorts are those of the tunnels where there are several, as the gateway pod sees them.
func (e *end) sparePorts() (ports []int32) {
	g := e.gateway()
	switch {
	case g.Endpoint == nil || len(g.Endpoint.Ports) < 2:
	case g.Role == networkingv1beta1.ConnectionClient:
		return g.Endpoint.Ports[1:]
	case e.service != nil:
		for _, p := range e.service.Spec.Ports {
			if p.Protocol == corev1.ProtocolUDP {
				ports = append(ports, cmp.Or(p.TargetPort.IntVal, p.Port))
			}
		}
	}
	return ports
}

// tunnelPort is where the gateway pod of a server listens.
func (e *end) tunnelPort() int32 {
	if e.after != nil && e.after.DataPlane.Tunnel.ListenPort != 0 {
		return int32(e.after.DataPlane.Tunnel.ListenPort)
	}
	if e.service == nil || len(e.service.Spec.Ports) == 0 {
		return defaultTunnelPort
	}
	p := e.service.Spec.Ports[0]
	return cmp.Or(p.TargetPort.IntVal, p.Port)
}

// nodePort is where the gateway takes packets from nodes.
func (e *end) nodePort() int32 {
	if e.after != nil {
		if a := e.after.DataPlane.Sockets["geneve"].LocalAddr; a.IsValid() {
			return int32(a.Port())
		}
	}
	return defaultNodePort
}

// receivesFromNodes tells whether packets of all nodes arrive.
func (e *end) receivesFromNodes() bool {
	return e.after != nil && len(e.after.DataPlane.Nodes) > 0 &&
		!slices.ContainsFunc(e.after.DataPlane.Nodes, func(n survey.NodeTunnel) bool { return n.LastSeen.IsZero() })
}

func policyNames(ps []*networkingv1.NetworkPolicy) string {
	var names []string
	for _, p := range ps {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return "NetworkPolicy " + text.Few(names)
}

func (e *end) policyCount() string {
	if n := len(e.policies.items); n > 0 {
		return fmt.Sprintf("%d in %s, none in the way", n, e.peer.Namespace)
	}
	return "none in " + e.peer.Namespace
}

// otherPolicies names kinds of policies that are not judged.
func (e *end) otherPolicies() string {
	others := []string{
		"ciliumnetworkpolicies.cilium.io", "ciliumclusterwidenetworkpolicies.cilium.io", "networkpolicies.crd.projectcalico.org",
		"globalnetworkpolicies.crd.projectcalico.org", "adminnetworkpolicies.policy.networking.k8s.io",
	}
	kinds := slices.DeleteFunc(slices.Clone(e.cluster.crdNames), func(name string) bool { return !slices.Contains(others, name) })
	if len(kinds) == 0 {
		return ""
	}
	return "; not judged: " + strings.Join(kinds, ", ")
}
