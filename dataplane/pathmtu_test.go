package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
)

// Somebody behind the peer's gateway cannot take what the tunnel can. The sender
// is told, but its kernel goes on handing over super-segments, which look the
// same as before.
func TestSuperSegmentsFitTheReportedPathMTU(t *testing.T) {
	for _, tt := range []struct {
		name     string
		reported uint16
		want     int // the largest packet afterwards
	}{
		{"smaller than the tunnel's", 1200, 1200},
		{"larger than the tunnel's", 1400, 1340},
		{"smaller than any link's", 68, 1340},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, nil)
			segment := dataplanetest.Build(dataplanetest.Packet{
				Proto: packet.ProtoTCP, Src: port(localPod, 1000), Dst: port(remoteInside, 80),
				DontFragment: true, TCPFlags: packet.TCPAck, Payload: make([]byte, 20000),
			})
			h.ipFromNode(0, segment)
			sent := h.egress()
			if got := largest(sent); got != 1340 {
				t.Fatalf("the largest of %d packets has %d bytes, want 1340", len(sent), got)
			}

			h.ingress(packettest.TooBig(remoteOutside, int(tt.reported), sent[0][:28]))
			h.ipFromNode(0, segment)
			if got := largest(h.egress()); got != tt.want {
				t.Errorf("the largest packet has %d bytes, want %d", got, tt.want)
			}
		})
	}
}

func largest(packets [][]byte) (n int) {
	for _, p := range packets {
		n = max(n, len(p))
	}
	return n
}

// tooBigAbout is Fragmentation Needed or Packet Too Big from a pod of the peer, about
// a packet of which it quotes so much of the transport header.
func tooBigAbout(src, dst netip.Addr, sport, dport uint16, sequence uint32, quoted int) []byte {
	segment := packettest.Segment{SrcPort: sport, DstPort: dport, Seq: sequence, Flags: packet.TCPAck, Payload: make([]byte, 1280)}
	offending := packettest.Spec{Src: src, Dst: dst, Proto: packet.ProtoTCP, DontFragment: true, Transport: segment.Bytes()}.Bytes()
	router, header := hostilePod, packet.IPv4HeaderLen
	if src.Is6() {
		router, header = netip.MustParseAddr("fd00:243:0:2::66"), packet.IPv6HeaderLen
	}
	return packettest.TooBig(router, 1280, offending[:header+quoted])
}

// A pod of the peer may send ICMP errors, as any router on the way: only what was
// sent lately, and by this sender, makes its packets smaller.
func TestForgedPathMTU(t *testing.T) {
	const from, sent = 0, 20000 // dataplanetest.Build leaves the sequence number at 0
	otherPod := netip.MustParseAddr("10.243.1.11")
	tests := []struct {
		name       string
		error      []byte
		inside, to netip.Addr // who sends; localPod to remoteInside where nothing is said
		believed   bool
	}{
		{name: "the first byte", error: tooBigAbout(localPod, remoteOutside, 1000, 80, from, 20), believed: true},
		{name: "the last byte", error: tooBigAbout(localPod, remoteOutside, 1000, 80, from+sent-1, 20), believed: true},
		{name: "eight bytes of TCP", error: tooBigAbout(localPod, remoteOutside, 1000, 80, from+2000, 8), believed: true},
		{name: "IPv6", error: tooBigAbout(localPod6, remoteOutside6, 1000, 80, from+2000, 20), inside: localPod6, to: remoteInside6, believed: true},
		{name: "what was not sent yet", error: tooBigAbout(localPod, remoteOutside, 1000, 80, from+sent, 20)},
		{name: "what was never sent", error: tooBigAbout(localPod, remoteOutside, 1000, 80, 1<<32-1, 20)},
		{name: "half of the sequence numbers away", error: tooBigAbout(localPod, remoteOutside, 1000, 80, 1<<31, 20)},
		{name: "another port of the sender", error: tooBigAbout(localPod, remoteOutside, 1001, 80, from, 20)},
		{name: "another port of the receiver", error: tooBigAbout(localPod, remoteOutside, 1000, 81, from, 20)},
		{name: "another sender", error: tooBigAbout(otherPod, remoteOutside, 1000, 80, from, 20)},
		{name: "another receiver", error: tooBigAbout(localPod, hostilePod, 1000, 80, from, 20)},
		{name: "IPv6 that was never sent", error: tooBigAbout(localPod6, remoteOutside6, 1000, 80, from+sent, 20), inside: localPod6, to: remoteInside6},
		{name: "UDP", error: icmpError(t, "too big", hostilePod, udpOf(localPod, remoteOutside, 1340))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, nil)
			src, dst := localPod, remoteInside
			if tt.inside.IsValid() {
				src, dst = tt.inside, tt.to
			}
			if got := h.largestSegment(src, dst, sent); got != mtu {
				t.Fatalf("packets of %d bytes before, want %d", got, mtu)
			}
			h.ingress(tt.error)
			if got, want := h.forwarder.PathMTUs(), 0; !tt.believed && got != want {
				t.Errorf("%d paths are remembered, want %d", got, want)
			}
			want := mtu
			if tt.believed {
				want = 1280
			}
			if got := h.largestSegment(src, dst, sent); got != want {
				t.Errorf("packets of %d bytes afterwards, want %d", got, want)
			}
		})
	}
}

// A true error is about one sender: those of others stay as large as they are.
func TestPathMTUIsOfOneSender(t *testing.T) {
	otherPod := netip.MustParseAddr("10.243.1.11")
	h := newHarness(t, nil)
	h.largestSegment(localPod, remoteInside, 20000)
	h.largestSegment(otherPod, remoteInside, 20000)
	h.ingress(tooBigAbout(otherPod, remoteOutside, 1000, 80, 0, 20))
	if got := h.largestSegment(otherPod, remoteInside, 20000); got != 1280 {
		t.Errorf("packets of %d bytes for the sender, want 1280", got)
	}
	if got := h.largestSegment(localPod, remoteInside, 20000); got != mtu {
		t.Errorf("packets of %d bytes for another sender, want %d", got, mtu)
	}
}

// Forged errors, even in great number and about everything, push out no true entry.
func TestForgedPathMTUsEvictNothing(t *testing.T) {
	h := newHarness(t, nil)
	h.largestSegment(localPod, remoteInside, 20000)
	h.ingress(tooBigAbout(localPod, remoteOutside, 1000, 80, 0, 20))
	for i := range 3 * dataplane.MaxPathMTUs {
		h.ingress(tooBigAbout(localPod, netip.AddrFrom4([4]byte{10, 243, byte(i >> 8), byte(i)}), 1000, 80, 7, 20))
		if i%32 == 0 { // before the node's socket is full
			h.atNode(0)
		}
	}
	if got := h.forwarder.PathMTUs(); got != 1 {
		t.Errorf("%d paths are remembered, want the one that was there", got)
	}
	if got := h.largestSegment(localPod, remoteInside, 20000); got != 1280 {
		t.Errorf("packets of %d bytes afterwards, want 1280 still", got)
	}
}
