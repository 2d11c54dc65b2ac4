package filter

import (
	"math/bits"
	"net/netip"
	"sync/atomic"

	"github.com/sluice-net/sluice/nat/packet"
)

// Filter judges packets as one Config says. It is immutable but for its counters.
type Filter struct {
	programs [2][2]program // by direction and family
	// What stands in the Config, and its counters, for display and for the
	// filter after this one.
	chains []Chain
	counts []counts
}

// program is what is asked about the packets of one direction and one family:
// rules that match none of them are left out.
type program struct {
	points [numPoints][]chain
	empty  bool
}

// point is where on its way a packet is judged; see the package comment.
type point uint8

const (
	arrival point = iota
	between
	departure

	numPoints
)

type chain struct {
	rules  []rule
	policy Action
	// dropped counts what fell to a policy of Drop.
	dropped *counter
}

type rule struct {
	tests   []test
	action  Action
	mss     uint16
	counter *counter // nil: not counted
}

// test is one condition on a subject.
type test struct {
	what  field
	not   bool
	proto uint8
	// ports are those from port on, width more.
	port, width uint16
	span        span
	node        string
}

// field is what of a subject is compared.
type field uint8

// In the order of what they cost.
const (
	onProto field = iota
	onSYN
	onNode
	onSrcPort
	onDstPort
	onSrc
	onDst
)

// counter counts packets of each direction. They are counted by different processors, which
// must not share a cache line.
type counter struct {
	ingress, egress [loops]cell
}

// loops is how many loops of a direction have cells of their own. Further ones share.
const loops = 8

type cell struct {
	atomic.Uint64
	_ [64 - 8]byte
}

func (c *counter) add(s *subject) {
	if s.egress {
		c.egress[s.loop%loops].Add(1)
	} else {
		c.ingress[s.loop%loops].Add(1)
	}
}

// packets returns what was counted, nil for no counter.
func (c *counter) packets() *Packets {
	if c == nil {
		return nil
	}
	p := Packets{}
	for i := range loops {
		p.Ingress += c.ingress[i].Load()
		p.Egress += c.egress[i].Load()
	}
	return &p
}

// Way is what a packet's own bytes do not tell about its way.
type Way struct {
	// Egress: it goes from a node to the peer. Otherwise the other way.
	Egress bool
	// Loop tells the goroutines of a direction apart, which count at the same time.
	Loop int
	// Node is the name of that node.
	Node string
	// Dst is its destination after translation.
	Dst netip.Addr
	// Src is its source after translation; only needed where NeedsSrc says so.
	Src netip.Addr
}

// NeedsSrc tells whether Check looks at Way.Src.
func (f *Filter) NeedsSrc(egress bool) bool {
	p := &f.programs[index(egress)]
	return len(p[0].points[departure])+len(p[1].points[departure]) > 0
}

// subject is what rules look at, as numbers.
type subject struct {
	src, dst         packet.Number // a program is for one family: the numbers need not tell it
	srcPort, dstPort uint16
	proto            uint8
	ports            bool // srcPort and dstPort mean something
	egress           bool
	loop             int
	node             string
}

// Check judges p, which must not be translated yet. The action is Accept, Drop or
// Reject; with Accept, mss is what the MSS of a SYN is to be lowered to, or 0.
func (f *Filter) Check(p *packet.Packet, w *Way) (action Action, mss int) {
	program := &f.programs[index(w.Egress)][index(p.Version == 6)]
	if program.empty {
		return Accept, 0
	}
	s := subject{src: packet.NumberOf(p.Src()), dst: packet.NumberOf(p.Dst()), proto: p.Proto, egress: w.Egress, loop: w.Loop, node: w.Node}
	if s.ports = hasPorts(p); s.ports {
		s.srcPort, s.dstPort = p.Ports()
	}
	for at := range program.points {
		chains := program.points[at]
		if len(chains) == 0 {
			continue
		}
		if point(at) != arrival {
			s.dst = packet.NumberOf(w.Dst)
		}
		if point(at) == departure {
			s.src = packet.NumberOf(w.Src)
		}
		for i := range chains {
			if action = chains[i].judge(&s, p, &mss); action != Accept {
				return action, 0
			}
		}
	}
	return Accept, mss
}

// judge asks the rules one by one.
func (c *chain) judge(s *subject, p *packet.Packet, mss *int) Action {
	for i := range c.rules {
		r := &c.rules[i]
		if !r.matches(s, p) {
			continue
		}
		if r.counter != nil {
			r.counter.add(s)
		}
		if r.action != ClampMSS {
			return r.action
		}
		if v := int(r.mss); v != 0 && (*mss == 0 || v < *mss) {
			*mss = v
		}
	}
	if c.policy == Drop {
		c.dropped.add(s)
	}
	return c.policy
}

// matches tells whether all tests hold. They stand in one loop and not in a
// function of their own because most of the time of a long chain is spent here.
func (r *rule) matches(s *subject, p *packet.Packet) bool {
	for i := range r.tests {
		t := &r.tests[i]
		var holds bool
		switch t.what {
		case onProto:
			holds = s.proto == t.proto
		case onSYN:
			holds = p.IsTCPSYN()
		case onNode:
			holds = (s.node == t.node) != t.not
		case onSrcPort:
			holds = s.ports && (s.srcPort-t.port <= t.width) != t.not
		case onDstPort:
			holds = s.ports && (s.dstPort-t.port <= t.width) != t.not
		case onSrc:
			holds = t.span.contains(s.src) != t.not
		case onDst:
			holds = t.span.contains(s.dst) != t.not
		}
		if !holds {
			return false
		}
	}
	return true
}

// hasPorts tells whether p carries the ports of its protocol. What packet.Ports
// says of an ICMP echo is its identifier, which is no port to filter by.
func hasPorts(p *packet.Packet) bool {
	switch p.Proto {
	case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoUDPLite, packet.ProtoDCCP, packet.ProtoSCTP:
		return p.Fragment != packet.LaterFragment
	}
	return false
}

// minus returns the difference, modulo 2^128.
func minus(a, b packet.Number) packet.Number {
	lo, borrow := bits.Sub64(a.Lo, b.Lo, 0)
	hi, _ := bits.Sub64(a.Hi, b.Hi, borrow)
	return packet.Number{Hi: hi, Lo: lo}
}

// span is a range of addresses: first, and size more.
type span struct{ first, size packet.Number }

func newSpan(a Addrs) span {
	first := packet.NumberOf(a.First)
	return span{first, minus(packet.NumberOf(a.Last), first)}
}

func (s *span) contains(a packet.Number) bool {
	d := minus(a, s.first)
	return d.Hi < s.size.Hi || d.Hi == s.size.Hi && d.Lo <= s.size.Lo
}

// index makes an array index of a condition.
func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
