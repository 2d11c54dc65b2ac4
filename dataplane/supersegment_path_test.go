package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
)

// largestSegment sends a super-segment of so many bytes to the pod of the peer and
// returns the size of the largest packet that it is cut into.
func (h *harness) largestSegment(src, dst netip.Addr, payload int) (size int) {
	h.Helper()
	data := randomBytes(7, payload)
	h.ipFromNode(0, packettest.Unfinish(dataplanetest.Build(dataplanetest.Packet{
		Proto: packet.ProtoTCP, Src: port(src, 1000), Dst: port(dst, 80), TCPFlags: packet.TCPAck, DontFragment: true, Payload: data,
	})))
	s := &stream{T: h.T, mtu: mtu}
	for _, b := range h.egress() {
		s.add(b)
		size = max(size, len(b))
	}
	if !bytes.Equal(s.payload, data) {
		h.Errorf("%d bytes come out, not the %d that went in", len(s.payload), len(data))
	}
	return size
}

// A node's kernel hands over super-segments without the size that it would have
// cut them to. It follows the MSS of the far end; so must the gateway, or a far
// end behind a smaller MTU gets nothing but packets that are too big for it.
func TestSuperSegmentsFollowTheMSS(t *testing.T) {
	otherInside, otherOutside := netip.MustParseAddr("10.71.2.21"), netip.MustParseAddr("10.243.2.21")
	h := newHarness(t, nil)
	if got := h.largestSegment(localPod, remoteInside, 20000); got != mtu {
		t.Fatalf("packets of %d bytes before anything is known, want %d", got, mtu)
	}
	h.ingress(tcpOf(remoteOutside, localPod, packet.TCPSyn|packet.TCPAck, mss(1000), 0))
	h.ingress(tcpOf(otherOutside, localPod, packet.TCPSyn, mss(1460), 0))
	if got := h.largestSegment(localPod, remoteInside, 20000); got != 1040 {
		t.Errorf("packets of %d bytes for an MSS of 1000, want 1040", got)
	}
	// Two segments of 1000 fit into the tunnel's MTU no more than into the path's.
	if got := h.largestSegment(localPod, remoteInside, 1200); got != 1040 {
		t.Errorf("packets of %d bytes out of 1240, want 1040", got)
	}
	if got := h.largestSegment(localPod, otherInside, 20000); got != mtu {
		t.Errorf("packets of %d bytes for another host, want %d", got, mtu)
	}
	h.ingress(tcpOf(remoteOutside6, localPod6, packet.TCPSyn|packet.TCPAck, mss(1220), 0))
	if got := h.largestSegment(localPod6, remoteInside6, 20000); got != 1280 {
		t.Errorf("packets of %d bytes for an MSS of 1220 in IPv6, want 1280", got)
	}
	// A later connection may announce more, but what is known is the path.
	h.ingress(tcpOf(remoteOutside, localPod, packet.TCPSyn|packet.TCPAck, mss(1460), 0))
	if got := h.largestSegment(localPod, remoteInside, 20000); got != 1040 {
		t.Errorf("packets of %d bytes after a larger MSS, want 1040 still", got)
	}
	h.forwarder.UpkeepAt(3 * time.Hour)
	if got := h.largestSegment(localPod, remoteInside, 20000); got != mtu {
		t.Errorf("packets of %d bytes after three hours, want %d", got, mtu)
	}
}

// The same for a router on the way that says that packets are too big.
func TestSuperSegmentsFollowPathMTUDiscovery(t *testing.T) {
	tooBig := func(router, src, dst netip.Addr, pathMTU uint32) []byte {
		return packettest.TooBig(router, int(pathMTU), tcpOf(src, dst, packet.TCPAck, nil, 1280))
	}
	router := netip.MustParseAddr("10.243.2.1")
	router6 := netip.MustParseAddr("fd00:243:0:2::1")
	h := newHarness(t, nil)
	h.largestSegment(localPod, remoteInside, 20000)
	h.ingress(tooBig(router, localPod, remoteOutside, 1200))
	if got := h.largestSegment(localPod, remoteInside, 20000); got != 1200 {
		t.Errorf("packets of %d bytes for a path of 1200", got)
	}
	h.largestSegment(localPod6, remoteInside6, 20000)
	h.ingress(tooBig(router6, localPod6, remoteOutside6, 1300))
	if got := h.largestSegment(localPod6, remoteInside6, 20000); got != 1300 {
		t.Errorf("packets of %d bytes for an IPv6 path of 1300", got)
	}
	// Without a value (RFC 792, before RFC 1191) there is nothing to follow.
	other := netip.MustParseAddr("10.243.2.22")
	b := tooBig(router, localPod, other, 0)
	if binary.BigEndian.Uint32(b[24:]) != 0 {
		t.Fatalf("built an error with a value: %x", b[20:28])
	}
	h.largestSegment(localPod, netip.MustParseAddr("10.71.2.22"), 20000)
	h.ingress(b)
	if got := h.largestSegment(localPod, netip.MustParseAddr("10.71.2.22"), 20000); got != mtu {
		t.Errorf("packets of %d bytes after an error without an MTU, want %d", got, mtu)
	}
}

// What is no super-segment is the sender's own choice and goes as it is.
func TestOtherTCPDoesNotFollowThePath(t *testing.T) {
	h := newHarness(t, nil)
	h.ingress(tcpOf(remoteOutside, localPod, packet.TCPSyn, mss(600), 0))
	// TCP Fast Open (RFC 7413) has data in the SYN.
	h.ipFromNode(0, tcpOf(localPod, remoteInside, packet.TCPSyn, mss(600), 1000))
	if got := h.egress(); len(got) != 1 || len(got[0]) != 1044 || !dataplanetest.ChecksumsValid(got[0]) {
		t.Errorf("tunnel got %s, want the SYN with its data: %v", describeAll(got), h.egressVerdicts())
	}
}

// Far ends that claim small paths cannot make the gateway remember without
// bound, nor forget what it needs: what is left out is learnt again.
func TestPathMTUsAreBounded(t *testing.T) {
	h := newHarness(t, nil)
	for i := range 3 * dataplane.MaxPathMTUs {
		far := netip.AddrFrom4([4]byte{10, 243, byte(i >> 8), byte(i)})
		h.ingress(tcpOf(far, localPod, packet.TCPSyn, mss(1000), 0))
		if i%32 == 0 { // before the node's socket is full
			h.atNode(0)
		}
	}
	if got := h.forwarder.PathMTUs(); got > dataplane.MaxPathMTUs {
		t.Errorf("%d paths remembered, want at most %d", got, dataplane.MaxPathMTUs)
	}
	h.ingress(tcpOf(remoteOutside, localPod, packet.TCPSyn, mss(900), 0))
	if got := h.largestSegment(localPod, remoteInside, 20000); got != 940 {
		t.Errorf("packets of %d bytes for an MSS of 900, want 940", got)
	}
}
