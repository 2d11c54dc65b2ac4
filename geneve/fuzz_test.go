package geneve

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	if end > 64 {
		h.Options = b[8 : end/8]
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
			if !reflect.DeepEqual(Header{}, h) || inner != nil {
				t.Fatalf("result beside an error: %+v, %x", h, inner)
			}
			return
		}
		if !reflect.DeepEqual(want, h) { // cmp takes as long as all the rest, and more
			t.Fatalf("header (-reference +got):\n%s", cmp.Diff(want, h))
		}
		if !bytes.Equal(wantInner, inner) {
			t.Fatalf("payload = %x, reference %x", inner, wantInner)
		}
		again, inner2, err := Decode(append(AppendHeader(nil, h), inner...))
		if err != nil {
			t.Fatalf("Decode of the encoded header: %v", err)
		}
		if !reflect.DeepEqual(h, again) || !bytes.Equal(inner, inner2) {
			t.Fatalf("second round (-first +second):\n%s", cmp.Diff(h, again))
		}
		var data []Option
		for it := h.OptionIterator(); ; {
			o, ok := it.Next()
			if !ok {
				if it.Err() != nil {
					t.Fatalf("accepted options do not add up: %v", it.Err())
				}
				break
			}
			data = append(data, o)
		}
		var raw []byte
		for _, o := range data {
			raw = AppendOption(raw, o)
		}
		if len(raw) != len(h.Options) {
			t.Fatalf("options of %d bytes encode to %d", len(h.Options), len(raw))
		}
	})
}
