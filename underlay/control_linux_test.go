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
	want int
}

func controlTests() []controlTest {
	other := appendCmsg(nil, unix.SOL_IP, unix.IP_PKTINFO, make([]byte, 12))
	return []controlTest{
		{"nothing", nil, 0},
		{"segment size", groControl(1452), 1452},
		{"behind an unknown one with padding", join(other, groControl(9)), 9},
		{"last one unpadded", join(other, groControl(9)[:unix.CmsgLen(4)]), 9},
		{"negative segment size", groControl(-1), 0},
		{"segment size cut short", appendCmsg(nil, unix.SOL_UDP, unix.UDP_GRO, []byte{1, 0}), 0},
		{"segment size of another level", appendCmsg(nil, unix.SOL_IP, unix.UDP_GRO, nativeUint32(9)), 0},
		{"header cut short", groControl(9)[:cmsgHeaderLen-1], 0},
		{"data cut short", groControl(9)[:cmsgHeaderLen+3], 0},
		{"length zero", join(withLength(groControl(9), 0), groControl(9)), 0},
		{"length within the header", withLength(groControl(9), uint64(cmsgHeaderLen)-1), 0},
		{"length beyond the end", withLength(groControl(9), uint64(len(groControl(9)))+1), 0},
		{"length that overflows int", withLength(groControl(9), 1<<63|uint64(cmsgHeaderLen+4)), 0},
		{"length all ones", withLength(groControl(9), ^uint64(0)), 0},
	}
}

func TestSegmentSize(t *testing.T) {
	for _, tt := range controlTests() {
		t.Run(tt.name, func(t *testing.T) {
			if got := segmentSize(tt.data); got != tt.want {
				t.Errorf("segmentSize(% x) = %d, want %d", tt.data, got, tt.want)
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

// slowSegmentSize is segmentSize by the library.
func slowSegmentSize(b []byte) (segment int, ok bool) {
	msgs, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return segment, false
	}
	for _, m := range msgs {
		switch {
		case len(m.Data) < 4:
		case m.Header.Level == unix.SOL_UDP && m.Header.Type == unix.UDP_GRO:
			if size := int32(binary.NativeEndian.Uint32(m.Data)); size > 0 {
				segment = int(size)
			}
		}
	}
	return segment, true
}

func FuzzSegmentSize(f *testing.F) {
	for _, tt := range controlTests() {
		f.Add(tt.data)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := segmentSize(b)
		// Where the library finds an error it returns nothing at all, so there is nothing
		// to compare. It also rejects lengths we need not accept.
		if want, ok := slowSegmentSize(b); ok && got != want {
			t.Errorf("segmentSize(% x) = %d, want %d", b, got, want)
		}
	})
}

func TestStructSizesMatchTheKernels(t *testing.T) {
	word := int(unsafe.Sizeof(uintptr(0)))
	if got, want := int(unsafe.Sizeof(mmsghdr{})), unix.SizeofMsghdr+word; got != want {
		t.Errorf("mmsghdr has %d bytes, want %d", got, want)
	}
	if controlLen < unix.CmsgSpace(4) {
		t.Errorf("%d bytes do not hold the control message", controlLen)
	}
}
