package dataplane

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// TestSentSegments: what of a connection may be quoted, over segments in order, out of
// order and repeated, and where sequence numbers begin again.
func TestSentSegments(t *testing.T) {
	src, dst := netip.MustParseAddr("10.243.1.10"), netip.MustParseAddr("10.71.2.20")
	const segment = 60000
	build := func(sequence uint32, payload int) []byte {
		return packettest.Spec{Src: src, Dst: dst, Proto: packet.ProtoTCP, Transport: packettest.Segment{
			SrcPort: 1000, DstPort: 80, Seq: sequence, Flags: packet.TCPAck, Payload: make([]byte, payload),
		}.Bytes()}.Bytes()
	}
	for _, start := range []uint32{0, 1, 1 << 31, 1<<32 - 100, 1<<32 - 3*segment/2} {
		for _, tt := range []struct {
			name   string
			sent   []int // starts of segments
			quoted int
			want   bool
		}{
			{name: "nothing sent", quoted: 0},
			{name: "first byte", sent: []int{0}, quoted: 0, want: true},
			{name: "last byte", sent: []int{0}, quoted: segment - 1, want: true},
			{name: "behind", sent: []int{0}, quoted: segment},
			{name: "before", sent: []int{0}, quoted: -1},
			{name: "two in order", sent: []int{0, segment}, quoted: 0, want: true},
			{name: "the second of two", sent: []int{0, segment}, quoted: 2*segment - 1, want: true},
			{name: "repeated", sent: []int{0, segment, segment}, quoted: 2*segment - 1, want: true},
			{name: "an older one again", sent: []int{segment, 0}, quoted: 10, want: true},
			{name: "a gap", sent: []int{0, 3 * segment}, quoted: 4*segment - 1, want: true},
			{name: "as far back as can be in flight", sent: run(30, segment), quoted: 30*segment - maxInFlight, want: true},
			{name: "too long ago", sent: run(30, segment), quoted: 30*segment - maxInFlight - 1},
			{name: "a new connection", sent: []int{0, 1 << 30}, quoted: 0},
		} {
			s := sentSegments{seed: maphash.MakeSeed()}
			for _, at := range tt.sent {
				p, ok := packet.Parse(build(start+uint32(at), segment))
				if !ok {
					t.Fatal("malformed")
				}
				s.note(&p)
			}
			b := packettest.TooBig(dst, 1200, build(start+uint32(tt.quoted), 8))
			p, _ := packet.Parse(b)
			e, ok := p.Embedded()
			if !ok {
				t.Fatal("nothing is quoted")
			}
			if got := s.has(&e); got != tt.want {
				t.Errorf("from %d: %s: %v, want %v", start, tt.name, got, tt.want)
			}
			binary.BigEndian.PutUint16(b[packet.IPv4HeaderLen+packet.ICMPHeaderLen+packet.IPv4HeaderLen:], 1001)
			if s.has(&e) {
				t.Errorf("from %d: %s: another connection is known", start, tt.name)
			}
		}
	}
}

// run are the starts of n segments in order.
func run(n, size int) (starts []int) {
	for i := range n {
		starts = append(starts, i*size)
	}
	return starts
}
