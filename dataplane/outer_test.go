package dataplane_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/underlay"
)

// The mark that a network sets outside gets to the receiver inside, both ways, and
// what is inside is shown outside (RFC 6040). Section 4.2, figure 4, is a test of
// nat/packet.
func TestECNPassesTheGateway(t *testing.T) {
	h := newHarness(t, nil)
	for inner := range uint8(4) {
		for outer := range uint8(4) {
			t.Run(fmt.Sprintf("inner %d outer %d", inner, outer), func(t *testing.T) {
				ecn, want := packettest.Decapsulated(inner, outer)

				egress := h.egressVerdicts()["DropECN"]
				b := inGeneve(7, frame(h.nodeMACs[0], h.nodeMACs[0], neighbor.EtherTypeIPv4, packettest.WithECN(udp(localPod, 1, remoteInside, 2, "x"), inner)))
				if _, err := h.nodes[0].WriteBatch([]underlay.Datagram{{Addr: gatewayAddr, ECN: outer, Body: b}}); err != nil {
					t.Fatal(err)
				}
				got := h.egress()
				if want != (len(got) == 1) || want == (h.egressVerdicts()["DropECN"] > egress) {
					t.Fatalf("%d packets for the peer, verdicts %v, want one %v", len(got), h.egressVerdicts(), want)
				}
				if want && (ecnOf(got[0]) != ecn || !packettest.HeaderValid(got[0])) {
					t.Errorf("to the peer with ECN %d, want %d: % x", ecnOf(got[0]), ecn, got[0][:20])
				}

				ingress := h.ingressVerdicts()["DropECN"]
				in := append(make([]byte, offset), packettest.WithECN(udp(remoteOutside, 2, localPod, 1, "x"), inner)...)
				h.forwarder.WritePackets([][]byte{in}, []uint8{outer}, offset, func() {})
				at := h.atNode(0)
				if want != (len(at) == 1) || want == (h.ingressVerdicts()["DropECN"] > ingress) {
					t.Fatalf("%d packets for the node, verdicts %v, want one %v", len(at), h.ingressVerdicts(), want)
				}
				if want && (ecnOf(at[0].ip()) != ecn || at[0].from.ECN != ecn || !packettest.HeaderValid(at[0].ip())) {
					t.Errorf("to the node with ECN %d inside and %d outside, want %d", ecnOf(at[0].ip()), at[0].from.ECN, ecn)
				}
			})
		}
	}
}

// ecnOf is the ECN field of an IPv4 packet.
func ecnOf(b []byte) uint8 { return b[1] & 3 }

// A node sends to an address of the gateway's host that is not the first. It is answered
// from there, as its kernel takes tunnel packets only from where it sends to.
func TestNodesAreAnsweredFromTheAddressTheySendTo(t *testing.T) {
	h := newHarness(t, nil)
	second := netip.MustParseAddr("192.168.55.99")
	h.network.Alias(h.gateway, second)
	send := func(to netip.Addr, vni uint32, frame []byte) {
		h.datagram2(h.nodes[0], netip.AddrPortFrom(to, gatewayAddr.Port()), inGeneve(vni, frame))
	}
	send(second, 7, frame(neighbor.Broadcast, h.nodeMACs[0], neighbor.EtherTypeARP, packettest.ARP{
		Op: neighbor.ARPRequest, SenderMAC: h.nodeMACs[0], SenderIP: nodeIPs[0], TargetIP: gatewayIP,
	}.Bytes()))
	packet := frame(h.nodeMACs[0], h.nodeMACs[0], neighbor.EtherTypeIPv4, udp(localPod, 1, remoteInside, 2, "x"))
	send(second, 7, packet)
	send(gatewayAddr.Addr(), 9, packet) // of no tunnel: it teaches nothing
	if n, _, err := h.forwarder.ReadPackets(h.bufs, h.sizes, offset); n != 1 || err != nil {
		t.Fatalf("%d packets for the peer, %v", n, err)
	}
	h.ingress(udp(remoteOutside, 2, localPod, 1, "x"))
	got := h.atNode(0)
	if len(got) != 2 {
		t.Fatalf("%d datagrams, want the ARP reply and a packet", len(got))
	}
	for _, d := range got {
		if d.from.Addr.Addr() != second {
			t.Errorf("from %v, want %v", d.from.Addr, second)
		}
	}
}
