package tunlink

import (
	"net/netip"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/underlay"
)

// deframe takes the packet out of its Ethernet frame and learns from the frame. A frame
// that is dealt with here has no packet.
func (w *worker) deframe(t *tunnel, h geneve.Header, payload []byte) ([]byte, Drop) {
	if h.Encapsulation == geneve.GeneveIP {
		return payload, kept
	}
	f, ok := neighbor.DecodeFrame(payload)
	if !ok || f.Src == t.mac {
		return nil, DropFrame
	}
	if f.EtherType == neighbor.EtherTypeARP {
		return nil, w.arp(t, f)
	}
	multicast := f.Dst.IsMulticast() && f.EtherType == neighbor.EtherTypeIPv6 && !f.Dst.IsBroadcast()
	if f.Dst != t.mac && !multicast || f.EtherType != neighbor.EtherTypeIPv4 && f.EtherType != neighbor.EtherTypeIPv6 {
		return nil, DropFrame
	}
	switch mac := t.gatewayMAC(); {
	case mac == f.Src:
	case mac.IsZero():
		// After a start of the agent this comes before the answer to its question.
		w.resolved(t, f.Src)
	case !t.learned.doubt.Load():
		// Another gateway, or a forged datagram: only an answer decides.
		t.learned.doubt.Store(true)
		w.ep.wakeUpkeep()
	}
	return f.Payload, kept
}

// arp answers the gateway's requests (RFC 826) and learns from its answers.
func (w *worker) arp(t *tunnel, f neighbor.Frame) Drop {
	a, ok := neighbor.DecodeARP(f.Payload)
	if !ok || a.SenderMAC != f.Src || f.Dst != t.mac && !f.Dst.IsBroadcast() {
		return DropFrame
	}
	switch {
	case a.Op == neighbor.ARPReply && a.SenderIP == t.GatewayInternal:
		t.learned.answered.Store(w.now)
		w.resolved(t, a.SenderMAC)
	case a.Op == neighbor.ARPRequest && a.TargetIP == t.Internal:
		if a.SenderIP == t.GatewayInternal {
			w.resolved(t, a.SenderMAC)
		}
		b := w.tx.frame(t, a.SenderMAC, neighbor.EtherTypeARP, neighbor.ARPLen)
		neighbor.AppendARP(b[:0], a.Answer(t.mac))
	default:
		return DropFrame
	}
	return kept
}

// discover does the same with neighbor discovery (RFC 4861 section 7.2). It reports
// false for a packet that is not neighbor discovery.
func (w *worker) discover(t *tunnel, p *packet.Packet) (Drop, bool) {
	if p.Proto != packet.ProtoICMPv6 || p.Fragment != packet.Whole {
		return kept, false
	}
	if ns, ok := neighbor.DecodeSolicitation(*p); ok {
		if ns.Target != t.Internal || ns.SourceMAC.IsZero() {
			return DropFrame, true
		}
		if ns.Src == t.GatewayInternal {
			w.resolved(t, ns.SourceMAC)
		}
		dst, na := ns.Answer(t.mac, ns.SourceMAC)
		b := w.tx.frame(t, dst, neighbor.EtherTypeIPv6, neighbor.AdvertisementLen)
		neighbor.AppendAdvertisement(b[:0], na)
		return kept, true
	}
	if na, ok := neighbor.DecodeAdvertisement(*p); ok {
		if na.Target != t.GatewayInternal || na.TargetMAC.IsZero() {
			return DropFrame, true
		}
		t.learned.answered.Store(w.now)
		w.resolved(t, na.TargetMAC)
		return kept, true
	}
	return kept, false
}

// resolved notes the gateway's link-layer address and sends what waited for it.
func (w *worker) resolved(t *tunnel, mac neighbor.MAC) {
	for _, b := range t.resolve(mac) {
		w.tx.release(t, b, w.now)
	}
}

// due tells whether the gateway is to be asked now: a gateway that was replaced must
// hear of us. Only upkeep calls it.
func (t *tunnel) due(now int64) bool {
	l := t.learned
	answered := l.answered.Load()
	lastHeard := max(answered, t.count.lastSeen.Load())
	if answered != 0 && !l.doubt.Load() && now-lastHeard < int64(neighbor.StaleAfter) {
		l.backoff = neighbor.Backoff{}
		return false
	}
	if !l.backoff.Due(now) && !l.doubt.Load() {
		return false
	}
	l.doubt.Store(false)
	l.backoff.Probed(now)
	return true
}

// question is the datagram that asks for the gateway's link-layer address and
// tells ours. It goes to all stations: the gateway may have another address by now.
func (t *tunnel) question() underlay.Datagram {
	r := neighbor.Request{Src: t.Internal, Target: t.GatewayInternal, MAC: t.mac}
	dst, etherType, length := r.Frame()
	b := make([]byte, headLen, headLen+length)
	geneve.PutHeader(b, geneve.Geneve, t.VNI, geneve.ProtocolEthernet)
	neighbor.PutEthernet(b[geneve.HeaderLen:], dst, t.mac, etherType)
	return underlay.Datagram{Addr: netip.AddrPortFrom(t.remote.Addr(), t.remote.Port()), Body: r.Append(b)}
}
