package dataplane_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/underlay"
)

// withECN sets the ECN field of an IPv4 packet, whose header checksum it repairs.
func withECN(b []byte, ecn uint8) []byte {
	b[1] |= ecn
	b[10], b[11] = 0, 0
	check := ^packet.Sum(b[:packet.IPv4HeaderLen], 0)
	b[10], b[11] = byte(check>>8), byte(check)
	return b
}

// The mark that a network sets outside gets to the receiver inside, both ways, and
// what is inside is shown outside (RFC 6040). Section 4.2, figure 4, is a test of
// nat/packet.
func TestECNPassesTheGateway(t *testing.T) {
	h := newHarness(t, nil)
	for inner := range uint8(4) {
		for outer := range uint8(4) {
			t.Run(fmt.Sprintf("inner %d outer %d", inner, outer), func(t *testing.T) {
				p, _ := packet.Parse(withECN(udp(localPod, 1, remoteInside, 2, "x"), inner))
				want := p.Decapsulate(outer)

				egress := h.egressVerdicts()["DropECN"]
				b := make([]byte, geneve.HeaderLen)
				geneve.PutHeader(b, geneve.Geneve, 7, geneve.ProtocolEthernet)
				b = append(b, frame(h.nodeMACs[0], h.nodeMACs[0], neighbor.EtherTypeIPv4, withECN(udp(localPod, 1, remoteInside, 2, "x"), inner))...)
				if _, err := h.nodes[0].WriteBatch([]underlay.Datagram{{Addr: gatewayAddr, ECN: outer, Body: b}}); err != nil {
					t.Fatal(err)
				}
				got := h.egress()
				if want != (len(got) == 1) || want == (h.egressVerdicts()["DropECN"] > egress) {
					t.Fatalf("%d packets for the peer, verdicts %v, want one %v", len(got), h.egressVerdicts(), want)
				}
				if want && (packet.ECN(got[0]) != packet.ECN(p.Bytes) || !validHeader(got[0])) {
					t.Errorf("to the peer with ECN %d, want %d: % x", packet.ECN(got[0]), packet.ECN(p.Bytes), got[0][:20])
				}

				ingress := h.ingressVerdicts()["DropECN"]
				in := append(make([]byte, offset), withECN(udp(remoteOutside, 2, localPod, 1, "x"), inner)...)
				h.forwarder.WritePackets([][]byte{in}, []uint8{outer}, offset, func() {})
				at := h.atNode(0)
				if want != (len(at) == 1) || want == (h.ingressVerdicts()["DropECN"] > ingress) {
					t.Fatalf("%d packets for the node, verdicts %v, want one %v", len(at), h.ingressVerdicts(), want)
				}
				if want && (packet.ECN(at[0].ip()) != packet.ECN(p.Bytes) || at[0].from.ECN != packet.ECN(p.Bytes) || !validHeader(at[0].ip())) {
					t.Errorf("to the node with ECN %d inside and %d outside, want %d", packet.ECN(at[0].ip()), at[0].from.ECN, packet.ECN(p.Bytes))
				}
			})
		}
	}
}

func validHeader(b []byte) bool {
	p, ok := packet.Parse(b)
	return ok && p.HeaderChecksumValid()
}

// A node sends to an address of the gateway's host that is not the first. It is answered
// from there, as its kernel takes tunnel packets only from where it sends to.
func TestNodesAreAnsweredFromTheAddressTheySendTo(t *testing.T) {
	h := newHarness(t, nil)
	second := netip.MustParseAddr("192.168.55.99")
	h.network.Alias(h.gateway, second)
	send := func(to netip.Addr, vni geneve.VNI, frame []byte) {
		b := make([]byte, geneve.HeaderLen)
		geneve.PutHeader(b, geneve.Geneve, vni, geneve.ProtocolEthernet)
		h.datagram2(h.nodes[0], netip.AddrPortFrom(to, gatewayAddr.Port()), append(b, frame...))
	}
	send(second, 7, frame(neighbor.Broadcast, h.nodeMACs[0], neighbor.EtherTypeARP, neighbor.AppendARP(nil, neighbor.ARP{
		Op: neighbor.ARPRequest, SenderMAC: h.nodeMACs[0], SenderIP: nodeIPs[0], TargetIP: gatewayIP,
	})))
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
