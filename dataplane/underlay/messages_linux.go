package underlay

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadMessages is ReadBatch for who takes runs apart where they lie: each
// message stands whole in one of bufs, which hold MaxDatagram bytes. It does not
// wait: n is 0 when nothing has arrived. A Conn is read with ReadBatch or with
// ReadMessages, not with both. ms is at least as long as bufs.
func (c *Conn) ReadMessages(bufs [][]byte, ms []Message) (n int, err error) {
	r := &c.read
	r.usedIovs = 0
	m := min(len(bufs), maxMessages)
	for i := range m {
		r.bufs = bufs
		r.prepare(i, slot{i, 1, len(bufs[i])}, false)
	}
	r.laid, r.errno, r.n = m, 0, 0
	defer r.end()
	if err := c.raw.Control(r.messagesFunc); err != nil {
		return 0, closedError(err)
	}
	if r.errno != 0 {
		return 0, fmt.Errorf("receive datagrams: %w", r.errno)
	}
	for i := range r.n {
		r.takeMessage(i, &ms[i])
	}
	return r.n, nil
}

// receiveMessages makes the one system call of ReadMessages.
func (r *reader) receiveMessages(fd uintptr) {
	for {
		got, errno := r.recvmmsg(fd, r.msgs[:r.laid])
		switch {
		case errno == 0:
			r.n = got
			r.reads.Add(1)
		case errno == unix.EINTR:
			continue
		case errors.Is(errno, unix.EAGAIN):
		default:
			r.errno = errno
		}
		return
	}
}

// takeMessage describes the i-th message received in m.
func (r *reader) takeMessage(i int, m *Message) {
	h := &r.msgs[i]
	m.Data, m.Segment = r.bufs[i][:h.len], 0
	m.Addr = addrPort(&r.names[i], &r.zone)
	if h.hdr.Flags&unix.MSG_TRUNC != 0 {
		r.truncated.Add(1)
		m.Data = nil
		return
	}
	m.Segment = segmentSize(r.controls[i][:min(h.hdr.Controllen, controlLen)])
	if m.Segment == 0 || m.Segment >= len(m.Data) {
		m.Segment = len(m.Data)
		r.dgrams.Add(1)
		return
	}
	r.dgrams.Add(uint64((len(m.Data) + m.Segment - 1) / m.Segment))
	r.runs.Add(1)
}

// SyscallConn gives access to the socket's file descriptor, to wait for several
// sockets and devices at once.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }
