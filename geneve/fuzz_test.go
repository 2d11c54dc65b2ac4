package geneve

import (
	"bytes"
	"testing"

	"github.com/sluice-net/sluice/test/mutate"
)

// reference is Decode as slowly and literally as the RFCs can be read: one bit
// field at a time, nothing shared with the code under test.
func reference(b []byte) (h Header, payload []byte, ok bool) {
	bits := func(from, n int) (v int) {
		for i := from; i < from+n; i++ {
			v = v<<1 | int(b[i/8]>>(7-i%8)&1)
		}
		return v
	}
	if len(b)*8 < 64 {
		return h, nil, false
	}
	h.VNI = VNI(bits(32, 24))
	if bits(16, 16) < 0x600 { // not an EtherType: VXLAN
		h.Encapsulation, h.Protocol = VXLAN, ProtocolEthernet
		return h, b[8:], bits(4, 1) == 1
	}
	h.Protocol = uint16(bits(16, 16))
	switch h.Protocol {
	case 0x6558:
	case 0x0800, 0x86dd:
		h.Encapsulation = GeneveIP
	default:
		return h, nil, false
	}
	at, end := 64, 64+bits(2, 6)*32
	if bits(0, 2) != 0 || bits(9, 1) != 0 || end > len(b)*8 {
		return h, nil, false
	}
	h.OAM = bits(8, 1) == 1
	for at < end {
		if bits(at+16, 1) == 1 {
			return h, nil, false
		}
		at += 32 + bits(at+27, 5)*32
	}
	return h, b[end/8:], at == end
}

func FuzzDecode(t *testing.F) {
	f := mutate.New(t)
	for _, tt := range wireTests {
		f.Add(unhex(f, tt.wire))
	}
	for _, tt := range receiveTests {
		f.Add(unhex(f, tt.wire))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		h, inner, err := Decode(b)
		if !bytes.Equal(b, before) {
			t.Fatal("Decode wrote to its input")
		}
		if n, ok := DatagramLen(b); ok && (err != nil || n < len(b)-len(inner)) {
			t.Fatalf("DatagramLen: %d, where Decode says %v and a header of %d bytes", n, err, len(b)-len(inner))
		}
		want, wantInner, ok := reference(b)
		if ok != (err == nil) {
			t.Fatalf("Decode: %v, reference accepts: %v", err, ok)
		}
		if err != nil {
			if h != (Header{}) || inner != nil {
				t.Fatalf("result beside an error: %+v, %x", h, inner)
			}
			return
		}
		if h != want {
			t.Fatalf("header %+v, reference %+v", h, want)
		}
		if !bytes.Equal(wantInner, inner) {
			t.Fatalf("payload = %x, reference %x", inner, wantInner)
		}
		h.OAM = false // which nobody sends
		wire := append(make([]byte, HeaderLen), inner...)
		PutHeader(wire, h.Encapsulation, h.VNI, h.Protocol)
		again, inner2, err := Decode(wire)
		if err != nil || again != h || !bytes.Equal(inner, inner2) {
			t.Fatalf("second round: %+v, %x, %v, first %+v, %x", again, inner2, err, h, inner)
		}
	})
}
