package filter_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

var (
	pod           = netip.MustParseAddr("10.243.1.10") // here
	podOut        = netip.MustParseAddr("10.70.0.5")   // as the peer sees it
	far           = netip.MustParseAddr("10.71.2.20")  // the peer's pod, as seen here
	farOut        = netip.MustParseAddr("10.243.2.20") // as the peer sees it
	pod6, farOut6 = netip.MustParseAddr("fd00:243::10"), netip.MustParseAddr("fd00:243:0:2::20")
)

func addrs(first, last string) filter.Addrs {
	return filter.Addrs{First: netip.MustParseAddr(first), Last: netip.MustParseAddr(last)}
}

func host(a netip.Addr) filter.Addrs { return filter.Addrs{First: a, Last: a} }

func ports(first, last uint16) filter.Ports { return filter.Ports{First: first, Last: last} }

// tcp, udp and the others are packets of the pod to the peer's, before
// translation.
func spec(proto uint8, transport []byte) packettest.Spec {
	return packettest.Spec{Src: pod, Dst: far, Proto: proto, Transport: transport}
}

func tcp(dst uint16, flags uint8) packettest.Spec {
	return spec(packettest.TCP, packettest.Segment{SrcPort: 1000, DstPort: dst, Flags: flags}.Bytes())
}

func udp(dst uint16) packettest.Spec {
	return spec(packettest.UDP, packettest.Datagram(1000, dst, make([]byte, 100)))
}

func fragment(s packettest.Spec, offset int) packettest.Spec {
	s.Part = packettest.Part{Offset: offset, Length: 40}
	return s
}

func reply(s packettest.Spec) packettest.Spec {
	s.Src, s.Dst = farOut, podOut
	return s
}

// egress and ingress are the ways of the packets above.
var (
	egress  = filter.Way{Egress: true, Node: "a", Dst: farOut, Src: podOut}
	ingress = filter.Way{Node: "a", Dst: pod, Src: far}
)

func TestCheck(t *testing.T) {
	const syn = packet.TCPSyn
	type match = filter.Match
	drop := func(m ...match) filter.Rule { return filter.Rule{Action: filter.Drop, Matches: m} }
	accept := func(m ...match) filter.Rule { return filter.Rule{Action: filter.Accept, Matches: m} }
	forward := func(rules ...filter.Rule) filter.Chain {
		return filter.Chain{Hook: filter.Forward, Rules: rules}
	}
	at := func(h filter.Hook, priority int32, rules ...filter.Rule) filter.Chain {
		return filter.Chain{Hook: h, Priority: priority, Rules: rules}
	}
	policy := func(c filter.Chain) filter.Chain {
		c.Policy = filter.Drop
		return c
	}
	v6 := packettest.Spec{Src: pod6, Dst: farOut6, Proto: packettest.UDP, Transport: packettest.Datagram(1000, 53, nil)}
	v6way := filter.Way{Egress: true, Node: "a", Dst: farOut6, Src: pod6}
	echo := spec(packettest.ICMP, packettest.Message(8, 0, 53<<16, nil)) // identifier 53

	tests := []struct {
		name   string
		chains []filter.Chain
		packet packettest.Spec
		way    filter.Way
		want   filter.Action
	}{
		{"nothing to ask", []filter.Chain{forward()}, udp(53), egress, filter.Accept},
		{"a policy of drop", []filter.Chain{policy(forward())}, udp(53), egress, filter.Drop},
		{"accept in front of the policy", []filter.Chain{policy(forward(accept(match{DstPort: ports(53, 53)})))}, udp(53), egress, filter.Accept},
		{"accept of another port", []filter.Chain{policy(forward(accept(match{DstPort: ports(54, 54)})))}, udp(53), egress, filter.Drop},
		{"the first rule that matches decides", []filter.Chain{forward(accept(match{DstPort: ports(53, 53)}), drop())}, udp(53), egress, filter.Accept},
		{"accept ends its own chain only", []filter.Chain{forward(accept()), forward(drop())}, udp(53), egress, filter.Drop},
		{"drop ends the packet", []filter.Chain{forward(drop()), forward(accept())}, udp(53), egress, filter.Drop},
		{"reject ends the packet", []filter.Chain{forward(filter.Rule{Action: filter.Reject}), policy(forward())}, udp(53), egress, filter.Reject},
		{"the lower priority comes first", []filter.Chain{at(filter.Forward, 1, drop()), at(filter.Forward, 0, filter.Rule{Action: filter.Reject})}, udp(53), egress, filter.Reject},
		{"prerouting comes before forward", []filter.Chain{at(filter.Forward, -300, drop()), at(filter.Prerouting, 300, filter.Rule{Action: filter.Reject})}, udp(53), egress, filter.Reject},

		{"all matches must hold", []filter.Chain{forward(drop(match{Proto: packet.ProtoUDP}, match{DstPort: ports(80, 80)}))}, udp(53), egress, filter.Accept},
		{"all conditions of a match must hold", []filter.Chain{forward(drop(match{Proto: packet.ProtoTCP, DstPort: ports(53, 53)}))}, udp(53), egress, filter.Accept},
		{"the ends of a range of ports", []filter.Chain{forward(drop(match{DstPort: ports(50, 53)}))}, udp(53), egress, filter.Drop},
		{"beyond a range of ports", []filter.Chain{forward(drop(match{DstPort: ports(50, 52)}))}, udp(53), egress, filter.Accept},
		{"source port", []filter.Chain{forward(drop(match{SrcPort: ports(1000, 1000)}))}, udp(53), egress, filter.Drop},
		{"the end of a range of addresses", []filter.Chain{forward(drop(match{Src: addrs("10.243.1.1", "10.243.1.10")}))}, udp(53), egress, filter.Drop},
		{"beyond a range of addresses", []filter.Chain{forward(drop(match{Src: addrs("10.243.1.1", "10.243.1.9")}))}, udp(53), egress, filter.Accept},
		{"Not of an address", []filter.Chain{forward(drop(match{Not: true, Src: host(pod)}))}, udp(53), egress, filter.Accept},
		{"Not of another address", []filter.Chain{forward(drop(match{Not: true, Src: host(far)}))}, udp(53), egress, filter.Drop},
		{"Not turns each condition around", []filter.Chain{forward(drop(match{Not: true, Src: host(far), DstPort: ports(53, 53)}))}, udp(53), egress, filter.Accept},
		{"Not leaves the protocol alone", []filter.Chain{forward(drop(match{Not: true, Proto: packet.ProtoUDP, DstPort: ports(80, 80)}))}, udp(53), egress, filter.Drop},

		{"IPv6 in a chain for both", []filter.Chain{forward(drop(match{Dst: host(farOut6)}))}, v6, v6way, filter.Drop},
		{"IPv6 in a chain for IPv4", []filter.Chain{{Hook: filter.Forward, Family: filter.IPv4, Policy: filter.Drop}}, v6, v6way, filter.Accept},
		{"IPv4 in a chain for IPv6", []filter.Chain{{Hook: filter.Forward, Family: filter.IPv6, Policy: filter.Drop}}, udp(53), egress, filter.Accept},
		{"an address is for its family", []filter.Chain{forward(drop(match{Src: addrs("0.0.0.0", "255.255.255.255")}))}, v6, v6way, filter.Accept},
		{"an address is for its family, with Not", []filter.Chain{forward(drop(match{Not: true, Src: host(pod)}))}, v6, v6way, filter.Accept},
		{"IPv6 beyond 64 bits", []filter.Chain{forward(drop(match{Src: addrs("fd00:242::", "fd00:243::f")}))}, v6, v6way, filter.Accept},
		{"IPv6 across 64 bits", []filter.Chain{forward(drop(match{Src: addrs("fd00:242:ffff:ffff:ffff:ffff:ffff:ffff", "fd00:243::10")}))}, v6, v6way, filter.Drop},

		{"out to the peer", []filter.Chain{forward(drop(match{Out: filter.Link{Side: filter.PeerSide}}))}, udp(53), egress, filter.Drop},
		{"out to the peer, from the peer", []filter.Chain{forward(drop(match{Out: filter.Link{Side: filter.PeerSide}}))}, reply(udp(53)), ingress, filter.Accept},
		{"in from the peer", []filter.Chain{forward(drop(match{In: filter.Link{Side: filter.PeerSide}}))}, reply(udp(53)), ingress, filter.Drop},
		{"in from any node", []filter.Chain{forward(drop(match{In: filter.Link{Side: filter.NodeSide}}))}, udp(53), egress, filter.Drop},
		{"in from one node", []filter.Chain{forward(drop(match{In: filter.Link{Side: filter.NodeSide, Node: "a"}}))}, udp(53), egress, filter.Drop},
		{"in from another node", []filter.Chain{forward(drop(match{In: filter.Link{Side: filter.NodeSide, Node: "b"}}))}, udp(53), egress, filter.Accept},
		{"not in from another node", []filter.Chain{forward(drop(match{Not: true, In: filter.Link{Side: filter.NodeSide, Node: "b"}}))}, udp(53), egress, filter.Drop},
		{"not in from the node, from the peer", []filter.Chain{forward(drop(match{Not: true, In: filter.Link{Side: filter.NodeSide, Node: "a"}}))}, reply(udp(53)), ingress, filter.Drop},
		{"out to one node", []filter.Chain{forward(drop(match{Out: filter.Link{Side: filter.NodeSide, Node: "a"}}))}, reply(udp(53)), ingress, filter.Drop},
		{"a link that is not there", []filter.Chain{forward(drop(match{In: filter.Link{Side: filter.NoSide}}))}, udp(53), egress, filter.Accept},
		{"not a link that is not there", []filter.Chain{forward(drop(match{Not: true, In: filter.Link{Side: filter.NoSide}}))}, udp(53), egress, filter.Drop},

		{"egress, before translation", []filter.Chain{at(filter.Prerouting, -101, drop(match{Src: host(pod), Dst: host(far)}))}, udp(53), egress, filter.Drop},
		{"egress, with the destination's priority", []filter.Chain{at(filter.Prerouting, -100, drop(match{Src: host(pod), Dst: host(farOut)}))}, udp(53), egress, filter.Drop},
		{"egress, forward at any priority", []filter.Chain{at(filter.Forward, -300, drop(match{Src: host(pod), Dst: host(farOut)}))}, udp(53), egress, filter.Drop},
		{"egress, postrouting before the source's priority", []filter.Chain{at(filter.Postrouting, 99, drop(match{Src: host(pod), Dst: host(farOut)}))}, udp(53), egress, filter.Drop},
		{"egress, after translation", []filter.Chain{at(filter.Postrouting, 100, drop(match{Src: host(podOut), Dst: host(farOut)}))}, udp(53), egress, filter.Drop},
		{"ingress, before translation", []filter.Chain{at(filter.Prerouting, -101, drop(match{Src: host(farOut), Dst: host(podOut)}))}, reply(udp(53)), ingress, filter.Drop},
		{"ingress, forward", []filter.Chain{forward(drop(match{Src: host(farOut), Dst: host(pod)}))}, reply(udp(53)), ingress, filter.Drop},
		{"ingress, after translation", []filter.Chain{at(filter.Postrouting, 100, drop(match{Src: host(far), Dst: host(pod)}))}, reply(udp(53)), ingress, filter.Drop},

		{"a first fragment has ports", []filter.Chain{forward(drop(match{DstPort: ports(53, 53)}))}, fragment(udp(53), 0), egress, filter.Drop},
		{"a later fragment has none", []filter.Chain{forward(drop(match{DstPort: ports(0, 65535)}))}, fragment(udp(53), 40), egress, filter.Accept},
		{"a later fragment has none to differ", []filter.Chain{forward(drop(match{Not: true, DstPort: ports(1, 1)}))}, fragment(udp(53), 40), egress, filter.Accept},
		{"a later fragment has a protocol", []filter.Chain{forward(drop(match{Proto: packet.ProtoUDP}))}, fragment(udp(53), 40), egress, filter.Drop},
		{"an echo's identifier is no port", []filter.Chain{forward(drop(match{DstPort: ports(53, 53)}))}, echo, egress, filter.Accept},
		{"SCTP has ports", []filter.Chain{forward(drop(match{DstPort: ports(53, 53)}))}, spec(packettest.SCTP, []byte{3, 0xe8, 0, 53, 0, 0, 0, 0, 0, 0, 0, 0}), egress, filter.Drop},

		{"the clamp decides nothing", []filter.Chain{policy(forward(filter.Rule{Action: filter.ClampMSS, MSS: 1000}))}, tcp(80, syn), egress, filter.Drop},
		{"behind a clamp", []filter.Chain{forward(filter.Rule{Action: filter.ClampMSS, MSS: 1000}, drop())}, tcp(80, syn), egress, filter.Drop},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := filter.Compile(filter.Config{Chains: tt.chains}, nil)
			if err != nil {
				t.Fatal(err)
			}
			p, ok := packet.Parse(tt.packet.Bytes())
			if !ok {
				t.Fatal("not a packet")
			}
			if got, _ := f.Check(&p, &tt.way); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestCheckClampsMSS(t *testing.T) {
	clamp := func(mss int) filter.Rule { return filter.Rule{Action: filter.ClampMSS, MSS: mss} }
	const syn, ack = packet.TCPSyn, packet.TCPAck
	tests := []struct {
		name   string
		rules  []filter.Rule
		packet packettest.Spec
		want   int
	}{
		{"SYN", []filter.Rule{clamp(1000)}, tcp(80, syn), 1000},
		{"SYN-ACK", []filter.Rule{clamp(1000)}, tcp(80, syn|ack), 1000},
		{"no SYN", []filter.Rule{clamp(1000)}, tcp(80, ack), 0},
		{"no TCP", []filter.Rule{clamp(1000)}, udp(80), 0},
		{"the lowest counts", []filter.Rule{clamp(1200), clamp(1000), clamp(1100)}, tcp(80, syn), 1000},
		{"that of the MTU changes nothing", []filter.Rule{clamp(1200), clamp(0)}, tcp(80, syn), 1200},
		{"behind accept", []filter.Rule{{Action: filter.Accept}, clamp(1000)}, tcp(80, syn), 0},
		{"of a packet that is dropped", []filter.Rule{clamp(1000), {Action: filter.Drop}}, tcp(80, syn), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := filter.Compile(filter.Config{Chains: []filter.Chain{{Hook: filter.Forward, Rules: tt.rules}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			p, _ := packet.Parse(tt.packet.Bytes())
			if _, got := f.Check(&p, &egress); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestCompileOfNothing(t *testing.T) {
	f, err := filter.Compile(filter.Config{}, nil)
	if f != nil || err != nil {
		t.Errorf("got %v, %v, want nil", f, err)
	}
	if s := f.Status(); s != nil {
		t.Errorf("status of nothing is %v", s)
	}
}

func TestNeedsSrc(t *testing.T) {
	drop := filter.Rule{Action: filter.Drop}
	fromPeer := filter.Rule{Action: filter.Drop, Matches: []filter.Match{{In: filter.Link{Side: filter.PeerSide}}}}
	for _, tt := range []struct {
		name            string
		chain           filter.Chain
		egress, ingress bool
	}{
		{"forward", filter.Chain{Hook: filter.Forward, Priority: 300, Rules: []filter.Rule{drop}}, false, false},
		{"early postrouting", filter.Chain{Hook: filter.Postrouting, Rules: []filter.Rule{drop}}, false, false},
		{"late postrouting", filter.Chain{Hook: filter.Postrouting, Priority: 100, Rules: []filter.Rule{drop}}, true, true},
		{"of one family", filter.Chain{Hook: filter.Postrouting, Priority: 100, Family: filter.IPv6, Policy: filter.Drop}, true, true},
		{"of one direction", filter.Chain{Hook: filter.Postrouting, Priority: 100, Rules: []filter.Rule{fromPeer}}, false, true},
	} {
		f, err := filter.Compile(filter.Config{Chains: []filter.Chain{tt.chain}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e, i := f.NeedsSrc(true), f.NeedsSrc(false); e != tt.egress || i != tt.ingress {
			t.Errorf("%s: egress %v, ingress %v, want %v, %v", tt.name, e, i, tt.egress, tt.ingress)
		}
	}
}
