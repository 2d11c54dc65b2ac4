package packet_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
)

// Options of IPv4 for tests; RFC 791 section 3.1 says which are copied.
var (
	routerAlert = []byte{148, 4, 0, 0}            // copied (RFC 2113)
	recordRoute = []byte{7, 7, 4, 0, 0, 0, 0}     // not copied
	timeStamp   = []byte{68, 8, 5, 0, 0, 0, 0, 0} // not copied
	security    = []byte{130, 5, 1, 2, 3}         // copied, of odd length
)

// TestFragmentRandom compares every byte of every fragment with the one that
// its description gives. The only option is a copied one, so that all headers
// of a packet are equally long.
func TestFragmentRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		payload := randomBytes(r, r.IntN(5000))
		spec := packettest.Spec{Src: pod4, Dst: service4, HopLimit: uint8(r.Uint32() | 1), ID: uint32(uint16(r.Uint32())),
			Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, payload)}
		if r.IntN(3) == 0 {
			spec.Options = routerAlert
		}
		length, offset := len(spec.Transport), 0
		if r.IntN(3) == 0 && length > 16 { // a fragment itself
			offset = 8 * (1 + r.IntN(length/8-1))
			length -= offset
			if whole := length &^ 7; r.IntN(2) == 0 && whole > 0 {
				length = whole
			}
			if length == 0 {
				continue
			}
			spec.Part = packettest.Part{Offset: offset, Length: length}
		}
		p := mustParse(t, spec.Bytes())
		before := bytes.Clone(p.Bytes)
		headers := packet.IPv4HeaderLen + len(spec.Options)
		mtu := headers + 8 + r.IntN(1500)
		size := (mtu - headers) &^ 7

		f, ok := packet.NewFragmenter(p, mtu)
		if !ok {
			t.Fatal("refused")
		}
		got := collect(t, &f, mtu)
		for i, at := 0, 0; at < length; i++ {
			part := spec
			// The last fragment may use the bytes above the last multiple of eight.
			n := length - at
			if headers+n > mtu {
				n = size
			}
			if i > 0 || n < length || offset > 0 {
				part.Part = packettest.Part{Offset: offset + at, Length: n}
			}
			if i >= len(got) {
				t.Fatalf("only %d fragments of %d bytes", len(got), length)
			}
			if want := part.Bytes(); !bytes.Equal(want, got[i]) {
				t.Fatalf("fragment %d =\n%x, want\n%x", i, got[i], want)
			}
			at += n
			if at == length && i != len(got)-1 {
				t.Fatalf("%d fragments, want %d", len(got), i+1)
			}
		}
		if !bytes.Equal(before, p.Bytes) {
			t.Fatal("the packet was changed")
		}
	}
}

func TestFragmentOptions(t *testing.T) {
	join := func(all ...[]byte) []byte { return bytes.Join(all, nil) }
	for _, tt := range []struct {
		name         string
		first, later []byte
	}{
		{name: "none"},
		{name: "copied", first: routerAlert, later: routerAlert},
		{name: "not copied", first: timeStamp},
		{name: "end of list behind one byte of padding", first: join(recordRoute, []byte{0})},
		{name: "mixed, with no-operation between", first: join([]byte{1}, recordRoute, routerAlert), later: routerAlert},
		{name: "padded again", first: join(security, []byte{1, 1, 1}), later: join(security, []byte{0, 0, 0})},
		{name: "behind the end of the list", first: join([]byte{0, 0, 0, 0}, routerAlert)},
		{name: "the most", first: join(bytes.Repeat(routerAlert, 10)), later: bytes.Repeat(routerAlert, 10)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := packettest.Spec{Src: pod4, Dst: service4, Options: tt.first,
				Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, make([]byte, 392))}
			f, ok := packet.NewFragmenter(mustParse(t, spec.Bytes()), 200)
			if !ok {
				t.Fatal("refused")
			}
			all := collect(t, &f, 200)
			if len(all) < 2 {
				t.Fatalf("%d fragments", len(all))
			}
			for i, b := range all {
				want := tt.first
				if i > 0 {
					want = tt.later
				}
				ip := header.IPv4(b)
				if got := []byte(ip.Options()); !bytes.Equal(got, want) {
					t.Errorf("fragment %d: options %x, want %x", i, got, want)
				}
				if !ip.IsValid(len(b)) || !ip.IsChecksumValid() {
					t.Errorf("fragment %d: gVisor refuses its header", i)
				}
			}
		})
	}
}

// TestFragmentOfFragment cuts fragments again: the order of two narrow links
// makes no difference to the receiver.
func TestFragmentOfFragment(t *testing.T) {
	spec := packettest.Spec{Src: pod4, Dst: service4, Options: bytes.Join([][]byte{routerAlert, timeStamp}, nil),
		Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, randomBytes(rand.New(rand.NewPCG(9, 9)), 4000))}
	whole := mustParse(t, spec.Bytes())
	f, ok := packet.NewFragmenter(whole, 1400)
	if !ok {
		t.Fatal("refused")
	}
	var all [][]byte
	for _, b := range collect(t, &f, 1400) {
		f, ok := packet.NewFragmenter(mustParse(t, b), 601)
		if !ok {
			t.Fatal("fragment refused")
		}
		all = append(all, collect(t, &f, 601)...)
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if got := reassemble(t, all); !bytes.Equal(got, whole.Transport()) {
		t.Error("the payload came out different")
	}
}

// reassemble puts the payload of fragments together (RFC 791 section 3.2), in
// the most obvious way.
func reassemble(t testing.TB, all [][]byte) []byte {
	t.Helper()
	payload, have := make([]byte, 1<<17), make([]bool, 1<<17)
	end := -1
	for _, b := range all {
		ip := header.IPv4(b)
		at := int(ip.FragmentOffset())
		for i, x := range b[ip.HeaderLength():] {
			if have[at+i] {
				t.Fatalf("byte %d twice", at+i)
			}
			payload[at+i], have[at+i] = x, true
		}
		if ip.More() {
			continue
		}
		if end >= 0 {
			t.Fatal("two last fragments")
		}
		end = at + len(b) - int(ip.HeaderLength())
	}
	if end < 0 {
		t.Fatal("no last fragment")
	}
	for i, ok := range have {
		if ok != (i < end) {
			t.Fatalf("byte %d of %d: present %v", i, end, ok)
		}
	}
	return payload[:end]
}

func TestFragmentRefused(t *testing.T) {
	udp := packettest.Spec{Src: pod4, Dst: service4, Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, make([]byte, 3000))}
	dont, v6 := udp, udp
	dont.DontFragment = true
	v6.Src, v6.Dst = pod6, service6
	for _, tt := range []struct {
		name string
		spec packettest.Spec
		mtu  int
		want bool
	}{
		{"DF clear", udp, 1340, true},
		{"fits already", udp, 9000, true},
		{"DF set", dont, 1340, false},
		{"IPv6", v6, 1340, false},
		{"eight bytes fit", udp, 28, true},
		{"seven bytes fit", udp, 27, false},
		{"MTU negative", udp, -1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, ok := packet.NewFragmenter(mustParse(t, tt.spec.Bytes()), tt.mtu); ok != tt.want {
				t.Errorf("NewFragmenter = %v, want %v", ok, tt.want)
			}
		})
	}
}

func TestFragmentIntoShortBuffer(t *testing.T) {
	spec := packettest.Spec{Src: pod4, Dst: service4, Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, make([]byte, 3000))}
	f, ok := packet.NewFragmenter(mustParse(t, spec.Bytes()), 1340)
	if !ok {
		t.Fatal("refused")
	}
	if n := f.Next(make([]byte, 1000)); n != 0 {
		t.Errorf("Next = %d, want 0", n)
	}
	if n := f.Next(make([]byte, 1340)); n != 0 {
		t.Errorf("Next after the end = %d, want 0", n)
	}
}

func FuzzFragment(t *testing.F) {
	f := mutate.New(t)
	r := rand.New(rand.NewPCG(10, 11))
	for _, options := range [][]byte{nil, routerAlert, append(timeStamp, routerAlert...), append(security, 1, 1, 1)} {
		spec := packettest.Spec{Src: pod4, Dst: service4, Options: options,
			Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, randomBytes(r, 300))}
		f.Add(spec.Bytes(), uint16(128))
		spec.Part = packettest.Part{Offset: 80, Length: 160}
		f.Add(spec.Bytes(), uint16(90))
	}
	f.Fuzz(func(t *testing.T, b []byte, mtu uint16) {
		p, ok := packet.Parse(b)
		if !ok {
			return
		}
		before := bytes.Clone(p.Bytes)
		f, ok := packet.NewFragmenter(p, int(mtu))
		if !ok {
			return
		}
		header4 := int(p.Bytes[0]&15) * 4
		word := binary.BigEndian.Uint16(p.Bytes[6:])
		var payload []byte
		all := collect(t, &f, int(mtu))
		for i, b := range all {
			ip := header.IPv4(b)
			if len(b) > int(mtu) || !ip.IsValid(len(b)) || int(ip.TotalLength()) != len(b) || !ip.IsChecksumValid() {
				t.Fatalf("fragment %d: bad header %x", i, b[:20])
			}
			last := i == len(all)-1
			if at := int(word&0x1fff)*8 + len(payload); int(ip.FragmentOffset()) != at {
				t.Fatalf("fragment %d: offset %d, want %d", i, ip.FragmentOffset(), at)
			}
			if want := !last || word&0x2000 != 0; ip.More() != want {
				t.Fatalf("fragment %d: more fragments %v, want %v", i, ip.More(), want)
			}
			if ip.ID() != header.IPv4(before).ID() || ip.TTL() != before[8] || ip.Protocol() != before[9] ||
				!bytes.Equal(b[12:20], before[12:20]) {
				t.Fatalf("fragment %d is of another packet", i)
			}
			if i == 0 && !bytes.Equal(b[20:ip.HeaderLength()], before[20:header4]) {
				t.Fatal("the first fragment has other options")
			}
			payload = append(payload, b[ip.HeaderLength():]...)
		}
		if !bytes.Equal(payload, before[header4:]) {
			t.Fatalf("payload of %d bytes, want %d, or it differs", len(payload), len(before)-header4)
		}
		if !bytes.Equal(before, p.Bytes) {
			t.Fatal("the packet was changed")
		}
	})
}

func TestFragmentZeroAllocations(t *testing.T) {
	if packettest.Race {
		t.Skip("the race detector allocates")
	}
	spec := packettest.Spec{Src: pod4, Dst: service4, Options: routerAlert, Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, make([]byte, 3000))}
	p, dst := mustParse(t, spec.Bytes()), make([]byte, 1340)
	if n := testing.AllocsPerRun(100, func() {
		f, ok := packet.NewFragmenter(p, 1340)
		if !ok {
			t.Fatal("refused")
		}
		for f.Next(dst) > 0 {
		}
	}); n != 0 {
		t.Errorf("%v allocations per packet, want 0", n)
	}
}

func BenchmarkFragment(b *testing.B) {
	spec := packettest.Spec{Src: pod4, Dst: service4, Proto: packet.ProtoUDP, Transport: packettest.Datagram(1, 2, make([]byte, 1472))}
	p, dst := mustParse(b, spec.Bytes()), make([]byte, 1340)
	b.ReportAllocs()
	b.SetBytes(int64(len(p.Bytes)))
	for b.Loop() {
		f, ok := packet.NewFragmenter(p, 1340)
		if !ok {
			b.Fatal("refused")
		}
		for f.Next(dst) > 0 {
		}
	}
}
