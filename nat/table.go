package nat

import (
	"net/netip"

	"github.com/sluice-net/sluice/nat/packet"
)

// Table translates packets as one Config says. It is immutable. A nil or zero
// Table translates nothing and matches nothing.
type Table struct {
	toOutside, toInside           prefixes // Remote, by what a lookup gives
	localToOutside, localToInside hosts    // Local, likewise
}

// NewTable checks the configuration and builds its table. An error names both
// prefixes of the mapping that is wrong, and the one it conflicts with.
func NewTable(c Config) (*Table, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Table{
		toOutside:      newPrefixes(c.Remote, true),
		toInside:       newPrefixes(c.Remote, false),
		localToOutside: newHosts(c.Local, true),
		localToInside:  newHosts(c.Local, false),
	}, nil
}

// Egress translates a packet on its way from this cluster to the peer: the
// destination by Remote, the source by Local, and the same in the packet that
// an ICMP error quotes, with the two in each other's place. It reports whether
// the destination is one of the peer's ranges. Where it is not, the destination
// is left alone and the rest is translated all the same: the gateways' own
// addresses are in no range, and errors that they send or receive quote
// translated packets.
func (t *Table) Egress(p *packet.Packet) bool {
	if t == nil {
		return false
	}
	dst, ok := t.toOutside.translate(p.Dst())
	if ok {
		p.SetDst(dst)
	}
	if src, ok := t.localToOutside.translate(p.Src()); ok {
		p.SetSrc(src)
	}
	if p.IsICMPError() {
		t.egressEmbedded(p)
	}
	return ok
}

// Ingress translates a packet that came from the peer: the source by Remote,
// the destination by Local, and what an ICMP error quotes likewise. It
// reports whether the source is in one of the peer's ranges; where it is not,
// the rest is translated all the same, as in Egress.
func (t *Table) Ingress(p *packet.Packet) bool {
	if t == nil {
		return false
	}
	src, ok := t.toInside.translate(p.Src())
	if ok {
		p.SetSrc(src)
	}
	if dst, ok := t.localToInside.translate(p.Dst()); ok {
		p.SetDst(dst)
	}
	if p.IsICMPError() {
		t.ingressEmbedded(p)
	}
	return ok
}

// egressEmbedded translates the packet quoted by an error that leaves for the
// peer: one that the peer had sent here. A quotation that cannot be read is
// left alone: its receiver cannot read it either.
func (t *Table) egressEmbedded(p *packet.Packet) {
	e, ok := p.Embedded()
	if !ok {
		return
	}
	if src, ok := t.toOutside.translate(e.Src()); ok {
		e.SetSrc(src)
	}
	if dst, ok := t.localToOutside.translate(e.Dst()); ok {
		e.SetDst(dst)
	}
}

// ingressEmbedded translates the packet quoted by an error that came from the
// peer: one that this cluster had sent there.
func (t *Table) ingressEmbedded(p *packet.Packet) {
	e, ok := p.Embedded()
	if !ok {
		return
	}
	if dst, ok := t.toInside.translate(e.Dst()); ok {
		e.SetDst(dst)
	}
	if src, ok := t.localToInside.translate(e.Src()); ok {
		e.SetSrc(src)
	}
}

// Outside returns the outside address of a host of the peer that this cluster
// uses under the address a, and whether a is in one of the peer's ranges.
func (t *Table) Outside(a netip.Addr) (netip.Addr, bool) {
	if t == nil {
		return netip.Addr{}, false
	}
	return t.toOutside.translate(a)
}

// Inside returns the address under which this cluster uses the peer's host a,
// and whether a is in one of the peer's ranges.
func (t *Table) Inside(a netip.Addr) (netip.Addr, bool) {
	if t == nil {
		return netip.Addr{}, false
	}
	return t.toInside.translate(a)
}

// LocalOutside returns the address that the peer uses for the host a of this
// cluster, and whether a has one of its own.
func (t *Table) LocalOutside(a netip.Addr) (netip.Addr, bool) {
	if t == nil {
		return netip.Addr{}, false
	}
	return t.localToOutside.translate(a)
}

// LocalInside returns the host of this cluster that the peer reaches under the
// address a, and whether there is one.
func (t *Table) LocalInside(a netip.Addr) (netip.Addr, bool) {
	if t == nil {
		return netip.Addr{}, false
	}
	return t.localToInside.translate(a)
}
