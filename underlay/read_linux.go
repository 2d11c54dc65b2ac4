package underlay

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// spareLen holds any message: a run is one IP packet to the kernel.
	spareLen = 1 << 16

	// singleMessages bounds the messages of one system call with GRO while no runs
	// are seen, and with it the spare buffers that a sudden run in each of them needs.
	singleMessages = 16

	// minWindow is how many messages a system call asks for when little arrives.
	minWindow = 8

	// minScatter is the smallest segment worth a piece of its own: below, the kernel's
	// work per piece exceeds that of copying the run afterwards.
	minScatter = 256

	// singlesToLeave is how many messages without a run end the expectation of
	// runs, and runsToShrink how many shorter runs in a row lower the expected segment. A
	// single or a short run costs little where a long run was expected, but
	// a long run that was not expected is copied as a whole: so expect much.
	singlesToLeave = 16
	runsToShrink   = 8
)

// reader is the receiving half of a Conn. All but the atomic fields belong to the
// one goroutine in ReadBatch.
//
// A message is laid out over the free buffers as a slot says, and over
// its spare buffer for what exceeds them, such that byte k of the message is either
// in its place in the caller's buffers or at spare[k]: copying the former into the spare
// makes the whole message contiguous there. That is the repair of a wrong prediction.
type reader struct {
	recvmmsg mmsgFunc
	// fill and fillMessages, as values allocated once.
	fillFunc, messagesFunc func(fd uintptr) bool
	// receive is one of the two. waitFunc is wait, and tryFunc calls receive and
	// keeps what it returns.
	receive  func(fd uintptr) bool
	waitFunc func(fd uintptr) bool
	tryFunc  func(fd uintptr)
	received bool
	waiter   waiter

	gro atomic.Bool

	msgs     [maxMessages]mmsghdr
	slots    [maxMessages]slot
	names    [maxMessages]sockaddr
	controls [maxMessages][controlLen]byte
	iovs     [2 * maxMessages]unix.Iovec
	usedIovs int
	// dirtyIovs is the most of them that were in use in this batch.
	dirtyIovs int
	spares    [maxMessages][]byte // spareLen each, made when first needed
	zone      zone

	// Datagrams in spares that the caller has not got yet, in order.
	pending       [maxMessages]run
	head, queued  int
	laid          int      // messages that are laid out and not received yet
	window        int      // messages to lay out while no runs are expected
	segment       int      // expected segment size of runs; 0 = no runs expected
	lastRun       int      // datagrams in the last run
	singles       int      // messages in a row that were no run worth scattering
	smallerRuns   int      // runs in a row with a smaller segment
	bufs          [][]byte // the arguments of ReadBatch
	sizes         []int
	from          []Origin
	n             int // the results of ReadBatch
	errno         syscall.Errno
	reads, dgrams atomic.Uint64
	runs, repairs atomic.Uint64
	truncated     atomic.Uint64
}

// slot is where a message lies: pieces buffers from bufs[first] on, cut bytes in each,
// the rest in the spare buffer.
type slot struct{ first, pieces, cut int }

// run is a sequence of datagrams of one origin: segment bytes each, the last
// perhaps fewer.
type run struct {
	data    []byte
	segment int
	from    Origin
}

func (r *reader) init() {
	r.recvmmsg = recvmmsg
	r.fillFunc = r.fill
	r.messagesFunc = r.fillMessages
	r.window = minWindow
	r.waitFunc = r.wait
	r.tryFunc = func(fd uintptr) { r.received = r.receive(fd) }
	for i := range r.msgs {
		h := &r.msgs[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Control = &r.controls[i][0]
	}
}

func (r *reader) begin(bufs [][]byte, sizes []int, from []Origin) {
	r.bufs, r.sizes, r.from = bufs, sizes, from
	r.n, r.errno, r.laid = 0, 0, 0
	r.waiter.begin()
}

// end forgets the caller's buffers, which else could not be freed before the next batch.
func (r *reader) end() {
	r.bufs, r.sizes, r.from = nil, nil, nil
	clear(r.iovs[:r.dirtyIovs])
	r.dirtyIovs = 0
}

func (r *reader) result() (int, error) {
	r.dgrams.Add(uint64(r.n))
	if r.n == 0 && r.errno != 0 {
		return 0, fmt.Errorf("receive datagrams: %w", r.errno)
	}
	return r.n, nil
}

// fill receives until the buffers are used up or nothing is left to receive. It
// reports false when there was nothing at all and the caller has to wait.
func (r *reader) fill(fd uintptr) bool {
	r.drain()
	for r.n < len(r.bufs) {
		if r.laid == 0 {
			r.laid = r.layout()
		}
		got, errno := r.recvmmsg(fd, r.msgs[:r.laid])
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return r.n > 0
		default:
			r.errno = errno
			return true
		}
		full := got == r.laid
		r.laid = 0
		r.reads.Add(1)
		for i := range r.msgs[:got] {
			r.take(i)
		}
		r.drain()
		r.resize(got, full)
		if !r.more(full) {
			break
		}
	}
	return true
}

// resize fits the window to what arrives: laying out messages for nothing costs more
// than the rare second call.
func (r *reader) resize(got int, full bool) {
	switch {
	case full:
		r.window = min(2*r.window, maxMessages)
	case got < r.window/4:
		r.window = max(r.window/2, minWindow)
	}
}

// more reports whether another receive in the same batch is likely to pay.
func (r *reader) more(full bool) bool {
	if r.segment != 0 {
		// A run that has no room would be copied out of the spare in the next batch.
		return len(r.bufs)-r.n >= r.lastRun
	}
	return full
}

// layout prepares messages over the free buffers and returns how many.
func (r *reader) layout() int {
	r.usedIovs = 0
	gro := r.gro.Load()
	free := len(r.bufs) - r.n
	if gro && r.segment != 0 {
		// One message: with several, a run shorter than expected would leave a gap
		// between the datagrams, and closing it means copying all that follow.
		pieces := min(free, spareLen/r.segment, maxMessages)
		for i := range pieces {
			if len(r.bufs[r.n+i]) < r.segment {
				pieces = i
				break
			}
		}
		r.prepare(0, slot{r.n, pieces, r.segment}, true)
		return 1
	}
	m := min(free, r.window)
	if gro {
		m = min(m, singleMessages)
	}
	for i := range m {
		r.prepare(i, slot{r.n + i, 1, min(len(r.bufs[r.n+i]), spareLen)}, gro)
	}
	return m
}

// prepare makes message i lie in s and, where that is too small and spare is set, in
// its spare buffer.
func (r *reader) prepare(i int, s slot, spare bool) {
	r.slots[i] = s
	start := r.usedIovs
	for p := range s.pieces {
		if s.cut > 0 {
			r.addIovec(r.bufs[s.first+p][:s.cut])
		}
	}
	if size := s.pieces * s.cut; spare && size < MaxDatagram {
		r.addIovec(r.spare(i)[size:])
	}
	m := &r.msgs[i]
	m.hdr.Iov = nil
	if r.usedIovs > start {
		m.hdr.Iov = &r.iovs[start]
	}
	m.hdr.SetIovlen(r.usedIovs - start)
	// The kernel overwrites these three.
	m.hdr.Namelen = nameLen
	m.hdr.SetControllen(controlLen)
	m.hdr.Flags = 0
}

func (r *reader) addIovec(b []byte) {
	v := &r.iovs[r.usedIovs]
	v.Base = &b[0]
	v.SetLen(len(b))
	r.usedIovs++
	r.dirtyIovs = max(r.dirtyIovs, r.usedIovs)
}

func (r *reader) spare(i int) []byte {
	if r.spares[i] == nil {
		r.spares[i] = make([]byte, spareLen)
	}
	return r.spares[i]
}

// take hands the i-th message received to the caller: in place when it lies as
// predicted and nothing before it is still pending, by way of its spare otherwise.
func (r *reader) take(i int) {
	m, s := &r.msgs[i], r.slots[i]
	total := int(m.len)
	r.waiter.arrived += total
	if m.hdr.Flags&unix.MSG_TRUNC != 0 {
		r.truncated.Add(1)
		total = 0
	}
	segment, from := r.origin(i)
	if segment == 0 || segment > total {
		segment = total
	}
	r.predict(segment, total)

	if r.queued == 0 && s.first == r.n && s.pieces > 0 && (total <= s.cut && segment == total || segment == s.cut) {
		placed := 0
		for {
			r.sizes[r.n], r.from[r.n] = min(segment, total-placed), from
			placed += r.sizes[r.n]
			r.n++
			if placed == total || r.n == s.first+s.pieces {
				break
			}
		}
		if placed < total {
			r.push(run{r.spares[i][placed:total], segment, from})
		}
		return
	}
	r.repairs.Add(1)
	spare := r.spare(i)
	for p := 0; p < s.pieces && p*s.cut < total; p++ {
		copy(spare[p*s.cut:total], r.bufs[s.first+p][:s.cut])
	}
	r.push(run{spare[:total], segment, from})
}

// origin returns what the kernel says about the i-th message: the size of each
// datagram of a run but the last, 0 when it is one datagram, and where it is from.
func (r *reader) origin(i int) (segment int, from Origin) {
	c := readControl(r.controls[i][:min(r.msgs[i].hdr.Controllen, controlLen)])
	return c.segment, Origin{Addr: addrPort(&r.names[i], &r.zone), Local: c.local, ECN: c.ecn}
}

// predict learns from a message what to expect of the next.
func (r *reader) predict(segment, total int) {
	if segment < total {
		r.runs.Add(1)
	}
	if segment == total || segment < minScatter {
		if r.singles++; r.singles >= singlesToLeave {
			r.segment = 0
		}
		return
	}
	r.singles = 0
	r.lastRun = (total + segment - 1) / segment
	if segment < r.segment {
		if r.smallerRuns++; r.smallerRuns < runsToShrink {
			return
		}
	}
	r.segment, r.smallerRuns = segment, 0
}

func (r *reader) push(p run) {
	r.pending[r.queued] = p
	r.queued++
}

// drain copies pending datagrams to the caller's free buffers.
func (r *reader) drain() {
	for r.head < r.queued && r.n < len(r.bufs) {
		p := &r.pending[r.head]
		size := min(p.segment, len(p.data))
		r.sizes[r.n], r.from[r.n] = size, p.from
		if size > len(r.bufs[r.n]) {
			r.truncated.Add(1)
			r.sizes[r.n] = 0
		} else {
			copy(r.bufs[r.n], p.data[:size])
		}
		r.n++
		if p.data = p.data[size:]; len(p.data) == 0 {
			r.head++
		}
	}
	if r.head == r.queued {
		r.head, r.queued = 0, 0
	}
}

func (r *reader) stats(s *Stats) {
	s.Reads, s.ReadDatagrams = r.reads.Load(), r.dgrams.Load()
	s.ReadRuns, s.ReadRepairs = r.runs.Load(), r.repairs.Load()
	s.Truncated = r.truncated.Load()
	s.GRO = r.gro.Load()
}
