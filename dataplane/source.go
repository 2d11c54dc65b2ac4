package dataplane

import (
	"github.com/sluice-net/sluice/nat/packet"
)

// sender says what the source of a packet from a node is.
type sender uint8

const (
	senderPod     sender = iota // a pod, or a host that an IP object maps
	senderUnknown               // the unknown-source address: the node translated already
	senderNode                  // an address of the node itself
	senderPodIP                 // a pod that an IP object maps
)

// egressSender checks that p may come from the node's tunnel. What is not
// local does not get out: neither spoofed sources nor the addresses of others.
// unrouted tells that nothing says which node the pod lives on.
func (s *snapshot) egressSender(t *nodeTunnel, p *packet.Packet) (from sender, unrouted bool, v Verdict) {
	src := p.Src()
	switch {
	case containsAddr(s.cfg.LocalPods, src):
		if s.cfg.Sources != SourceUnchecked {
			// A pod may be newer than its route, but the route of an address that is
			// in use names the node that uses it.
			n, routed := s.routes.Lookup(src)
			if routed && n != t || !routed && s.cfg.Sources == SourceStrict {
				return 0, false, DropWrongNode
			}
			unrouted = !routed
		}
		if _, mapped := s.pods.LocalOutside(src); mapped {
			return senderPodIP, unrouted, Forwarded
		}
		return senderPod, unrouted, Forwarded
	case src == s.unknown[family(p.Version == 6)]:
		return senderUnknown, false, Forwarded
	case t.isInternal(src) || t.isUnderlay(src):
		return senderNode, false, Forwarded
	}
	if _, mapped := s.table.LocalOutside(src); mapped {
		return senderPod, false, Forwarded
	}
	return 0, false, DropSpoofedSource
}

// ingressSource checks that p comes from the peer's CIDRs. WireGuard's allowed
// IPs say the same; this check does not depend on them.
func (s *snapshot) ingressSource(p *packet.Packet) bool {
	if _, ok := s.table.Inside(p.Src()); ok {
		return true
	}
	// A gateway that forwards in a kernel sends its ICMP errors from its
	// tunnel address, for which no node here has a route: give it one.
	if !s.isPeerEnd(p.Src()) || !p.IsICMPError() {
		return false
	}
	stand, ok := s.table.Outside(s.peerUnknown[family(p.Version == 6)])
	if ok {
		p.SetSrc(stand)
	}
	return ok
}
