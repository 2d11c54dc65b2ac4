package dataplane

import (
	"net/netip"

	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
)

// The way of a packet from the peer to a node:
//
//	WritePackets  the tunnel's batch -> ingress -> its turn -> socket
//	ingress       parse -> ECN -> own address? -> source check -> destination -> filter ->
//	              hop limit -> MTU -> clamp -> translate -> encapsulate
//	destination   pod, IP object or unknown-source flow -> node

// WritePackets implements tunnel.Overlay: that of the first loop.
func (f *Forwarder) WritePackets(bufs [][]byte, ecn []uint8, offset int, turn func()) {
	f.ingressLoops[0].WritePackets(bufs, ecn, offset, turn)
}

// WritePackets implements tunnel.Writer: it carries decrypted packets to the
// nodes. It changes them in place and keeps nothing of them.
func (f *ingressLoop) WritePackets(bufs [][]byte, ecn []uint8, offset int, turn func()) {
	f.turn = turn
	s, now, w := f.snap.Load(), f.clock(), f.toNodes
	l, capturing := f.captureBatch()
	forwarded, bytes := 0, 0
	for i, b := range bufs {
		outer := uint8(packet.NotECT)
		if i < len(ecn) {
			outer = ecn[i]
		}
		v := f.ingress(s, b[offset:], outer, w, now)
		if v == Forwarded {
			forwarded++
			bytes += len(b) - offset
		} else {
			f.count.verdicts[v].Add(1)
		}
		if v.Dropped() && f.dropped.Wants(ingressKind(v), now) {
			f.keepIngress(b[offset:], v)
		}
		if capturing {
			l.ingressed(b[offset:], v)
		}
	}
	f.count.forwarded(forwarded, forwarded, bytes)
	w.flush()
}

// ingress carries one decrypted packet to the node that its destination lives
// behind. outer is the ECN field of the message that it came in. It allocates nothing and logs nothing; every exit is a Verdict.
func (f *ingressLoop) ingress(s *snapshot, b []byte, outer uint8, w *nodeWriter, now int64) Verdict {
	p, ok := packet.Parse(b)
	if !ok || !p.HeaderChecksumValid() {
		return DropMalformed
	}
	if !p.Decapsulate(outer) {
		return DropECN
	}
	if peer, ok := s.peerEnd(p.Dst()); ok {
		if p.Src() != peer {
			return DropSpoofedSource
		}
		f.turn()
		return f.deliver(&p)
	}
	if !s.ingressSource(&p) {
		return s.notFound(DropSpoofedSource)
	}
	d, v := f.destination(s, &p, now)
	if v != Forwarded {
		return v
	}
	clamp := s.pathMTU
	if s.filter != nil {
		if clamp, v = f.filterIngress(s, &p, &d); v != Forwarded {
			return v
		}
	}
	if p.HopLimit() <= 1 {
		f.refusePeer(s, &p, timeExceeded)
		return DropHopLimit
	}
	big := len(p.Bytes) > s.cfg.MTU
	if big && p.DontFragment() {
		f.refusePeer(s, &p, tooBig)
		return DropTooBig
	}

	if d.opens {
		if v := f.openPodFlow(&p, d, now); v != Forwarded {
			return v
		}
	}
	p.DecrementHopLimit()
	announced := 0
	if p.IsTCPSYN() {
		announced = announcedMTU(&p)
		nat.ClampMSS(&p, clamp)
	}
	d.restore(&p)
	s.table.Ingress(&p)
	f.pathMTUs.learn(&p, announced, s.pathMTU, s.cfg.MTU, now)
	if d.fallback {
		f.count.fallback.Add(1)
	}
	if !big {
		return w.send(d.node, p.Bytes, isIPv6(&p))
	}
	return f.fragmentTo(w, d.node, &p, s.cfg.MTU)
}

// destination is where an ingress packet goes and how its local address is
// restored on the way.
type destination struct {
	node     *nodeTunnel
	fallback bool
	// inside replaces the local address when a flow claims the packet; the
	// zero Addr leaves it.
	inside netip.Addr
	// opens: the packet comes in through the IP object of a pod, whose answers
	// will need a flow.
	opens bool
}

// destination finds the node for p by its destination as the peer knows it.
func (f *ingressLoop) destination(s *snapshot, p *packet.Packet, now int64) (d destination, v Verdict) {
	dst := p.Dst()
	switch {
	case containsAddr(s.cfg.LocalPods, dst):
	case dst == s.unknown[family(p.Version == 6)]:
		return f.flowDestination(s, p, now)
	default:
		if in, ok := s.table.LocalInside(dst); ok {
			dst = in
			break
		}
		in, ok := s.pods.LocalInside(dst)
		if !ok {
			if containsAddr(s.cfg.LocalExternal, dst) {
				return d, DropNoAddress
			}
			return d, DropNoMapping
		}
		d.inside, d.opens, dst = in, true, in
	}
	if d.node, d.fallback = s.route(dst); d.node == nil {
		return d, DropNoNode
	}
	return d, Forwarded
}

// restore writes the local sender's own address back, in the packet and, when
// it is an ICMP error, in what it quotes.
func (d *destination) restore(p *packet.Packet) {
	if !d.inside.IsValid() {
		return
	}
	shared := p.Dst()
	p.SetDst(d.inside)
	if e, ok := p.Embedded(); ok && e.Src() == shared {
		e.SetSrc(d.inside)
	}
}

// fragmentTo sends a packet that is larger than the MTU of the node's link in
// pieces. The peer's MTU is larger than ours: a misconfiguration that works.
func (f *ingressLoop) fragmentTo(w *nodeWriter, t *nodeTunnel, p *packet.Packet, mtu int) Verdict {
	frags, ok := packet.NewFragmenter(*p, mtu)
	if !ok {
		return DropMalformed
	}
	f.count.fragmented.Add(1)
	for {
		b := w.space(mtu)
		n := frags.Next(b)
		if n == 0 {
			return Forwarded
		}
		if v := w.send(t, b[:n], isIPv6(p)); v != Forwarded {
			return v
		}
	}
}
