package tunlink

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

type (
	specChange = func(*packettest.Spec, *packettest.Segment)
	pair       = [2]specChange
)

// TestCoalesceTCP gives two packets: what of the second, in relation to the first, lets
// them become one.
func TestCoalesceTCP(t *testing.T) {
	both := func(c specChange) pair { return pair{c, c} }
	first := func(c specChange) pair { return pair{c, nil} }
	second := func(c specChange) pair { return pair{nil, c} }
	flags := func(f uint8) specChange {
		return func(_ *packettest.Spec, s *packettest.Segment) { s.Flags = f }
	}
	const ack = packet.TCPAck
	tests := []struct {
		name   string
		change pair
		only   int // 4 or 6: only for that version
		joined bool
	}{
		{name: "next segment", joined: true},
		{name: "shorter next segment", change: second(func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = s.Payload[:1] }), joined: true},
		{name: "longer next segment", change: first(func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = s.Payload[:999] })},
		{name: "gap", change: second(func(_ *packettest.Spec, s *packettest.Segment) { s.Seq++ })},
		{name: "overlap", change: second(func(_ *packettest.Spec, s *packettest.Segment) { s.Seq-- })},
		{name: "other source port", change: second(func(_ *packettest.Spec, s *packettest.Segment) { s.SrcPort++ })},
		{name: "other destination port", change: second(func(_ *packettest.Spec, s *packettest.Segment) { s.DstPort++ })},
		{name: "other source", change: second(func(p *packettest.Spec, _ *packettest.Segment) { p.Src = p.Src.Next() })},
		{name: "other destination", change: second(func(p *packettest.Spec, _ *packettest.Segment) { p.Dst = p.Dst.Next() })},
		{name: "other hop limit", change: second(func(p *packettest.Spec, _ *packettest.Segment) { p.HopLimit = 9 })},
		{name: "other acknowledgment", change: second(func(_ *packettest.Spec, s *packettest.Segment) { s.Ack++ })},
		{name: "only acknowledgments", change: both(func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = nil })},
		{name: "acknowledgment behind data", change: second(func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = nil })},
		{name: "options", change: both(func(_ *packettest.Spec, s *packettest.Segment) { s.Options = []byte{1, 1, 1, 1} }), joined: true},
		{name: "other options", change: pair{
			func(_ *packettest.Spec, s *packettest.Segment) { s.Options = []byte{1, 1, 1, 1} },
			func(_ *packettest.Spec, s *packettest.Segment) { s.Options = []byte{1, 1, 1, 0} },
		}},
		{name: "options added", change: second(func(_ *packettest.Spec, s *packettest.Segment) { s.Options = []byte{1, 1, 1, 1} })},
		{name: "push at the end", change: second(flags(ack | packet.TCPPsh)), joined: true},
		{name: "push before the end", change: first(flags(ack | packet.TCPPsh))},
		{name: "end of the stream", change: second(flags(ack | packet.TCPFin)), joined: true},
		{name: "data behind the end of the stream", change: first(flags(ack | packet.TCPFin))},
		{name: "window reduced on the first", change: first(flags(ack | packet.TCPCwr)), joined: true},
		{name: "window reduced on the second", change: second(flags(ack | packet.TCPCwr))},
		{name: "window reduced on both", change: both(flags(ack | packet.TCPCwr))},
		{name: "congestion on both", change: both(flags(ack | packet.TCPEce)), joined: true},
		{name: "congestion on one", change: second(flags(ack | packet.TCPEce))},
		{name: "urgent", change: both(flags(ack | packet.TCPUrg))},
		{name: "reset", change: second(flags(ack | packet.TCPRst))},
		{name: "opening with data", change: both(flags(packet.TCPSyn))},
		{name: "IPv4 options", only: 4, change: both(func(p *packettest.Spec, _ *packettest.Segment) { p.Options = []byte{1, 1, 1, 1} })},
		{name: "extension header", only: 6, change: both(func(p *packettest.Spec, _ *packettest.Segment) {
			p.Extensions = []packettest.Extension{{Type: packet.ProtoDestination, Body: []byte{0, 1, 4, 0, 0, 0, 0}}}
		})},
		{name: "identifications count up", only: 4, change: pair{
			func(p *packettest.Spec, _ *packettest.Segment) { p.DontFragment, p.ID = false, 0xffff },
			func(p *packettest.Spec, _ *packettest.Segment) { p.DontFragment, p.ID = false, 0 },
		}, joined: true},
		{name: "identifications count otherwise", only: 4, change: pair{
			func(p *packettest.Spec, _ *packettest.Segment) { p.ID = 1 },
			func(p *packettest.Spec, _ *packettest.Segment) { p.ID = 3 },
		}},
		{name: "one identification that may be needed", only: 4, change: both(func(p *packettest.Spec, _ *packettest.Segment) { p.DontFragment = false })},
		{name: "Don't Fragment on one", only: 4, change: pair{
			func(p *packettest.Spec, _ *packettest.Segment) { p.DontFragment, p.ID = false, 1 },
			func(p *packettest.Spec, _ *packettest.Segment) { p.ID = 2 },
		}},
	}
	for _, tt := range tests {
		for version := 4; version <= 6; version += 2 {
			if tt.only != 0 && tt.only != version {
				continue
			}
			t.Run(fmt.Sprintf("%s/ipv%d", tt.name, version), func(t *testing.T) {
				var in [2][]byte
				next := uint32(1000)
				for i, change := range tt.change {
					in[i] = tcp(version == 6, func(p *packettest.Spec, s *packettest.Segment) {
						s.Seq, s.Payload = next, bytes.Repeat([]byte{byte(i + 1)}, 1000)
						if change != nil {
							change(p, s)
						}
						next = s.Seq + uint32(len(s.Payload))
					})
				}
				testPair(t, in, tt.joined)
			})
		}
	}
}

func TestCoalesceUDP(t *testing.T) {
	tests := []struct {
		name          string
		first, second int // payload
		change        func(second bool, p *packettest.Spec)
		surplus       bool // the datagram of the second ends before its packet
		joined        bool
	}{
		{name: "same size", first: 100, second: 100, joined: true},
		{name: "shorter", first: 100, second: 1, joined: true},
		{name: "longer", first: 100, second: 101},
		{name: "empty", first: 100, second: 0},
		{name: "both empty", first: 0, second: 0},
		{name: "other destination", first: 100, second: 100, change: func(second bool, p *packettest.Spec) {
			if second {
				p.Dst = p.Dst.Next()
			}
		}},
		{name: "second without a checksum", first: 100, second: 100, change: func(second bool, p *packettest.Spec) { p.NoChecksum = second }},
		{name: "without checksums", first: 100, second: 100, change: func(_ bool, p *packettest.Spec) { p.NoChecksum = true }},
		{name: "more behind the datagram", first: 100, second: 100, surplus: true},
	}
	for _, tt := range tests {
		for version := 4; version <= 6; version += 2 {
			t.Run(fmt.Sprintf("%s/ipv%d", tt.name, version), func(t *testing.T) {
				var in [2][]byte
				for i, size := range []int{tt.first, tt.second} {
					in[i] = udp(version == 6, bytes.Repeat([]byte{byte(i + 1)}, size), func(p *packettest.Spec) {
						if tt.change != nil {
							tt.change(i == 1, p)
						}
					})
				}
				if p := mustParse(t, in[1]); tt.surplus {
					binary.BigEndian.PutUint16(p.Transport()[udpLength:], packet.UDPHeaderLen+90)
				}
				testPair(t, in, tt.joined)
			})
		}
	}
}

// testPair checks that two packets arrive at the kernel as they are or, cut by it, as they were.
func testPair(t *testing.T, in [2][]byte, joined bool) {
	t.Helper()
	h := newHarness(t, true, nil)
	for _, b := range in {
		h.message(h.ep.snap.Load(), message(h.encapsulated(geneve.Geneve, b)))
	}
	h.deliver()
	got := h.atKernel()
	if want := map[bool]int{true: 1, false: 2}[joined]; len(got) != want {
		t.Fatalf("%d packets at the kernel, want %d", len(got), want)
	}
	var packets [][]byte
	for _, d := range got {
		packets = append(packets, cutAsKernel(t, d)...)
	}
	if diff := cmp.Diff([][]byte{normal(in[0]), normal(in[1])}, normals(packets)); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
}

// normal is b without an identification that means nothing.
func normal(b []byte) []byte {
	if len(b) < 20 || b[0]>>4 != 4 || b[6]&0x40 == 0 {
		return b
	}
	b = bytes.Clone(b)
	b[4], b[5], b[10], b[11] = 0, 0, 0, 0
	return b
}

func normals(all [][]byte) (out [][]byte) {
	for _, b := range all {
		out = append(out, normal(b))
	}
	return out
}

// TestCoalesceWrongChecksum: what is wrong stays wrong, and alone.
func TestCoalesceWrongChecksum(t *testing.T) {
	for wrong := range 3 {
		t.Run(fmt.Sprint(wrong), func(t *testing.T) {
			h := newHarness(t, true, nil)
			var in [][]byte
			for i := range 3 {
				b := tcp(false, func(_ *packettest.Spec, s *packettest.Segment) { s.Seq = uint32(1 + 1000*i) })
				if i == wrong {
					b[len(b)-1] ^= 1
				}
				in = append(in, b)
				h.message(h.ep.snap.Load(), message(h.encapsulated(geneve.Geneve, bytes.Clone(b))))
			}
			h.deliver()
			var got [][]byte
			for _, d := range h.atKernel() {
				got = append(got, cutAsKernel(t, d)...)
			}
			if diff := cmp.Diff(normals(in), normals(got)); diff != "" {
				t.Errorf("packets (-want +got):\n%s", diff)
			}
		})
	}
}

// stream makes packets of some flows that are often, but not always, in sequence.
type stream struct {
	r     *rand.Rand
	flows [6]struct {
		v6, udp bool
		size    int
		seq     uint32
		id      uint16
		flags   uint8
		df      bool
	}
}

func newStream(r *rand.Rand) *stream {
	s := &stream{r: r}
	for i := range s.flows {
		f := &s.flows[i]
		f.v6, f.udp, f.df = r.IntN(2) == 0, r.IntN(3) == 0, r.IntN(2) == 0
		f.size, f.seq, f.id = 1+r.IntN(1300), r.Uint32(), uint16(r.Uint32())
	}
	return s
}

// next returns the next packet and its flow.
func (s *stream) next() (b []byte, flow int) {
	r := s.r
	flow = r.IntN(len(s.flows))
	f := &s.flows[flow]
	size := f.size
	switch r.IntN(12) {
	case 0:
		size = r.IntN(f.size + 1)
	case 1:
		f.size = 1 + r.IntN(1300)
	case 2:
		f.seq += uint32(r.IntN(3))
	case 3:
		f.id += uint16(r.IntN(3))
	}
	flags := uint8(packet.TCPAck)
	if r.IntN(6) == 0 {
		flags = uint8(r.Uint32())
	}
	step := uint16(1)
	if f.df && flow%2 == 0 {
		step = 0
	}
	change := func(p *packettest.Spec) {
		p.ID, p.DontFragment = uint32(f.id), f.df
		p.NoChecksum = r.IntN(30) == 0
		if r.IntN(30) == 0 {
			p.HopLimit = 3
		}
	}
	if f.udp {
		b = udp(f.v6, randomBytes(r, size), change)
		p, _ := packet.Parse(b)
		binary.BigEndian.PutUint16(p.Transport(), uint16(flow)) // and a wrong checksum
		fixChecksum(b)
	} else {
		b = tcp(f.v6, func(p *packettest.Spec, t *packettest.Segment) {
			change(p)
			p.NoChecksum = false
			t.SrcPort, t.Seq, t.Flags, t.Payload = uint16(flow), f.seq, flags, randomBytes(r, size)
			if r.IntN(10) == 0 {
				t.Options = []byte{1, 1, 1, byte(r.IntN(2))}
			}
		})
	}
	f.seq += uint32(size)
	f.id += step
	if r.IntN(40) == 0 && len(b) > 60 {
		b[len(b)-1] ^= 0x5a
	}
	if r.IntN(40) == 0 {
		packettest.Unfinish(b)
	}
	return b, flow
}

// fixChecksum computes a UDP checksum anew, unless there is none.
func fixChecksum(b []byte) {
	p, _ := packet.Parse(b)
	field := p.Transport()[udpChecksum:]
	if field[0] == 0 && field[1] == 0 {
		return
	}
	packettest.Finish(b)
}

// TestCoalesceRandom checks the invariant of the package: cut by the kernel, what was put
// together is what was received, and each flow is in its order.
func TestCoalesceRandom(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	supers := 0
	for range packettest.Rounds(500) {
		supers += testStream(t, r, 1+r.IntN(200))
	}
	if supers == 0 {
		t.Error("nothing was ever put together")
	}
	if t.Failed() {
		t.Logf("seed %d", seed)
	}
}

// testStream sends n packets in runs and returns how many super-segments came of them.
func testStream(t testing.TB, r *rand.Rand, n int) (supers int) {
	h := newHarness(t, true, nil)
	s := newStream(r)
	want, arrived := map[int][][]byte{}, []delivered(nil)
	room := 0 // that this takes of a socket buffer which only root may enlarge
	for range n {
		b, flow := s.next()
		want[flow] = append(want[flow], normal(finished(b)))
		h.message(h.ep.snap.Load(), message(h.encapsulated(geneve.Geneve, bytes.Clone(b))))
		if room += len(b) + 1<<10; room > 100<<10 || r.IntN(100) == 0 {
			h.deliver()
			arrived, room = append(arrived, h.atKernel()...), 0
		}
	}
	h.deliver()
	got := map[int][][]byte{}
	for _, d := range append(arrived, h.atKernel()...) {
		pieces := cutAsKernel(t, d)
		if len(pieces) > 1 {
			supers++
		}
		for _, b := range pieces {
			p := mustParse(t, b)
			src, _ := p.Ports()
			got[int(src)] = append(got[int(src)], normal(b))
		}
	}
	if !reflect.DeepEqual(want, got) { // cmp takes long, also over what is equal
		t.Fatalf("packets by flow (-want +got):\n%.4000s", cmp.Diff(want, got))
	}
	return supers
}

// finished is b as a kernel finishes its checksum, if it is not.
func finished(b []byte) []byte {
	if unfinished := packettest.Unfinish(bytes.Clone(b)); bytes.Equal(b, unfinished) {
		return packettest.Finish(unfinished)
	}
	return b
}

// FuzzCoalesce does the same with streams that the fuzzer chooses.
func FuzzCoalesce(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(20))
	f.Fuzz(func(t *testing.T, a, b uint64, n uint8) {
		testStream(t, rand.New(rand.NewPCG(a, b)), int(n))
	})
}

// TestCoalesceBounds: no more than a length field can say and a kernel takes.
func TestCoalesceBounds(t *testing.T) {
	h := newHarness(t, true, nil)
	for i := range 70 {
		h.message(h.ep.snap.Load(), message(h.encapsulated(geneve.Geneve,
			tcp(false, func(_ *packettest.Spec, s *packettest.Segment) { s.Seq = uint32(1 + 1000*i) }))))
	}
	for range 70 {
		h.message(h.ep.snap.Load(), message(h.encapsulated(geneve.Geneve, udp(true, make([]byte, 10), nil))))
	}
	h.deliver()
	var sizes []int
	for _, d := range h.atKernel() {
		sizes = append(sizes, len(d.ip))
		cutAsKernel(t, d)
	}
	want := []int{40 + 65*1000, 40 + 5*1000, 48 + 64*10, 48 + 6*10}
	if diff := cmp.Diff(want, sizes); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
}

// TestFragmentsKeepTheirPlace: what belongs to a flow that cannot be told is not overtaken.
func TestFragmentsKeepTheirPlace(t *testing.T) {
	h := newHarness(t, true, nil)
	segment := func(i int) []byte {
		return tcp(false, func(_ *packettest.Spec, s *packettest.Segment) { s.Seq = uint32(1 + 1000*i) })
	}
	fragment := udp(false, make([]byte, 1000), func(p *packettest.Spec) {
		p.DontFragment, p.Part = false, packettest.Part{Offset: 480, Length: 480}
	})
	in := [][]byte{segment(0), segment(1), fragment, segment(2), segment(3)}
	for _, b := range in {
		h.message(h.ep.snap.Load(), message(h.encapsulated(geneve.Geneve, b)))
	}
	h.deliver()
	var sizes []int
	for _, d := range h.atKernel() {
		sizes = append(sizes, len(d.ip))
	}
	if diff := cmp.Diff([]int{2040, 500, 2040}, sizes); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
}
