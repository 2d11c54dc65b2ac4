package dataplane

import (
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/dataplane/capture"
	"github.com/sluice-net/sluice/dataplane/dropped"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/tunnel"
)

// Dropped returns the headers of some packets that were dropped lately: those with a
// higher number than after, which is 0 or that of the last that the caller has.
func (f *Forwarder) Dropped(after uint64) []dropped.Packet { return f.dropped.After(after) }

// What a kind of dropped.Sample is: the reasons of egress, of ingress, of the tunnel.
const verdictKinds = int(numVerdicts - DropEncapsulation)

func newDropSample() *dropped.Sample { return dropped.New(2*verdictKinds + len(tunnel.DropReasons)) }

func egressKind(v Verdict) int  { return int(v - DropEncapsulation) }
func ingressKind(v Verdict) int { return verdictKinds + egressKind(v) }

// keepEgress keeps the headers of a datagram from a node that was dropped.
func (f *egressLoop) keepEgress(s *snapshot, d datagram, v Verdict) {
	out := dropped.Packet{Time: time.Now(), Direction: "egress", Reason: v.String(), Total: f.egressTotal(v)}
	var p capture.Packet
	switch {
	case !frame(s, d.bytes, d.from.Addr, &p):
		to := f.underlay.LocalAddr()
		if d.from.Local.IsValid() {
			to = netip.AddrPortFrom(d.from.Local, to.Port())
		}
		out.SetOuter(d.from.Addr, to, len(d.bytes))
	case p.Link == capture.Ethernet:
		if out.Length = len(p.Body); len(p.Body) > neighbor.EthernetHeaderLen {
			out.SetIP(p.Body[neighbor.EthernetHeaderLen:])
		}
	default:
		out.SetIP(p.Body)
	}
	out.Node, out.VNI = p.Node, p.VNI
	f.dropped.Keep(egressKind(v), &out)
}

// egressTotal is how many packets to the peer had a verdict.
func (f *Forwarder) egressTotal(v Verdict) (n uint64) {
	for _, l := range f.loops {
		n += l.count.verdicts[v].Load()
	}
	return n
}

// ingressTotal is how many packets from the peer had a verdict.
func (f *Forwarder) ingressTotal(v Verdict) (n uint64) {
	for _, l := range f.ingressLoops {
		n += l.count.verdicts[v].Load()
	}
	f.further.Lock()
	defer f.further.Unlock()
	for _, l := range f.further.loops {
		n += l.count.verdicts[v].Load()
	}
	return n
}

// keepIngress keeps the headers of a packet from the peer that was dropped.
func (f *Forwarder) keepIngress(b []byte, v Verdict) {
	out := dropped.Packet{Time: time.Now(), Direction: "ingress", Reason: v.String(), Total: f.ingressTotal(v)}
	out.SetIP(b)
	f.dropped.Keep(ingressKind(v), &out)
}

// keepTunnel keeps the headers of what the tunnel drops.
func (f *Forwarder) keepTunnel(o tunnel.Observation) {
	reason := slices.Index(tunnel.DropReasons[:], o.Drop)
	if reason < 0 {
		return
	}
	kind := 2*verdictKinds + reason
	if !f.dropped.Wants(kind, f.clock()) {
		return
	}
	out := dropped.Packet{Time: time.Now(), Direction: "ingress", Reason: o.Drop}
	if o.Egress {
		out.Direction = "egress"
	}
	if o.Outside {
		out.SetOuter(o.Remote, o.Local, len(o.Bytes))
	} else {
		out.SetIP(o.Bytes)
	}
	f.dropped.Keep(kind, &out)
}
