package tunlink

import (
	"encoding/binary"
	"testing"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// withECN sets the ECN field of a packet and makes its header checksum.
func withECN(b []byte, ecn uint8) []byte {
	if b[0]>>4 == 6 {
		b[1] = b[1]&0xcf | ecn<<4
		return b
	}
	b[1] = b[1]&0xfc | ecn
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], packettest.Checksum(b[:packet.IPv4HeaderLen]))
	return b
}

// Marks of the nodes' network reach the pod, and the gateway's side of it is shown what
// the pod understands (RFC 6040).
func TestECN(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		h := newHarness(t, true, nil)
		h.sent.keep = true
		for inner := range uint8(4) {
			for outer := range uint8(4) {
				ip := withECN(tcp(v6, nil), inner)
				p := mustParse(t, withECN(tcp(v6, nil), inner))
				want, drops := p.Decapsulate(outer), h.drops()["DropECN"]
				m := message(h.encapsulated(geneve.Geneve, ip))
				m.ECN = outer
				h.message(h.ep.snap.Load(), m)
				h.deliver()
				h.tx.flush()
				got := h.atKernel()
				if want != (len(got) == 1) || want == (h.drops()["DropECN"] > drops) {
					t.Fatalf("inner %d, outer %d: %d packets, drops %v, want one %v", inner, outer, len(got), h.drops(), want)
				}
				if want && string(got[0].ip) != string(p.Bytes) {
					t.Errorf("inner %d, outer %d: % x, want % x", inner, outer, got[0].ip[:20], p.Bytes[:20])
				}
			}
			h.sent.ecn = nil
			b := tcp(v6, func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = make([]byte, 5000) })
			one := tcp(v6, nil)
			h.fromKernel(super(t, b, 1300), withECN(b, inner))
			h.fromKernel(unfinish(t, one), withECN(one, inner))
			if len(h.sent.ecn) != 5 {
				t.Fatalf("%d datagrams, want 4 of a super-segment and one more", len(h.sent.ecn))
			}
			for i, ecn := range h.sent.ecn {
				if ecn != inner {
					t.Errorf("datagram %d has ECN %d outside and %d inside", i, ecn, inner)
				}
			}
		}
		frame := h.framed(geneve.Geneve, gatewayMAC, h.tunnel.mac, neighbor.EtherTypeARP, make([]byte, 28))
		m := message(frame)
		m.ECN = packet.CE // what is no IP packet has nothing to mark
		h.message(h.ep.snap.Load(), m)
		if n := h.drops()["DropECN"]; n != 1 {
			t.Errorf("%d packets dropped for their mark, want one", n)
		}
	}
}
