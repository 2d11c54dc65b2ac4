package tunlink

import (
	"bytes"
	"testing"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// Marks of the nodes' network reach the pod, and the gateway's side of it is shown what
// the pod understands (RFC 6040).
func TestECN(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		h := newHarness(t, true, nil)
		h.sent.keep = true
		for inner := range uint8(4) {
			for outer := range uint8(4) {
				ip := packettest.WithECN(tcp(v6, nil), inner)
				ecn, want := packettest.Decapsulated(inner, outer)
				drops := h.drops()["DropECN"]
				m := message(h.encapsulated(geneve.Geneve, ip))
				m.ECN = outer
				h.message(h.ep.snap.Load(), m)
				h.deliver()
				h.tx.flush()
				got := h.atKernel()
				if want != (len(got) == 1) || want == (h.drops()["DropECN"] > drops) {
					t.Fatalf("inner %d, outer %d: %d packets, drops %v, want one %v", inner, outer, len(got), h.drops(), want)
				}
				if !want {
					continue
				}
				if exact := packettest.WithECN(tcp(v6, nil), ecn); !bytes.Equal(got[0].ip, exact) {
					t.Errorf("inner %d, outer %d: % x, want % x", inner, outer, got[0].ip[:20], exact[:20])
				}
			}
			h.sent.ecn = nil
			b := tcp(v6, func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = make([]byte, 5000) })
			one := tcp(v6, nil)
			h.fromKernel(super(t, b, 1300), packettest.WithECN(b, inner))
			h.fromKernel(unfinish(t, one), packettest.WithECN(one, inner))
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
