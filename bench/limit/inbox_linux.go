package limit

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// messageLen holds any message: a run of datagrams is one IP packet to the kernel.
	messageLen = 1 << 16
	// headroom is free before each message, and slack behind it: the encapsulation
	// towards the node needs more than the header of the tunnel leaves, and padding
	// stands behind the last packet.
	headroom = 64
	slack    = 64

	// maxMessages is how many messages are received at once: single small packets.
	maxMessages = 64
	// batchLen is how many bytes: what fits the processor's own cache with what is
	// made of it.
	batchLen = 128 << 10
)

// inbox receives messages, each whole in a buffer of its own. It belongs to
// one thread.
type inbox struct {
	socket   *socket
	msgs     [maxMessages]mmsghdr
	iovs     [maxMessages]unix.Iovec
	names    [maxMessages]sockaddr
	controls [maxMessages]control
	bufs     [maxMessages][]byte
	// want is how many messages are asked for: as many as fill batchLen if they are
	// like the last ones.
	want int
}

func newInbox(s *socket) *inbox {
	in := &inbox{socket: s, want: 1}
	for i := range in.msgs {
		in.bufs[i] = make([]byte, headroom+messageLen+slack)
		in.iovs[i].Base = &in.bufs[i][headroom]
		in.iovs[i].SetLen(messageLen)
		h := &in.msgs[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&in.names[i]))
		h.Iov = &in.iovs[i]
		h.SetIovlen(1)
		h.Control = (*byte)(unsafe.Pointer(&in.controls[i]))
	}
	return in
}

// receive waits for a message and takes what else is there. The error is
// net.ErrClosed after shut.
func (in *inbox) receive() (n int, err error) {
	for i := range in.msgs[:in.want] {
		h := &in.msgs[i].hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(int(unsafe.Sizeof(control{})))
	}
	n, errno := in.socket.call(unix.SYS_RECVMMSG, in.msgs[:in.want], unix.MSG_WAITFORONE)
	switch {
	case in.socket.closed.Load():
		return 0, net.ErrClosed
	case errno != 0:
		return 0, fmt.Errorf("receive: %w", errno)
	}
	total := 0
	for i := range in.msgs[:n] {
		total += int(in.msgs[i].len)
	}
	in.want = max(1, min(maxMessages, batchLen*n/max(total, 1)))
	return n, nil
}

// message is the i-th message received: headroom bytes, its data, and the size of
// the datagrams in it if they are several.
func (in *inbox) message(i int) (buf []byte, size, segment int) {
	m, c := &in.msgs[i], &in.controls[i]
	size = int(m.len)
	if m.hdr.Controllen >= unix.SizeofCmsghdr && c.hdr.Level == unix.SOL_UDP && c.hdr.Type == unix.UDP_GRO {
		segment = int(int32(binary.NativeEndian.Uint32(c.data[:])))
	}
	if segment <= 0 || segment > size {
		segment = size
	}
	return in.bufs[i], size, segment
}

func (in *inbox) from(i int) netip.AddrPort { return addrPort(&in.names[i]) }
