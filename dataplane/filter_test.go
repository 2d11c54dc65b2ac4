package dataplane_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
)

// filtered is a change of the harness's configuration: this chain, with a first
// rule that lets the harness's marker pass.
func filtered(c filter.Chain) func(*dataplane.Config) {
	marker := filter.Rule{Name: "marker", Action: filter.Accept, Matches: []filter.Match{{DstPort: filter.Ports{First: 4242, Last: 4242}}}}
	c.Table, c.Name, c.Rules = "test", "chain", append([]filter.Rule{marker}, c.Rules...)
	return func(cfg *dataplane.Config) {
		firstNodeHasAll(cfg) // where the host of an IP object lives is not the point here
		cfg.Filter = filter.Config{Chains: []filter.Chain{c}}
	}
}

func chainAt(h filter.Hook, priority int32, rules ...filter.Rule) filter.Chain {
	return filter.Chain{Hook: h, Priority: priority, Rules: rules}
}

func forwardChain(rules ...filter.Rule) filter.Chain { return chainAt(filter.Forward, 0, rules...) }

// ruleFor is a counted rule with one match.
func ruleFor(a filter.Action, m filter.Match) filter.Rule {
	return filter.Rule{Name: "rule", Action: a, Counter: true, Matches: []filter.Match{m}}
}

func inPrefix(p string) filter.Addrs {
	n := netip.MustParsePrefix(p)
	last := n.Addr().AsSlice()
	for i := n.Bits(); i < 8*len(last); i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(last)
	return filter.Addrs{First: n.Addr(), Last: a}
}

func only(a netip.Addr) filter.Addrs { return filter.Addrs{First: a, Last: a} }

var toPort53 = filter.Match{Proto: packet.ProtoUDP, DstPort: filter.Ports{First: 53, Last: 53}}

// what are the two worlds that a filter rule stands between, in both families.
var filterWorlds = []struct {
	name                      string
	pod, farInside, farOutide netip.Addr
	farCIDR, podCIDR          string // real ones: what a forward chain sees
	gateway, toPeer           netip.Addr
	unreachable               [2]uint8 // ICMP type and code of Port Unreachable
}{
	{"IPv4", localPod, remoteInside, remoteOutside, "10.243.2.0/24", "10.243.1.0/24", gatewayIP, unknownIP, [2]uint8{3, 3}},
	{"IPv6", localPod6, remoteInside6, remoteOutside6, "fd00:243:0:2::/64", "fd00:243:0:1::/64", gatewayIP6, netip.MustParseAddr("fd00:243::"), [2]uint8{1, 4}},
}

// through carries one packet in each direction and returns what comes out at the
// other side, and what comes back to the sender.
func (h *harness) through(egress bool, b []byte) (out, back [][]byte) {
	h.Helper()
	fromNode := func() (ips [][]byte) {
		for _, e := range h.atNode(0) {
			ips = append(ips, e.ip())
		}
		return ips
	}
	if egress {
		h.ipFromNode(0, b)
		out = h.egress()
		return out, fromNode()
	}
	h.ingress(b)
	out = fromNode()
	return out, h.egress()
}

func TestFilterDropsByPort(t *testing.T) {
	for _, w := range filterWorlds {
		for _, egress := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/egress=%v", w.name, egress), func(t *testing.T) {
				h := newHarness(t, filtered(forwardChain(ruleFor(filter.Drop, toPort53))))
				src, dst := w.pod, w.farInside
				if !egress {
					src, dst = w.farOutide, w.pod
				}
				if out, back := h.through(egress, udp(src, 1000, dst, 53, "query")); len(out)+len(back) != 0 {
					t.Errorf("port 53: %s, %s come out, want silence", describeAll(out), describeAll(back))
				}
				if out, _ := h.through(egress, udp(src, 1000, dst, 54, "")); len(out) != 1 {
					t.Errorf("port 54: %d packets come out, want 1", len(out))
				}
				verdicts, want := h.ingressVerdicts(), filter.Packets{Ingress: 1}
				if egress {
					verdicts, want = h.egressVerdicts(), filter.Packets{Egress: 1}
				}
				if verdicts["DropFilter"] != 1 {
					t.Errorf("verdicts %v, want one DropFilter", verdicts)
				}
				s := h.forwarder.Status().Filter
				if len(s) != 1 || *s[0].Rules[1].Packets != want {
					t.Errorf("status %+v, want the rule to count %+v", s, want)
				}
			})
		}
	}
}

// The sender of a rejected packet gets an error from an address of its world,
// about the packet as it sent it.
func TestFilterRejectsByCIDR(t *testing.T) {
	for _, w := range filterWorlds {
		for _, egress := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/egress=%v", w.name, egress), func(t *testing.T) {
				src, dst, from, cidr := w.pod, w.farInside, w.gateway, w.farCIDR
				if !egress {
					src, dst, from, cidr = w.farOutide, w.pod, w.toPeer, w.podCIDR
				}
				h := newHarness(t, filtered(forwardChain(ruleFor(filter.Reject, filter.Match{Dst: inPrefix(cidr)}))))
				sent := udp(src, 1000, dst, 53, "query")
				out, back := h.through(egress, bytes.Clone(sent))
				if len(out) != 0 || len(back) != 1 {
					t.Fatalf("%d packets come out and %d back, want 0 and 1: %v %v", len(out), len(back), h.egressVerdicts(), h.ingressVerdicts())
				}
				p, _ := packet.Parse(back[0])
				icmp := p.Transport()
				if p.Src() != from || p.Dst() != src || [2]uint8(icmp) != w.unreachable {
					t.Errorf("got %s, type %d code %d, want %v from %s to %s", describe(back[0]), icmp[0], icmp[1], w.unreachable, from, src)
				}
				if q := icmp[packet.ICMPHeaderLen:]; !bytes.Equal(q, sent) {
					t.Errorf("quotes %x, want %x", q, sent)
				}
				if !dataplanetest.ChecksumsValid(back[0]) {
					t.Error("checksum is wrong")
				}
				if n := h.egressVerdicts()["DropFilterReject"] + h.ingressVerdicts()["DropFilterReject"]; n != 1 {
					t.Errorf("%d packets count as rejected, want 1", n)
				}
			})
		}
	}
}

func TestFilterAcceptsBeforePolicyOfDrop(t *testing.T) {
	c := forwardChain(
		ruleFor(filter.Accept, filter.Match{Proto: packet.ProtoUDP, Dst: inPrefix("10.243.2.0/24"), DstPort: toPort53.DstPort}),
		ruleFor(filter.Accept, filter.Match{Proto: packet.ProtoUDP, Src: inPrefix("10.243.2.0/24"), SrcPort: toPort53.DstPort}),
	)
	c.Policy = filter.Drop
	h := newHarness(t, filtered(c))
	for _, tt := range []struct {
		name   string
		egress bool
		packet []byte
		want   int
	}{
		{"query", true, udp(localPod, 1000, remoteInside, 53, ""), 1},
		{"answer", false, udp(remoteOutside, 53, localPod, 1000, ""), 1},
		{"query of the peer", false, udp(remoteOutside, 1000, localPod, 53, ""), 0},
		{"another port", true, udp(localPod, 1000, remoteInside, 54, ""), 0},
		{"IPv6", true, udp(localPod6, 1000, remoteInside6, 53, ""), 0},
		{"an echo request", true, echoRequest(localPod, remoteInside), 0},
	} {
		if out, back := h.through(tt.egress, tt.packet); len(out) != tt.want || len(back) != 0 {
			t.Errorf("%s: %d packets come out and %d back, want %d and 0", tt.name, len(out), len(back), tt.want)
		}
	}
	if got := h.forwarder.Status().Filter[0].Dropped; got != (filter.Packets{Egress: 3, Ingress: 1}) {
		t.Errorf("the policy counted %+v, want 3 and 1", got)
	}
	// The gateway itself still answers, on both sides.
	h.ipFromNode(0, echoRequest(nodeIPs[0], gatewayIP))
	h.egress()
	h.ingress(echoRequest(peerTunnelIP, tunnelIP))
	if e, i := h.egressVerdicts()["Delivered"], h.ingressVerdicts()["Delivered"]; e != 1 || i != 1 {
		t.Errorf("%d pings of a node and %d of the peer are delivered, want 1 and 1", e, i)
	}
}

func TestFilterClampsMSS(t *testing.T) {
	clamp := filter.Rule{Name: "clamp", Action: filter.ClampMSS, MSS: 1000, Matches: []filter.Match{{Proto: packet.ProtoTCP}}}
	for _, w := range filterWorlds {
		h := newHarness(t, filtered(forwardChain(clamp)))
		for _, flags := range []uint8{packet.TCPSyn, packet.TCPSyn | packet.TCPAck} {
			for offered, want := range map[uint16]int{1460: 1000, 1001: 1000, 1000: 1000, 536: 536} {
				for _, egress := range []bool{true, false} {
					src, dst := w.pod, w.farInside
					if !egress {
						src, dst = w.farOutide, w.pod
					}
					out, _ := h.through(egress, tcpOf(src, dst, flags, mss(offered), 0))
					if len(out) != 1 || mssOf(out[0]) != want || !dataplanetest.ChecksumsValid(out[0]) {
						t.Errorf("%s, egress %v, flags %#x, MSS %d: got %s, want MSS %d", w.name, egress, flags, offered, describeAll(out), want)
					}
				}
			}
		}
	}
}

// What a rule has clamped on the way in, super-segments on the way out obey.
func TestFilterClampShapesSuperSegments(t *testing.T) {
	clamp := filter.Rule{Action: filter.ClampMSS, MSS: 1000}
	h := newHarness(t, filtered(forwardChain(clamp, ruleFor(filter.Accept, filter.Match{Out: filter.Link{Side: filter.PeerSide}}))))
	h.ingress(tcpOf(remoteOutside, localPod, packet.TCPSyn|packet.TCPAck, mss(1460), 0))
	h.ipFromNode(0, superSegment(20000))
	out := h.egress()
	if len(out) != 20 {
		t.Errorf("%d packets come out, want 20", len(out))
	}
	for _, b := range out {
		if len(b) > 1000+40 {
			t.Errorf("a segment of %d bytes comes out: %s", len(b)-40, describe(b))
		}
	}
	if got := h.forwarder.Status().Filter[0].Rules[2].Packets.Egress; got != 1 {
		t.Errorf("the rule counted %d packets, want one", got)
	}
}

// TestFilterSees holds the addresses that chains see against those of a kernel
// gateway: each row is a rule that must match.
func TestFilterSees(t *testing.T) {
	const early, late = -300, 100
	tests := []struct {
		name     string
		egress   bool
		hook     filter.Hook
		priority int32
		src, dst netip.Addr // what the chain sees
		packet   []byte
	}{
		{"egress, arrival", true, filter.Prerouting, early, localPod, remoteInside, udpOf(localPod, remoteInside, 64)},
		{"egress, forward", true, filter.Forward, 0, localPod, remoteOutside, udpOf(localPod, remoteInside, 64)},
		{"egress, departure", true, filter.Postrouting, late, localPod, remoteOutside, udpOf(localPod, remoteInside, 64)},
		{"egress of an IP object's host, forward", true, filter.Forward, 0, mappedHost, remoteOutside, udpOf(mappedHost, remoteInside, 64)},
		{"egress of an IP object's host, departure", true, filter.Postrouting, late, mappedHostOut, remoteOutside, udpOf(mappedHost, remoteInside, 64)},
		{"egress of an IP object's pod, departure", true, filter.Postrouting, late, mappedPod, remoteOutside, udpOf(mappedPod, remoteInside, 64)},
		{"egress of an IP object's pod that answers, departure", true, filter.Postrouting, late, mappedPodOut, remoteOutside, udp(mappedPod, 53, remoteInside, 1000, "")},
		{"egress of an IP object's pod about a packet to it, departure", true, filter.Postrouting, late, mappedPodOut, remoteOutside,
			icmpError(t, "port unreachable", mappedPod, udp(remoteInside, 1000, mappedPod, 53, ""))},
		{"egress of the node, forward", true, filter.Forward, 0, nodeIPs[0], remoteOutside, udpOf(nodeIPs[0], remoteInside, 64)},
		{"egress of the node, departure", true, filter.Postrouting, late, unknownIP, remoteOutside, udpOf(nodeIPs[0], remoteInside, 64)},
		{"egress of the unknown source, departure", true, filter.Postrouting, late, unknownIP, remoteOutside, udpOf(unknownIP, remoteInside, 64)},
		{"egress, IPv6, forward", true, filter.Forward, 0, localPod6, remoteOutside6, udpOf(localPod6, remoteInside6, 64)},
		{"ingress, arrival", false, filter.Prerouting, early, remoteOutside, localPod, udpOf(remoteOutside, localPod, 64)},
		{"ingress, forward", false, filter.Forward, 0, remoteOutside, localPod, udpOf(remoteOutside, localPod, 64)},
		{"ingress, departure", false, filter.Postrouting, late, remoteInside, localPod, udpOf(remoteOutside, localPod, 64)},
		{"ingress to an IP object's host, arrival", false, filter.Prerouting, early, remoteOutside, mappedHostOut, udpOf(remoteOutside, mappedHostOut, 64)},
		{"ingress to an IP object's host, forward", false, filter.Forward, 0, remoteOutside, mappedHost, udpOf(remoteOutside, mappedHostOut, 64)},
		{"ingress to an IP object's pod, forward", false, filter.Forward, 0, remoteOutside, mappedPod, udpOf(remoteOutside, mappedPodOut, 64)},
		{"ingress to the node, arrival", false, filter.Prerouting, early, remoteOutside, unknownIP, udp(remoteOutside, 53, unknownIP, 999, "")},
		{"ingress to the node, forward", false, filter.Forward, 0, remoteOutside, nodeIPs[0], udp(remoteOutside, 53, unknownIP, 999, "")},
		{"ingress, IPv6, departure", false, filter.Postrouting, late, remoteInside6, localPod6, udpOf(remoteOutside6, localPod6, 64)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, firstNodeHasAll)
			// Flows: from the node, and through the IP object of the pod.
			h.through(true, udp(nodeIPs[0], 999, remoteInside, 53, ""))
			h.through(false, udp(remoteOutside, 1000, mappedPodOut, 53, ""))
			filtered(chainAt(tt.hook, tt.priority, ruleFor(filter.Drop, filter.Match{Src: only(tt.src), Dst: only(tt.dst)})))(&h.config)
			if err := h.forwarder.Apply(h.config); err != nil {
				t.Fatal(err)
			}
			if out, back := h.through(tt.egress, tt.packet); len(out)+len(back) != 0 {
				t.Errorf("%s comes out: the rule did not match", describeAll(append(out, back...)))
			}
			if n := h.egressVerdicts()["DropFilter"] + h.ingressVerdicts()["DropFilter"]; n != 1 {
				t.Errorf("%d packets dropped by the filter, want 1: %v %v", n, h.egressVerdicts(), h.ingressVerdicts())
			}
		})
	}
}

// What is dropped leaves no trace: no flow, no answer.
func TestFilterDropsWithoutTrace(t *testing.T) {
	h := newHarness(t, filtered(forwardChain(ruleFor(filter.Drop, toPort53))))
	expired := dataplanetest.Build(dataplanetest.Packet{Src: port(localPod, 1), Dst: port(remoteInside, 53), HopLimit: 1})
	big := dataplanetest.Build(dataplanetest.Packet{Src: port(localPod, 1), Dst: port(remoteInside, 53), DontFragment: true, Payload: make([]byte, 1400)})
	for _, b := range [][]byte{udpOf(nodeIPs[0], remoteInside, 64), expired, big} {
		if out, back := h.through(true, b); len(out)+len(back) != 0 {
			t.Errorf("%s comes of %s", describeAll(append(out, back...)), describe(b))
		}
	}
	if out, back := h.through(false, udpOf(remoteOutside, mappedPodOut, 64)); len(out)+len(back) != 0 {
		t.Errorf("%s comes out", describeAll(append(out, back...)))
	}
	if s := h.forwarder.Status(); s.Flows.Entries+s.PodFlows.Entries != 0 {
		t.Errorf("flows are open: %+v, %+v", s.Flows, s.PodFlows)
	}
}

// Errors about rejected packets are limited as all others are, and there is none
// about an error.
func TestFilterRejectsWithinTheRate(t *testing.T) {
	const burst, packets = 20, 500
	h := newHarness(t, filtered(forwardChain(filter.Rule{Action: filter.Reject})))
	h.forwarder.StopClock()
	errors := 0
	for range packets / 50 {
		for range 50 {
			h.ipFromNode(0, udp(localPod, 1, remoteInside, 2, ""))
		}
		h.egress()
		for n := len(h.atNode(0)); n > 0; n = len(h.atNode(0)) {
			errors += n
		}
	}
	if errors != burst {
		t.Errorf("%d errors about %d packets, want %d", errors, packets, burst)
	}
	if got := h.egressVerdicts()["DropFilterReject"]; got != packets {
		t.Errorf("%d packets rejected, want %d", got, packets)
	}
	h.forwarder.UpkeepAt(time.Second)
	if out, back := h.through(false, icmpError(t, "time exceeded", remoteOutside, udpOf(localPod, remoteOutside, 100))); len(out)+len(back) != 0 {
		t.Errorf("an error is answered by %s", describeAll(append(out, back...)))
	}
}

// A configuration whose filter is wrong changes nothing; counters go on over one
// that is right.
func TestApplyReplacesFilter(t *testing.T) {
	h := newHarness(t, filtered(forwardChain(ruleFor(filter.Drop, toPort53))))
	h.through(true, udpOf(localPod, remoteInside, 64))
	bad := h.config
	bad.Filter = filter.Config{Chains: []filter.Chain{{Name: "c", Policy: filter.Reject}}}
	if err := h.forwarder.Apply(bad); err == nil || !strings.Contains(err.Error(), "filter chain c") {
		t.Errorf("got %v, want the chain's name", err)
	}
	h.config.Sources = dataplane.SourceStrict
	if err := h.forwarder.Apply(h.config); err != nil {
		t.Fatal(err)
	}
	h.through(true, udpOf(localPod, remoteInside, 64))
	if got := h.forwarder.Status().Filter[0].Rules[1].Packets.Egress; got != 2 {
		t.Errorf("the rule counted %d packets, want 2", got)
	}
	h.config.Filter = filter.Config{}
	if err := h.forwarder.Apply(h.config); err != nil {
		t.Fatal(err)
	}
	if out, _ := h.through(true, udpOf(localPod, remoteInside, 64)); len(out) != 1 || h.forwarder.Status().Filter != nil {
		t.Errorf("without chains %d packets come out, status %v", len(out), h.forwarder.Status().Filter)
	}
}
