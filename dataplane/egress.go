package dataplane

import (
	"errors"
	"os"

	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/underlay"
)

// The way of a packet from a node to the peer:
//
//	ReadPackets  socket -> datagrams -> egress, until the tunnel's batch has something
//	egress       decapsulate -> frame -> parse -> ECN -> own address? -> source and
//	             destination check -> filter -> hop limit -> MTU -> translate ->
//	             clamp -> emit
//	emit         copy, or cut a super-segment, or fragment, into the tunnel's buffers

// ReadPackets implements tunnel.Overlay: that of the first loop.
func (f *Forwarder) ReadPackets(bufs [][]byte, sizes []int, offset int) (n, own int, err error) {
	return f.loops[0].ReadPackets(bufs, sizes, offset)
}

// ReadPackets implements tunnel.Reader: it fills the tunnel's buffers with
// packets for the peer and blocks until there is one. The first own of them
// were sent by the gateway itself.
func (f *egressLoop) ReadPackets(bufs [][]byte, sizes []int, offset int) (n, own int, err error) {
	out := tunnelBatch{bufs: bufs, sizes: sizes, offset: offset}
	own = f.takeOwn(&out)
	for {
		f.egressBatch(&out)
		if out.n > 0 {
			return out.n, own, nil
		}
		if f.closed.Load() {
			return 0, 0, os.ErrClosed
		}
		r := &f.reader
		r.next = 0
		r.n, err = f.socket.WaitMessages(r.bufs, r.messages)
		switch {
		case errors.Is(err, underlay.ErrWoken):
			own = f.takeOwn(&out)
		case err != nil:
			return 0, 0, err
		}
	}
}

// egressBatch works through the datagrams at hand until they or the tunnel's
// buffers are used up.
func (f *egressLoop) egressBatch(out *tunnelBatch) {
	s, r, now := f.snap.Load(), &f.reader, f.clock()
	l, capturing := f.captureBatch()
	before, forwarded := out.n, 0
	for !out.full() {
		if r.cutting != cutNothing {
			r.resume(out)
			continue
		}
		d, ok := r.nextDatagram()
		if !ok {
			break
		}
		if capturing {
			l.arrived(s, d.bytes, d.from.Addr)
		}
		v := f.egress(s, d, out, now)
		if v == Forwarded {
			forwarded++
		} else {
			f.count.verdicts[v].Add(1)
		}
		if v.Dropped() && f.dropped.Wants(egressKind(v), now) {
			f.keepEgress(s, d, v)
		}
		if capturing {
			l.egressed(s, d.bytes, d.from.Addr, v)
		}
	}
	f.received.end()
	bytes := 0
	for _, n := range out.sizes[before:out.n] {
		bytes += n
	}
	f.count.forwarded(forwarded, out.n-before, bytes)
	f.replies.flush()
}

// egress carries one datagram from a node towards the peer. It allocates
// nothing and logs nothing; every exit is a Verdict.
func (f *egressLoop) egress(s *snapshot, d datagram, out *tunnelBatch, now int64) Verdict {
	h, payload, err := geneve.Decode(d.bytes)
	if err != nil {
		return DropEncapsulation
	}
	src := d.from.Addr.Addr()
	t := s.tunnels[tunnelKey{src, h.VNI}]
	if t == nil {
		return s.notFound(DropUnknownNode)
	}
	if h.OAM { // RFC 8926 section 3.4: a control packet is not for forwarding
		return DropControl
	}
	f.received.add(&t.state.received[f.index].traffic, len(d.bytes))
	from := origin{underlay: src, local: f.reader.local(d.from.Local), encapsulation: h.Encapsulation}
	ip, v := f.deframe(s, t, &from, payload, now)
	if v != Forwarded {
		return v
	}
	p, ok := packet.Parse(ip)
	if !ok || !p.HeaderChecksumValid() {
		return DropMalformed
	}
	if !p.Decapsulate(d.from.ECN) {
		return DropECN
	}
	if v, ok := f.discover(s, t, from, &p, now); ok {
		return v
	}
	if p.Dst().IsMulticast() { // what a node's own stack announces on every link
		return DropMulticast
	}
	sender, unrouted, v := s.egressSender(t, &p)
	if v != Forwarded {
		return v
	}
	t.learn(f.index, from, now)
	if s.isOwn(p.Dst()) {
		return f.deliver(&p)
	}
	remote, ok := s.table.Outside(p.Dst())
	if !ok {
		return DropNoMapping
	}
	clamp := s.pathMTU
	if s.filter != nil {
		if clamp, v = f.filterEgress(s, t, &p, sender, remote, now); v != Forwarded {
			return v
		}
	}
	if p.HopLimit() <= 1 {
		f.refuse(s, t, &p, timeExceeded)
		return DropHopLimit
	}
	leaves := f.shapeOf(s, &p, d.payloads, now)
	if !leaves.fits(&p) {
		f.refuse(s, t, &p, tooBig)
		return DropTooBig
	}

	if !leaves.super && p.CompleteChecksum() {
		f.count.repaired.Add(1)
	}
	p.DecrementHopLimit()
	if v := f.egressSource(s, t, &p, sender, remote, now); v != Forwarded {
		return v
	}
	if unrouted {
		f.count.fallback.Add(1)
	}
	s.table.Egress(&p)
	nat.ClampMSS(&p, clamp)
	return f.emit(&p, leaves, out)
}

// shape is what a packet leaves as.
type shape struct {
	mtu   int  // of each packet
	super bool // cut as a network card would do it, instead of fragmented
	// payloads is the size of the payload of each packet of a UDP super-segment.
	payloads int
}

// shapeOf finds the shape of p. A TCP super-segment must fit the whole path, because
// its sender knows it and its kernel does not tell; everything else fits the tunnel.
// payloads says that p is a UDP super-segment, 0 that it is none.
func (f *Forwarder) shapeOf(s *snapshot, p *packet.Packet, payloads int, now int64) shape {
	switch p.Proto {
	case packet.ProtoTCP:
		if mtu := f.pathMTUs.limit(p.Src(), p.Dst(), s.pathMTU, now); isSuperSegment(p, mtu) {
			f.pathMTUs.sent.note(p)
			return shape{mtu: mtu, super: true}
		}
	case packet.ProtoUDP:
		if payloads > 0 {
			return shape{mtu: s.pathMTU, super: true, payloads: payloads}
		}
	}
	return shape{mtu: s.pathMTU}
}

// fits tells whether p may leave in this shape. The packets of a UDP super-segment are
// not fragmented: no kernel makes them larger than the link that they leave by.
func (h shape) fits(p *packet.Packet) bool {
	if h.super {
		return h.payloads == 0 || p.TransportOffset+packet.UDPHeaderLen+h.payloads <= h.mtu
	}
	return len(p.Bytes) <= h.mtu || !p.DontFragment()
}

// isSuperSegment tells a TCP super-segment, which the node's kernel would have
// cut if the link below were real, from a packet that is too big. Only data
// segments come that way.
func isSuperSegment(p *packet.Packet, mtu int) bool {
	return len(p.Bytes) > mtu && p.Proto == packet.ProtoTCP && p.Fragment == packet.Whole && !p.IsTCPSYN()
}

// emit hands a translated packet to the tunnel, in pieces if it must be.
func (f *egressLoop) emit(p *packet.Packet, as shape, out *tunnelBatch) Verdict {
	r := &f.reader
	var ok bool
	switch {
	case as.super:
		if as.payloads > 0 {
			r.segments, ok = packet.NewUDPSegmenter(*p, as.payloads)
		} else {
			r.segments, ok = packet.NewSegmenter(*p, as.mtu)
		}
		if !ok {
			return DropMalformed
		}
		r.cutting = cutSegments
		f.count.segmented.Add(1)
	case len(p.Bytes) <= as.mtu:
		out.add(copy(out.slot(), p.Bytes))
		return Forwarded
	default:
		if r.frags, ok = packet.NewFragmenter(*p, as.mtu); !ok {
			return DropMalformed
		}
		r.cutting = cutFragments
		f.count.fragmented.Add(1)
	}
	r.resume(out)
	return Forwarded
}

// resume goes on cutting where the tunnel's last batch was full.
func (r *nodeReader) resume(out *tunnelBatch) {
	for !out.full() {
		var n int
		if r.cutting == cutSegments {
			n = r.segments.Next(out.slot())
		} else {
			n = r.frags.Next(out.slot())
		}
		if n == 0 {
			r.cutting = cutNothing
			return
		}
		out.add(n)
	}
}
