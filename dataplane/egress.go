package dataplane

import (
	"errors"
	"net/netip"
	"os"

	"github.com/sluice-net/sluice/dataplane/underlay"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
)

// The way of a packet from a node to the peer:
//
//	ReadPackets  socket -> datagrams -> egress, until the tunnel's batch has something
//	egress       decapsulate -> frame -> parse -> own address? -> source and
//	             destination check -> filter -> hop limit -> MTU -> translate ->
//	             clamp -> emit
//	emit         copy, or cut a super-segment, or fragment, into the tunnel's buffers

// ReadPackets implements tunnel.Overlay: it fills the tunnel's buffers with
// packets for the peer and blocks until there is one. The first own of them
// were sent by the gateway itself.
func (f *Forwarder) ReadPackets(bufs [][]byte, sizes []int, offset int) (n, own int, err error) {
	out := tunnelBatch{bufs: bufs, sizes: sizes, offset: offset}
	f.takeOwn(&out)
	own = out.n
	for {
		f.egressBatch(&out)
		if out.n > 0 {
			return out.n, own, nil
		}
		if f.closed.Load() {
			return 0, 0, os.ErrClosed
		}
		r := f.reader
		r.next = 0
		r.n, err = f.underlay.ReadBatch(r.bufs, r.sizes, r.sources)
		switch {
		case errors.Is(err, underlay.ErrWoken):
			f.takeOwn(&out)
			own = out.n
		case err != nil:
			return 0, 0, err
		}
	}
}

// egressBatch works through the datagrams at hand until they or the tunnel's
// buffers are used up.
func (f *Forwarder) egressBatch(out *tunnelBatch) {
	s, r, now := f.snap.Load(), f.reader, f.clock()
	l, looking := f.look()
	before := out.n
	for !out.full() {
		if r.cutting != cutNothing {
			r.resume(out)
			continue
		}
		if r.next == r.n {
			break
		}
		datagram, src := r.bufs[r.next][:r.sizes[r.next]], r.sources[r.next]
		r.next++
		if looking {
			l.arrived(s, datagram, src)
		}
		v := f.egress(s, datagram, src.Addr(), out, now)
		f.egressCount.verdicts[v].Add(1)
		if looking {
			l.egressed(s, datagram, src, v)
		}
	}
	f.replies.flush()
	f.egressCount.forwarded(out.n-before, out.sizes[before:out.n])
}

// egress carries one datagram from a node towards the peer. It allocates
// nothing and logs nothing; every exit is a Verdict.
func (f *Forwarder) egress(s *snapshot, datagram []byte, src netip.Addr, out *tunnelBatch, now int64) Verdict {
	h, payload, err := geneve.Decode(datagram)
	if err != nil {
		return DropEncapsulation
	}
	t := s.tunnels[tunnelKey{src, h.VNI}]
	if t == nil {
		return s.notFound(DropUnknownNode)
	}
	if h.OAM { // RFC 8926 section 3.4: a control packet is not for forwarding
		return DropControl
	}
	t.count(len(datagram))
	from := origin{underlay: src, encapsulation: h.Encapsulation}
	ip, v := f.deframe(s, t, &from, payload, now)
	if v != Forwarded {
		return v
	}
	p, ok := packet.Parse(ip)
	if !ok || !p.HeaderChecksumValid() {
		return DropMalformed
	}
	if v, ok := f.discover(s, t, from, &p, now); ok {
		return v
	}
	if p.Dst().IsMulticast() { // what a node's own stack announces on every link
		return DropMulticast
	}
	sender, v := s.egressSender(t, &p)
	if v != Forwarded {
		return v
	}
	t.believe(from, now)
	if s.isOwn(p.Dst()) {
		return f.deliver(&p)
	}
	remote, ok := s.table.Outside(p.Dst())
	if !ok {
		return DropNoMapping
	}
	clamp := s.cfg.MTU
	if s.filter != nil {
		if clamp, v = f.filterEgress(s, t, &p, sender, remote, now); v != Forwarded {
			return v
		}
	}
	if p.HopLimit() <= 1 {
		f.refuse(s, t, &p, timeExceeded)
		return DropHopLimit
	}
	mtu, super := f.sizing(s, &p, remote, now)
	if len(p.Bytes) > mtu && !super && p.DontFragment() {
		f.refuse(s, t, &p, tooBig)
		return DropTooBig
	}

	if !super && p.CompleteChecksum() {
		f.egressCount.repaired.Add(1)
	}
	p.DecrementHopLimit()
	if v := f.egressSource(s, t, &p, sender, remote, now); v != Forwarded {
		return v
	}
	s.table.Egress(&p)
	nat.ClampMSS(&p, clamp)
	return f.emit(&p, mtu, super, out)
}

// sizing returns the largest packet that p may leave as, and whether p is a
// super-segment: only those must fit the whole path, because their sender knows
// it and its kernel does not tell. Everything else fits the tunnel.
func (f *Forwarder) sizing(s *snapshot, p *packet.Packet, remote netip.Addr, now int64) (mtu int, super bool) {
	if p.Proto != packet.ProtoTCP {
		return s.cfg.MTU, false
	}
	if mtu := f.pathMTUs.limit(remote, s.cfg.MTU, now); isSuperSegment(p, mtu) {
		return mtu, true
	}
	return s.cfg.MTU, false
}

// isSuperSegment tells a TCP super-segment, which the node's kernel would have
// cut if the link below were real, from a packet that is too big. Only data
// segments come that way.
func isSuperSegment(p *packet.Packet, mtu int) bool {
	return len(p.Bytes) > mtu && p.Proto == packet.ProtoTCP && p.Fragment == packet.Whole && !p.IsTCPSYN()
}

// emit hands a translated packet to the tunnel, in pieces if it must be.
func (f *Forwarder) emit(p *packet.Packet, mtu int, super bool, out *tunnelBatch) Verdict {
	r := f.reader
	var ok bool
	switch {
	case len(p.Bytes) <= mtu:
		out.add(copy(out.slot(), p.Bytes))
		return Forwarded
	case super:
		if r.segments, ok = packet.NewSegmenter(*p, mtu); !ok {
			return DropMalformed
		}
		r.cutting = cutSegments
		f.egressCount.segmented.Add(1)
	default:
		if r.frags, ok = packet.NewFragmenter(*p, mtu); !ok {
			return DropMalformed
		}
		r.cutting = cutFragments
		f.egressCount.fragmented.Add(1)
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
