package underlay

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxRun and maxRunLen bound a run: UDP_MAX_SEGMENTS of kernels before 6.9, and the
	// largest payload of one IPv4 datagram, which a run is until it is cut.
	maxRun    = 64
	maxRunLen = 65507
)

// writer is a sending half of a Conn. Its mutex is held for a whole batch, so that batches
// do not mix and the arrays below have one user. Waiting for a full socket with
// the mutex held is right: the others would have to wait as well.
type writer struct {
	sendmmsg  mmsgFunc
	now       func() time.Time
	flushFunc func(fd uintptr) bool // flush, as a value allocated once
	tryFunc   func(fd uintptr)      // flush, which sets flushed
	offerFunc func(fd uintptr)      // offer, likewise
	ipv4Only  bool                  // the socket is AF_INET
	gso       gso

	mu       sync.Mutex
	msgs     [maxMessages]mmsghdr
	counts   [maxMessages]int // datagrams in each message
	names    [maxMessages]sockaddr
	controls [maxMessages][controlLen]byte
	iovs     [2 * maxMessages]unix.Iovec // Head and Body of each datagram
	usedIovs int
	// dirtyIovs is the most of them that were in use in this batch.
	dirtyIovs int
	zone      zone

	ds      []Datagram // not sent yet, msgs[next:planned] are the first of them
	plain   int        // how many of ds have to be sent one by one
	bare    int        // how many of ds have to be sent from any address
	next    int
	planned int
	sent    int
	errno   syscall.Errno
	flushed bool // what flush returned in tryFunc

	writes, dgrams  atomic.Uint64
	runs, replays   atomic.Uint64
	errors, lastErr atomic.Uint64
}

func (w *writer) init() {
	w.sendmmsg = sendmmsg
	w.now = time.Now
	w.flushFunc = w.flush
	w.tryFunc = func(fd uintptr) { w.flushed = w.flush(fd) }
	w.offerFunc = w.offer
}

func (w *writer) begin(ds []Datagram) {
	w.ds = ds
	w.plain, w.bare, w.next, w.planned, w.sent, w.errno = 0, 0, 0, 0, 0, 0
}

// end forgets the caller's bytes, which else could not be freed before the next batch.
func (w *writer) end() {
	w.dgrams.Add(uint64(w.sent))
	w.ds = nil
	clear(w.iovs[:w.dirtyIovs])
	w.dirtyIovs = 0
}

func (w *writer) result() (int, error) {
	if w.errno != 0 {
		return w.sent, fmt.Errorf("send datagrams: %w", w.errno)
	}
	return w.sent, nil
}

// flush sends until nothing is left. It reports false when the send buffer is
// full; it is then called again, and goes on where it was.
func (w *writer) flush(fd uintptr) bool {
	for len(w.ds) > 0 {
		if w.next == w.planned {
			w.plan()
		}
		n, errno := w.sendmmsg(fd, w.msgs[w.next:w.planned])
		switch errno {
		case 0:
			w.writes.Add(1)
			for range n {
				w.accepted()
			}
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		case unix.EBADF, unix.EFAULT, unix.ENOTSOCK, unix.ENOSYS:
			w.errno = errno // about the socket or us, not about a datagram
			return true
		default:
			// ENOBUFS belongs here too: it does not promise that the socket becomes
			// writable later, so waiting for that could last forever.
			w.refused(errno)
		}
	}
	return true
}

// offer sends until nothing is left or the send buffer is full, and drops the rest.
func (w *writer) offer(fd uintptr) {
	if !w.flush(fd) {
		w.errors.Add(uint64(len(w.ds)))
		w.lastErr.Store(uint64(unix.EAGAIN))
	}
}

// accepted moves on from the next message, which the kernel took.
func (w *writer) accepted() {
	n := w.counts[w.next]
	if n > 1 {
		w.runs.Add(1)
	}
	w.gso.replayed(true, w.now)
	w.sent += n
	w.advance(n)
}

// refused moves on from the next message, which the kernel did not take: it is to be
// sent from another address, a run to replay, or it is dropped.
func (w *writer) refused(errno syscall.Errno) {
	n := w.counts[w.next]
	if w.bare == 0 && w.ds[0].Local.IsValid() && mindsSource(errno) {
		w.bare = n
		w.planned = w.next // as below
		return
	}
	if n > 1 && w.gso.refused(errno, w.ds[0].size()) {
		w.replays.Add(1)
		w.plain = n
		w.planned = w.next // throw the plan away: the rest is planned again behind the replay
		return
	}
	w.gso.replayed(false, w.now)
	w.errors.Add(uint64(n))
	w.lastErr.Store(uint64(errno))
	w.advance(n)
}

// mindsSource tells whether an error may be about the address to send from, which may
// not be this host's any more or have no route.
func mindsSource(errno syscall.Errno) bool {
	switch errno {
	case unix.EINVAL, unix.EADDRNOTAVAIL, unix.ENETUNREACH, unix.EHOSTUNREACH:
		return true
	}
	return false
}

func (w *writer) advance(n int) {
	w.ds = w.ds[n:]
	w.plain = max(0, w.plain-n)
	w.bare = max(0, w.bare-n)
	w.next++
}

// plan makes messages of the first datagrams: as many as there is room for, runs
// where they may be.
func (w *writer) plan() {
	w.next, w.planned, w.usedIovs = 0, 0, 0
	maxSegment := w.gso.maxSegment(w.now)
	ds := w.ds[:min(len(w.ds), maxMessages)]
	var last *mmsghdr
	var lastAddr netip.AddrPort
	for i := 0; i < len(ds); {
		n := 1
		if size := ds[i].size(); i >= w.plain && size > 0 && size <= maxSegment {
			n = runLength(ds[i:])
		}
		m := &w.msgs[w.planned]
		m.hdr.Iov = &w.iovs[w.usedIovs]
		start := w.usedIovs
		for j := range ds[i : i+n] {
			w.addIovec(ds[i+j].Head)
			w.addIovec(ds[i+j].Body)
		}
		m.hdr.SetIovlen(w.usedIovs - start)
		if w.usedIovs == start {
			m.hdr.Iov = nil
		}
		c := control{local: ds[i].Local, ecn: ds[i].ECN}
		if n > 1 {
			c.segment = ds[i].size()
		}
		if i < w.bare {
			c.local = netip.Addr{}
		}
		m.hdr.Control = nil
		m.hdr.SetControllen(0)
		if c != (control{}) {
			b := &w.controls[w.planned]
			m.hdr.Control = &b[0]
			m.hdr.SetControllen(putControl(b, c, ds[i].Addr.Addr()))
		}
		if last != nil && ds[i].Addr == lastAddr {
			m.hdr.Name, m.hdr.Namelen = last.hdr.Name, last.hdr.Namelen
		} else {
			name := &w.names[w.planned]
			m.hdr.Name = (*byte)(unsafe.Pointer(name))
			m.hdr.Namelen = putSockaddr(name, ds[i].Addr, w.ipv4Only, &w.zone)
		}
		last, lastAddr = m, ds[i].Addr
		w.counts[w.planned] = n
		w.planned++
		i += n
	}
	w.dirtyIovs = max(w.dirtyIovs, w.usedIovs)
}

// runLength returns how many of ds, of which the first is not empty, make one run.
func runLength(ds []Datagram) int {
	segment := ds[0].size()
	n, total := 1, segment
	for n < min(len(ds), maxRun) {
		size := ds[n].size()
		if size == 0 || size > segment || total+size > maxRunLen ||
			ds[n].Addr != ds[0].Addr || ds[n].Local != ds[0].Local || ds[n].ECN != ds[0].ECN {
			break
		}
		n, total = n+1, total+size
		if size < segment {
			break
		}
	}
	return n
}

func (w *writer) addIovec(b []byte) {
	if len(b) == 0 {
		return
	}
	v := &w.iovs[w.usedIovs]
	v.Base = &b[0]
	v.SetLen(len(b))
	w.usedIovs++
}

func (d *Datagram) size() int { return len(d.Head) + len(d.Body) }

func (w *writer) stats(s *Stats) {
	s.Writes += w.writes.Load()
	s.WriteDatagrams += w.dgrams.Load()
	s.WriteRuns += w.runs.Load()
	s.WriteReplays += w.replays.Load()
	s.WriteErrors += w.errors.Load()
	s.GSO = s.GSO || w.gso.on.Load()
	if errno := syscall.Errno(w.lastErr.Load()); errno != 0 {
		s.LastWriteError = errno.Error()
	}
}
