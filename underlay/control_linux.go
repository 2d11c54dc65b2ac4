package underlay

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control messages, cmsg(3): a struct cmsghdr (length including the header in
// the kernel's size_t, level, type), the data, and padding to the size of a word.

const (
	cmsgWord      = int(unsafe.Sizeof(uintptr(0)))
	cmsgHeaderLen = (unix.SizeofCmsghdr + cmsgWord - 1) &^ (cmsgWord - 1)
)

// segmentSize reads the control messages in b and returns what UDP_GRO says in
// them: the size of each datagram of a run but the last, 0 when the message is
// one datagram. What it does not know it skips, and where b makes no sense it
// stops: b is the kernel's work, but a wrong length must still not become a
// wrong slice.
func segmentSize(b []byte) (segment int) {
	for len(b) >= cmsgHeaderLen {
		length := cmsgLength(b)
		if length < uint64(cmsgHeaderLen) || length > uint64(len(b)) {
			return segment
		}
		level := int32(binary.NativeEndian.Uint32(b[cmsgWord:]))
		kind := int32(binary.NativeEndian.Uint32(b[cmsgWord+4:]))
		data := b[cmsgHeaderLen:length]
		if level == unix.SOL_UDP && kind == unix.UDP_GRO && len(data) >= 4 {
			if size := int32(binary.NativeEndian.Uint32(data)); size > 0 {
				segment = int(size)
			}
		}
		b = b[min(len(b), (int(length)+cmsgWord-1)&^(cmsgWord-1)):]
	}
	return segment
}

// putSegmentControl writes the UDP_SEGMENT control message into b and returns its
// length. size is a uint16 to the kernel; no datagram is longer.
func putSegmentControl(b []byte, size int) int {
	putCmsgLength(b, uint64(cmsgHeaderLen+2))
	binary.NativeEndian.PutUint32(b[cmsgWord:], unix.SOL_UDP)
	binary.NativeEndian.PutUint32(b[cmsgWord+4:], unix.UDP_SEGMENT)
	binary.NativeEndian.PutUint16(b[cmsgHeaderLen:], uint16(size))
	return unix.CmsgSpace(2)
}

func cmsgLength(b []byte) uint64 {
	if cmsgWord == 4 {
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func putCmsgLength(b []byte, n uint64) {
	if cmsgWord == 4 {
		binary.NativeEndian.PutUint32(b, uint32(n))
		return
	}
	binary.NativeEndian.PutUint64(b, n)
}
