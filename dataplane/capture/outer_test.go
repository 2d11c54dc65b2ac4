package capture

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/test/packettest"
)

// TestWire: what comes out is the datagram that a system would have sent, checksum
// included.
func TestWire(t *testing.T) {
	for _, tt := range []struct{ src, dst string }{
		{"192.0.2.1:51840", "198.51.100.7:4096"}, {"[2001:db8::1]:51840", "[fd00::7]:4096"}, {"[::ffff:192.0.2.1]:1", "192.0.2.2:2"},
	} {
		src, dst := netip.MustParseAddrPort(tt.src), netip.MustParseAddrPort(tt.dst)
		for _, size := range []int{0, 1, 148, 1400, 65000} {
			payload := bytes.Repeat([]byte{0xa5, 1, 2}, size)[:size]
			p := wire(tt.src, tt.dst, size)
			p.Head, p.Body = payload[:size/3], payload[size/3:]
			c := newCapture(t, Config{Points: PointSet(Wire)})
			under(t, c).Active().Offer(&p)
			want := packettest.Spec{Src: src.Addr().Unmap(), Dst: dst.Addr().Unmap(), Proto: packettest.UDP, DontFragment: true,
				Transport: packettest.Datagram(src.Port(), dst.Port(), payload)}.Bytes()
			if got, ok := c.Next(); !ok || !bytes.Equal(got.Data, want) {
				t.Errorf("%s to %s, %d bytes:\ngot  %x\nwant %x", tt.src, tt.dst, size, head(got.Data), head(want))
			}
		}
	}
}

// TestWireCut: a checksum over what is not there is not finished.
func TestWireCut(t *testing.T) {
	p := wire("192.0.2.1:51840", "198.51.100.7:4096", 1000)
	c := newCapture(t, Config{Points: PointSet(Wire), Snaplen: 100})
	under(t, c).Active().Offer(&p)
	if got, ok := c.Next(); !ok || got.Length != 1028 || len(got.Data) != 100 {
		t.Errorf("%v: %d, %x", ok, got.Length, got.Data)
	}
}

func head(b []byte) []byte { return b[:min(len(b), 80)] }

// TestWireOfTwoFamilies: what cannot be is written down somehow.
func TestWireOfTwoFamilies(t *testing.T) {
	p := wire("192.0.2.1:1", "[2001:db8::1]:2", 3)
	c := newCapture(t, Config{Points: PointSet(Wire)})
	under(t, c).Active().Offer(&p)
	if got, ok := c.Next(); !ok || !parses(got.Data) || got.Data[0]>>4 != 6 {
		t.Errorf("%v: %x", ok, got.Data)
	}
}
