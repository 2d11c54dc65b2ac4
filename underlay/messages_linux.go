package underlay

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// WaitMessages is ReadBatch for who takes runs apart where they lie: each
// message stands whole in one of bufs, which hold MaxDatagram bytes. ms is at least
// as long as bufs. A Conn is read with ReadBatch or as messages, not both ways.
func (c *Conn) WaitMessages(bufs [][]byte, ms []Message) (n int, err error) {
	if len(bufs) == 0 {
		return 0, nil
	}
	c.read.beginMessages(bufs)
	defer c.read.end()
	if err := c.await(c.read.messagesFunc); err != nil {
		return 0, err
	}
	return c.read.messages(ms)
}

// ReadMessages is WaitMessages without the wait: n is 0 when nothing has arrived.
func (c *Conn) ReadMessages(bufs [][]byte, ms []Message) (n int, err error) {
	c.read.beginMessages(bufs)
	defer c.read.end()
	c.read.receive = c.read.messagesFunc
	if _, err := c.receiveNow(); err != nil {
		return 0, err
	}
	return c.read.messages(ms)
}

// beginMessages lays out a message in each of bufs.
func (r *reader) beginMessages(bufs [][]byte) {
	r.begin(bufs, nil, nil)
	r.usedIovs = 0
	r.laid = min(len(bufs), r.window)
	for i := range r.laid {
		r.prepare(i, slot{i, 1, len(bufs[i])}, false)
	}
}

// fillMessages makes the one system call. It reports false when nothing has
// arrived.
func (r *reader) fillMessages(fd uintptr) bool {
	for {
		got, errno := r.recvmmsg(fd, r.msgs[:r.laid])
		switch errno {
		case 0:
			r.n = got
			for i := range got {
				r.waiter.arrived += int(r.msgs[i].len)
			}
			r.reads.Add(1)
			r.resize(got, got == r.laid)
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			r.errno = errno
			return true
		}
	}
}

// messages describes the messages received in ms.
func (r *reader) messages(ms []Message) (int, error) {
	if r.errno != 0 {
		return 0, fmt.Errorf("receive datagrams: %w", r.errno)
	}
	for i := range r.n {
		r.takeMessage(i, &ms[i])
	}
	return r.n, nil
}

// takeMessage describes the i-th message received in m.
func (r *reader) takeMessage(i int, m *Message) {
	h := &r.msgs[i]
	m.Data, m.Segment = r.bufs[i][:h.len], 0
	segment, from := r.origin(i)
	m.Origin = from
	if h.hdr.Flags&unix.MSG_TRUNC != 0 {
		r.truncated.Add(1)
		m.Data = nil
		return
	}
	m.Segment = segment
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
