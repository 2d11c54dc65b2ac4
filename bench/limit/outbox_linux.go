package limit

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxRun and maxRunLen bound what is sent as one message: UDP_MAX_SEGMENTS, and
	// the largest payload of an IPv4 datagram, which a run is until it is cut.
	maxRun    = 128
	maxRunLen = 65507
	// olderMaxRun is UDP_MAX_SEGMENTS before Linux 6.9.
	olderMaxRun = 64

	// maxPieces is how many pieces of memory are gathered by one system call.
	maxPieces = 4 * maxRun
)

// outbox sends datagrams to one address, runs of equal length as one message. It
// belongs to one thread.
type outbox struct {
	socket   *socket
	name     sockaddr
	msgs     [maxMessages]mmsghdr
	controls [maxMessages]control
	iovs     [maxPieces]unix.Iovec
	usedMsgs int
	usedIovs int

	// The run at the end, to which datagrams are added: the size of each, how many
	// there are, their bytes, its first piece, and where the last one ends.
	segment, count, total, first int
	end                          uintptr
	open                         bool
	longest                      int // maxRun, or olderMaxRun once the kernel refused that

	errors    int
	lastError syscall.Errno
}

func newOutbox(s *socket, to netip.AddrPort) *outbox {
	out := &outbox{socket: s, longest: maxRun}
	length := putSockaddr(&out.name, to)
	for i := range out.msgs {
		h := &out.msgs[i].hdr
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&out.name)), length
		c := &out.controls[i]
		c.hdr.Level, c.hdr.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		c.hdr.SetLen(unix.CmsgLen(2))
	}
	return out
}

// add takes one datagram, which is not empty and whose bytes stay until flush.
func (out *outbox) add(b []byte) {
	if !out.open || len(b) > out.segment || out.count == out.longest || out.total+len(b) > maxRunLen {
		out.begin(len(b))
	}
	out.count++
	out.total += len(b)
	out.open = len(b) == out.segment // a shorter one ends the run
	start := uintptr(unsafe.Pointer(&b[0]))
	if start == out.end {
		last := &out.iovs[out.usedIovs-1]
		last.SetLen(int(last.Len) + len(b))
	} else {
		out.iovs[out.usedIovs].Base = &b[0]
		out.iovs[out.usedIovs].SetLen(len(b))
		out.usedIovs++
	}
	out.end = start + uintptr(len(b))
}

// begin starts a run of datagrams of the given size.
func (out *outbox) begin(size int) {
	out.complete()
	if out.usedMsgs == len(out.msgs) || out.usedIovs+maxRun > len(out.iovs) {
		out.transmit()
	}
	out.msgs[out.usedMsgs].hdr.Iov = &out.iovs[out.usedIovs]
	out.usedMsgs++
	out.segment, out.count, out.total, out.first, out.end = size, 0, 0, out.usedIovs, 0
}

// complete writes down the run at the end.
func (out *outbox) complete() {
	if out.count == 0 {
		return
	}
	h, c := &out.msgs[out.usedMsgs-1].hdr, &out.controls[out.usedMsgs-1]
	h.SetIovlen(out.usedIovs - out.first)
	h.Control = nil
	h.SetControllen(0)
	if out.count > 1 {
		binary.NativeEndian.PutUint16(c.data[:], uint16(out.segment))
		h.Control = (*byte)(unsafe.Pointer(c))
		h.SetControllen(unix.CmsgSpace(2))
	}
	out.count, out.open = 0, false
}

// flush sends all that was added.
func (out *outbox) flush() {
	out.complete()
	out.transmit()
}

// transmit sends the complete runs. What the kernel refuses is dropped and counted.
func (out *outbox) transmit() {
	for rest := out.msgs[:out.usedMsgs]; len(rest) > 0; {
		n, errno := out.socket.call(unix.SYS_SENDMMSG, rest, 0)
		if errno != 0 {
			out.errors++
			out.lastError = errno
			n = 1
			if errno == unix.EINVAL {
				out.longest = olderMaxRun
			}
		}
		rest = rest[n:]
	}
	out.usedMsgs, out.usedIovs, out.end = 0, 0, 0
}
