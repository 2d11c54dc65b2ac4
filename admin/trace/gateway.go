package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// This file is the part of a packet's path that gateways decide: filters, translation, the tunnel.

// gateway begins the hop of a gateway. The report is nil if the gateway cannot be queried;
// the hop is then complete.
func (s *Side) gateway() (h Hop, r *survey.GatewayReport) {
	h = Hop{Cluster: s.Name, Kind: "gateway"}
	if s.Peer.Gateway == nil {
		h.Name = s.Peer.ID
		h.Problem = &Problem{"the peering has no gateway", "the clusters are not connected, or only prepared", "run 'liqoctl network connect'"}
		return h, nil
	}
	g := s.Peer.Gateway
	h.Name, h.DecidedBy = g.String(), g.String()
	r = g.Report
	switch {
	case g.Active() == nil:
		h.Problem = &Problem{"no pod of the gateway carries traffic", "none is ready, or there is none", "see 'liqoctl network doctor', check gateway-pods"}
	case r == nil:
		h.Unknown = "the gateway cannot be queried"
		if g.ReportErr != nil {
			h.Unknown += ": " + g.ReportErr.Error()
		}
	case !r.DataPlane.Configured:
		h.Problem = &Problem{"the gateway has no configuration", "", "see 'liqoctl network doctor', check objects-applied"}
		if why := slices.Concat(r.Sync.Refused, r.Sync.Waiting); len(why) > 0 {
			h.Problem.Cause = why[0].Object + ": " + why[0].Reason
		}
	}
	if pod := g.Active(); pod != nil {
		h.Facts = append(h.Facts, "pod "+pod.Namespace+"/"+pod.Name+" on node "+pod.Node)
	}
	if r != nil && r.DataPlane.MTU > 0 {
		h.Facts = append(h.Facts, fmt.Sprintf("MTU %d", r.DataPlane.MTU))
	}
	return h, r
}

// gatewayFromNode is the gateway where the packet leaves the node tunnel.
func (w *walk) gatewayFromNode(s *Side, node string) bool {
	h, r := s.gateway()
	if h.Problem == nil && r != nil {
		h.nodeTunnel(r, node)
		h.filters(r)
		h.lately(s, drops.Egress, w)
	}
	return w.hop(h)
}

// gatewayToNode is the gateway where the packet enters it.
func (w *walk) gatewayToNode(s *Side, node string) bool {
	h, r := s.gateway()
	if h.Problem == nil && r != nil {
		h.nodeTunnel(r, node)
		h.filters(r)
	}
	return w.hop(h)
}

// nodeTunnel judges the tunnel between node and gateway.
func (h *Hop) nodeTunnel(r *survey.GatewayReport, node string) {
	i := slices.IndexFunc(r.DataPlane.Nodes, func(t survey.NodeTunnel) bool { return t.Name == node })
	if i < 0 {
		h.Problem = &Problem{fmt.Sprintf("the gateway does not know node %s", node), "the gateway has not added the node yet, or ignores it", "run 'gateway status' in the gateway pod"}
		return
	}
	t := r.DataPlane.Nodes[i]
	h.Facts = append(h.Facts, fmt.Sprintf("tunnel of node %s: %s, VNI %d, from %s", node, cmp.Or(t.Encapsulation, "not known yet"), t.VNI, t.Underlay))
	message := fmt.Sprintf("the gateway has never received a packet from node %s", node)
	if silence := r.Time.Sub(t.LastSeen); !t.LastSeen.IsZero() {
		if silence <= longestSilence {
			return
		}
		message = fmt.Sprintf("the gateway has received nothing from node %s for %v", node, silence.Round(time.Second))
	}
	h.Problem = &Problem{message,
		fmt.Sprintf("the node's agent is not running, UDP between the node and the gateway pod is blocked, or the node sends from an address other than %s", t.Underlay),
		seeFabric + "; " + allowGeneve}
}

// filters lists the chains that filter packets here.
func (h *Hop) filters(r *survey.GatewayReport) {
	for _, c := range r.DataPlane.Filter {
		h.Facts = append(h.Facts, fmt.Sprintf("filter chain %s/%s: %d rules, policy %s", c.Table, c.Chain, len(c.Rules), c.Policy))
		if c.Policy == "drop" && len(c.Rules) == 0 {
			reason, _ := drops.Explain("DropFilter")
			h.Problem = &Problem{fmt.Sprintf("filter chain %s/%s drops everything", c.Table, c.Chain), reason.Cause, reason.Fix}
		}
	}
}

// lately checks whether the gateway has just dropped a matching packet.
func (h *Hop) lately(s *Side, direction string, w *walk) {
	if h.Problem != nil || s.report() == nil {
		return
	}
	now := s.report().Time
	for _, d := range slices.Backward(s.Drops) {
		port := d.DestinationPort
		if w.answer {
			port = d.SourcePort
		}
		if d.Outer || d.Direction != direction || d.Source != w.src || d.Destination != w.dst || w.port != 0 && port != w.port || now.Sub(d.Time) > recent {
			continue
		}
		reason, _ := drops.Explain(d.Reason)
		h.Problem = &Problem{fmt.Sprintf("the gateway dropped a matching packet %v ago: %s", max(now.Sub(d.Time), 0).Round(time.Second), d.Reason), reason.Cause, reason.Fix}
		return
	}
}

// configuration names the Configuration that decides about addresses.
func (s *Side) configuration() string {
	if c := s.Peer.Configuration; c != nil {
		return "Configuration " + c.Namespace + "/" + c.Name
	}
	return ""
}

// translateOut is the translation towards the peer.
func (w *walk) translateOut(s *Side) bool {
	h := Hop{Cluster: s.Name, Kind: "translation", Name: "to " + s.Peer.ID, DecidedBy: s.configuration()}
	r := s.report()
	if r == nil {
		h.Unknown = "only the gateway can tell whether this translation is in force"
		if outside, m, ok := through(s.mappings(), w.dst, false); ok {
			w.dst = outside
			h.Facts = append(h.Facts, mappingText(m, false))
		}
		return w.hop(h)
	}
	d := &r.DataPlane
	outside, m, ok := through(d.Remote, w.dst, false)
	if !ok {
		reason, _ := drops.Explain("DropNoMapping")
		h.Problem = &Problem{fmt.Sprintf("the gateway has no mapping for %s", w.dst), reason.Cause, "see the conditions of " + s.configuration() + ", and 'liqoctl network doctor', check objects-applied"}
		return w.hop(h)
	}
	w.dst = outside
	h.Facts = append(h.Facts, mappingText(m, false))
	if !contains(d.LocalPods, w.src) {
		i := slices.IndexFunc(d.External, func(p netip.Prefix) bool { return p.Addr().Is4() == w.src.Is4() })
		if i < 0 {
			reason, _ := drops.Explain("DropSpoofedSource")
			h.Problem = &Problem{fmt.Sprintf("%s is not in the pod CIDR of this cluster", w.src), reason.Cause, reason.Fix}
			return w.hop(h)
		}
		h.Facts = append(h.Facts, fmt.Sprintf("%s is not in the pod CIDR: such senders share one address, so the peer cannot tell them apart", w.src))
		w.src = d.External[i].Masked().Addr()
	}
	const ipv4, ipv6 = 40, 60 // headers of IP and TCP
	header := ipv4
	if w.dst.Is6() {
		header = ipv6
	}
	size, text := d.MTU, fmt.Sprintf("MTU %d", d.MTU)
	if d.PathMTU > 0 && d.PathMTU < d.MTU {
		size, text = d.PathMTU, fmt.Sprintf("MTU %d, the path to the peer carries %d", d.MTU, d.PathMTU)
	}
	h.Facts = append(h.Facts, fmt.Sprintf("%s: TCP MSS at most %d", text, size-header))
	if why := r.Sync.Peer.MTUMismatch; why != "" {
		h.Facts = append(h.Facts, "MTUs differ: "+why)
	}
	return w.hop(h)
}

func mappingText(m survey.Mapping, inward bool) string {
	from, to := m.Inside, m.Outside
	if inward {
		from, to = to, from
	}
	if from == to {
		return from.String() + " is not remapped"
	}
	return fmt.Sprintf("%s becomes %s", from, to)
}

func contains(ps []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
}

// tunnel is WireGuard between the gateways.
func (w *walk) tunnel(s *Side) bool {
	h := Hop{Cluster: s.Name, Kind: "tunnel", Name: "WireGuard to " + s.Peer.ID}
	if c := s.Peer.Connection; c != nil {
		h.DecidedBy = "Connection " + c.Namespace + "/" + c.Name
	}
	r := s.report()
	if r == nil {
		h.Unknown = "only the gateway can tell whether there is a session"
		return w.hop(h)
	}
	t := &r.DataPlane.Tunnel
	noEndpoint, _ := drops.Explain("DropTunnelNoEndpoint")
	noSession, _ := drops.Explain("DropTunnelNoSession")
	switch {
	case t.Peer == "":
		h.Problem = &Problem{"the key of the peer is not known", noEndpoint.Cause, noEndpoint.Fix}
	case !t.Endpoint.IsValid():
		h.Problem = &Problem{"the address of the peer's gateway is not known", cmp.Or(t.LookupError, noEndpoint.Cause), noEndpoint.Fix}
	case r.Sync.Peer.Value != networkingv1beta1.Connected:
		h.Problem = &Problem{"the peer's gateway does not answer", cmp.Or(r.Sync.Peer.Silence.Message, noSession.Cause), noSession.Fix}
	}
	if t.Endpoint.IsValid() {
		h.Facts = append(h.Facts, fmt.Sprintf("UDP from port %d to %s", t.ListenPort, t.Endpoint))
	}
	if !t.LastHandshake.IsZero() {
		h.Facts = append(h.Facts, fmt.Sprintf("last handshake %v ago", r.Time.Sub(t.LastHandshake).Round(time.Second)))
	}
	if h.Problem == nil && r.Sync.Peer.LatencyText != "" {
		h.Facts = append(h.Facts, "round trip "+r.Sync.Peer.LatencyText)
	}
	return w.hop(h)
}

// translateIn is the translation of what comes from the peer.
func (w *walk) translateIn(s *Side) bool {
	h := Hop{Cluster: s.Name, Kind: "translation"}
	if s.Peer == nil {
		h.Name = s.ID
		h.Problem = &Problem{"this cluster does not know the other one", "the peering exists at one end only", "run 'liqoctl network connect' again"}
		return w.hop(h)
	}
	h.Name, h.DecidedBy = "from "+s.Peer.ID, s.configuration()
	if g, r := s.gateway(); r == nil || g.Problem != nil {
		h.Problem, h.Unknown = g.Problem, g.Unknown
		if src, m, ok := through(s.mappings(), w.src, true); ok && h.Problem == nil {
			w.src = src
			h.Facts = append(h.Facts, mappingText(m, true))
		}
		if i := s.remapped(w.dst); i >= 0 && h.Problem == nil {
			h.takes(w, &s.Exposed[i])
		}
		return w.hop(h)
	}
	h.lately(s, drops.Ingress, w)
	if h.Problem != nil {
		return w.hop(h)
	}
	d := &s.report().DataPlane
	if from := d.Tunnel.Endpoint; from.IsValid() { // NAT on the way may have changed it
		h.Facts = append(h.Facts, fmt.Sprintf("WireGuard messages arrive from %s", from))
	}
	src, m, ok := through(d.Remote, w.src, true)
	if !ok {
		reason, _ := drops.Explain("DropSpoofedSource")
		h.Problem = &Problem{fmt.Sprintf("%s is not an address of %s according to the configuration of this gateway", w.src, s.Peer.ID), reason.Cause, reason.Fix}
		return w.hop(h)
	}
	h.Facts = append(h.Facts, mappingText(m, true))
	switch {
	case contains(d.LocalPods, w.dst):
	case w.answer && contains(d.External, w.dst): // of a flow, whose sender is not known here
		h.Facts = append(h.Facts, fmt.Sprintf("%s becomes the original sender's address again", w.dst))
	case contains(d.External, w.dst):
		i := s.remapped(w.dst)
		if i < 0 {
			reason, _ := drops.Explain("DropNoAddress")
			h.Problem = &Problem{fmt.Sprintf("no IP object assigns %s to a host", w.dst), reason.Cause, reason.Fix}
			return w.hop(h)
		}
		h.takes(w, &s.Exposed[i])
	default:
		reason, _ := drops.Explain("DropNoMapping")
		h.Problem = &Problem{fmt.Sprintf("%s is not an address of this cluster", w.dst), reason.Cause, "compare the Configurations of both clusters: 'liqoctl network doctor', check configuration"}
		return w.hop(h)
	}
	w.src = src
	return w.hop(h)
}

// remapped is the index of the IP object of this cluster that assigns an address of the
// external CIDR, -1 if there is none.
func (s *Side) remapped(outside netip.Addr) int {
	return slices.IndexFunc(s.Exposed, func(e survey.Exposed) bool { return e.Remapped == outside.String() })
}

// takes sends the packet to the host of an IP object.
func (h *Hop) takes(w *walk, e *survey.Exposed) {
	h.DecidedBy = "IP " + e.Namespace + "/" + e.Name
	h.Facts = append(h.Facts, fmt.Sprintf("%s becomes %s", w.dst, e.IP))
	w.dst, _ = netip.ParseAddr(e.IP)
}
