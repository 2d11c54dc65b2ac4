package capture

import (
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/nat/packet"
)

// Filter chooses packets. It is immutable; ParseFilter makes one.
type Filter struct {
	text  string
	start int
	tests []test
}

// String returns the expression that the filter was made from.
func (f *Filter) String() string { return f.text }

// Where a test leads that decides.
const (
	accept = -1
	refuse = -2
)

// test is one question about a packet. Yes and no are the index of the test that is
// asked next, or accept or refuse.
type test struct {
	what        question
	proto       uint8
	first, last uint16
	net         netip.Prefix
	yes, no     int
}

type question uint8

const (
	isIP question = iota
	isIPv6
	isARP
	isProto
	srcInNet
	dstInNet
	srcPortIn
	dstPortIn
)

// subject is what can be asked about a packet: also about ARP and what is not IP, and about both families
// in one program, which the rules of package filter cannot ask.
type subject struct {
	version          uint8 // 0: not IP
	proto            uint8
	arp, ports       bool
	src, dst         netip.Addr
	srcPort, dstPort uint16
}

// Match tells whether the filter chooses p.
func (f *Filter) Match(p *packet.Packet) bool {
	s := subjectOf(p)
	return f.ask(&s)
}

// ask follows the tests until one decides.
func (f *Filter) ask(s *subject) bool {
	at := f.start
	for at >= 0 {
		t := &f.tests[at]
		if t.holds(s) {
			at = t.yes
		} else {
			at = t.no
		}
	}
	return at == accept
}

func (t *test) holds(s *subject) bool {
	switch t.what {
	case isIP:
		return s.version == 4
	case isIPv6:
		return s.version == 6
	case isARP:
		return s.arp
	case isProto:
		return s.version != 0 && s.proto == t.proto
	case srcInNet:
		return t.net.Contains(s.src)
	case dstInNet:
		return t.net.Contains(s.dst)
	case srcPortIn:
		return s.ports && t.first <= s.srcPort && s.srcPort <= t.last
	case dstPortIn:
		return s.ports && t.first <= s.dstPort && s.dstPort <= t.last
	}
	return false
}

func subjectOf(p *packet.Packet) (s subject) {
	s = subject{version: p.Version, proto: p.Proto, src: p.Src(), dst: p.Dst()}
	switch p.Proto {
	case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP:
		if s.ports = p.Fragment != packet.LaterFragment; s.ports {
			s.srcPort, s.dstPort = p.Ports()
		}
	}
	return s
}

// Lengths and numbers of Ethernet (IEEE 802.3).
const (
	ethernetHeaderLen = 14
	etherTypeARP      = 0x0806
)

// matches is Match for a packet at a point. The headers may lie in Head and the rest
// in Body.
func (f *Filter) matches(p *Packet) bool {
	s := p.subject()
	return f.ask(&s)
}

// subject is that of a packet at a point. Of one that is not well-formed only the
// version is known, and of no other than IP and ARP anything at all.
func (p *Packet) subject() (s subject) {
	ip := p.Body
	switch {
	case p.From.IsValid():
		return p.outerSubject()
	case p.Link == Ethernet:
		header := p.Head
		if len(header) == 0 && len(p.Body) >= ethernetHeaderLen {
			header, ip = p.Body[:ethernetHeaderLen], p.Body[ethernetHeaderLen:]
		}
		if len(header) != ethernetHeaderLen {
			return s
		}
		if binary.BigEndian.Uint16(header[ethernetHeaderLen-2:]) == etherTypeARP {
			return subject{arp: true}
		}
	}
	if q, ok := packet.Parse(ip); ok {
		return subjectOf(&q)
	}
	if len(ip) > 0 && (ip[0]>>4 == 4 || ip[0]>>4 == 6) {
		s.version = ip[0] >> 4
		s.proto = packet.ProtoNoNext
	}
	return s
}

// outerSubject is that of the headers that putOuter makes.
func (p *Packet) outerSubject() subject {
	s := subject{
		version: 6, proto: packet.ProtoUDP, ports: true,
		src: p.From.Addr().Unmap(), srcPort: p.From.Port(), dst: p.To.Addr().Unmap(), dstPort: p.To.Port(),
	}
	if s.src.Is4() && s.dst.Is4() {
		s.version = 4
	}
	return s
}
