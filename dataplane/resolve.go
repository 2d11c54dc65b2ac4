package dataplane

import (
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
)

// deframe takes the payload of a node's datagram out of its Ethernet frame and
// notes the frame's source in from. It returns Forwarded with the IP packet, or
// the verdict on a frame that ends here.
func (f *egressLoop) deframe(s *snapshot, t *nodeTunnel, from *origin, payload []byte, now int64) ([]byte, Verdict) {
	if from.encapsulation == geneve.GeneveIP {
		return payload, Forwarded
	}
	frame, ok := neighbor.DecodeFrame(payload)
	if !ok {
		return nil, DropFrame
	}
	from.mac = frame.Src
	if frame.EtherType == neighbor.EtherTypeARP {
		return nil, f.arp(s, t, *from, frame, now)
	}
	// A node that does no ARP addresses frames to its own MAC. Frames to other
	// stations are not ours, and a router forwards no broadcast (RFC 1812
	// section 5.3.4); multicast carries neighbor discovery.
	multicast := frame.Dst.IsMulticast() && !frame.Dst.IsBroadcast() && frame.EtherType == neighbor.EtherTypeIPv6
	if frame.Dst != t.mac && frame.Dst != frame.Src && !multicast || frame.Src.IsMulticast() || frame.Src == t.mac {
		return nil, DropFrame
	}
	if frame.EtherType != neighbor.EtherTypeIPv4 && frame.EtherType != neighbor.EtherTypeIPv6 {
		return nil, DropFrame
	}
	return frame.Payload, Forwarded
}

// arp answers the node's requests (RFC 826) and learns from its answers.
func (f *egressLoop) arp(s *snapshot, t *nodeTunnel, from origin, frame neighbor.Frame, now int64) Verdict {
	a, ok := neighbor.DecodeARP(frame.Payload)
	if !ok || a.SenderMAC != frame.Src || a.SenderMAC.IsMulticast() || a.SenderMAC == t.mac {
		return DropFrame
	}
	if frame.Dst != t.mac && !frame.Dst.IsBroadcast() && frame.Dst != frame.Src {
		return DropFrame
	}
	request := a.Op == neighbor.ARPRequest
	if request && !s.answersFor(a.TargetIP) || !request && !t.isInternal(a.SenderIP) {
		return DropFrame
	}
	t.learn(f.index, from, now)
	if !request {
		return Answered
	}
	b := f.replies.frame(t, t.encapsulation(), a.SenderMAC, neighbor.EtherTypeARP, neighbor.ARPLen)
	neighbor.AppendARP(b[:0], a.Answer(t.mac))
	return Answered
}

// discover answers neighbor solicitations (RFC 4861 section 7.2). It reports
// false for a packet that is not neighbor discovery.
func (f *egressLoop) discover(s *snapshot, t *nodeTunnel, from origin, p *packet.Packet, now int64) (Verdict, bool) {
	if p.Proto != packet.ProtoICMPv6 || p.Fragment != packet.Whole {
		return Forwarded, false
	}
	if ns, ok := neighbor.DecodeSolicitation(*p); ok {
		if !s.answersFor(ns.Target) {
			return DropFrame, true
		}
		t.learn(f.index, from, now)
		dst, na := ns.Answer(t.mac, from.mac)
		b := f.replies.frame(t, t.encapsulation(), dst, neighbor.EtherTypeIPv6, neighbor.AdvertisementLen)
		neighbor.AppendAdvertisement(b[:0], na)
		return Answered, true
	}
	if na, ok := neighbor.DecodeAdvertisement(*p); ok {
		if !t.isInternal(na.Target) {
			return DropFrame, true
		}
		t.learn(f.index, from, now)
		return Answered, true
	}
	return Forwarded, false
}

// withEthernet are the encapsulations in which a node can be asked for its
// address. What it does not speak, its kernel drops.
var withEthernet = []geneve.Encapsulation{geneve.Geneve, geneve.VXLAN}

// probes returns the encapsulations in which the node is asked for its
// link-layer address now, so that no packet for its pods need wait for it. Only
// upkeep calls it.
func (t *nodeTunnel) probes(now int64) []geneve.Encapsulation {
	st := t.state
	seen, e := t.lastSeen(), t.encapsulation()
	silent := seen == 0 || now-seen >= int64(neighbor.StaleAfter)
	if !silent && t.resolved() {
		st.backoff = neighbor.Backoff{}
		return nil
	}
	if !st.backoff.Due(now) {
		return nil
	}
	st.backoff.Probed(now)
	switch {
	case silent:
		return withEthernet
	case e == geneve.VXLAN:
		return withEthernet[1:]
	}
	return withEthernet[:1]
}

// probe asks for the node's link-layer address in one encapsulation.
func (w *nodeWriter) probe(s *snapshot, t *nodeTunnel, e geneve.Encapsulation) {
	for _, target := range t.internal {
		src := s.internal(target.Is6())
		if !src.IsValid() {
			continue
		}
		r := neighbor.Request{Src: src, Target: target, MAC: t.mac}
		dst, etherType, length := r.Frame()
		r.Append(w.frame(t, e, dst, etherType, length)[:0])
	}
}
