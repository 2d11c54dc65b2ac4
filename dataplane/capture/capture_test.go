package capture

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/packettest"
)

func newCapture(tb testing.TB, c Config) *Capture {
	tb.Helper()
	if c.Ring == 0 {
		c.Ring = MinRing
	}
	out, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// under puts captures under way.
func under(tb testing.TB, cs ...*Capture) *Set {
	tb.Helper()
	s := new(Set)
	for _, c := range cs {
		if err := s.Add(c); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

// TestCapture shows packets and expects them back as they were.
func TestCapture(t *testing.T) {
	now := time.Now()
	long := strings.Repeat("n", 300)
	big := bytes.Repeat([]byte{7}, 65535)
	for name, tt := range map[string]struct {
		snaplen int
		packet  Packet
		want    Record
	}{
		"from a node": {packet: Packet{Time: now, Point: Node, Egress: true, Link: Ethernet, Node: "worker", VNI: 7, Body: []byte("frame")},
			want: Record{Point: Node, Egress: true, Link: Ethernet, Node: []byte("worker"), VNI: 7, Data: []byte("frame"), Length: 5}},
		"in two pieces": {packet: Packet{Time: now, Point: Node, Head: []byte("head"), Body: []byte("body")},
			want: Record{Point: Node, Data: []byte("headbody"), Length: 8}},
		"dropped": {packet: Packet{Time: now, Point: Dropped, Reason: "DropNoMapping", Body: []byte("packet")},
			want: Record{Point: Dropped, Reason: []byte("DropNoMapping"), Data: []byte("packet"), Length: 6}},
		"cut in the body": {snaplen: 6, packet: Packet{Time: now, Point: Tunnel, Head: []byte("head"), Body: []byte("body")},
			want: Record{Point: Tunnel, Data: []byte("headbo"), Length: 8}},
		"cut in the head": {snaplen: 2, packet: Packet{Time: now, Point: Tunnel, Head: []byte("head"), Body: []byte("body")},
			want: Record{Point: Tunnel, Data: []byte("he"), Length: 8}},
		"nothing in it": {packet: Packet{Time: now, Point: Translated}, want: Record{Point: Translated, Data: []byte{}}},
		"long names": {packet: Packet{Time: now, Point: Node, Node: long, Reason: long, Body: []byte("x")},
			want: Record{Point: Node, Node: []byte(long[:255]), Reason: []byte(long[:255]), Data: []byte("x"), Length: 1}},
		"the largest packet": {packet: Packet{Time: now, Point: Node, Body: big}, want: Record{Point: Node, Data: big, Length: len(big)}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCapture(t, Config{Points: 1<<NumPoints - 1, Snaplen: tt.snaplen})
			under(t, c).Active().Offer(&tt.packet)
			tt.want.Time = time.Unix(0, now.UnixNano())
			if tt.want.Node == nil {
				tt.want.Node = []byte{}
			}
			if tt.want.Reason == nil {
				tt.want.Reason = []byte{}
			}
			got, ok := c.Next()
			if diff := cmp.Diff(tt.want, got); !ok || diff != "" {
				t.Errorf("ok %v, -want +got:\n%s", ok, diff)
			}
			if _, ok := c.Next(); ok || c.Pending() {
				t.Error("there is one more")
			}
		})
	}
}

// TestOnlyItsPoints: a capture gets what it has asked for, and counts it.
func TestOnlyItsPoints(t *testing.T) {
	filter, err := ParseFilter("icmp")
	if err != nil {
		t.Fatal(err)
	}
	c := newCapture(t, Config{Points: PointSet(Tunnel), Filter: filter})
	other := newCapture(t, Config{Points: PointSet(Wire)})
	s := under(t, c, other)
	if s.Points() != PointSet(Tunnel, Wire) || !s.Active().Wants(Tunnel) || s.Active().Wants(Node) {
		t.Errorf("points %v", s.Points())
	}
	icmp := packettest.Spec{Src: a4, Dst: b4, Proto: packettest.ICMP, Transport: packettest.Message(8, 0, 1, nil)}.Bytes()
	for _, p := range []Packet{
		{Point: Node, Link: Ethernet}, {Point: Tunnel, Body: icmp}, {Point: Tunnel, Body: []byte("no packet")}, {Point: Dropped, Body: icmp},
	} {
		s.Active().Offer(&p)
	}
	if diff := cmp.Diff(Counts{Seen: 2, Matched: 1}, c.Counts(Tunnel)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if (c.Counts(Node) != Counts{}) || (other.Counts(Tunnel) != Counts{}) {
		t.Error("it has counted what it did not ask for")
	}
	if r, ok := c.Next(); !ok || !bytes.Equal(r.Data, icmp) {
		t.Errorf("got %v %v", ok, r)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{
		{Ring: MinRing},
		{Ring: MinRing, Points: 1 << NumPoints},
		{Ring: MinRing - 1, Points: PointSet(Node)},
		{Ring: MinRing, Points: PointSet(Node), Snaplen: -1},
		{Ring: MinRing, Points: PointSet(Node), Snaplen: MaxSnaplen + 1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestSet(t *testing.T) {
	var s Set
	var cs []*Capture
	for range MaxCaptures {
		c := newCapture(t, Config{Points: PointSet(Node)})
		if err := s.Add(c); err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	if err := s.Add(newCapture(t, Config{Points: PointSet(Node)})); err != ErrTooMany {
		t.Errorf("one too many: %v", err)
	}
	s.Active().Offer(&Packet{Point: Node})
	for i, c := range cs {
		s.Remove(c)
		s.Remove(c) // does nothing
		want := Status{Running: MaxCaptures - 1 - i, Started: MaxCaptures, Packets: MaxCaptures}
		if diff := cmp.Diff(want, s.Status()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	if s.Active() != nil || s.Points() != 0 {
		t.Error("an empty set has active captures")
	}
	if err := s.Add(cs[0]); err != nil {
		t.Error(err)
	}
}

func TestPoints(t *testing.T) {
	for text, want := range map[string][]Point{
		"node": {Node}, "wire,node": {Node, Wire}, " tunnel , tunnel": {Tunnel}, "all": {Node, Translated, Tunnel, Wire, Dropped},
	} {
		got, err := ParsePoints(text)
		if err != nil || !slices.Equal(got.All(), want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "node,", "nodes", "Node"} {
		if _, err := ParsePoints(text); err == nil || !strings.Contains(err.Error(), "the points are node, translated, tunnel, wire, dropped, or all") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := PointSet(Wire, Node).String(); got != "node,wire" {
		t.Error(got)
	}
}

// TestManyWriters: what several goroutines show at the same time comes out whole,
// in the order of each of them, and nothing is missing that was not counted as lost.
func TestManyWriters(t *testing.T) {
	const writers, packets = 5, 20000
	c := newCapture(t, Config{Points: 1<<NumPoints - 1})
	s := under(t, c)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range packets {
				size := random.IntN(200)
				if i%1000 == 0 {
					size = 65535
				}
				s.Active().Offer(&Packet{Point: Point(w), VNI: uint32(i), Node: fmt.Sprint(w), Body: bytes.Repeat([]byte{byte(i)}, size)})
				if i%64 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var got, next [writers]int
	for ended := false; !ended || c.Pending(); {
		select {
		case <-done:
			ended = true
		default:
		}
		for r, ok := c.Next(); ok; r, ok = c.Next() {
			w, i := int(r.Point), int(r.VNI)
			if string(r.Node) != fmt.Sprint(w) || i < next[w] || r.Length != len(r.Data) || len(bytes.Trim(r.Data, string([]byte{byte(i)}))) > 0 {
				t.Fatalf("writer %d, packet %d where %d or later is expected, node %q, %d bytes", w, i, next[w], r.Node, r.Length)
			}
			got[w]++
			next[w] = i + 1
		}
		runtime.Gosched()
	}
	for w := range writers {
		n := c.Counts(Point(w))
		if n.Seen != packets || n.Matched != packets || n.Lost != uint64(packets-got[w]) {
			t.Errorf("writer %d: %+v, and %d came out", w, n, got[w])
		}
		t.Logf("writer %d: %d of %d came out", w, got[w], packets)
	}
}

// TestFull: without a reader the oldest packets stay, and the rest is lost.
func TestFull(t *testing.T) {
	c := newCapture(t, Config{Points: PointSet(Node)})
	s := under(t, c)
	const size, n = 1000, 1000
	for i := range n {
		s.Active().Offer(&Packet{Point: Node, VNI: uint32(i), Body: make([]byte, size)})
	}
	room := MinRing / 1024 // 24 bytes of header, and all is a multiple of 64
	if lost := c.Counts(Node).Lost; lost != uint64(n-room) {
		t.Errorf("%d are lost, want %d", lost, n-room)
	}
	for i := range room {
		if r, ok := c.Next(); !ok || r.VNI != uint32(i) {
			t.Fatalf("number %d is %d, %v", i, r.VNI, ok)
		}
	}
	if _, ok := c.Next(); ok || c.Pending() {
		t.Error("there is more")
	}
	s.Active().Offer(&Packet{Point: Node, VNI: 4711})
	if r, ok := c.Next(); !ok || r.VNI != 4711 {
		t.Error("there is no room after everything was read")
	}
}

// TestRing compares the ring with a queue, over many sizes and wraps.
func TestRing(t *testing.T) {
	var r ring
	r.init(1 << 12)
	random := rand.New(rand.NewPCG(3, 4))
	var queue [][]byte
	for i := range 100000 {
		if random.IntN(2) == 0 {
			n := 1 + random.IntN(1500)
			b, at := r.reserve(n)
			if b == nil {
				continue
			}
			want := bytes.Repeat([]byte{byte(i)}, n)
			copy(b, want)
			r.publish(at, n)
			queue = append(queue, want)
			continue
		}
		b := r.next()
		if (b == nil) != (len(queue) == 0) {
			t.Fatalf("step %d: got %d bytes, %d are queued", i, len(b), len(queue))
		}
		if b != nil {
			if !bytes.Equal(b[:len(queue[0])], queue[0]) || len(b)-len(queue[0]) >= granule {
				t.Fatalf("step %d: another record", i)
			}
			queue = queue[1:]
		}
	}
}

// TestHeldUpWriter: who is held up in the middle of a record holds up the reader,
// and no other writer.
func TestHeldUpWriter(t *testing.T) {
	var r ring
	r.init(MinRing)
	held, at := r.reserve(100)
	if b, at := r.reserve(100); b == nil {
		t.Fatal("the second writer has to wait")
	} else {
		r.publish(at, 100)
	}
	if r.next() != nil || r.empty() {
		t.Error("the reader does not wait")
	}
	copy(held, "first")
	r.publish(at, 100)
	if b := r.next(); !bytes.HasPrefix(b, []byte("first")) {
		t.Error("the first is not the first")
	}
	if r.next() == nil || r.next() != nil || !r.empty() {
		t.Error("the second is not the last")
	}
}

func TestOfferAllocatesNothing(t *testing.T) {
	if packettest.Race {
		t.Skip("NOT CHECKED: the race detector allocates itself")
	}
	filter, err := ParseFilter("net 10.0.0.0/8 and tcp port 80 or icmp6")
	if err != nil {
		t.Fatal(err)
	}
	c := newCapture(t, Config{Points: PointSet(Node, Wire), Filter: filter})
	s := under(t, c)
	packets := []Packet{
		{Point: Node, Link: Ethernet, Node: "worker", Body: ethernet(0x0800, tcp4(80, 1000, 1000))},
		{Point: Node, Link: Ethernet, Head: ethernet(0x0800, nil), Body: tcp4(1000, 80, 1000)},
		wire("192.0.2.1:51840", "192.0.2.2:80", 1000),
	}
	if n := testing.AllocsPerRun(1000, func() {
		for i := range packets {
			s.Active().Offer(&packets[i])
		}
		for {
			if _, ok := c.Next(); !ok {
				break
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if got := c.Counts(Node); got.Matched != got.Seen || got.Seen == 0 {
		t.Errorf("%+v: the filter takes none", got)
	}
}

func BenchmarkOffer(b *testing.B) {
	filter, err := ParseFilter("host 10.0.0.2 and tcp port 80")
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name    string
		snaplen int
		filter  *Filter
	}{{"whole", 0, nil}, {"snaplen=256", 256, nil}, {"snaplen=128", 128, nil}, {"filter", 256, filter}} {
		b.Run(bb.name, func(b *testing.B) {
			c := newCapture(b, Config{Points: PointSet(Node), Snaplen: bb.snaplen, Filter: bb.filter, Ring: 4 << 20})
			s := under(b, c)
			p := Packet{Time: time.Now(), Point: Node, Link: Ethernet, Node: "worker-1", Body: ethernet(0x0800, tcp4(80, 1000, 1300))}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.Active().Offer(&p)
				if i%64 == 63 {
					for _, ok := c.Next(); ok; _, ok = c.Next() {
					}
				}
			}
			if c.Counts(Node).Lost > 0 {
				b.Error("some are lost")
			}
		})
	}
}
