package dataplane_test

import (
	"bytes"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
)

// What leaves for the peer keeps to the path, whatever the nodes make; what comes
// from the peer keeps to the links of the nodes.
func TestPathMTUIsKeptTo(t *testing.T) {
	const links, path = 8900, 1440
	h := newHarness(t, func(c *dataplane.Config) { c.MTU = links })
	largest := func(ip []byte) (size int) {
		t.Helper()
		h.ipFromNode(0, ip)
		for _, b := range h.egress() {
			size = max(size, len(b))
		}
		return size
	}
	set := func(size, want int) {
		t.Helper()
		if err := h.forwarder.SetPathMTU(size); err != nil {
			t.Fatal(err)
		}
		if s := h.forwarder.Status(); s.PathMTU != want || s.MTU != links {
			t.Errorf("a path of %d: MTU %d, of the path %d, want %d", size, s.MTU, s.PathMTU, want)
		}
	}
	segment := tcpOf(localPod, remoteInside, packet.TCPAck, nil, 20000)
	if n := largest(segment); n != links {
		t.Errorf("without a path: packets of %d bytes, want %d", n, links)
	}

	set(path, path)
	if err := h.forwarder.Apply(h.config); err != nil { // changes nothing
		t.Fatal(err)
	}
	for _, size := range []int{20000, 8000, path - 39} { // a super-segment, packets of before
		if n := largest(tcpOf(localPod, remoteInside, packet.TCPAck, nil, size)); n != path {
			t.Errorf("%d bytes of TCP: packets of %d bytes, want %d", size, n, path)
		}
	}
	if n := largest(udp(localPod, 1000, remoteInside, 53, string(make([]byte, 5000)))); n > path || n < path-8 {
		t.Errorf("UDP: packets of %d bytes, want %d", n, path)
	}
	h.ipFromNode(0, tcpOf(localPod, remoteInside, packet.TCPSyn, mss(links-40), 0))
	if got := h.egress(); len(got) != 1 || mssOf(got[0]) != path-40 {
		t.Errorf("egress: the MSS is not that of the path: %v", got)
	}
	h.ingress(tcpOf(remoteOutside, localPod, packet.TCPSyn, mss(links-40), 0))
	if got := h.atNode(0); len(got) != 1 || mssOf(got[0].ip()) != path-40 {
		t.Errorf("ingress: the MSS is not that of the path: %v", got)
	}

	large := dataplanetest.Packet{Proto: packet.ProtoUDP, Src: port(localPod, 1000), Dst: port(remoteInside, 53), DontFragment: true, Payload: randomBytes(1, path)}
	h.ipFromNode(0, dataplanetest.Build(large))
	if got := h.egress(); len(got) != 0 || h.egressVerdicts()["DropTooBig"] != 1 {
		t.Errorf("a large datagram with Don't Fragment: %d packets, %v", len(got), h.egressVerdicts())
	}
	told := h.atNode(0)
	if len(told) != 1 || !bytes.Equal(told[0].ip()[26:28], []byte{path >> 8, path & 0xff}) {
		t.Errorf("its sender is not told of %d bytes: %v", path, told)
	}
	large.Src, large.Dst, large.Payload = port(remoteOutside, 53), port(localPod, 1000), randomBytes(1, 8000)
	h.ingress(dataplanetest.Build(large))
	if got := h.atNode(0); len(got) != 1 || len(got[0].ip()) != 8028 {
		t.Errorf("from the peer: %d packets, want the one of 8028 bytes", len(got))
	}

	set(1, dataplane.MinMTUIPv6)
	set(65000, links)
	set(path, path)
	set(0, links)
	if n := largest(segment); n != links {
		t.Errorf("at the end: packets of %d bytes, want %d", n, links)
	}
}

// A path may be known before there is a configuration.
func TestPathMTUBeforeApply(t *testing.T) {
	h := &harness{T: t, network: dataplanetest.NewNetwork()}
	h.forwarder = newForwarder(t, h.network, gatewayAddr)
	t.Cleanup(h.close)
	if err := h.forwarder.SetPathMTU(1300); err != nil {
		t.Fatal(err)
	}
	if err := h.forwarder.Apply(harnessConfig()); err != nil {
		t.Fatal(err)
	}
	if s := h.forwarder.Status(); s.PathMTU != 1300 || s.MTU != dataplane.DefaultMTU {
		t.Errorf("MTU %d, of the path %d", s.MTU, s.PathMTU)
	}
}

// A connection that was opened while the path carried little keeps to what its receiver takes
// when the path carries more.
func TestPathMTUGrows(t *testing.T) {
	const links = 8900
	for _, announced := range []int{1460, 8000, links - 40} {
		h := newHarness(t, func(c *dataplane.Config) { c.MTU = links })
		set := func(size int) {
			t.Helper()
			if err := h.forwarder.SetPathMTU(size); err != nil {
				t.Fatal(err)
			}
		}
		set(1340)
		h.ingress(tcpOf(remoteOutside, localPod, packet.TCPSyn, mss(uint16(announced)), 0))
		if got := h.atNode(0); len(got) != 1 || mssOf(got[0].ip()) != 1300 {
			t.Errorf("the MSS is not that of the path: %v", got)
		}
		for _, size := range []int{1340, 1440, links} {
			set(size)
			h.ipFromNode(0, tcpOf(localPod, remoteInside, packet.TCPAck, nil, 20000))
			if n, want := largest(h.egress()), min(size, announced+40); n != want {
				t.Errorf("an MSS of %d, a path of %d: packets of %d bytes, want %d", announced, size, n, want)
			}
		}
	}
}
