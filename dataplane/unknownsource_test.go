package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
)

// atNodeIPs returns the IP packets that arrived at node i.
func (h *harness) atNodeIPs(i int) (ips [][]byte) {
	h.Helper()
	for _, e := range h.atNode(i) {
		ips = append(ips, e.ip())
	}
	return ips
}

// A long answer to a sender behind the unknown source comes in fragments, of
// which only the first has ports.
func TestFragmentedAnswersFindTheirNode(t *testing.T) {
	h := newHarness(t, nil)
	h.ipFromNode(1, udp(unknownIP, 1000, remoteInside, 53, "question"))
	h.ipFromNode(0, udp(nodeIPs[0], 2000, remoteInside, 53, "question"))
	h.egress()
	for i, local := range []uint16{2000, 1000} { // of node 0, of node 1
		answer := dataplanetest.Packet{Src: port(remoteOutside, 53), Dst: port(unknownIP, local), ID: uint16(i), Payload: randomBytes(uint64(i), 5000)}
		h.ingress(packettest.Fragments(dataplanetest.Build(answer), 1300)...)
	}
	for i, want := range []string{
		"10.71.2.20:53 > 10.80.0.11:2000 proto 17 ttl 63 len 5028 valid true",
		"10.71.2.20:53 > 10.70.0.0:1000 proto 17 ttl 63 len 5028 valid true",
	} {
		if got := describe(reassemble(t, mtu, h.atNodeIPs(i))); got != want {
			t.Errorf("node %d got %s, want %s", i, got, want)
		}
	}
}

// The same for a pod that answers under the address of its IP object.
func TestPodAnswersInFragments(t *testing.T) {
	h := newHarness(t, nil)
	h.ingress(udp(remoteOutside, 50000, mappedPodOut, 443, "question"))
	answer := dataplanetest.Build(dataplanetest.Packet{Src: port(mappedPod, 443), Dst: port(remoteInside, 50000), ID: 9, Payload: randomBytes(9, 5000)})
	for _, b := range packettest.Fragments(answer, 1300) {
		h.ipFromNode(0, b)
	}
	want := "10.70.0.50:443 > 10.243.2.20:50000 proto 17 ttl 63 len 5028 valid true"
	if got := describe(reassemble(t, mtu, h.egress())); got != want {
		t.Errorf("tunnel got %s, want %s", got, want)
	}
}

func TestUnknownSourceInIPv6(t *testing.T) {
	unknown6 := netip.MustParseAddr("fd00:70::")
	h := newHarness(t, func(c *dataplane.Config) {
		c.LocalExternal = append(c.LocalExternal, netip.MustParsePrefix("fd00:70::/48"))
		c.Nodes[0].Internal = append(c.Nodes[0].Internal[:1:1], nodeIP6)
	})
	h.ipFromNode(0, udp(nodeIP6, 1000, remoteInside6, 53, "question"))
	want := "fd00:70:::1000 > fd00:243:0:2::20:53 proto 17 ttl 63 len 56 valid true"
	if got := h.egress(); len(got) != 1 || describe(got[0]) != want {
		t.Errorf("tunnel got %s, want %s", describeAll(got), want)
	}
	h.ingress(udp(remoteOutside6, 53, unknown6, 1000, "answer"))
	want = "fd00:71:0:2::20:53 > fd00:80::11:1000 proto 17 ttl 63 len 54 valid true"
	if got := h.atNodeIPs(0); len(got) != 1 || describe(got[0]) != want {
		t.Errorf("node got %s, want %s", describeAll(got), want)
	}
}

// A port that one node has done with may be used by another at once.
func TestClosedConnectionIsTakenOver(t *testing.T) {
	h := newHarness(t, nil)
	flags := func(node int, flags uint8) {
		h.ipFromNode(node, tcpOf(unknownIP, remoteInside, flags, nil, 0))
	}
	answer := func() []byte {
		return dataplanetest.Build(dataplanetest.Packet{Proto: packet.ProtoTCP, Src: port(remoteOutside, 80), Dst: port(unknownIP, 1000), TCPFlags: packet.TCPAck})
	}
	flags(0, packet.TCPSyn)
	h.egress()
	h.ingress(answer())
	flags(1, packet.TCPSyn)
	if got := h.egress(); len(got) != 0 {
		t.Errorf("another node's SYN got through on a live connection: %s", describeAll(got))
	}
	flags(0, packet.TCPFin|packet.TCPAck)
	flags(1, packet.TCPSyn)
	if got := h.egress(); len(got) != 2 {
		t.Errorf("tunnel got %s, want the FIN and the new SYN", describeAll(got))
	}
	h.atNode(0)
	h.ingress(answer())
	if a, b := len(h.atNode(0)), len(h.atNode(1)); a != 0 || b != 1 {
		t.Errorf("nodes got %d and %d packets, want the answer at node 1", a, b)
	}
}
