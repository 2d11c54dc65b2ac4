package filter_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// seen is a packet as the slow evaluator looks at it.
type seen struct {
	src, dst       netip.Addr
	proto          uint8
	ports          bool
	sport, dport   uint16
	syn            bool
	outDst, outSrc netip.Addr // after translation
	egress         bool
	node           string
}

// describeSpec reads a description, not bytes.
func describeSpec(s packettest.Spec, w filter.Way) seen {
	x := seen{src: s.Src, dst: s.Dst, proto: s.Proto, outDst: w.Dst, outSrc: w.Src, egress: w.Egress, node: w.Node}
	if s.Part.Offset == 0 {
		switch s.Proto {
		case packettest.TCP, packettest.UDP, packettest.UDPLite, packettest.SCTP, packettest.DCCP:
			x.ports = true
			x.sport, x.dport = binary.BigEndian.Uint16(s.Transport), binary.BigEndian.Uint16(s.Transport[2:])
		}
		x.syn = s.Proto == packettest.TCP && s.Transport[13]&2 != 0
	}
	return x
}

// describePacket reads a packet of the fuzzer's.
func describePacket(p *packet.Packet, w filter.Way) seen {
	x := seen{src: p.Src(), dst: p.Dst(), proto: p.Proto, outDst: w.Dst, outSrc: w.Src, egress: w.Egress, node: w.Node, syn: p.IsTCPSYN()}
	if p.Fragment != packet.LaterFragment {
		switch p.Proto {
		case 6, 17, 136, 132, 33:
			x.ports = true
			x.sport, x.dport = p.Ports()
		}
	}
	return x
}

// tally counts packets by chain and rule, in the order of the configuration; the
// policy has the index -1.
type tally map[[2]int]filter.Packets

func (t tally) add(chain, rule int, egress bool) {
	n := t[[2]int{chain, rule}]
	if egress {
		n.Egress++
	} else {
		n.Ingress++
	}
	t[[2]int{chain, rule}] = n
}

// slowCheck evaluates a configuration as the package comment says, with no
// thought of speed.
func slowCheck(c filter.Config, x seen, counts tally) (filter.Action, int) {
	var order []int
	for i := range c.Chains {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(c.Chains[i].Hook, c.Chains[j].Hook), cmp.Compare(c.Chains[i].Priority, c.Chains[j].Priority))
	})
	mss := 0
	for _, i := range order {
		ch := c.Chains[i]
		if ch.Family == filter.IPv4 && x.src.Is6() || ch.Family == filter.IPv6 && x.src.Is4() {
			continue
		}
		src, dst := x.src, x.outDst
		if ch.Hook == filter.Prerouting && ch.Priority < -100 {
			dst = x.dst
		}
		if ch.Hook == filter.Postrouting && ch.Priority >= 100 {
			src = x.outSrc
		}
		decision := ch.Policy
		decided := false
		for j, r := range ch.Rules {
			if !slowMatches(r, x, src, dst) {
				continue
			}
			if r.Counter {
				counts.add(i, j, x.egress)
			}
			if r.Action == filter.ClampMSS {
				if r.MSS > 0 && (mss == 0 || r.MSS < mss) {
					mss = r.MSS
				}
				continue
			}
			decision, decided = r.Action, true
			break
		}
		if !decided && decision == filter.Drop {
			counts.add(i, -1, x.egress)
		}
		if decision != filter.Accept {
			return decision, 0
		}
	}
	return filter.Accept, mss
}

func slowMatches(r filter.Rule, x seen, src, dst netip.Addr) bool {
	if r.Action == filter.ClampMSS && !x.syn {
		return false
	}
	in, out := filter.PeerSide, filter.NodeSide
	if x.egress {
		in, out = out, in
	}
	for _, m := range r.Matches {
		ok := (m.Proto == 0 || m.Proto == x.proto) &&
			slowAddr(m.Src, src, m.Not) && slowAddr(m.Dst, dst, m.Not) &&
			slowPort(m.SrcPort, x.ports, x.sport, m.Not) && slowPort(m.DstPort, x.ports, x.dport, m.Not) &&
			slowLink(m.In, in, x.node, m.Not) && slowLink(m.Out, out, x.node, m.Not)
		if !ok {
			return false
		}
	}
	return true
}

func slowAddr(want filter.Addrs, a netip.Addr, not bool) bool {
	if !want.First.IsValid() {
		return true
	}
	if want.First.Is4() != a.Is4() {
		return false
	}
	return (a.Compare(want.First) >= 0 && a.Compare(want.Last) <= 0) != not
}

func slowPort(want filter.Ports, has bool, p uint16, not bool) bool {
	if want == (filter.Ports{}) {
		return true
	}
	return has && (p >= want.First && p <= want.Last) != not
}

func slowLink(want filter.Link, side filter.Side, node string, not bool) bool {
	if want.Side == filter.AnySide {
		return true
	}
	is := want.Side == side && (side == filter.PeerSide || want.Node == "" || want.Node == node)
	return is != not
}

// checkStatus compares the counters of a filter with a tally.
func checkStatus(f *filter.Filter, c filter.Config, counts tally) error {
	status := f.Status()
	if len(status) != len(c.Chains) {
		return fmt.Errorf("status shows %d chains of %d", len(status), len(c.Chains))
	}
	for i, s := range status {
		if got, want := s.Dropped, counts[[2]int{i, -1}]; got != want {
			return fmt.Errorf("policy of chain %d counted %+v, want %+v", i, got, want)
		}
		for j, r := range s.Rules {
			if (r.Packets != nil) != c.Chains[i].Rules[j].Counter {
				return fmt.Errorf("rule %d of chain %d: counts %v, want %v", j, i, r.Packets != nil, c.Chains[i].Rules[j].Counter)
			}
			if r.Packets != nil && *r.Packets != counts[[2]int{i, j}] {
				return fmt.Errorf("rule %d of chain %d counted %+v, want %+v", j, i, *r.Packets, counts[[2]int{i, j}])
			}
		}
	}
	return nil
}
