package dataplane_test

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/test/packettest"
)

var malformedCount = flag.Int("dataplane.malformed", packettest.Rounds(500_000), "how many hostile inputs each direction gets")

// garbler makes hostile inputs out of valid ones, quickly and reproducibly.
type garbler struct {
	*rand.Rand
	seeds [][]byte
	room  []byte
}

func newGarbler(seeds [][]byte) *garbler {
	g := &garbler{Rand: rand.New(rand.NewPCG(1, 2)), room: make([]byte, 2048)}
	for _, s := range seeds {
		if len(s) > 0 && len(s) <= len(g.room) {
			g.seeds = append(g.seeds, s)
		}
	}
	return g
}

// next returns bytes that are valid until the call after.
func (g *garbler) next() []byte {
	b := g.room[:copy(g.room, g.seeds[g.IntN(len(g.seeds))])]
	switch g.IntN(6) {
	case 0: // noise
		b = g.room[:g.IntN(128)]
		for i := 0; i+8 <= len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], g.Uint64())
		}
	case 1: // cut off
		b = b[:g.IntN(len(b))]
	case 2: // one bit
		b[g.IntN(min(len(b), 96))] ^= 1 << g.IntN(8)
	case 3: // a few bytes
		for range 1 + g.IntN(8) {
			b[g.IntN(min(len(b), 96))] = byte(g.Uint32())
		}
	case 4: // a length or other field at its limits
		at := g.IntN(min(len(b), 96) - 1)
		binary.BigEndian.PutUint16(b[at:], []uint16{0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff}[g.IntN(6)])
	case 5: // something left out
		at := g.IntN(len(b))
		b = append(b[:at], b[min(len(b), at+1+g.IntN(20)):]...)
	}
	return b
}

// TestMalformedDatagrams sends hostile datagrams from a node. Each must have a
// verdict, and a good packet behind them must pass.
func TestMalformedDatagrams(t *testing.T) {
	z := newFuzzed(t)
	g := newGarbler(egressSeeds())
	before := z.forwarder.Status().Egress
	batch := make([][]byte, 31) // and the marker: one read
	count, batches := *malformedCount, 0
	for ; count > 0; count -= len(batch) {
		for i := range batch {
			batch[i] = append(batch[i][:0], g.next()...)
		}
		z.checkToPeer(z.egress(batch...), false) // returns when the marker has passed
		z.checkToNode(mayAnswerFrom, nil, true)
		batches++
	}
	after := z.forwarder.Status().Egress
	checkVerdicts(t, before, after, uint64(32*batches),
		dataplane.DropEncapsulation, dataplane.DropUnknownNode, dataplane.DropControl, dataplane.DropFrame,
		dataplane.DropMalformed, dataplane.DropSpoofedSource, dataplane.DropNoMapping, dataplane.DropHopLimit, dataplane.DropTooBig)
}

// TestMalformedPackets does the same from the peer, whose packets are decrypted
// but not trusted for that.
func TestMalformedPackets(t *testing.T) {
	z := newFuzzed(t)
	g := newGarbler(ingressSeeds())
	before := z.forwarder.Status().Ingress
	bufs, rooms := make([][]byte, 32), make([][]byte, 32)
	count, batches := *malformedCount, 0
	for ; count > 0; count -= len(bufs) - 1 {
		for i := range bufs {
			in := g.next()
			if i == len(bufs)-1 {
				in = udp(remoteOutside, markerPort, localPod, markerPort, "")
			}
			rooms[i] = append(append(rooms[i][:0], make([]byte, offset)...), in...)
			bufs[i] = rooms[i]
		}
		z.answers = z.answers[:0]
		z.forwarder.WritePackets(bufs, nil, offset, func() {})
		if len(z.answers) == 0 {
			t.Fatal("the good packet behind them did not pass")
		}
		last := z.answers[len(z.answers)-1]
		if binary.BigEndian.Uint16(last[len(last)-8:]) != markerPort {
			t.Fatalf("the last packet out is not the good one behind them: %x", last)
		}
		z.checkToNode(mayEnterFrom, mayEnterTo, false)
		z.checkToPeer(z.egress(), true) // errors about them
		batches++
	}
	checkVerdicts(t, before, z.forwarder.Status().Ingress, uint64(32*batches),
		dataplane.DropMalformed, dataplane.DropSpoofedSource, dataplane.DropNoAddress, dataplane.DropNoMapping,
		dataplane.DropHopLimit, dataplane.DropTooBig)
}

// checkVerdicts checks that so many inputs have a verdict each, and that the
// inputs were varied enough to get the named ones.
func checkVerdicts(t *testing.T, before, after dataplane.DirectionStatus, inputs uint64, want ...dataplane.Verdict) {
	t.Helper()
	if got := sum(after.Verdicts) - sum(before.Verdicts); got != inputs {
		t.Errorf("%d verdicts on %d inputs: %v", got, inputs, after.Verdicts)
	}
	for _, v := range want {
		if after.Verdicts[v.String()] == before.Verdicts[v.String()] {
			t.Errorf("no input was worth a %s: %v", v, after.Verdicts)
		}
	}
}

// TestStrangersFlood sends datagrams that belong to nobody: they cost a look at
// a map, leave no trace but their count, and keep nobody else out.
func TestStrangersFlood(t *testing.T) {
	z := newFuzzed(t)
	stranger := inGeneve(99, nil)
	before := z.forwarder.Status()
	for range 1000 {
		if out := z.egress(repeat(stranger, 31)...); len(out) != 0 || len(z.answers) != 0 {
			t.Fatalf("a stranger's datagram made %d packets and %d answers", len(out), len(z.answers))
		}
	}
	after := z.forwarder.Status()
	if got := after.Egress.Verdicts["DropUnknownNode"] - before.Egress.Verdicts["DropUnknownNode"]; got != 31000 {
		t.Errorf("%d datagrams of strangers counted, want 31000", got)
	}
	if after.Flows != before.Flows || after.PodFlows != before.PodFlows {
		t.Errorf("flows were %+v and %+v, are %+v and %+v", before.Flows, before.PodFlows, after.Flows, after.PodFlows)
	}
}
