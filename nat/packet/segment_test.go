package packet_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/pkg/tcpip"
	gchecksum "gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
)

var (
	pod4, service4 = netip.MustParseAddr("10.243.1.2"), netip.MustParseAddr("10.70.3.4")
	pod6, service6 = netip.MustParseAddr("fd00:243::1:2"), netip.MustParseAddr("fd00:70::3:4")
)

// cutter is what Segmenter and Fragmenter have in common.
type cutter interface{ Next(dst []byte) int }

// collect takes all packets out of a cutter. Each is written into a dirty
// buffer, and what lies behind it must stay as it was.
func collect(t testing.TB, c cutter, room int) (all [][]byte) {
	t.Helper()
	for {
		b := bytes.Repeat([]byte{0xa5}, room+16)
		n := c.Next(b[:room])
		if n == 0 {
			return all
		}
		if tail := b[n:]; !bytes.Equal(tail, bytes.Repeat([]byte{0xa5}, len(tail))) {
			t.Fatalf("packet %d of %d bytes: wrote behind its end", len(all), n)
		}
		all = append(all, b[:n])
	}
}

func mustParse(t testing.TB, b []byte) packet.Packet {
	t.Helper()
	p, ok := packet.Parse(b)
	if !ok {
		t.Fatalf("Parse refuses %x", b[:min(len(b), 80)])
	}
	return p
}

// unfinish replaces the transport checksum by the sum of the pseudo-header.
func unfinish(p packet.Packet) {
	at := p.TransportOffset + 16
	if p.Proto == packet.ProtoUDP {
		at = p.TransportOffset + 6
	}
	sum := header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(p.Proto),
		tcpip.AddrFromSlice(p.Src().AsSlice()), tcpip.AddrFromSlice(p.Dst().AsSlice()), uint16(len(p.Transport())))
	binary.BigEndian.PutUint16(p.Bytes[at:], sum)
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// superSpec describes a random super-segment; its Transport is still empty.
func superSpec(r *rand.Rand) packettest.Spec {
	s := packettest.Spec{Src: pod4, Dst: service4, HopLimit: uint8(r.Uint32() | 1), ID: uint32(uint16(r.Uint32())), DontFragment: r.IntN(2) == 0}
	if r.IntN(2) == 0 {
		s.Src, s.Dst = pod6, service6
		if r.IntN(4) == 0 {
			s.Extensions = []packettest.Extension{{Type: packet.ProtoDestination, Body: []byte{0, 1, 4, 0, 0, 0, 0}}}
		}
	} else if r.IntN(4) == 0 {
		s.Options = []byte{1, 148, 4, 0, 0, 0, 0, 0}
	}
	return s
}

// TestSegmentRandom compares every byte of every packet with the packet that
// its description gives when nothing is known of segmentation.
func TestSegmentRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		spec := superSpec(r)
		tcp := packettest.Segment{SrcPort: 1, DstPort: 2, Seq: r.Uint32(), Ack: r.Uint32(),
			Flags:   uint8(r.Uint32()) &^ (packet.TCPSyn | packet.TCPRst | packet.TCPUrg),
			Options: make([]byte, 4*r.IntN(11)),
			Payload: randomBytes(r, r.IntN(6000))}
		for i := range tcp.Options {
			tcp.Options[i] = byte(r.Uint32())
		}
		spec.Proto, spec.Transport = packet.ProtoTCP, tcp.Bytes()
		whole := mustParse(t, spec.Bytes())
		headers := len(whole.Bytes) - len(tcp.Payload)
		mtu := 2*headers + r.IntN(1500)
		size := mtu - headers
		if r.IntN(2) == 0 {
			unfinish(whole)
		}
		before := bytes.Clone(whole.Bytes)

		s, ok := packet.NewSegmenter(whole, mtu)
		if !ok {
			t.Fatalf("refused: headers %d, mtu %d", headers, mtu)
		}
		got := collect(t, &s, mtu)
		if want := max(1, (len(tcp.Payload)+size-1)/size); len(got) != want {
			t.Fatalf("%d packets, want %d", len(got), want)
		}
		for i, b := range got {
			part, seg := spec, tcp
			part.ID = uint32(uint16(int(spec.ID) + i))
			seg.Seq += uint32(i * size)
			seg.Payload = tcp.Payload[i*size : min((i+1)*size, len(tcp.Payload))]
			if i > 0 {
				seg.Flags &^= packet.TCPCwr
			}
			if i < len(got)-1 {
				seg.Flags &^= packet.TCPFin | packet.TCPPsh
			}
			part.Transport = seg.Bytes()
			if want := part.Bytes(); !bytes.Equal(want, b) {
				t.Fatalf("packet %d of %d =\n%x, want\n%x", i, len(got), b, want)
			}
		}
		if !bytes.Equal(before, whole.Bytes) {
			t.Fatal("the super-segment was changed")
		}
	}
}

func TestSegmentUDPRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		spec := superSpec(r)
		size := 1 + r.IntN(1400)
		payload := randomBytes(r, r.IntN(min(8*size, 9000)))
		if r.IntN(8) == 0 {
			clear(payload)
		}
		spec.Proto, spec.NoChecksum = packet.ProtoUDP, r.IntN(8) == 0
		spec.Transport = packettest.Datagram(53, 5353, payload)
		whole := mustParse(t, spec.Bytes())
		if !spec.NoChecksum && r.IntN(2) == 0 {
			unfinish(whole)
		}
		s, ok := packet.NewUDPSegmenter(whole, size)
		if !ok {
			t.Fatal("refused")
		}
		got := collect(t, &s, len(whole.Bytes)-len(payload)+size)
		if want := max(1, (len(payload)+size-1)/size); len(got) != want {
			t.Fatalf("%d packets, want %d", len(got), want)
		}
		for i, b := range got {
			part := spec
			part.ID = uint32(uint16(int(spec.ID) + i))
			part.Transport = packettest.Datagram(53, 5353, payload[i*size:min((i+1)*size, len(payload))])
			if want := part.Bytes(); !bytes.Equal(want, b) {
				t.Fatalf("packet %d of %d =\n%x, want\n%x", i, len(got), b, want)
			}
		}
	}
}

// TestSegmentUDPChecksumOfZero chooses a payload whose checksum comes out as
// zero, which would say that there is none.
func TestSegmentUDPChecksumOfZero(t *testing.T) {
	payload := make([]byte, 4)
	spec := packettest.Spec{Src: pod4, Dst: service4, Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, payload)}
	copy(payload, spec.Bytes()[26:28]) // adding a checksum to what it is over makes it zero
	spec.Transport = packettest.Datagram(1, 2, payload)
	s, ok := packet.NewUDPSegmenter(mustParse(t, spec.Bytes()), 4)
	if !ok {
		t.Fatal("refused")
	}
	if got := collect(t, &s, 32)[0][26:28]; !bytes.Equal(got, []byte{0xff, 0xff}) {
		t.Errorf("checksum %x, want ffff", got)
	}
}

// TestSegmentFields shows what differs from packet to packet, in a
// super-segment of three.
func TestSegmentFields(t *testing.T) {
	const all = packet.TCPAck | packet.TCPPsh | packet.TCPFin | packet.TCPCwr | packet.TCPEce
	spec := packettest.Spec{Src: pod4, Dst: service4, ID: 0xffff, Proto: packet.ProtoTCP, Transport: packettest.Segment{
		Seq: 0xffffff9c, Ack: 7, Flags: all | packet.TCPUrg, Payload: make([]byte, 250)}.Bytes()}
	binary.BigEndian.PutUint16(spec.Transport[18:], 150) // the urgent byte is in the second packet
	s, ok := packet.NewSegmenter(mustParse(t, spec.Bytes()), 140)
	if !ok {
		t.Fatal("refused")
	}
	type fields struct {
		Length   int
		ID       uint16
		Seq, Ack uint32
		Flags    header.TCPFlags
		Urgent   uint16
		Valid    bool // both checksums
	}
	var got []fields
	for _, b := range collect(t, &s, 140) {
		ip := header.IPv4(b)
		tcp := header.TCP(ip.Payload())
		got = append(got, fields{len(b), ip.ID(), tcp.SequenceNumber(), tcp.AckNumber(), tcp.Flags(),
			binary.BigEndian.Uint16(tcp[18:]), ip.IsChecksumValid() && tcp.IsChecksumValid(ip.SourceAddress(),
				ip.DestinationAddress(), gchecksum.Checksum(tcp.Payload(), 0), uint16(len(tcp.Payload())))})
	}
	ece := header.TCPFlags(packet.TCPEce)
	cwr := header.TCPFlags(packet.TCPCwr)
	want := []fields{
		{140, 0xffff, 0xffffff9c, 7, header.TCPFlagAck | header.TCPFlagUrg | ece | cwr, 150, true},
		{140, 0x0000, 0x00000000, 7, header.TCPFlagAck | header.TCPFlagUrg | ece, 50, true},
		{90, 0x0001, 0x00000064, 7, header.TCPFlagAck | header.TCPFlagPsh | header.TCPFlagFin | ece, 0, true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestSegmentRefused(t *testing.T) {
	tcp := func(flags uint8, options int) packettest.Spec {
		return packettest.Spec{Src: pod4, Dst: service4, Proto: packet.ProtoTCP,
			Transport: packettest.Segment{Flags: flags, Options: make([]byte, options), Payload: make([]byte, 3000)}.Bytes()}
	}
	udp := packettest.Spec{Src: pod4, Dst: service4, Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, make([]byte, 1280))}
	fragment, short := tcp(packet.TCPAck, 0), udp
	fragment.Part = packettest.Part{Offset: 0, Length: 1480}
	short.Transport = bytes.Clone(udp.Transport)
	binary.BigEndian.PutUint16(short.Transport[4:], 1200)
	fragmentUDP := udp
	fragmentUDP.Part = packettest.Part{Offset: 0, Length: 640}

	for _, tt := range []struct {
		name string
		spec packettest.Spec
		mtu  int
		want bool
	}{
		{"data", tcp(packet.TCPAck, 0), 1340, true},
		{"fits already", tcp(packet.TCPAck, 0), 9000, true},
		{"SYN", tcp(packet.TCPSyn, 0), 1340, false},
		{"RST", tcp(packet.TCPRst|packet.TCPAck, 0), 1340, false},
		{"first fragment", fragment, 1340, false},
		{"not TCP", udp, 1340, false},
		{"headers fill half", tcp(packet.TCPAck, 20), 120, true},
		{"headers fill more than half", tcp(packet.TCPAck, 20), 119, false},
		{"MTU zero", tcp(packet.TCPAck, 0), 0, false},
		{"MTU negative", tcp(packet.TCPAck, 0), -1, false},
	} {
		t.Run("tcp/"+tt.name, func(t *testing.T) {
			if _, ok := packet.NewSegmenter(mustParse(t, tt.spec.Bytes()), tt.mtu); ok != tt.want {
				t.Errorf("NewSegmenter = %v, want %v", ok, tt.want)
			}
		})
	}
	for _, tt := range []struct {
		name string
		spec packettest.Spec
		size int
		want bool
	}{
		{"128 datagrams", udp, 10, true},
		{"more than 128 datagrams", udp, 9, false},
		{"size zero", udp, 0, false},
		{"size negative", udp, -10, false},
		{"not UDP", tcp(packet.TCPAck, 0), 1000, false},
		{"first fragment", fragmentUDP, 10, false},
		{"bytes behind the datagram", short, 1000, false},
	} {
		t.Run("udp/"+tt.name, func(t *testing.T) {
			if _, ok := packet.NewUDPSegmenter(mustParse(t, tt.spec.Bytes()), tt.size); ok != tt.want {
				t.Errorf("NewUDPSegmenter = %v, want %v", ok, tt.want)
			}
		})
	}
}

func TestSegmentIntoShortBuffer(t *testing.T) {
	spec := packettest.Spec{Src: pod4, Dst: service4, Proto: packet.ProtoTCP,
		Transport: packettest.Segment{Payload: make([]byte, 3000)}.Bytes()}
	s, ok := packet.NewSegmenter(mustParse(t, spec.Bytes()), 1340)
	if !ok {
		t.Fatal("refused")
	}
	if n := s.Next(make([]byte, 1339)); n != 0 {
		t.Errorf("Next = %d, want 0", n)
	}
	if n := s.Next(make([]byte, 1340)); n != 0 {
		t.Errorf("Next after the end = %d, want 0", n)
	}
}

// checkSegments holds the packets of a segmentation against its invariants.
func checkSegments(t *testing.T, whole packet.Packet, headers int, all [][]byte, most int) {
	t.Helper()
	var payload []byte
	for i, b := range all {
		p := mustParse(t, b)
		if len(b) > most || len(p.Bytes) != len(b) || p.Src() != whole.Src() || p.Dst() != whole.Dst() || p.Proto != whole.Proto {
			t.Fatalf("packet %d of %d bytes is not of this flow", i, len(b))
		}
		if !packettest.HeaderValid(b) {
			t.Fatalf("packet %d: IPv4 header checksum", i)
		}
		udp := p.Proto == packet.ProtoUDP
		pseudo := header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(p.Proto),
			tcpip.AddrFromSlice(p.Src().AsSlice()), tcpip.AddrFromSlice(p.Dst().AsSlice()), uint16(len(p.Transport())))
		if udp && binary.BigEndian.Uint16(p.Transport()[6:]) == 0 {
			if binary.BigEndian.Uint16(whole.Transport()[6:]) != 0 {
				t.Fatalf("packet %d lost its checksum", i)
			}
		} else if gchecksum.Checksum(p.Transport(), pseudo) != 0xffff {
			t.Fatalf("packet %d: transport checksum", i)
		}
		if !udp {
			seq := binary.BigEndian.Uint32(whole.Transport()[4:]) + uint32(len(payload))
			if got := binary.BigEndian.Uint32(p.Transport()[4:]); got != seq {
				t.Fatalf("packet %d: sequence number %d, want %d", i, got, seq)
			}
		}
		payload = append(payload, b[headers:]...)
	}
	if !bytes.Equal(payload, whole.Bytes[headers:]) {
		t.Fatalf("%d bytes of payload came out, %d went in, or they differ", len(payload), len(whole.Bytes)-headers)
	}
}

func FuzzSegment(t *testing.F) {
	f := mutate.New(t)
	r := rand.New(rand.NewPCG(5, 6))
	for range 8 {
		spec := superSpec(r)
		spec.Proto = packet.ProtoTCP
		spec.Transport = packettest.Segment{Flags: packet.TCPAck | packet.TCPUrg, Options: make([]byte, 12), Payload: randomBytes(r, 300)}.Bytes()
		f.Add(spec.Bytes(), uint16(180))
		spec.Proto, spec.Transport = packet.ProtoUDP, packettest.Datagram(1, 2, randomBytes(r, 300))
		f.Add(spec.Bytes(), uint16(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, limit uint16) {
		p, ok := packet.Parse(b)
		if !ok {
			return
		}
		before := bytes.Clone(p.Bytes)
		if s, ok := packet.NewSegmenter(p, int(limit)); ok {
			headers := p.TransportOffset + int(header.TCP(p.Transport()).DataOffset())
			checkSegments(t, p, headers, collect(t, &s, int(limit)), int(limit))
		}
		if s, ok := packet.NewUDPSegmenter(p, int(limit)); ok {
			headers := p.TransportOffset + packet.UDPHeaderLen
			checkSegments(t, p, headers, collect(t, &s, headers+int(limit)), headers+int(limit))
		}
		if !bytes.Equal(before, p.Bytes) {
			t.Fatal("the packet was changed")
		}
	})
}

// superSegment is a 64 KiB super-segment as a kernel makes them: 12 bytes of
// TCP options, an unfinished checksum.
func superSegment(t testing.TB, src, dst netip.Addr, proto uint8) packet.Packet {
	spec := packettest.Spec{Src: src, Dst: dst, Proto: proto}
	headers := packet.IPv4HeaderLen
	if src.Is6() {
		headers = 0 // its length field does not count its header
	}
	if proto == packet.ProtoTCP {
		tcp := packettest.Segment{Flags: packet.TCPAck | packet.TCPPsh, Options: make([]byte, 12)}
		tcp.Payload = make([]byte, 65535-headers-len(tcp.Bytes()))
		spec.Transport = tcp.Bytes()
	} else {
		spec.Transport = packettest.Datagram(1, 2, make([]byte, 65535-headers-packet.UDPHeaderLen))
	}
	p := mustParse(t, spec.Bytes())
	unfinish(p)
	return p
}

func TestSegmentZeroAllocations(t *testing.T) {
	if packettest.Race {
		t.Skip("the race detector allocates")
	}
	dst := make([]byte, 1340)
	tcp := superSegment(t, pod4, service4, packet.ProtoTCP)
	udp := superSegment(t, pod6, service6, packet.ProtoUDP)
	if n := testing.AllocsPerRun(10, func() {
		s, ok := packet.NewSegmenter(tcp, 1340)
		if !ok {
			t.Fatal("refused")
		}
		for s.Next(dst) > 0 {
		}
		if s, ok = packet.NewUDPSegmenter(udp, 1280); !ok {
			t.Fatal("refused")
		}
		for s.Next(dst) > 0 {
		}
	}); n != 0 {
		t.Errorf("%v allocations per super-segment, want 0", n)
	}
}

// BenchmarkSegment cuts 64 KiB for a tunnel of the usual MTU, into a batch of
// buffers as the tunnel has them: the writes are not all to the same lines.
func BenchmarkSegment(b *testing.B) {
	const mtu, batch = 1340, 64
	for _, family := range []struct {
		name     string
		src, dst netip.Addr
	}{{"ipv4", pod4, service4}, {"ipv6", pod6, service6}} {
		for _, proto := range []struct {
			name  string
			proto uint8
		}{{"tcp", packet.ProtoTCP}, {"udp", packet.ProtoUDP}} {
			b.Run(fmt.Sprintf("%s/%s/%d", family.name, proto.name, mtu), func(b *testing.B) {
				p := superSegment(b, family.src, family.dst, proto.proto)
				dst := make([][mtu]byte, batch)
				packets := 0
				b.ReportAllocs()
				b.SetBytes(int64(len(p.Bytes)))
				for b.Loop() {
					s, ok := packet.NewSegmenter(p, mtu)
					if proto.proto == packet.ProtoUDP {
						s, ok = packet.NewUDPSegmenter(p, mtu-p.TransportOffset-packet.UDPHeaderLen)
					}
					if !ok {
						b.Fatal("refused")
					}
					for i := 0; s.Next(dst[i%batch][:]) > 0; i++ {
						packets++
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
			})
		}
	}
}

// TestNextHeaders: headers and payload together are what Next writes, also when the
// first headers are completed where the super-segment's own stand.
func TestNextHeaders(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		spec := superSpec(r)
		spec.Proto, spec.Transport = packet.ProtoTCP, packettest.Segment{Seq: r.Uint32(), Flags: packet.TCPAck | packet.TCPCwr | packet.TCPFin, Payload: randomBytes(r, r.IntN(6000))}.Bytes()
		if r.IntN(2) == 0 {
			spec.Proto, spec.Transport = packet.ProtoUDP, packettest.Datagram(53, 5353, randomBytes(r, r.IntN(6000)))
		}
		prepare := func(p packet.Packet) (s packet.Segmenter) {
			ok := false
			if p.Proto == packet.ProtoUDP {
				s, ok = packet.NewUDPSegmenter(p, 1000)
			} else {
				s, ok = packet.NewSegmenter(p, 1400)
			}
			if !ok {
				t.Fatal("refused")
			}
			return s
		}
		s := prepare(mustParse(t, spec.Bytes()))
		want := collect(t, &s, 1500)

		p := mustParse(t, spec.Bytes())
		s = prepare(p)
		dst := p.Bytes // the first in place, the others elsewhere
		var got [][]byte
		for {
			n, payload := s.NextHeaders(dst)
			if n == 0 {
				break
			}
			got = append(got, append(bytes.Clone(dst[:n]), payload...))
			dst = make([]byte, n)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("packets (-want +got):\n%.2000s", diff)
		}
	}
	p := mustParse(t, packettest.Spec{Src: pod4, Dst: service4, Proto: packet.ProtoTCP, Transport: packettest.Segment{Payload: make([]byte, 3000)}.Bytes()}.Bytes())
	s, _ := packet.NewSegmenter(p, 1400)
	if n, payload := s.NextHeaders(make([]byte, 39)); n != 0 || payload != nil {
		t.Errorf("wrote %d bytes where there is no room", n)
	}
	if n := s.Next(make([]byte, 1400)); n != 0 {
		t.Errorf("went on after that: %d", n)
	}
}
