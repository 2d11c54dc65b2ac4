package packet_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	gchecksum "gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
)

// same16 reports whether two one's complement numbers are equal: zero has two
// representations.
func same16(a, b uint16) bool { return a == b || a == 0 && b == 0xffff || a == 0xffff && b == 0 }

func TestSum(t *testing.T) {
	tests := []struct {
		name    string
		b       []byte
		initial uint16
		want    uint16
	}{
		{"nothing", nil, 0, 0},
		{"nothing with an initial value", nil, 0x1234, 0x1234},
		{"one byte is the high half of a word", []byte{0xab}, 0, 0xab00},
		{"the example of RFC 1071 section 3", []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}, 0, 0xddf2},
		{"a carry goes round", []byte{0xff, 0xff, 0x00, 0x01}, 0, 0x0001},
		{"a carry out of the initial value", []byte{0xff, 0xff}, 0xffff, 0xffff},
		{"zeros stay zero", make([]byte, 200), 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := packet.Sum(tt.b, tt.initial); got != tt.want {
				t.Errorf("Sum = %#04x, want %#04x", got, tt.want)
			}
		})
	}
}

// checkSum compares Sum with the slow sum and with gVisor's.
func checkSum(t *testing.T, b []byte, initial uint16) {
	t.Helper()
	got := packet.Sum(b, initial)
	slow := packettest.Sum(append([]byte{byte(initial >> 8), byte(initial)}, b...))
	if got != slow {
		t.Errorf("Sum(%x, %#04x) = %#04x, slow sum %#04x", b, initial, got, slow)
	}
	if g := gchecksum.Checksum(b, initial); !same16(got, g) {
		t.Errorf("Sum(%x, %#04x) = %#04x, gVisor %#04x", b, initial, got, g)
	}
}

func TestSumEveryLength(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random, ones := make([]byte, 600), make([]byte, 600)
	for i := range random {
		random[i], ones[i] = byte(r.Uint32()), 0xff
	}
	for n := range 300 {
		for at := range 9 { // every alignment
			checkSum(t, random[at:at+n], uint16(r.Uint32()))
			checkSum(t, ones[at:at+n], 0xffff)
			checkSum(t, ones[at:at+n], 0) // carries out of the last addition
		}
	}
}

func FuzzChecksum(t *testing.F) {
	f := mutate.New(t)
	f.Add([]byte{}, uint16(0))
	f.Add([]byte{0xff}, uint16(0xffff))
	f.Add([]byte("forty-one bytes, so that there is a tail."), uint16(1))
	f.Add(make([]byte, 129), uint16(0xff00))
	f.Fuzz(func(t *testing.T, b []byte, initial uint16) {
		checkSum(t, b, initial)
		// A sum over two slices is the sum over both, when the first is even.
		cut := len(b) / 2 &^ 1
		if got, want := packet.Sum(b[cut:], packet.Sum(b[:cut], initial)), packet.Sum(b, initial); got != want {
			t.Errorf("chained at %d: %#04x, in one %#04x", cut, got, want)
		}
	})
}

func TestFold(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	values := []uint64{0, 1, 0xffff, 0x10000, 0xffffffff, 0x1ffff, ^uint64(0), 1 << 63, 0xffff0001ffff}
	for range 1000 {
		values = append(values, r.Uint64())
	}
	for _, v := range values {
		got := packet.Fold(v)
		if uint64(got)%0xffff != v%0xffff {
			t.Errorf("Fold(%#x) = %#x, not congruent", v, got)
		}
		if (got == 0) != (v == 0) {
			t.Errorf("Fold(%#x) = %#x: only zero folds to zero", v, got)
		}
	}
}

func TestPseudoHeader(t *testing.T) {
	tests := []struct {
		src, dst string
		proto    uint8
		length   int
	}{
		{"10.243.0.1", "10.71.255.254", packet.ProtoTCP, 20},
		{"255.255.255.255", "255.255.255.255", packet.ProtoUDP, 65515},
		{"fd00::1", "2001:db8:ffff::1", packet.ProtoICMPv6, 8},
		{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::", packet.ProtoTCP, 0x12345},
	}
	for _, tt := range tests {
		src, dst := netip.MustParseAddr(tt.src), netip.MustParseAddr(tt.dst)
		got := packet.PseudoHeader(src, dst, tt.proto, tt.length)
		want := header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(tt.proto),
			tcpip.AddrFromSlice(src.AsSlice()), tcpip.AddrFromSlice(dst.AsSlice()), 0)
		want = gchecksum.Combine(want, packet.Fold(uint64(tt.length)))
		if !same16(got, want) {
			t.Errorf("PseudoHeader(%s, %s, %d, %d) = %#04x, gVisor %#04x", src, dst, tt.proto, tt.length, got, want)
		}
	}
}

// TestUpdate changes words of a sum one by one, the corner of RFC 1624 section
// 4 among them.
func TestUpdate(t *testing.T) {
	if got := packet.Update(0xdd2f, 0x5555, 0x3285); got != 0 {
		t.Errorf("the example of RFC 1624 section 4: %#04x, want 0", got)
	}
	r := rand.New(rand.NewPCG(5, 6))
	corner := []uint16{0, 1, 0xfffe, 0xffff}
	word := func() uint16 {
		if r.IntN(3) == 0 {
			return corner[r.IntN(len(corner))]
		}
		return uint16(r.Uint32())
	}
	for range packettest.Rounds(100_000) {
		w := []uint16{1 + word()&0xff, word(), word()}
		bytes := func() (b []byte) {
			for _, v := range w {
				b = append(b, byte(v>>8), byte(v))
			}
			return b
		}
		check := packettest.Checksum(bytes())
		before, after := w[1], word()
		w[1] = after
		if got, want := packet.Update(check, before, after), packettest.Checksum(bytes()); got != want {
			t.Fatalf("Update(%#04x, %#04x, %#04x) = %#04x, recomputed %#04x", check, before, after, got, want)
		}
	}
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{20, 64, 576, 1400, 9000, 65000} {
		buf := make([]byte, n)
		for i := range buf {
			buf[i] = byte(i)
		}
		b.Run(fmt.Sprintf("sluice/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				packet.Sum(buf, 0)
			}
		})
		b.Run(fmt.Sprintf("gvisor/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				gchecksum.Checksum(buf, 0)
			}
		})
	}
}
