package underlay

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// appendCmsg appends a control message as the kernel's put_cmsg writes it, padding included.
func appendCmsg(b []byte, level, kind int32, data []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, unix.CmsgSpace(len(data)))...)
	putCmsgLength(b[start:], uint64(unix.CmsgLen(len(data))))
	binary.NativeEndian.PutUint32(b[start+cmsgWord:], uint32(level))
	binary.NativeEndian.PutUint32(b[start+cmsgWord+4:], uint32(kind))
	copy(b[start+cmsgHeaderLen:], data)
	return b
}

func nativeUint32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func groControl(segment int) []byte {
	return appendCmsg(nil, unix.SOL_UDP, unix.UDP_GRO, nativeUint32(uint32(segment)))
}

func overrunsControl(n uint32) []byte {
	return appendCmsg(nil, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, nativeUint32(n))
}

// withLength returns b with the length of its first control message overwritten.
func withLength(b []byte, n uint64) []byte {
	b = bytes.Clone(b)
	putCmsgLength(b, n)
	return b
}

// join concatenates.
func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

type controlTest struct {
	name string
	data []byte
	want control
}

func controlTests() []controlTest {
	other := appendCmsg(nil, unix.SOL_IP, unix.IP_PKTINFO, make([]byte, 12))
	return []controlTest{
		{"nothing", nil, control{}},
		{"segment size", groControl(1452), control{segment: 1452}},
		{"overruns", overrunsControl(7), control{overruns: 7, counted: true}},
		{"no overruns so far", overrunsControl(0), control{counted: true}},
		{"both", join(groControl(1452), overrunsControl(7)), control{1452, 7, true}},
		{"behind an unknown one with padding", join(other, groControl(9)), control{segment: 9}},
		{"last one unpadded", join(overrunsControl(7), groControl(9)[:unix.CmsgLen(4)]), control{9, 7, true}},
		{"negative segment size", groControl(-1), control{}},
		{"segment size cut short", appendCmsg(nil, unix.SOL_UDP, unix.UDP_GRO, []byte{1, 0}), control{}},
		{"segment size of another level", appendCmsg(nil, unix.SOL_IP, unix.UDP_GRO, nativeUint32(9)), control{}},
		{"header cut short", groControl(9)[:cmsgHeaderLen-1], control{}},
		{"data cut short", groControl(9)[:cmsgHeaderLen+3], control{}},
		{"length zero", join(withLength(groControl(9), 0), groControl(9)), control{}},
		{"length within the header", withLength(groControl(9), uint64(cmsgHeaderLen)-1), control{}},
		{"length beyond the end", withLength(groControl(9), uint64(len(groControl(9)))+1), control{}},
		{"length that overflows int", withLength(groControl(9), 1<<63|uint64(cmsgHeaderLen+4)), control{}},
		{"length all ones", withLength(groControl(9), ^uint64(0)), control{}},
	}
}

func TestParseControl(t *testing.T) {
	for _, tt := range controlTests() {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseControl(tt.data); got != tt.want {
				t.Errorf("parseControl(% x) = %+v, want %+v", tt.data, got, tt.want)
			}
		})
	}
}

func TestPutSegmentControl(t *testing.T) {
	for _, size := range []int{1, 512, 1452, 65507} {
		b := bytes.Repeat([]byte{0xff}, controlLen)
		n := putSegmentControl(b, size)
		msgs, err := unix.ParseSocketControlMessage(b[:n])
		if err != nil || len(msgs) != 1 {
			t.Fatalf("%d: %d messages, %v", size, len(msgs), err)
		}
		m := msgs[0]
		if m.Header.Level != unix.SOL_UDP || m.Header.Type != unix.UDP_SEGMENT || len(m.Data) != 2 || int(binary.NativeEndian.Uint16(m.Data)) != size {
			t.Errorf("%d: got level %d type %d data % x", size, m.Header.Level, m.Header.Type, m.Data)
		}
	}
}

// slowParseControl is parseControl by the library.
func slowParseControl(b []byte) (c control, ok bool) {
	msgs, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return c, false
	}
	for _, m := range msgs {
		switch {
		case len(m.Data) < 4:
		case m.Header.Level == unix.SOL_UDP && m.Header.Type == unix.UDP_GRO:
			if size := int32(binary.NativeEndian.Uint32(m.Data)); size > 0 {
				c.segment = int(size)
			}
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_RXQ_OVFL:
			c.overruns, c.counted = binary.NativeEndian.Uint32(m.Data), true
		}
	}
	return c, true
}

func FuzzParseControl(f *testing.F) {
	for _, tt := range controlTests() {
		f.Add(tt.data)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := parseControl(b)
		// Where the library finds an error it returns nothing at all, so there is nothing
		// to compare. It also rejects lengths we need not accept.
		if want, ok := slowParseControl(b); ok && got != want {
			t.Errorf("parseControl(% x) = %+v, want %+v", b, got, want)
		}
	})
}

func TestStructSizesMatchTheKernels(t *testing.T) {
	word := int(unsafe.Sizeof(uintptr(0)))
	if got, want := int(unsafe.Sizeof(mmsghdr{})), unix.SizeofMsghdr+word; got != want {
		t.Errorf("mmsghdr has %d bytes, want %d", got, want)
	}
	if controlLen < 2*unix.CmsgSpace(4) {
		t.Errorf("%d bytes do not hold both control messages", controlLen)
	}
}
