package underlay

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/test/mutate"
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
	want control
}

func controlTests() []controlTest {
	local := func(a string) control { return control{local: netip.MustParseAddr(a)} }
	// struct in_pktinfo: interface, address to answer from, address in the header.
	info4 := func(answer string) []byte {
		a := netip.MustParseAddr(answer).As4()
		return appendCmsg(nil, unix.SOL_IP, unix.IP_PKTINFO, join(nativeUint32(7), a[:], []byte{203, 0, 113, 9}))
	}
	info6 := func(addr string) []byte {
		a := netip.MustParseAddr(addr).As16()
		return appendCmsg(nil, unix.SOL_IPV6, unix.IPV6_PKTINFO, join(a[:], nativeUint32(7)))
	}
	tos := appendCmsg(nil, unix.SOL_IP, unix.IP_TOS, []byte{0xb8 | 3})
	class := appendCmsg(nil, unix.SOL_IPV6, unix.IPV6_TCLASS, nativeUint32(0xb8|1))
	other := appendCmsg(nil, unix.SOL_IP, unix.IP_TTL, make([]byte, 12))
	segment := control{segment: 9}
	return []controlTest{
		{"nothing", nil, control{}},
		{"segment size", groControl(1452), control{segment: 1452}},
		{"behind an unknown one with padding", join(other, groControl(9)), segment},
		{"last one unpadded", join(other, groControl(9)[:unix.CmsgLen(4)]), segment},
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
		{"IPv4 address", info4("192.0.2.7"), local("192.0.2.7")},
		{"IPv4 address by an IPv6 socket", info6("::ffff:192.0.2.7"), local("192.0.2.7")},
		{"IPv6 address", info6("2001:db8::7"), local("2001:db8::7")},
		{"broadcast", info4("255.255.255.255"), control{}},
		{"multicast", info6("ff02::1"), control{}},
		{"unspecified", info4("0.0.0.0"), control{}},
		{"address cut short", info6("2001:db8::7")[:unix.CmsgLen(19)], control{}},
		{"type of service", tos, control{ecn: 3}},
		{"traffic class", class, control{ecn: 1}},
		{"all", join(info4("192.0.2.7"), tos, groControl(9)), control{segment: 9, local: netip.MustParseAddr("192.0.2.7"), ecn: 3}},
	}
}

func TestReadControl(t *testing.T) {
	for _, tt := range controlTests() {
		t.Run(tt.name, func(t *testing.T) {
			if got := readControl(tt.data); got != tt.want {
				t.Errorf("readControl(% x) = %+v, want %+v", tt.data, got, tt.want)
			}
		})
	}
}

// What is written is what the kernel reads, and would itself write.
func TestPutControl(t *testing.T) {
	ip4, ip6 := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")
	for _, tt := range []struct {
		to   string
		put  control
		want control
		n    int // messages
	}{
		{"192.0.2.1", control{}, control{}, 0},
		{"192.0.2.1", control{segment: 65507}, control{}, 1},
		{"192.0.2.1", control{local: ip4, ecn: 3, segment: 1452}, control{local: ip4, ecn: 3}, 3},
		{"::ffff:192.0.2.1", control{local: ip4, ecn: 1}, control{local: ip4, ecn: 1}, 2},
		{"2001:db8::1", control{local: ip6, ecn: 2, segment: 1}, control{local: ip6, ecn: 2}, 3},
		{"2001:db8::1", control{local: ip4}, control{}, 0}, // another family: as the routes say
		{"192.0.2.1", control{local: ip6}, control{}, 0},
	} {
		b := [controlLen]byte(bytes.Repeat([]byte{0xff}, controlLen))
		n := putControl(&b, tt.put, netip.MustParseAddr(tt.to))
		msgs, err := unix.ParseSocketControlMessage(b[:n])
		if err != nil || len(msgs) != tt.n {
			t.Fatalf("%+v to %s: %d messages, %v", tt.put, tt.to, len(msgs), err)
		}
		segment := 0
		for _, m := range msgs {
			switch {
			case m.Header.Level == unix.SOL_UDP && m.Header.Type == unix.UDP_SEGMENT && len(m.Data) == 2:
				segment = int(binary.NativeEndian.Uint16(m.Data))
			case m.Header.Type == unix.IP_PKTINFO && binary.NativeEndian.Uint32(m.Data) != 0,
				m.Header.Type == unix.IPV6_PKTINFO && binary.NativeEndian.Uint32(m.Data[16:]) != 0:
				t.Errorf("%+v to %s: binds to an interface", tt.put, tt.to)
			}
		}
		if segment != tt.put.segment {
			t.Errorf("%+v to %s: segment %d", tt.put, tt.to, segment)
		}
		if got := readControl(b[:n]); got != tt.want {
			t.Errorf("%+v to %s: reads as %+v, want %+v", tt.put, tt.to, got, tt.want)
		}
	}
}

// slowReadControl is readControl by the library.
func slowReadControl(b []byte) (c control, ok bool) {
	msgs, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return c, false
	}
	for _, m := range msgs {
		c.take(m.Header.Level, m.Header.Type, m.Data)
	}
	return c, true
}

func FuzzReadControl(t *testing.F) {
	f := mutate.New(t)
	for _, tt := range controlTests() {
		f.Add(tt.data)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := readControl(b)
		// Where the library finds an error it returns nothing at all, so there is nothing
		// to compare. It also rejects lengths we need not accept.
		if want, ok := slowReadControl(b); ok && got != want {
			t.Errorf("readControl(% x) = %+v, want %+v", b, got, want)
		}
	})
}

func TestStructSizesMatchTheKernels(t *testing.T) {
	word := int(unsafe.Sizeof(uintptr(0)))
	if got, want := int(unsafe.Sizeof(mmsghdr{})), unix.SizeofMsghdr+word; got != want {
		t.Errorf("mmsghdr has %d bytes, want %d", got, want)
	}
	if controlLen < unix.CmsgSpace(4)+unix.CmsgSpace(unix.SizeofInet6Pktinfo)+unix.CmsgSpace(4) {
		t.Errorf("%d bytes do not hold the control messages", controlLen)
	}
}
