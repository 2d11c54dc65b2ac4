package dataplane_test

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
)

var (
	nodeLinkLocal = netip.MustParseAddr("fe80::11")
	nodeIP6       = netip.MustParseAddr("fd00:80::11")
	allNodes      = netip.MustParseAddr("ff02::1")
	allNodesMAC   = neighbor.MAC{0x33, 0x33, 0, 0, 0, 1}
)

// solicit lets node i ask for the link-layer address of target.
func (h *harness) solicit(i int, src, target netip.Addr) {
	group := neighbor.SolicitedNode(target)
	mac := h.nodeMACs[i]
	if src.IsUnspecified() {
		mac = neighbor.MAC{}
	}
	h.fromNode(i, frame(neighbor.MulticastMAC(group), h.nodeMACs[i], neighbor.EtherTypeIPv6, packettest.Solicitation(src, group, target, mac)))
}

// advertisement returns the one advertisement that node i received and its frame.
func (h *harness) advertisement(i int) (neighbor.Advertisement, neighbor.Frame) {
	h.Helper()
	got := h.atNode(i)
	if len(got) != 1 {
		h.Fatalf("node %d got %d packets, want an advertisement: %v", i, len(got), h.egressVerdicts())
	}
	f, _ := neighbor.DecodeFrame(got[0].payload)
	p, ok := packet.Parse(f.Payload)
	if !ok {
		h.Fatalf("node %d got %x", i, got[0].payload)
	}
	a, ok := neighbor.DecodeAdvertisement(p)
	if !ok {
		h.Fatalf("node %d got %s, want an advertisement", i, describe(f.Payload))
	}
	flags := uint8(0)
	for flag, set := range map[uint8]bool{packettest.Router: a.Router, packettest.Solicited: a.Solicited, packettest.Override: a.Override} {
		if set {
			flags |= flag
		}
	}
	if want := packettest.Advertisement(a.Src, a.Dst, a.Target, flags, a.TargetMAC); !bytes.Equal(f.Payload, want) {
		h.Fatalf("node %d got %x, want %x", i, f.Payload, want)
	}
	return a, f
}

func TestNeighborSolicitationIsAnswered(t *testing.T) {
	tests := []struct {
		name      string
		src       netip.Addr
		target    netip.Addr
		dst       netip.Addr // of the answer
		frameDst  func(h *harness) neighbor.MAC
		solicited bool
	}{
		{name: "the gateway's internal address", src: nodeIP6, target: gatewayIP6, dst: nodeIP6, solicited: true},
		{name: "from a link-local address", src: nodeLinkLocal, target: gatewayIP6, dst: nodeLinkLocal, solicited: true},
		{name: "the router of IPv6 routes", src: nodeLinkLocal, target: dataplane.RouterLinkLocal, dst: nodeLinkLocal, solicited: true},
		{name: "an address of the peer, by proxy", src: nodeLinkLocal, target: remoteInside6, dst: nodeLinkLocal, solicited: true},
		{
			name: "duplicate address detection", src: netip.IPv6Unspecified(), target: gatewayIP6, dst: allNodes,
			frameDst: func(*harness) neighbor.MAC { return allNodesMAC },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.solicit(0, tt.src, tt.target)
			if got := h.egress(); len(got) != 0 {
				t.Errorf("tunnel got %s", describeAll(got))
			}
			a, f := h.advertisement(0)
			want := neighbor.Advertisement{
				Src: tt.target, Dst: tt.dst, Target: tt.target, TargetMAC: h.gatewayID,
				Router: true, Solicited: tt.solicited, Override: true,
			}
			if a != want {
				t.Errorf("got  %+v\nwant %+v", a, want)
			}
			frameDst := h.nodeMACs[0]
			if tt.frameDst != nil {
				frameDst = tt.frameDst(h)
			}
			if f.Src != h.gatewayID || f.Dst != frameDst {
				t.Errorf("frame is from %s to %s, want %s to %s", f.Src, f.Dst, h.gatewayID, frameDst)
			}
		})
	}
}

func TestNeighborSolicitationIsNotAnswered(t *testing.T) {
	targets := map[string]netip.Addr{
		"another node's address":              nodeIP6,
		"a local pod":                         localPod6,
		"the peer's address as the peer's":    remoteOutside6,
		"another link-local address":          netip.MustParseAddr("fe80::2"),
		"an address that nobody is known for": netip.MustParseAddr("2001:db8::1"),
	}
	for what, target := range targets {
		h := newHarness(t, nil)
		h.solicit(0, nodeLinkLocal, target)
		h.egress()
		if got := h.atNode(0); len(got) != 0 {
			t.Errorf("%s: node got %s", what, describe(got[0].ip()))
		}
		if h.egressVerdicts()["DropFrame"] != 1 {
			t.Errorf("%s: verdicts %v, want one DropFrame", what, h.egressVerdicts())
		}
	}
}

// Only what no router has forwarded is neighbor discovery (RFC 4861 section 11.2).
func TestForgedSolicitationIsNoDiscovery(t *testing.T) {
	h := newHarness(t, nil)
	group := neighbor.SolicitedNode(gatewayIP6)
	b := packettest.Solicitation(nodeLinkLocal, group, gatewayIP6, h.nodeMACs[0])
	b[7] = 64 // hop limit
	h.fromNode(0, frame(neighbor.MulticastMAC(group), h.nodeMACs[0], neighbor.EtherTypeIPv6, b))
	h.egress()
	if got := h.atNode(0); len(got) != 0 {
		t.Errorf("node got %s", describe(got[0].ip()))
	}
	if h.egressVerdicts()["DropMulticast"] != 1 {
		t.Errorf("verdicts %v, want one DropMulticast", h.egressVerdicts())
	}
}

// A proxy answers for the peer's addresses in IPv4 as well: a node may route to
// them by device.
func TestARPForAnAddressOfThePeer(t *testing.T) {
	h := newHarness(t, nil)
	h.fromNode(0, frame(neighbor.Broadcast, h.nodeMACs[0], neighbor.EtherTypeARP, packettest.ARP{
		Op: neighbor.ARPRequest, SenderMAC: h.nodeMACs[0], SenderIP: nodeIPs[0], TargetIP: remoteInside,
	}.Bytes()))
	h.egress()
	got := h.atNode(0)
	if len(got) != 1 {
		t.Fatalf("node got %d frames, want an ARP reply", len(got))
	}
	f, _ := neighbor.DecodeFrame(got[0].payload)
	want := packettest.ARP{Op: neighbor.ARPReply, SenderMAC: h.gatewayID, SenderIP: remoteInside, TargetMAC: h.nodeMACs[0], TargetIP: nodeIPs[0]}
	if !bytes.Equal(f.Payload, want.Bytes()) || f.Dst != h.nodeMACs[0] {
		t.Errorf("got %x to %s, want %+v", f.Payload, f.Dst, want)
	}
}

// frameTo returns where the frame of one packet to a pod on node i is addressed.
func (h *harness) frameTo(i int) neighbor.MAC {
	h.Helper()
	pods := []netip.Addr{localPod, netip.MustParseAddr("10.243.2.98")}
	h.ingress(udp(remoteOutside, 53, pods[i], 1000, ""))
	got := h.atNode(i)
	if len(got) != 1 {
		h.Fatalf("node %d got %d packets, want 1: %v", i, len(got), h.ingressVerdicts())
	}
	f, _ := neighbor.DecodeFrame(got[0].payload)
	return f.Dst
}

func TestMACIsLearntPerTunnel(t *testing.T) {
	h := newHarness(t, nil)
	ip := udp(localPod, 1000, remoteInside, 53, "")
	// The same station on both tunnels, as a bridged network would have it:
	// each tunnel believes its own frames only.
	h.fromNode(0, frame(h.gatewayID, h.nodeMACs[1], neighbor.EtherTypeIPv4, ip))
	h.nodeMACs[0] = h.nodeMACs[1] // the marker comes from the new address, too
	h.egress()
	if got := h.frameTo(0); got != h.nodeMACs[1] {
		t.Errorf("node 0's frames go to %s, want the address it sends from now, %s", got, h.nodeMACs[1])
	}
	if got := h.frameTo(1); got != h.nodeMACs[1] {
		t.Errorf("node 1's frames go to %s, want %s", got, h.nodeMACs[1])
	}
	// An ARP reply about node 1 through the tunnel of node 0.
	thief := neighbor.MAC{2, 6, 6, 6, 6, 6}
	h.fromNode(0, frame(h.gatewayID, thief, neighbor.EtherTypeARP, packettest.ARP{
		Op: neighbor.ARPReply, SenderMAC: thief, SenderIP: nodeIPs[1], TargetMAC: h.gatewayID, TargetIP: gatewayIP,
	}.Bytes()))
	h.egress()
	if got := h.frameTo(1); got != h.nodeMACs[1] {
		t.Errorf("node 1's frames go to %s after a frame of node 0", got)
	}
}

func TestMACIsNotLearntFromBadFrames(t *testing.T) {
	thief := neighbor.MAC{2, 6, 6, 6, 6, 6}
	group := neighbor.MAC{3, 6, 6, 6, 6, 6}
	ip := udp(localPod, 1000, remoteInside, 53, "")
	arp := func(sender neighbor.MAC) []byte {
		return packettest.ARP{Op: neighbor.ARPReply, SenderMAC: sender, SenderIP: nodeIPs[0], TargetIP: gatewayIP}.Bytes()
	}
	frames := map[string]func(h *harness) []byte{
		"to another station": func(*harness) []byte {
			return frame(neighbor.MAC{2, 9, 9, 9, 9, 9}, thief, neighbor.EtherTypeIPv4, ip)
		},
		"IPv4 broadcast":             func(*harness) []byte { return frame(neighbor.Broadcast, thief, neighbor.EtherTypeIPv4, ip) },
		"from the gateway's own MAC": func(h *harness) []byte { return frame(h.gatewayID, h.gatewayID, neighbor.EtherTypeIPv4, ip) },
		"from a group":               func(h *harness) []byte { return frame(h.gatewayID, group, neighbor.EtherTypeIPv4, ip) },
		"ARP that tells another MAC": func(h *harness) []byte { return frame(h.gatewayID, h.nodeMACs[0], neighbor.EtherTypeARP, arp(thief)) },
		"ARP to another station": func(*harness) []byte {
			return frame(neighbor.MAC{2, 9, 9, 9, 9, 9}, thief, neighbor.EtherTypeARP, arp(thief))
		},
	}
	for what, build := range frames {
		h := newHarness(t, nil)
		h.fromNode(0, build(h))
		// Not h.egress: its marker would teach the right address again.
		h.ipFromNode(1, udp(netip.MustParseAddr("10.243.2.98"), 1, remoteInside, 53, ""))
		if n, _, err := h.forwarder.ReadPackets(h.bufs, h.sizes, offset); n != 1 || err != nil {
			t.Fatalf("%s: read %d packets, %v", what, n, err)
		}
		if got := h.frameTo(0); got != h.nodeMACs[0] {
			t.Errorf("%s: node 0's frames go to %s, want %s", what, got, h.nodeMACs[0])
		}
		if h.egressVerdicts()["DropFrame"] != 1 {
			t.Errorf("%s: verdicts %v, want one DropFrame", what, h.egressVerdicts())
		}
	}
}

// A node with two underlay addresses is answered where it was heard from last,
// also when the configuration names its addresses in another order meanwhile.
func TestNodeRoamsBetweenItsAddresses(t *testing.T) {
	second := netip.MustParseAddrPort("172.30.1.11:6091")
	h := newHarness(t, func(c *dataplane.Config) {
		c.Nodes[0].Underlay = append(c.Nodes[0].Underlay[:1:1], second.Addr())
	})
	sockets := []*dataplanetest.Socket{h.nodes[0], h.network.Listen(second)}
	apply := func(addrs ...netip.Addr) {
		t.Helper()
		h.config.Nodes = slices.Clone(h.config.Nodes)
		h.config.Nodes[0].Underlay = addrs
		if err := h.forwarder.Apply(h.config); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(what string, want int) {
		t.Helper()
		h.nodes[0] = sockets[want]
		h.ingress(udp(remoteOutside, 53, localPod, 1000, what))
		if got := h.atNode(0); len(got) != 1 {
			t.Errorf("%s: %d packets at address %d, want 1", what, len(got), want)
		}
		h.nodes[0] = sockets[1-want]
		if got := h.atNode(0); len(got) != 0 {
			t.Errorf("%s: %d packets at address %d, want none", what, len(got), 1-want)
		}
	}
	speaks := func(from int) {
		t.Helper()
		h.nodes[0] = sockets[from]
		h.egress()
	}
	hears("heard from the first", 0)
	speaks(1)
	hears("heard from the second", 1)
	apply(second.Addr(), nodeAddrs[0].Addr())
	hears("other order, heard from the second", 1)
	speaks(0)
	hears("back at the first", 0)
	apply(nodeAddrs[0].Addr(), second.Addr())
	hears("the old order", 0)
	speaks(1)
	apply(second.Addr())
	hears("only the second is left", 1)
}

// TestUnresolvedNodesAreProbed runs the Forwarder: a node that says nothing is
// asked for its MAC until it answers.
func TestUnresolvedNodesAreProbed(t *testing.T) {
	h := newHarness(t, func(c *dataplane.Config) {
		c.Nodes[0].Internal = []netip.Addr{nodeIPs[0], nodeIP6}
	})
	h.config.Nodes = slices.Clone(h.config.Nodes)
	h.config.Nodes[0].VNI = 70 // nothing is known about this tunnel
	if err := h.forwarder.Apply(h.config); err != nil {
		t.Fatal(err)
	}
	h.atNode(0)
	stop := h.run()
	defer stop()
	probes := h.read(h.nodes[0], 2)
	f, _ := neighbor.DecodeFrame(probes[0].payload)
	gatewayMAC := f.Src
	arp := packettest.ARP{Op: neighbor.ARPRequest, SenderMAC: gatewayMAC, SenderIP: gatewayIP, TargetIP: nodeIPs[0]}
	if want := frame(neighbor.Broadcast, gatewayMAC, neighbor.EtherTypeARP, arp.Bytes()); !bytes.Equal(probes[0].payload, want) {
		t.Errorf("first probe is %x, want %x: an ARP request for %s", probes[0].payload, want, nodeIPs[0])
	}
	group := neighbor.SolicitedNode(nodeIP6)
	ns := packettest.Solicitation(gatewayIP6, group, nodeIP6, gatewayMAC)
	if want := frame(neighbor.MulticastMAC(group), gatewayMAC, neighbor.EtherTypeIPv6, ns); !bytes.Equal(probes[1].payload, want) {
		t.Errorf("second probe is %x, want %x: a solicitation for %s", probes[1].payload, want, nodeIP6)
	}
	if probes[0].header.VNI != 70 || probes[0].header.Encapsulation != geneve.Geneve {
		t.Errorf("probes have header %+v", probes[0].header)
	}
	// The answer is an advertisement; from then on packets go out.
	na := packettest.Advertisement(nodeIP6, gatewayIP6, nodeIP6, packettest.Solicited, h.nodeMACs[0])
	h.datagram(h.nodes[0], inGeneve(70, frame(gatewayMAC, h.nodeMACs[0], neighbor.EtherTypeIPv6, na)))
	mac := func() string {
		for _, n := range h.forwarder.Status().Nodes {
			if n.Name == "node-0" {
				return n.MAC
			}
		}
		return "no such node"
	}
	for deadline := time.Now().Add(patience); mac() == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the node's answer taught nothing")
		}
	}
	if got := mac(); got != h.nodeMACs[0].String() {
		t.Errorf("learnt %s, want %s", got, h.nodeMACs[0])
	}
}

// A node whose tunnel device was made anew has another MAC. If it only
// receives, nothing but a question brings that to light.
func TestSilentNodesAreProbedAgain(t *testing.T) {
	h := newHarness(t, nil)
	h.forwarder.UpkeepAt(29 * time.Second)
	if got := append(h.atNode(0), h.atNode(1)...); len(got) != 0 {
		t.Fatalf("%d probes for nodes that were heard from", len(got))
	}
	h.forwarder.UpkeepAt(time.Minute)
	got := h.atNode(0)
	if len(got) != 2 || got[0].header.Encapsulation != geneve.Geneve || got[1].header.Encapsulation != geneve.VXLAN {
		t.Fatalf("probes for a silent node: %+v, want one in each encapsulation", got)
	}
	f, _ := neighbor.DecodeFrame(got[0].payload)
	if a, ok := neighbor.DecodeARP(f.Payload); !ok || f.Dst != neighbor.Broadcast || a.TargetIP != nodeIPs[0] {
		t.Errorf("probe is %+v to %s, want an ARP request for %s to all", a, f.Dst, nodeIPs[0])
	}
	anew := neighbor.MAC{2, 0, 0, 0, 0, 99}
	h.fromNode(0, frame(h.gatewayID, anew, neighbor.EtherTypeARP, packettest.ARP{
		Op: neighbor.ARPReply, SenderMAC: anew, SenderIP: nodeIPs[0], TargetMAC: h.gatewayID, TargetIP: gatewayIP,
	}.Bytes()))
	h.nodeMACs[0] = anew
	h.egress()
	if got := h.frameTo(0); got != anew {
		t.Errorf("frames go to %s, want %s", got, anew)
	}
}

// A node that speaks VXLAN and has nothing to send can only be found by asking in
// VXLAN.
func TestUnheardNodesAreProbedInBothEncapsulations(t *testing.T) {
	h := newHarness(t, nil)
	h.config.Nodes[0].VNI = 70 // a new tunnel
	if err := h.forwarder.Apply(h.config); err != nil {
		t.Fatal(err)
	}
	h.forwarder.UpkeepAt(0)
	got := h.atNode(0)
	if len(got) != 2 || got[0].header.Encapsulation != geneve.Geneve || got[1].header.Encapsulation != geneve.VXLAN {
		t.Errorf("probes: %+v, want one in each encapsulation", got)
	}
}

// A node without Ethernet that is there has no MAC to ask for.
func TestNodesWithoutEthernetAreNotProbed(t *testing.T) {
	h := newHarness(t, nil)
	h.datagram(h.nodes[1], packettest.Geneve(8, neighbor.EtherTypeIPv4, udp(localPod, 1000, remoteInside, 53, "")))
	h.egress()
	h.forwarder.UpkeepAt(29 * time.Second)
	if got := h.atNode(1); len(got) != 0 {
		t.Errorf("%d probes", len(got))
	}
}

// Whoever can forge the node's datagrams must not be able to cut it off by
// datagrams that are not even accepted.
func TestDroppedFramesTeachNothing(t *testing.T) {
	h := newHarness(t, nil)
	before := h.forwarder.Status().Nodes[0]
	forged := neighbor.MAC{2, 6, 6, 6, 6, 6}
	for _, f := range [][]byte{
		frame(forged, forged, neighbor.EtherTypeIPv4, []byte("not an IP packet")),
		frame(forged, forged, neighbor.EtherTypeIPv4, udp(remoteInside, 1, remoteInside, 1, "spoofed")),
		frame(neighbor.Broadcast, forged, neighbor.EtherTypeARP, packettest.ARP{
			Op: neighbor.ARPRequest, SenderMAC: forged, SenderIP: nodeIPs[0], TargetIP: nodeIPs[1],
		}.Bytes()),
		frame(neighbor.Broadcast, forged, neighbor.EtherTypeARP, packettest.ARP{
			Op: neighbor.ARPReply, SenderMAC: forged, SenderIP: gatewayIP, TargetIP: gatewayIP,
		}.Bytes()),
	} {
		h.datagram(h.nodes[0], packettest.VXLAN(7, f))
	}
	// Not egress, whose marker comes from node 0 and would teach the truth again.
	h.ipFromNode(1, udp(netip.MustParseAddr("10.243.2.10"), 1, remoteInside, 1, "marker"))
	if n, _, err := h.forwarder.ReadPackets(h.bufs, h.sizes, offset); n != 1 || err != nil {
		t.Fatalf("tunnel got %d packets, %v", n, err)
	}
	after := h.forwarder.Status().Nodes[0]
	if after.MAC != before.MAC || after.Encapsulation != before.Encapsulation {
		t.Errorf("node is reached at %s by %s, was at %s by %s", after.MAC, after.Encapsulation, before.MAC, before.Encapsulation)
	}
	if got := after.RxPackets - before.RxPackets; got != 4 {
		t.Errorf("%d datagrams arrived, want 4", got)
	}
}
