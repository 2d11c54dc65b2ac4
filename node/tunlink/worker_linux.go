package tunlink

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/underlay"
)

const (
	// Numbers of what is in an epoll set; queues have others.
	idWake   = 0
	idSocket = 1

	// maxEvents are taken from the kernel at once.
	maxEvents = 64
	// turn bounds how often one source is read before the others have theirs.
	turn = 8
)

// worker carries packets both ways: from its queue of every device to the socket, and,
// if it is the first, from the socket to the devices. One goroutine does both so
// that what a delivered packet causes, an acknowledgment above all, is sent
// before anybody is woken for it.
type worker struct {
	ep    *Endpoint
	index int
	epoll int
	wake  int // an eventfd that ends a wait

	tx  *transmitter
	rx  *receiver
	now int64 // the Endpoint's clock at the beginning of the batch

	pieces [][]byte
	iovs   []unix.Iovec
	vnet   [vnetLen]byte
	split  []byte
	events [maxEvents]unix.EpollEvent

	// mu is held while events are dealt with, so that who holds it can change what
	// follows.
	mu      sync.Mutex
	queues  map[int32]*queue
	last    int32          // number of a queue; 2^31 attachments are not to be expected
	conn    *underlay.Conn // to receive from; nil: none
	stopped bool
}

func newWorker(e *Endpoint, index int) (*worker, error) {
	w := &worker{
		ep: e, index: index, epoll: -1, wake: -1,
		tx: newTransmitter(), rx: newReceiver(e.opts.GRO),
		pieces: make([][]byte, 0, 256), iovs: make([]unix.Iovec, 0, 256), split: make([]byte, maxPacket),
		queues: make(map[int32]*queue), last: idSocket,
	}
	var err error
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make an epoll set: %w", err)
	}
	if w.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		w.close()
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	if err := w.watch(w.wake, idWake); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *worker) close() {
	for _, fd := range []int{w.epoll, w.wake} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (w *worker) watch(fd int, id int32) error {
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: id}); err != nil {
		return fmt.Errorf("add to the epoll set: %w", err)
	}
	return nil
}

func (w *worker) unwatch(fd int) { _ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// follow makes the worker read its queues of the devices in s and forget those of the
// stale ones. It uses neither them nor an older snapshot when this returns.
func (w *worker) follow(s *snapshot, stale []*device) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rx.forget()
	for _, d := range stale {
		q := d.queues[w.index]
		if w.queues[q.id] == q {
			w.unwatch(q.fd)
			delete(w.queues, q.id)
		}
	}
	for _, t := range s.sorted {
		q := t.device.queues[w.index]
		if q.id != 0 {
			continue
		}
		w.last++
		q.id = w.last
		if err := w.watch(q.fd, q.id); err != nil {
			t.device.fail(err)
			continue
		}
		w.queues[q.id] = q
	}
}

// setConn gives the worker the socket to send to and, if receive is set, to receive from.
func (w *worker) setConn(c *underlay.Conn, receive bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil {
		old, err := w.conn.SyscallConn()
		if err == nil {
			_ = old.Control(func(fd uintptr) { w.unwatch(int(fd)) })
		}
	}
	w.tx.conn, w.conn = nil, nil
	if c == nil {
		return nil
	}
	w.tx.conn = c
	if !receive {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(fd uintptr) { err = w.watch(int(fd), idSocket) }); e != nil {
		return e
	}
	w.conn = c
	return err
}

// stop makes run return.
func (w *worker) stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	_, _ = unix.Write(w.wake, []byte{7: 1}) // any number but zero, eight bytes
}

// yieldAfter is less than the 10 ms after which the runtime takes its processor from a
// goroutine that has not yielded whenever it waits, and looks every 20 microseconds.
const yieldAfter = 5 * time.Millisecond

// run carries packets until stop. It waits in epoll_wait itself and not in the runtime's
// poller, which would wake another thread for every packet that arrives meanwhile.
func (w *worker) run() error {
	yielded := int64(0)
	for {
		n, err := unix.EpollWait(w.epoll, w.events[:], -1)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("wait for packets: %w", err)
		}
		if w.work(w.events[:max(n, 0)]) {
			return nil
		}
		if w.now-yielded > int64(yieldAfter) {
			yielded = w.now
			runtime.Gosched()
		}
	}
}

// work deals with what is ready and reports whether it is time to stop.
func (w *worker) work(events []unix.EpollEvent) (stopped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.ep.clock()
	for i := range events {
		switch id := events[i].Fd; id {
		case idWake:
			var b [8]byte
			_, _ = unix.Read(w.wake, b[:])
		case idSocket:
			if w.conn != nil {
				w.receive()
			}
		default:
			if q := w.queues[id]; q != nil {
				w.drain(q)
			}
		}
	}
	w.tx.flush()
	return w.stopped
}

// receive takes its turn of messages from the socket.
func (w *worker) receive() {
	s := w.ep.snap.Load()
	for range turn {
		n, err := w.conn.ReadMessages(w.rx.bufs, w.rx.messages)
		if err != nil || n == 0 {
			return // an error about the socket shows in what it no longer brings
		}
		for i := range w.rx.messages[:n] {
			w.message(s, &w.rx.messages[i])
		}
		w.deliver()
		w.rx.forget() // so that each batch notes that its gateways were heard
		if n < len(w.rx.bufs) {
			return
		}
	}
}

// drain takes its turn of packets from a queue.
func (w *worker) drain(q *queue) {
	t := q.device.tunnel.Load()
	for range turn * 8 {
		n, errno := readRaw(q.fd, w.tx.space())
		switch errno {
		case 0:
			w.tx.take(t, n, w.now)
		case unix.EAGAIN:
			return
		case unix.EINTR:
		default:
			// EBADFD after somebody has deleted the device. It would be ready for ever.
			q.device.fail(fmt.Errorf("read from the device: %w", errno))
			w.unwatch(q.fd)
			delete(w.queues, q.id)
			return
		}
	}
}

// write gives the device a packet of count segments in pieces.
func (w *worker) write(t *tunnel, v vnetHeader, pieces [][]byte, count int) {
	v.put(w.vnet[:])
	w.iovs = append(w.iovs[:0], unix.Iovec{Base: &w.vnet[0], Len: vnetLen})
	for _, b := range pieces {
		w.iovs = append(w.iovs, unix.Iovec{Base: &b[0], Len: uint64(len(b))})
	}
	q := t.device.queues[w.index]
	_, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(q.fd), uintptr(unsafe.Pointer(&w.iovs[0])), uintptr(len(w.iovs)))
	clear(w.iovs)
	if errno != 0 {
		t.drop(DropDevice, count)
		return
	}
	if count > 1 {
		t.count.rxSupers.Add(1)
	}
}

// readRaw reads without telling the runtime, like the socket's raw system calls.
func readRaw(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(n), errno
}
