package dataplane

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
)

// tunnelKey is what makes a datagram belong to a node tunnel. Geneve carries no
// authentication, so both halves must match (RFC 8926 section 6).
type tunnelKey struct {
	underlay netip.Addr
	vni      geneve.VNI
}

// nodeTunnel is one node tunnel in a snapshot. Everything in it is immutable
// except what state points to, which is shared by successive snapshots.
type nodeTunnel struct {
	name     string
	vni      geneve.VNI
	mac      neighbor.MAC // the gateway's own address on this tunnel
	internal []netip.Addr // the node's addresses inside the tunnel
	remotes  []netip.AddrPort
	state    *nodeState
}

// nodeState is what the gateway learns about a node from its packets. It is
// kept over changes of the configuration, so that none of them costs a packet.
type nodeState struct {
	mac           atomic.Uint64 // neighbor.MAC in the low 48 bits; zero: unknown
	encapsulation atomic.Uint32 // geneve.Encapsulation the node speaks
	// remote is where the node was last heard from; nil: never. Not an index
	// into remotes: the next configuration may order them differently.
	remote   atomic.Pointer[netip.AddrPort]
	lastSeen atomic.Int64 // on the forwarder's clock; zero: never

	// When and how far apart a silent node is asked; owned by upkeep.
	nextProbe int64
	probeGap  time.Duration

	rxPackets, rxBytes, txPackets, txBytes atomic.Uint64
}

// count notes a datagram that belongs to the tunnel.
func (t *nodeTunnel) count(bytes int) {
	t.state.rxPackets.Add(1)
	t.state.rxBytes.Add(uint64(bytes))
}

// believe notes how the node is reached: where from, in what encapsulation and
// with what link-layer address (none in GeneveIP) it sent something that was
// accepted. What is dropped teaches nothing, or anybody who can forge a
// datagram could cut the node off. Stores are made only on change: the cache
// lines are shared with the other direction.
func (t *nodeTunnel) believe(from origin, now int64) {
	st := t.state
	if uint32(from.encapsulation) != st.encapsulation.Load() {
		st.encapsulation.Store(uint32(from.encapsulation))
	}
	if r := st.remote.Load(); r == nil || r.Addr() != from.underlay {
		for i := range t.remotes {
			if t.remotes[i].Addr() == from.underlay {
				st.remote.Store(&t.remotes[i])
			}
		}
	}
	if m := macBits(from.mac); m != 0 && m != st.mac.Load() {
		st.mac.Store(m)
	}
	st.lastSeen.Store(now)
}

// origin is how a datagram came.
type origin struct {
	underlay      netip.Addr
	encapsulation geneve.Encapsulation
	mac           neighbor.MAC
}

// remote returns where the node's packets are sent to.
func (t *nodeTunnel) remote() netip.AddrPort {
	if r := t.state.remote.Load(); r != nil && t.isUnderlay(r.Addr()) {
		return *r
	}
	return t.remotes[0]
}

// encapsulation is what the node speaks; Geneve until it was heard.
func (t *nodeTunnel) encapsulation() geneve.Encapsulation {
	return geneve.Encapsulation(t.state.encapsulation.Load())
}

// resolved tells whether a frame can be addressed to the node.
func (t *nodeTunnel) resolved() bool {
	return t.state.mac.Load() != 0 || t.encapsulation() == geneve.GeneveIP
}

func (t *nodeTunnel) isInternal(a netip.Addr) bool {
	for _, i := range t.internal {
		if i == a {
			return true
		}
	}
	return false
}

func (t *nodeTunnel) isUnderlay(a netip.Addr) bool {
	for _, r := range t.remotes {
		if r.Addr() == a {
			return true
		}
	}
	return false
}

func (t *nodeTunnel) status(start time.Time) NodeStatus {
	st := t.state
	n := NodeStatus{
		Name: t.name, VNI: t.vni, Underlay: t.remote().Addr(), Internal: t.internal,
		Encapsulation: t.encapsulation(),
		RxPackets:     st.rxPackets.Load(), RxBytes: st.rxBytes.Load(),
		TxPackets: st.txPackets.Load(), TxBytes: st.txBytes.Load(),
	}
	if m := st.mac.Load(); m != 0 {
		n.MAC = macOf(m).String()
	}
	if ns := st.lastSeen.Load(); ns != 0 {
		n.LastSeen = start.Add(time.Duration(ns))
	}
	return n
}

func macBits(m neighbor.MAC) uint64 {
	return uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

func macOf(b uint64) neighbor.MAC {
	return neighbor.MAC{byte(b >> 40), byte(b >> 32), byte(b >> 24), byte(b >> 16), byte(b >> 8), byte(b)}
}

// deframe takes the payload of a node's datagram out of its Ethernet frame and
// notes the frame's source in from. It returns Forwarded with the IP packet, or
// the verdict on a frame that ends here.
func (f *Forwarder) deframe(s *snapshot, t *nodeTunnel, from *origin, payload []byte, now int64) ([]byte, Verdict) {
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
func (f *Forwarder) arp(s *snapshot, t *nodeTunnel, from origin, frame neighbor.Frame, now int64) Verdict {
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
	t.believe(from, now)
	if !request {
		return Answered
	}
	b := f.replies.frame(t, t.encapsulation(), a.SenderMAC, neighbor.EtherTypeARP, neighbor.ARPLen)
	neighbor.AppendARP(b[:0], neighbor.ARP{
		Op:        neighbor.ARPReply,
		SenderMAC: t.mac, SenderIP: a.TargetIP,
		TargetMAC: a.SenderMAC, TargetIP: a.SenderIP,
	})
	return Answered
}

// discover answers neighbor solicitations (RFC 4861 section 7.2). It reports
// false for a packet that is not neighbor discovery.
func (f *Forwarder) discover(s *snapshot, t *nodeTunnel, from origin, p *packet.Packet, now int64) (Verdict, bool) {
	if p.Proto != packet.ProtoICMPv6 || p.Fragment != packet.Whole {
		return Forwarded, false
	}
	if ns, ok := neighbor.DecodeSolicitation(*p); ok {
		if !s.answersFor(ns.Target) {
			return DropFrame, true
		}
		t.believe(from, now)
		dst, mac := p.Src(), from.mac
		if dst.IsUnspecified() { // duplicate address detection: answer to all nodes
			dst, mac = netip.IPv6LinkLocalAllNodes(), neighbor.MAC{0x33, 0x33, 0, 0, 0, 1}
		}
		b := f.replies.frame(t, t.encapsulation(), mac, neighbor.EtherTypeIPv6, neighbor.AdvertisementLen)
		neighbor.AppendAdvertisement(b[:0], neighbor.Advertisement{
			Src: ns.Target, Dst: dst, Target: ns.Target, TargetMAC: t.mac,
			Router: true, Solicited: !p.Src().IsUnspecified(), Override: true,
		})
		return Answered, true
	}
	if na, ok := neighbor.DecodeAdvertisement(*p); ok {
		if !t.isInternal(na.Target) {
			return DropFrame, true
		}
		t.believe(from, now)
		return Answered, true
	}
	return Forwarded, false
}

// reprobeAfter is how long what was learned about a silent node is believed: the
// tunnel device of a node that was restarted has another address and may be of
// another kind, and a node that only receives would never tell (RFC 1122
// section 2.3.2.1).
const reprobeAfter = 30 * time.Second

// withEthernet are the encapsulations in which a node can be asked for its
// address. What it does not speak, its kernel drops.
var withEthernet = []geneve.Encapsulation{geneve.Geneve, geneve.VXLAN}

// maxProbeGap is how far apart the questions to a node that does not answer get,
// starting with one at every upkeep: thousands of nodes may be down.
const maxProbeGap = 32 * time.Second

// probes returns the encapsulations in which the node is asked for its
// link-layer address now, so that no packet for its pods need wait for it. Only
// upkeep calls it.
func (t *nodeTunnel) probes(now int64) []geneve.Encapsulation {
	st := t.state
	seen, e := st.lastSeen.Load(), t.encapsulation()
	silent := seen == 0 || now-seen >= int64(reprobeAfter)
	if !silent && t.resolved() {
		st.probeGap, st.nextProbe = 0, 0
		return nil
	}
	if now < st.nextProbe {
		return nil
	}
	st.probeGap = min(max(2*st.probeGap, upkeepInterval), maxProbeGap)
	st.nextProbe = now + int64(st.probeGap)
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
		if target.Is4() {
			b := w.frame(t, e, neighbor.Broadcast, neighbor.EtherTypeARP, neighbor.ARPLen)
			neighbor.AppendARP(b[:0], neighbor.ARP{Op: neighbor.ARPRequest, SenderMAC: t.mac, SenderIP: src, TargetIP: target})
			continue
		}
		group := neighbor.SolicitedNode(target)
		b := w.frame(t, e, neighbor.MulticastMAC(group), neighbor.EtherTypeIPv6, neighbor.SolicitationLen)
		neighbor.AppendSolicitation(b[:0], neighbor.Solicitation{Src: src, Dst: group, Target: target, SourceMAC: t.mac})
	}
}
