package dataplane

import (
	"net/netip"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
)

// filterEgress asks the chains about a packet for the peer, whose destination
// there is remote. It returns the MTU whose MSS a SYN may announce.
//
// It comes before everything that changes p or keeps something about it: what is
// rejected is quoted as its sender sent it, what is dropped opens no flow. And it
// comes before everything that answers: drop means silence.
func (f *Forwarder) filterEgress(s *snapshot, t *nodeTunnel, p *packet.Packet, from sender, remote netip.Addr, now int64) (clamp int, v Verdict) {
	w := filter.Way{Egress: true, Node: t.name, Dst: remote}
	if s.filter.NeedsSrc(true) {
		w.Src = f.outsideSource(s, p, from, remote, now)
	}
	action, mss := s.filter.Check(p, &w)
	if action == filter.Reject {
		f.refuse(s, t, p, rejected)
	}
	return s.clamp(p, mss), filterVerdict(action)
}

// filterIngress asks the chains about a packet for d. See filterEgress.
func (f *Forwarder) filterIngress(s *snapshot, p *packet.Packet, d *destination) (clamp int, v Verdict) {
	w := filter.Way{Node: d.node.name, Dst: p.Dst()}
	if d.inside.IsValid() {
		w.Dst = d.inside
	} else if in, ok := s.table.LocalInside(w.Dst); ok {
		w.Dst = in
	}
	if s.filter.NeedsSrc(false) {
		w.Src, _ = s.table.Inside(p.Src()) // known: it has passed the source check
	}
	action, mss := s.filter.Check(p, &w)
	if action == filter.Reject {
		f.refusePeer(s, p, rejected)
	}
	return s.clamp(p, mss), filterVerdict(action)
}

func filterVerdict(a filter.Action) Verdict {
	switch a {
	case filter.Accept:
		return Forwarded
	case filter.Reject:
		return DropFilterReject
	default:
		return DropFilter
	}
}

// clamp returns the MTU that leaves room for segments of mss bytes, at most the
// tunnel's. Zero stands for that.
func (s *snapshot) clamp(p *packet.Packet, mss int) int {
	if mss == 0 {
		return s.pathMTU
	}
	header := packet.IPv4HeaderLen
	if p.Version == 6 {
		header = packet.IPv6HeaderLen
	}
	return min(s.pathMTU, mss+packet.TCPHeaderLen+header)
}

// outsideSource returns the source that p will leave with, without any of what
// egressSource keeps: the zero Addr if there is none.
func (f *Forwarder) outsideSource(s *snapshot, p *packet.Packet, from sender, remote netip.Addr, now int64) netip.Addr {
	switch from {
	case senderUnknown, senderNode:
		return s.unknown[family(p.Version == 6)]
	case senderPodIP:
		if k, ok := s.podFlowKey(p, remote); ok {
			if fl, known := f.podFlows.peek(k, now); known {
				return fl.inside
			}
		}
	case senderPod:
		if out, ok := s.table.LocalOutside(p.Src()); ok {
			return out
		}
	}
	return p.Src()
}
