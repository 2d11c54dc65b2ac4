package dataplane

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/dataplane/capture"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// Where captures look at packets. The two directions know of it in their batch
// loops only: what a datagram holds is found out here once more, and only while
// somebody looks. That works because the packet path changes packets in place.
//
//	point       egress                              ingress
//	Node        the datagram, before egress         nodeWriter, before the socket
//	Translated  the datagram, after egress          the packet, after ingress
//	Dropped     the same, and the tunnel's          the same, and the tunnel's
//	Tunnel      the tunnel, when admitted           the tunnel, when decrypted
//	Wire        the tunnel's socket                 the tunnel's socket

// Capture shows packets to c until stop is called, once. The error is
// capture.ErrTooMany.
func (f *Forwarder) Capture(c *capture.Capture) (stop func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.findLocals()
	if err := f.captures.Add(c); err != nil {
		return nil, err
	}
	f.observeTunnelLocked()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.captures.Remove(c)
		f.observeTunnelLocked()
	}, nil
}

// observeTunnelLocked has the tunnel shown, too, while somebody wants to see it.
func (f *Forwarder) observeTunnelLocked() {
	points := f.captures.Points()
	if points.Has(capture.Tunnel) || points.Has(capture.Wire) || points.Has(capture.Dropped) {
		f.tunnel.Observe(f.showTunnel)
		return
	}
	f.tunnel.Observe(nil)
}

// locals are the addresses that the kernel sends from, by family. Sockets are
// mostly bound to all addresses, and do not tell.
type locals [2]netip.Addr

// anywhere are addresses for documentation (RFC 5737, RFC 3849): the way to them
// is the way to everywhere.
var anywhere = [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// findLocals finds them out: by the way to the peer, or else to anywhere.
func (f *Forwarder) findLocals() {
	var found locals
	peer := f.tunnel.Stats().Endpoint.Addr().Unmap()
	for i, to := range anywhere {
		if peer.IsValid() && family(peer.Is6()) == i {
			to = peer
		}
		found[i] = underlay.Source(to)
	}
	f.locals.Store(&found)
}

// localTo is where a socket sends from to somebody.
func (f *Forwarder) localTo(bound netip.AddrPort, remote netip.Addr) netip.AddrPort {
	if a := bound.Addr(); a.IsValid() && !a.IsUnspecified() {
		return bound
	}
	v6 := remote.Unmap().Is6()
	a := f.locals.Load()[family(v6)]
	if !a.IsValid() {
		a = netip.IPv4Unspecified()
		if v6 {
			a = netip.IPv6Unspecified()
		}
	}
	return netip.AddrPortFrom(a, bound.Port())
}

// captureBatch is one batch as captures see it.
type captureBatch struct {
	*capture.Active
	f   *Forwarder
	now time.Time
}

// captureBatch returns what a batch is shown to; nobody, if on is false.
func (f *Forwarder) captureBatch() (l captureBatch, on bool) {
	active := f.captures.Active()
	if active == nil {
		return l, false
	}
	return captureBatch{active, f, time.Now()}, true
}

// arrived shows what came from a node, before egress.
func (l *captureBatch) arrived(s *snapshot, datagram []byte, src netip.AddrPort) {
	if !l.Wants(capture.Node) {
		return
	}
	p := capture.Packet{Time: l.now, Point: capture.Node, Egress: true}
	if frame(s, datagram, src, &p) {
		l.Offer(&p)
	}
}

// egressed shows what became of it.
func (l *captureBatch) egressed(s *snapshot, datagram []byte, src netip.AddrPort, v Verdict) {
	switch {
	case v == Forwarded && l.Wants(capture.Translated):
		var p capture.Packet
		if frame(s, datagram, src, &p); p.Link == capture.Ethernet {
			p.Body = p.Body[neighbor.EthernetHeaderLen:]
		}
		l.translated(p.Body, true)
	case v.Dropped() && l.Wants(capture.Dropped):
		l.refused(s, datagram, src, v)
	}
}

// frame finds out what a datagram from a node holds. It reports false for what
// belongs to no node tunnel. The packet is filled in where it is: copies of it cost
// more than finding out.
func frame(s *snapshot, datagram []byte, src netip.AddrPort, p *capture.Packet) bool {
	h, payload, err := geneve.Decode(datagram)
	if err != nil {
		return false
	}
	t := s.tunnels[tunnelKey{src.Addr(), h.VNI}]
	if t == nil {
		return false
	}
	p.Node, p.VNI, p.Body = t.name, uint32(t.vni), payload
	if h.Encapsulation != geneve.GeneveIP {
		p.Link = capture.Ethernet
	}
	return true
}

// refused shows a datagram of a node that was dropped: what is in it or, if it
// is nobody's, the whole.
func (l *captureBatch) refused(s *snapshot, datagram []byte, src netip.AddrPort, v Verdict) {
	p := capture.Packet{Time: l.now, Point: capture.Dropped, Egress: true, Reason: v.String()}
	if !frame(s, datagram, src, &p) {
		p.From, p.To, p.Body = src, l.f.localTo(l.f.underlay.LocalAddr(), src.Addr()), datagram
	}
	l.Offer(&p)
}

// translated shows what was forwarded, without what may follow its end.
func (l *captureBatch) translated(b []byte, egress bool) {
	if p, ok := packet.Parse(b); ok {
		l.Offer(&capture.Packet{Time: l.now, Point: capture.Translated, Egress: egress, Body: p.Bytes})
	}
}

// ingressed shows what became of a packet from the peer.
func (l *captureBatch) ingressed(b []byte, v Verdict) {
	switch {
	case v == Forwarded && l.Wants(capture.Translated):
		l.translated(b, false)
	case v.Dropped() && l.Wants(capture.Dropped):
		l.Offer(&capture.Packet{Time: l.now, Point: capture.Dropped, Reason: v.String(), Body: b})
	}
}

// departing shows what goes to the nodes.
func (l *captureBatch) departing(ds []underlay.Datagram) {
	if !l.Wants(capture.Node) {
		return
	}
	s := l.f.snap.Load()
	for i := range ds {
		h, _, err := geneve.Decode(ds[i].Head)
		if err != nil {
			continue
		}
		p := capture.Packet{Time: l.now, Point: capture.Node, VNI: uint32(h.VNI), Head: ds[i].Head[geneve.HeaderLen:], Body: ds[i].Body}
		if h.Encapsulation != geneve.GeneveIP {
			p.Link = capture.Ethernet
		}
		if t := s.tunnels[tunnelKey{ds[i].Addr.Addr(), h.VNI}]; t != nil {
			p.Node = t.name
		}
		l.Offer(&p)
	}
}

// showTunnel shows what the tunnel tells of.
func (f *Forwarder) showTunnel(s tunnel.Observation) {
	l := captureBatch{f.captures.Active(), f, s.Time}
	if l.Active == nil {
		return
	}
	p := capture.Packet{Time: s.Time, Point: capture.Tunnel, Egress: s.Egress, Body: s.Bytes}
	if s.Outside {
		p.Point, p.From, p.To = capture.Wire, f.localTo(s.Local, s.Remote.Addr()), s.Remote
		if !s.Egress {
			p.From, p.To = p.To, p.From
		}
	}
	if (s.Outside || s.Drop == "") && l.Wants(p.Point) {
		l.Offer(&p)
	}
	if s.Drop != "" && l.Wants(capture.Dropped) {
		p.Point, p.Reason = capture.Dropped, s.Drop
		l.Offer(&p)
	}
}
