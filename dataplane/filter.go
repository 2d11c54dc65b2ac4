package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
)

// filterEgress asks the chains about a packet for the peer, whose destination
// there is remote. It returns the MTU whose MSS a SYN may announce.
//
// It comes before everything that changes p or keeps something about it: what is
// rejected is quoted as its sender sent it, what is dropped opens no flow. And it
// comes before everything that answers: drop means silence.
func (f *egressLoop) filterEgress(s *snapshot, t *nodeTunnel, p *packet.Packet, from sender, remote netip.Addr, now int64) (clamp int, v Verdict) {
	w := filter.Way{Egress: true, Loop: f.index, Node: t.name, Dst: remote}
	if s.filter.NeedsSrc(true) {
		w.Src = f.outsideSource(s, p, from, remote, now)
	}
	action, mss := s.filter.Check(p, &w)
	if action == filter.Reject {
		f.refuse(s, t, p, rejected)
	}
	return s.clamp(p, mss), filterVerdict(action)
}

// filterIngress asks the chains about a packet for d. See filterEgress.
func (f *ingressLoop) filterIngress(s *snapshot, p *packet.Packet, d *destination) (clamp int, v Verdict) {
	w := filter.Way{Loop: f.index, Node: d.node.name, Dst: p.Dst()}
	if d.inside.IsValid() {
		w.Dst = d.inside
	} else if in, ok := s.table.LocalInside(w.Dst); ok {
		w.Dst = in
	}
	if s.filter.NeedsSrc(false) {
		w.Src, _ = s.table.Inside(p.Src()) // known: it has passed the source check
	}
	action, mss := s.filter.Check(p, &w)
	if action == filter.Reject {
		f.refusePeer(s, p, rejected)
	}
	return s.clamp(p, mss), filterVerdict(action)
}

// FilterQuery is the first packet of a TCP connection, or its answer, as it comes to a
// gateway. Way is where it goes.
type FilterQuery struct {
	Src, Dst netip.AddrPort
	Answer   bool
	filter.Way
}

// ExplainFilter tells what the chains say of a packet: see filter.Filter.Explain. Nothing is
// answered, counted or kept. The addresses must be of one family.
func (f *Forwarder) ExplainFilter(q FilterQuery) (filter.Action, []filter.Step, error) {
	b := tcpHeaders(q.Src, q.Dst, q.Answer)
	p, ok := packet.Parse(b)
	if !ok {
		return filter.Drop, nil, fmt.Errorf("no packet goes from %s to %s", q.Src, q.Dst)
	}
	return f.snap.Load().filter.Explain(&p, &q.Way)
}

// tcpHeaders are those of a SYN, or of a SYN-ACK; without checksums.
func tcpHeaders(src, dst netip.AddrPort, answer bool) []byte {
	b := make([]byte, packet.IPv4HeaderLen, packet.IPv6HeaderLen+packet.TCPHeaderLen)
	if src.Addr().Is4() {
		b[0], b[8], b[9] = 0x45, 64, packet.ProtoTCP
		binary.BigEndian.PutUint16(b[2:], packet.IPv4HeaderLen+packet.TCPHeaderLen)
		copy(b[12:], src.Addr().AsSlice())
		copy(b[16:], dst.Addr().AsSlice())
	} else {
		b = b[:packet.IPv6HeaderLen]
		b[0], b[6], b[7] = 0x60, packet.ProtoTCP, 64
		binary.BigEndian.PutUint16(b[4:], packet.TCPHeaderLen)
		copy(b[8:], src.Addr().AsSlice())
		copy(b[24:], dst.Addr().AsSlice())
	}
	flags := byte(0x02) // SYN
	if answer {
		flags |= 0x10 // ACK
	}
	b = binary.BigEndian.AppendUint16(b, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0, packet.TCPHeaderLen/4<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
}

func filterVerdict(a filter.Action) Verdict {
	switch a {
	case filter.Accept:
		return Forwarded
	case filter.Reject:
		return DropFilterReject
	default:
		return DropFilter
	}
}

// clamp returns the MTU that leaves room for segments of mss bytes, at most the
// tunnel's. Zero stands for that.
func (s *snapshot) clamp(p *packet.Packet, mss int) int {
	if mss == 0 {
		return s.pathMTU
	}
	header := packet.IPv4HeaderLen
	if p.Version == 6 {
		header = packet.IPv6HeaderLen
	}
	return min(s.pathMTU, mss+packet.TCPHeaderLen+header)
}

// outsideSource returns the source that p will leave with, without any of what
// egressSource keeps: the zero Addr if there is none.
func (f *Forwarder) outsideSource(s *snapshot, p *packet.Packet, from sender, remote netip.Addr, now int64) netip.Addr {
	switch from {
	case senderUnknown, senderNode:
		return s.unknown[family(p.Version == 6)]
	case senderPodIP:
		if k, ok := s.podFlowKey(p, remote); ok {
			if fl, known := f.podFlows.peek(k, now); known {
				return fl.inside
			}
		}
	case senderPod:
		if out, ok := s.table.LocalOutside(p.Src()); ok {
			return out
		}
	}
	return p.Src()
}
