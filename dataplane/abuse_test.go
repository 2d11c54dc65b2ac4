package dataplane_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/underlay"
)

// What somebody who misuses the gateway can do to others: a pod of the peer, the
// peer as a whole, a pod or a node of this cluster. The tests act from their side
// and look at what somebody else still can.

// hostilePod is a pod of the peer, as the peer knows it and as this cluster does.
var (
	hostilePod, hostilePodInside = netip.MustParseAddr("10.243.2.66"), netip.MustParseAddr("10.71.2.66")
	hostilePod6                  = netip.MustParseAddr("fd00:243:0:2::66")
)

// talk carries packets between the peer and the first node.
type talk struct {
	*replay
}

func newTalk(t *testing.T, change func(*dataplane.Config)) *talk {
	c := &talk{replay: newReplay(t, func(cfg *dataplane.Config) {
		firstNodeHasAll(cfg)
		if change != nil {
			change(cfg)
		}
	})}
	return c
}

// fromPeer returns what the node gets of a packet of the peer, nil for nothing.
func (c *talk) fromPeer(ip []byte) (got []byte) {
	c.Helper()
	c.onWrite = func(d underlay.Datagram) { got = append([]byte(nil), d.Body...) }
	c.ingressBatch(ip)()
	c.onWrite = nil
	return got
}

// fromNode returns what the peer gets of a packet of the node, nil for nothing.
func (c *talk) fromNode(ip []byte) []byte {
	c.Helper()
	c.load(ip, udp(localPod, 4242, remoteInside, 4242, "the end"))
	n := c.egress()
	if n == 1 {
		return nil
	}
	return c.bufs[0][offset : offset+c.sizes[0]]
}

// tcp builds one packet of a connection.
func tcp(src netip.AddrPort, dst netip.AddrPort, flags uint8) []byte {
	return dataplanetest.Build(dataplanetest.Packet{Proto: packet.ProtoTCP, Src: src, Dst: dst, TCPFlags: flags})
}

// answered is whether a packet of the peer's pod reaches the pod behind the IP object,
// and the pod's answer comes back from the object's address.
func (c *talk) answered(build func(src, dst netip.AddrPort, flags uint8) []byte, from, fromInside netip.Addr, sport uint16, flags, answer uint8) bool {
	c.Helper()
	if c.fromPeer(build(port(from, sport), port(mappedPodOut, 443), flags)) == nil {
		return false
	}
	return c.answers(build, fromInside, sport, answer)
}

// answers is whether the pod behind the IP object can answer.
func (c *talk) answers(build func(src, dst netip.AddrPort, flags uint8) []byte, to netip.Addr, dport uint16, flags uint8) bool {
	c.Helper()
	got := c.fromNode(build(port(mappedPod, 443), port(to, dport), flags))
	p, ok := packet.Parse(got)
	return ok && p.Src() == mappedPodOut
}

func udpPacket(src, dst netip.AddrPort, _ uint8) []byte {
	return udp(src.Addr(), src.Port(), dst.Addr(), dst.Port(), "data")
}

// flood sends n flows through the IP object, each of as many packets as steps says;
// change makes the i-th flow of a packet of the peer and of its answer.
func (c *talk) flood(n int, steps []step, change func(i int, request, answer []byte)) {
	c.Helper()
	const batch = 32
	for first := 0; first < n; first += batch {
		for _, s := range steps {
			var ips [][]byte
			for i := first; i < first+batch; i++ {
				request, answer := s.request, s.answer
				change(i, request, answer)
				if s.reply {
					ips = append(ips, append([]byte(nil), answer...))
				} else {
					ips = append(ips, append([]byte(nil), request...))
				}
			}
			if s.reply {
				c.load(ips...)
				for left := len(ips); left > 0; {
					left -= c.egress()
				}
			} else {
				c.ingressBatch(ips...)()
			}
		}
	}
}

// step is one packet of every flow of a flood: the peer's, or the answer.
type step struct {
	request, answer []byte
	reply           bool
}

func udpSteps() []step {
	s := step{
		request: udp(hostilePod, 0, mappedPodOut, 443, "question"),
		answer:  udp(mappedPod, 443, hostilePodInside, 0, "answer"),
	}
	noChecksum(s.request, s.answer)
	a := s
	a.reply = true
	return []step{s, a}
}

// tcpSteps are the first n packets of a connection.
func tcpSteps(n int) (steps []step) {
	for i, flags := range []uint8{packet.TCPSyn, packet.TCPSyn | packet.TCPAck, packet.TCPAck}[:n] {
		steps = append(steps, step{
			request: tcp(port(hostilePod, 0), port(mappedPodOut, 443), flags),
			answer:  tcp(port(mappedPod, 443), port(hostilePodInside, 0), flags),
			reply:   i == 1,
		})
	}
	return steps
}

// noChecksum leaves the checksum of UDP out, as RFC 768 allows, so that ports can be
// changed.
func noChecksum(ips ...[]byte) {
	for _, b := range ips {
		binary.BigEndian.PutUint16(b[packet.IPv4HeaderLen+6:], 0)
	}
}

// samePod makes flows of one pod: 64 ports of the IP object's pod by 65536 of its own
// would be as many; here the destination port changes with the upper bits.
func samePod(i int, request, answer []byte) {
	binary.BigEndian.PutUint16(request[packet.IPv4HeaderLen:], uint16(i))
	binary.BigEndian.PutUint16(request[packet.IPv4HeaderLen+2:], uint16(1000+i>>16))
	binary.BigEndian.PutUint16(answer[packet.IPv4HeaderLen+2:], uint16(i))
	binary.BigEndian.PutUint16(answer[packet.IPv4HeaderLen:], uint16(1000+i>>16))
}

// everyPod makes each flow one of another pod of the peer.
func everyPod(i int, request, answer []byte) {
	samePod(i, request, answer)
	binary.BigEndian.PutUint16(request[14:], uint16(i))
	binary.BigEndian.PutUint16(answer[18:], uint16(i))
	for _, b := range [][]byte{request, answer} {
		packettest.FinishHeader(b)
	}
}

// Whatever pods of the peer do to the table of flows, others connect, what is
// connected goes on, and the senders behind the unknown source notice nothing.
func TestAbuseOfFlows(t *testing.T) {
	million := packettest.Rounds(1_000_000) // under the race detector still more than the table
	for _, tt := range []struct {
		name   string
		flows  int
		steps  []step
		change func(i int, request, answer []byte)
		// whole: the peer as a whole attacks, from every address that it has; what
		// is idle and not TCP is then forgotten.
		whole bool
		// full: pods here have answered so many connections of TCP that the peer's other
		// pods reach the IP object no more.
		full bool
	}{
		{name: "a million answered by UDP", flows: million, steps: udpSteps(), change: samePod},
		{name: "a million asked by UDP", flows: million, steps: udpSteps()[:1], change: samePod},
		{name: "half-open connections", flows: max(packettest.Rounds(200_000), 80_000), steps: tcpSteps(2), change: samePod},
		{name: "connections", flows: max(packettest.Rounds(200_000), 80_000), steps: tcpSteps(3), change: samePod},
		{name: "UDP of all pods", flows: max(packettest.Rounds(200_000), 80_000), steps: udpSteps(), change: everyPod, whole: true},
		{name: "half-open connections of all pods", flows: max(packettest.Rounds(200_000), 80_000), steps: tcpSteps(2), change: everyPod, whole: true},
		{name: "connections of all pods", flows: max(packettest.Rounds(200_000), 80_000), steps: tcpSteps(3), change: everyPod, whole: true, full: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newTalk(t, nil)
			const syn, synAck, ack = packet.TCPSyn, packet.TCPSyn | packet.TCPAck, packet.TCPAck
			connect := func(sport uint16) bool {
				return c.answered(tcp, remoteOutside, remoteInside, sport, syn, synAck) &&
					c.answered(tcp, remoteOutside, remoteInside, sport, ack, ack)
			}
			if !connect(1) || !c.answered(udpPacket, remoteOutside, remoteInside, 2, 0, 0) {
				t.Fatal("the IP object does not work")
			}
			if c.fromNode(udp(unknownIP, 3, remoteInside, 53, "question")) == nil {
				t.Fatal("the unknown source does not work")
			}
			c.flood(tt.flows, tt.steps, tt.change)

			if !c.answers(tcp, remoteInside, 1, ack) {
				t.Error("the established connection does not go on")
			}
			if !tt.whole && !c.answers(udpPacket, remoteInside, 2, 0) {
				t.Error("the UDP flow of another pod is forgotten")
			}
			if connect(4) == tt.full {
				t.Errorf("another pod can connect: %v", tt.full)
			}
			if !tt.full && !c.answered(udpPacket, remoteOutside, remoteInside, 5, 0, 0) {
				t.Error("another pod cannot ask by UDP")
			}
			if c.fromPeer(udp(remoteOutside, 53, unknownIP, 3, "answer")) == nil {
				t.Error("the unknown source gets no answer any more")
			}
			if c.fromNode(udp(unknownIP, 6, remoteInside, 53, "question")) == nil || c.fromPeer(udp(remoteOutside, 53, unknownIP, 6, "answer")) == nil {
				t.Error("the unknown source cannot ask")
			}
			if s := c.forwarder.Status().PodFlows; s.Entries > s.Capacity {
				t.Errorf("%d flows in a table for %d", s.Entries, s.Capacity)
			}
		})
	}
}

// A node sends as its own pods only: neither as pods of other nodes nor, strictly, as
// addresses that no route knows.
func TestAbuseOfSources(t *testing.T) {
	const dropped, passed = false, true
	for _, tt := range []struct {
		name                  string
		node                  int
		src                   netip.Addr
		routed, strictly, off bool
	}{
		{"a pod of its own", 0, localPod, passed, passed, passed},
		{"a pod of its own, IPv6", 0, localPod6, passed, passed, passed},
		{"a pod of another node", 1, localPod, dropped, dropped, passed},
		{"a pod of another node, IPv6", 1, localPod6, dropped, dropped, passed},
		{"a pod of another node with an IP object", 1, mappedPod, dropped, dropped, passed},
		{"one of many pods that lives elsewhere", 1, netip.MustParseAddr("10.243.2.99"), dropped, dropped, passed},
		{"a pod newer than its route", 0, netip.MustParseAddr("10.243.200.1"), passed, dropped, passed},
		{"another node", 0, nodeIPs[1], dropped, dropped, dropped},
		{"the gateway", 0, gatewayIP, dropped, dropped, dropped},
		{"a pod of the peer", 0, remoteInside, dropped, dropped, dropped},
		{"a host of an IP object", 1, mappedHost, passed, passed, passed},
	} {
		for check, want := range map[dataplane.SourceCheck]bool{
			dataplane.SourceRouted: tt.routed, dataplane.SourceStrict: tt.strictly, dataplane.SourceUnchecked: tt.off,
		} {
			h := newHarness(t, func(c *dataplane.Config) { c.Sources = check })
			dst := remoteInside
			if tt.src.Is6() {
				dst = remoteInside6
			}
			if tt.src == dst {
				dst = hostilePodInside
			}
			h.ipFromNode(tt.node, udp(tt.src, 1, dst, 53, "question"))
			if got := len(h.egress()) == 1; got != want {
				t.Errorf("%s, check %s: got through is %v, want %v: %v", tt.name, check, got, want, h.egressVerdicts())
			}
			if got := h.forwarder.Status().Egress.Fallback; got != 0 && (tt.routed == tt.strictly || check != dataplane.SourceRouted) {
				t.Errorf("%s, check %s: %d packets counted as unchecked", tt.name, check, got)
			}
		}
	}
}

// The names of the checks are what the flag takes and the status shows.
func TestSourceCheckText(t *testing.T) {
	for _, want := range []dataplane.SourceCheck{dataplane.SourceRouted, dataplane.SourceStrict, dataplane.SourceUnchecked} {
		b, err := want.MarshalText()
		var got dataplane.SourceCheck
		if err := got.UnmarshalText(b); err != nil || got != want {
			t.Errorf("%s is read as %s, %v", want, got, err)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := new(dataplane.SourceCheck).UnmarshalText([]byte("true")); err == nil {
		t.Error("a name that is none is read")
	}
}

// What the peer sends reaches pods and hosts of IP objects, from the CIDRs of the peer,
// and nothing else: neither by its addresses, nor by options, fragments and quotations.
// After each attempt the gateway is what it was before.
func TestAbuseByThePeer(t *testing.T) {
	spec := func(change func(*packettest.Spec)) []byte {
		s := packettest.Spec{Src: hostilePod, Dst: localPod, Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 53, make([]byte, 64))}
		change(&s)
		return s.Bytes()
	}
	spec6 := func(change func(*packettest.Spec)) []byte {
		return spec(func(s *packettest.Spec) {
			s.Src, s.Dst = hostilePod6, localPod6
			change(s)
		})
	}
	// extended has extension headers.
	extended := func(headers ...packettest.Extension) []byte {
		return spec6(func(s *packettest.Spec) { s.Extensions = headers })
	}
	// neighbor is a message of neighbor discovery.
	neighbor := func(src, dst string, typ uint8) []byte {
		return spec6(func(s *packettest.Spec) {
			s.Src, s.Dst, s.HopLimit, s.Proto = netip.MustParseAddr(src), netip.MustParseAddr(dst), 255, packet.ProtoICMPv6
			s.Transport = packettest.Message(typ, 0, 0, make([]byte, 16))
		})
	}
	const hopByHop, routing, fragment, destination = packet.ProtoHopByHop, packet.ProtoRouting, packet.ProtoFragment, packet.ProtoDestination
	via := gatewayIP6.AsSlice() // of a routing header, and of a home address
	padding := packettest.Extension{Type: destination, Body: []byte{0, 1, 4, 0, 0, 0, 0}}
	addressed := func(src, dst string) []byte {
		return udp(netip.MustParseAddr(src), 1, netip.MustParseAddr(dst), 53, "attack")
	}
	quoting := func(dst netip.Addr, src, to netip.Addr) []byte {
		return spec(func(s *packettest.Spec) {
			s.Dst, s.Proto = dst, packet.ProtoICMP
			s.Transport = packettest.Message(3, 1, 0, udpOf(src, to, 100))
		})
	}
	for _, tt := range []struct {
		name string
		in   []byte
		want dataplane.Verdict
	}{
		{"as a node", addressed(nodeIPs[0].String(), localPod.String()), dataplane.DropSpoofedSource},
		{"as a pod of this cluster", addressed(remoteInside.String(), localPod.String()), dataplane.DropSpoofedSource},
		{"as this gateway", addressed(tunnelIP.String(), localPod.String()), dataplane.DropSpoofedSource},
		{"as loopback", addressed("127.0.0.1", localPod.String()), dataplane.DropSpoofedSource},
		{"as anybody", addressed("0.0.0.0", localPod.String()), dataplane.DropSpoofedSource},
		{"as a group", addressed("224.0.0.1", localPod.String()), dataplane.DropSpoofedSource},
		{"in IPv6, as the gateway of a link", addressed("fe80::1", localPod6.String()), dataplane.DropSpoofedSource},
		{"in IPv6, with an address of IPv4", addressed("::ffff:10.243.2.66", localPod6.String()), dataplane.DropSpoofedSource},
		{"to a node", addressed(hostilePod.String(), nodeIPs[0].String()), dataplane.DropNoMapping},
		{"to a node's address outside", addressed(hostilePod.String(), nodeAddrs[0].Addr().String()), dataplane.DropNoMapping},
		{"to a Service", addressed(hostilePod.String(), "10.96.0.10"), dataplane.DropNoMapping},
		{"to the host of an IP object by its own address", addressed(hostilePod.String(), mappedHost.String()), dataplane.DropNoMapping},
		{"to all of the cluster", addressed(hostilePod.String(), "255.255.255.255"), dataplane.DropNoMapping},
		{"to a group", addressed(hostilePod.String(), "224.0.0.1"), dataplane.DropNoMapping},
		{"to a pod of another peer", addressed(hostilePod.String(), "10.74.1.20"), dataplane.DropNoMapping},
		{"back to itself", addressed(hostilePod.String(), remoteInside.String()), dataplane.DropNoMapping},
		{"in IPv6, to all nodes of a link", addressed("fd00:243:0:2::66", "ff02::1"), dataplane.DropNoMapping},
		{"to the unknown source, unasked", addressed(hostilePod.String(), unknownIP.String()), dataplane.DropNoAddress},
		{"an error to the unknown source about what nobody sent", quoting(unknownIP, unknownIP, hostilePod), dataplane.DropNoAddress},
		{"an error to the unknown source about a pod's packet", quoting(unknownIP, localPod, hostilePod), dataplane.DropNoAddress},
		{"routed by a loose source route", spec(func(s *packettest.Spec) {
			s.Options = []byte{131, 7, 4, 10, 80, 0, 11, 0}
		}), dataplane.DropMalformed},
		{"routed by a strict source route", spec(func(s *packettest.Spec) {
			s.Options = []byte{137, 7, 4, 10, 80, 0, 11, 0}
		}), dataplane.DropMalformed},
		{"a fragment that hides the flags of TCP", spec(func(s *packettest.Spec) {
			s.Proto, s.Transport = packet.ProtoTCP, packettest.Segment{SrcPort: 1, DstPort: 80, Payload: make([]byte, 64)}.Bytes()
			s.Part = packettest.Part{Offset: 8, Length: 40}
		}), dataplane.DropMalformed},
		{"a first fragment without ports", spec(func(s *packettest.Spec) {
			s.Proto, s.Transport = packet.ProtoTCP, packettest.Segment{SrcPort: 1, DstPort: 80, Payload: make([]byte, 64)}.Bytes()
			s.Part = packettest.Part{Length: 8}
		}), dataplane.DropMalformed},
		{"in IPv6, as nobody", addressed("::", localPod6.String()), dataplane.DropSpoofedSource},
		{"in IPv6, as loopback", addressed("::1", localPod6.String()), dataplane.DropSpoofedSource},
		{"in IPv6, as a group", addressed("ff02::1", localPod6.String()), dataplane.DropSpoofedSource},
		{"in IPv6, as a pod of this cluster", addressed(remoteInside6.String(), localPod6.String()), dataplane.DropSpoofedSource},
		{"in IPv6, as this gateway", addressed(gatewayIP6.String(), localPod6.String()), dataplane.DropSpoofedSource},
		{"in IPv6, as a host of IPv4 behind NAT64", addressed("64:ff9b::10.243.2.66", localPod6.String()), dataplane.DropSpoofedSource},
		{"in IPv6, to this gateway", addressed(hostilePod6.String(), gatewayIP6.String()), dataplane.DropNoMapping},
		{"in IPv6, to a link", addressed(hostilePod6.String(), "fe80::1"), dataplane.DropNoMapping},
		{"in IPv6, to loopback", addressed(hostilePod6.String(), "::1"), dataplane.DropNoMapping},
		{"in IPv6, to an address of IPv4", addressed(hostilePod6.String(), "::ffff:10.243.1.10"), dataplane.DropNoMapping},
		{"in IPv6, to a host of IPv4 behind NAT64", addressed(hostilePod6.String(), "64:ff9b::10.243.1.10"), dataplane.DropNoMapping},
		{"in IPv6, to a host of IPv4 by 6to4", addressed(hostilePod6.String(), "2002:af3:10a::1"), dataplane.DropNoMapping},
		{"in IPv6, back to itself", addressed(hostilePod6.String(), remoteInside6.String()), dataplane.DropNoMapping},
		{"neighbor discovery, from a link", neighbor("fe80::1", localPod6.String(), 136), dataplane.DropSpoofedSource},
		{"neighbor discovery, to a link", neighbor(hostilePod6.String(), "ff02::1", 136), dataplane.DropNoMapping},
		{"a router advertisement", neighbor("fe80::1", "ff02::1", 134), dataplane.DropSpoofedSource},
		{"a redirect, from a link", neighbor("fe80::1", localPod6.String(), 137), dataplane.DropSpoofedSource},
		{"routed by a header of type 0", extended(packettest.Extension{Type: routing, Body: append([]byte{2, 0, 1, 0, 0, 0, 0}, via...)}), dataplane.DropMalformed},
		{"routed by segments", extended(packettest.Extension{Type: routing, Body: append([]byte{2, 4, 1, 0, 0, 0, 0}, via...)}), dataplane.DropMalformed},
		{"a home address in place of the source", extended(packettest.Extension{
			Type: destination, Body: append(append([]byte{2, 0xc9, 16}, via...), 1, 2, 0, 0),
		}), dataplane.DropMalformed},
		{"a jumbogram", extended(packettest.Extension{Type: hopByHop, Body: []byte{0, 0xc2, 4, 0, 1, 0, 0}}), dataplane.DropMalformed},
		{"options for each hop behind others", extended(padding, packettest.Extension{Type: hopByHop, Body: padding.Body}), dataplane.DropMalformed},
		{"an extension header that is longer than the packet", extended(packettest.Extension{Type: destination, Body: []byte{255, 1, 4, 0, 0, 0, 0}}), dataplane.DropMalformed},
		{"an option that is longer than its header", extended(packettest.Extension{Type: destination, Body: []byte{0, 1, 200, 0, 0, 0, 0}}), dataplane.DropMalformed},
		{"more extension headers than there are", extended(slices.Repeat([]packettest.Extension{padding}, 9)...), dataplane.DropMalformed},
		{"a fragment of a fragment", spec6(func(s *packettest.Spec) {
			s.Extensions = []packettest.Extension{{Type: fragment, Body: []byte{0, 0, 1, 0, 0, 0, 7}}}
			s.ID, s.Part = 7, packettest.Part{Length: 40}
		}), dataplane.DropMalformed},
		{"in IPv6, a fragment that hides the flags of TCP", spec6(func(s *packettest.Spec) {
			s.Proto, s.Transport = packet.ProtoTCP, packettest.Segment{SrcPort: 1, DstPort: 80, Payload: make([]byte, 64)}.Bytes()
			s.ID, s.Part = 7, packettest.Part{Offset: 8, Length: 40}
		}), dataplane.DropMalformed},
		{"in IPv6, a first fragment without ports", spec6(func(s *packettest.Spec) {
			s.Proto, s.Transport = packet.ProtoTCP, packettest.Segment{SrcPort: 1, DstPort: 80, Payload: make([]byte, 64)}.Bytes()
			s.ID, s.Part = 7, packettest.Part{Length: 8}
		}), dataplane.DropMalformed},
		{"a later fragment of what nobody sent to the unknown source", spec(func(s *packettest.Spec) {
			s.Dst, s.ID, s.Part = unknownIP, 7, packettest.Part{Offset: 16, Length: 40}
		}), dataplane.DropNoAddress},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.ingress(tt.in)
			if got := append(h.atNode(0), h.atNode(1)...); len(got) != 0 {
				t.Errorf("a node got %s", describe(got[0].ip()))
			}
			if got := h.ingressVerdicts(); got[tt.want.String()] != 1 || len(got) != 1 {
				t.Errorf("verdicts %v, want one %s", got, tt.want)
			}
			if got := h.egress(); len(got) != 0 {
				t.Errorf("the peer got %s", describeAll(got))
			}
			if s := h.forwarder.Status(); s.Flows.Entries+s.PodFlows.Entries+h.forwarder.PathMTUs() != 0 {
				t.Errorf("it left something behind: %+v, %+v, %d paths", s.Flows, s.PodFlows, h.forwarder.PathMTUs())
			}
			h.ingress(udp(remoteOutside, 1, localPod, 53, "good"))
			if got := h.atNode(0); len(got) != 1 {
				t.Errorf("a good packet behind it makes %d, want 1", len(got))
			}
		})
	}
}

// Errors of ICMPv6 about what nobody sent reach the pod that they are addressed to, which checks
// for itself, and tell the gateway nothing. A redirect that a pod would obey has a hop limit of
// 255 (RFC 4861 section 8.1), which no packet has behind a gateway.
func TestAbuseByErrorsOfThePeer(t *testing.T) {
	about := func(typ, code uint8, rest uint32, quoted []byte) []byte {
		return packettest.Spec{
			Src: hostilePod6, Dst: localPod6, HopLimit: 255, Proto: packet.ProtoICMPv6, Transport: packettest.Message(typ, code, rest, quoted),
		}.Bytes()
	}
	unsent := udpOf(localPod6, remoteOutside6, 1340)
	for name, in := range map[string][]byte{
		"unreachable":                       about(1, 0, 0, unsent),
		"too big":                           about(2, 0, 1280, unsent),
		"too big, below what IPv6 allows":   about(2, 0, 68, unsent),
		"too big, about somebody's":         about(2, 0, 1280, udpOf(nodeIPs[0], hostilePod, 1340)),
		"too big, about less than a header": about(2, 0, 1280, unsent[:20]),
		"too big, about an error":           about(2, 0, 1280, about(2, 0, 1280, unsent)),
		"time exceeded":                     about(3, 0, 0, unsent),
		"a problem of parameters":           about(4, 0, 40, unsent),
		"a redirect":                        about(137, 0, 0, append(append(gatewayIP6.AsSlice(), remoteInside6.AsSlice()...), unsent[:64]...)),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.ingress(in)
			for _, got := range h.atNode(0) {
				p, ok := packet.Parse(got.ip())
				if !ok || p.Dst() != localPod6 || p.HopLimit() == 255 {
					t.Errorf("the node got %s, hop limit %d", describe(got.ip()), p.HopLimit())
				}
			}
			if got := h.atNode(1); len(got) != 0 {
				t.Errorf("another node got %s", describe(got[0].ip()))
			}
			if got := h.egress(); len(got) != 0 {
				t.Errorf("the peer got %s", describeAll(got))
			}
			if s := h.forwarder.Status(); s.Flows.Entries+s.PodFlows.Entries+h.forwarder.PathMTUs() != 0 {
				t.Errorf("it left something behind: %+v, %+v, %d paths", s.Flows, s.PodFlows, h.forwarder.PathMTUs())
			}
		})
	}
}
