package limit

import (
	"testing"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
)

// What the loops do between two system calls, for what one stream of TCP makes of
// them: super-segments of 64 KiB towards the peer, runs of 47 messages back. One
// operation is one packet of 1340 bytes.

// superSegment is 50 packets.
const superSegment = 50 * 1300

func BenchmarkEgress(b *testing.B) {
	g := benchGateway(b)
	e := newEgress(g)
	n := &node{e: geneve.VXLAN}
	message := n.frame(neighbor.EtherTypeIPv4, unfinished(tcp(podA, podBAsA, superSegment)))
	buf := make([]byte, headroom+messageLen+slack)
	b.SetBytes(1300)
	for i := 0; i < b.N; i += 50 {
		b.StopTimer()
		copy(buf[headroom:], message)
		b.StartTimer()
		e.message(buf, len(message), len(message))
		e.out.forget()
		e.used = 0
	}
}

func BenchmarkIngress(b *testing.B) {
	g := benchGateway(b)
	r := newIngress(g)
	r.ready = true
	key := newSendKey(g.cfg.SendKey)
	packet := tcp(podB, podA, 1300).Bytes()
	const run, size = 47, 1340 + overhead
	buf := make([]byte, headroom+messageLen+slack)
	b.SetBytes(1300)
	for i := 0; i < b.N; i += run {
		b.StopTimer()
		for j := range run {
			key.seal(buf[headroom+j*size:], packet)
		}
		b.StartTimer()
		for j := range run {
			r.datagram(buf[j*size : headroom+(j+1)*size])
		}
		r.out.forget()
	}
	if n := g.Stats.DroppedIngress.Load(); n != 0 {
		b.Errorf("%d packets were dropped", n)
	}
}

// forget drops what was added, instead of sending it.
func (out *outbox) forget() {
	out.complete()
	out.usedMsgs, out.usedIovs, out.end = 0, 0, 0
}

func benchGateway(b *testing.B) *Gateway {
	b.Helper()
	n := newNode(b, geneve.VXLAN)
	g := testGateway(b, n, Key{1}, Key{1})
	b.Cleanup(func() { g.node.close(); g.tunnel.close() })
	return g
}
