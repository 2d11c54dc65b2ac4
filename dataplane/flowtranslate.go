package dataplane

import (
	"net/netip"

	"github.com/sluice-net/sluice/nat/packet"
)

// egressSource gives senders without an address of their own in the peer's view
// one that the peer can answer to, and remembers the way back. remote is the
// destination as the peer knows it.
func (f *Forwarder) egressSource(s *snapshot, t *nodeTunnel, p *packet.Packet, from sender, remote netip.Addr, now int64) Verdict {
	switch from {
	case senderPod:
		return Forwarded
	case senderPodIP:
		f.egressPodIP(s, p, remote, now)
		return Forwarded
	}
	unknown := s.unknown[family(p.Version == 6)]
	if !unknown.IsValid() { // no external CIDR of this family
		return DropSpoofedSource
	}
	inside := p.Src()
	if p.IsICMPError() {
		// A router's error gets no answer, so it needs no flow. It may quote a
		// packet to the node itself, whose address is not known outside.
		if e, ok := p.Embedded(); ok && e.Dst() == inside {
			e.SetDst(unknown)
		}
	} else if p.Fragment != packet.LaterFragment {
		k := flowKeyOf(p, unknown, remote, false)
		if v := f.flows.open(k, p, flowOrigin{t.name, inside}, now); v != Forwarded {
			return v
		}
	}
	if inside != unknown {
		p.SetSrc(unknown)
	}
	return Forwarded
}

// egressPodIP gives the answers of a pod to what came in through its IP object
// that object's address; everything else a pod sends leaves under its own.
func (f *Forwarder) egressPodIP(s *snapshot, p *packet.Packet, remote netip.Addr, now int64) {
	k, ok := s.podFlowKey(p, remote)
	if !ok {
		return
	}
	if !p.IsICMPError() {
		if fl, known := f.podFlows.reply(k, p, now); known {
			p.SetSrc(fl.inside)
		}
		return
	}
	if fl, known := f.podFlows.peek(k, now); known {
		if e, ok := p.Embedded(); ok {
			e.SetDst(fl.inside)
		}
		p.SetSrc(fl.inside)
	}
}

// podFlowKey returns the key of the flow through a pod's IP object that p, which
// leaves for remote, belongs to if there is one: that of the packet which an ICMP
// error quotes.
func (s *snapshot) podFlowKey(p *packet.Packet, remote netip.Addr) (k flowKey, ok bool) {
	pod := p.Src()
	if !p.IsICMPError() {
		return flowKeyOf(p, pod, remote, false), true
	}
	e, ok := p.Embedded()
	if !ok || e.Dst() != pod {
		return k, false
	}
	peer, ok := s.table.Outside(e.Src())
	return quotedKey(&e, pod, peer, true), ok
}

// quotedKey returns the key of the packet that an ICMP error quotes, between local
// and remote; reply tells that it travelled from remote to local.
func quotedKey(e *packet.Embedded, local, remote netip.Addr, reply bool) flowKey {
	src, dst := e.Ports()
	if reply {
		src, dst = dst, src
	}
	return flowKey{local: local.As16(), remote: remote.As16(), localPort: src, remotePort: dst, proto: e.Proto()}
}

// openPodFlow notes a connection that comes in through the IP object of a pod.
// The flow is keyed by the pod's address, and what it restores is the object's.
func (f *Forwarder) openPodFlow(p *packet.Packet, d destination, now int64) Verdict {
	if p.IsICMPError() || p.Fragment == packet.LaterFragment {
		return Forwarded
	}
	return f.podFlows.open(flowKeyOf(p, d.inside, p.Src(), true), p, flowOrigin{d.node.name, p.Dst()}, now)
}

// flowDestination finds the node whose request p answers.
func (f *ingressLoop) flowDestination(s *snapshot, p *packet.Packet, now int64) (d destination, v Verdict) {
	shared := p.Dst()
	var fl flowOrigin
	var ok bool
	if p.Fragment == packet.LaterFragment {
		f.turn() // the first one may be at another loop
	}
	if p.IsICMPError() {
		e, quoted := p.Embedded()
		if !quoted || e.Src() != shared {
			return d, DropNoAddress
		}
		fl, ok = f.flows.peek(quotedKey(&e, shared, e.Dst(), false), now)
	} else {
		fl, ok = f.flows.reply(flowKeyOf(p, shared, p.Src(), true), p, now)
	}
	if !ok {
		return d, DropNoAddress
	}
	if d.node = s.byName[fl.node]; d.node == nil {
		return d, DropNoNode
	}
	if fl.inside != shared {
		d.inside = fl.inside
	}
	return d, Forwarded
}
