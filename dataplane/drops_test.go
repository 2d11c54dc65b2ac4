package dataplane_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/dataplane/dropped"
	"github.com/sluice-net/sluice/nat/packet"
)

var nowhere = netip.MustParseAddr("8.8.8.8")

// TestDropped: what was dropped can be asked for: from where, to where, why.
func TestDropped(t *testing.T) {
	h := newHarness(t, nil)
	h.resolve(0)
	h.ipFromNode(0, tcpOf(localPod, nowhere, packet.TCPSyn, nil, 0))
	h.ipFromNode(0, []byte("\x45 is broken"))
	h.fromNode(0, []byte("short"))
	h.datagram(h.nodes[0], []byte("no Geneve"))
	h.datagram(h.nodes[0], inGeneve(99, nil))
	h.egress()
	h.ingress(udp(netip.MustParseAddr("192.0.2.9"), 7, localPod, 8, "secret"))
	want := []dropped.Packet{
		{Direction: "egress", Reason: "DropNoMapping", Node: "node-0", VNI: 7, Source: localPod, Destination: nowhere, Protocol: 6, SourcePort: 1000, DestinationPort: 80, TCPFlags: packet.TCPSyn, Length: 40},
		{Direction: "egress", Reason: "DropMalformed", Node: "node-0", VNI: 7, Length: 11},
		{Direction: "egress", Reason: "DropFrame", Node: "node-0", VNI: 7, Length: 5},
		{Direction: "egress", Reason: "DropEncapsulation", Outer: true, Source: nodeAddrs[0].Addr(), SourcePort: nodeAddrs[0].Port(), Destination: gatewayAddr.Addr(), DestinationPort: gatewayAddr.Port(), Protocol: 17, Length: 9},
		{Direction: "egress", Reason: "DropUnknownNode", Outer: true, Source: nodeAddrs[0].Addr(), SourcePort: nodeAddrs[0].Port(), Destination: gatewayAddr.Addr(), DestinationPort: gatewayAddr.Port(), Protocol: 17, Length: 8},
		{Direction: "ingress", Reason: "DropSpoofedSource", Source: netip.MustParseAddr("192.0.2.9"), Destination: localPod, Protocol: 17, SourcePort: 7, DestinationPort: 8, Length: 34},
	}
	got := h.forwarder.Dropped(0)
	for i := range got {
		if age := time.Since(got[i].Time); age < 0 || age > time.Hour {
			t.Errorf("a packet of %v", got[i].Time)
		}
		if got[i].Number != uint64(i+1) || got[i].Total != 1 {
			t.Errorf("number %d, %d in all", got[i].Number, got[i].Total)
		}
		got[i].Number, got[i].Total, got[i].Time = 0, 0, time.Time{}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDroppedIsBounded: a million drops keep no more than a few do, and none of
// another reason out.
func TestDroppedIsBounded(t *testing.T) {
	r := newReplay(t, oneNode)
	write := r.ingressBatch(repeat(udpOf(remoteOutside, nowhere, 64), 100)...)
	for range 10_000 {
		write()
	}
	r.ingressBatch(udpOf(nowhere, localPod, 64))()
	count := make(map[string]int)
	for _, p := range r.forwarder.Dropped(0) {
		count[p.Reason]++
	}
	if want := map[string]int{"DropNoMapping": dropped.Kept, "DropSpoofedSource": 1}; !cmp.Equal(want, count) {
		t.Errorf("kept %v", count)
	}
	if n := r.forwarder.Status().Ingress.Verdicts["DropNoMapping"]; n != 1_000_000 {
		t.Errorf("%d dropped", n)
	}
}

// TestDroppedAllocatesNothing: also where it is kept, with every packet.
func TestDroppedAllocatesNothing(t *testing.T) {
	for name, tt := range map[string]struct{ egress, ingress []byte }{
		"no mapping": {udpOf(localPod, nowhere, 64), udpOf(remoteOutside, nowhere, 64)},
		"IPv6":       {udpOf(localPod6, netip.MustParseAddr("2001:db8::1"), 64), udpOf(remoteOutside6, netip.MustParseAddr("2001:db8::1"), 64)},
		"malformed":  {[]byte("\x45 is not well-formed"), []byte("\x45 is not well-formed")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplay(t, oneNode)
			r.forwarder.HurryClock()
			r.load(tt.egress, udpOf(localPod, remoteInside, 64))
			write := r.ingressBatch(tt.ingress)
			before := len(r.forwarder.Dropped(0))
			checkAllocations(t, testing.AllocsPerRun(200, func() { r.egress(); write() }))
			kept := r.forwarder.Dropped(0)
			if n := len(kept) - before; n != 2*dropped.Kept || kept[len(kept)-1].Number < 400 {
				t.Errorf("%d kept, the last is number %d", n, kept[len(kept)-1].Number)
			}
		})
	}
}
