package underlay

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Sockets wait in the runtime's poller. Under load it leaves two things to do:
//
// Who finds his socket empty lets others have the processor once and looks again: the
// machine's other work is what fills the socket, and a wait that is not begun costs
// neither the way into the poller nor that out of it.
//
// And somebody has to poll. A thread that leaves the poller with one goroutine to
// run wakes no other one to take its place (findRunnable, runtime/proc.go), so that
// nobody hears of the other sockets until that goroutine waits again, or for 10 ms.
// Each direction would stand still while the other one works. So whoever comes out
// of the poller in a bulk transfer, while another socket has just begun to wait for its part
// of one, has a second thread woken: at any other time that costs more than it gains.

const (
	// bulkBytes is what a socket receives at once, on average, in a bulk transfer.
	// Acknowledgements of one are a tenth of that.
	bulkBytes = 16 << 10
	// bulkPause is the longest wait in a bulk transfer. What waits longer is idle, and
	// would be heard by then anyway.
	bulkPause = 10 * time.Millisecond
)

// waiter is how one socket waits. What is not atomic belongs to its reader.
type waiter struct {
	slept   bool // in the poller, since the batch was begun
	arrived int  // bytes in this batch
	average int  // bytes in a batch, a moving average
	// since is when it began to wait, as sockets.now says; 0: it does not.
	since atomic.Int64
	bulk  atomic.Bool // what it waits for is more of a bulk transfer
}

// wait calls receive. It reports false when nothing has come: the poller then waits
// and calls it again.
func (r *reader) wait(fd uintptr) bool {
	w := &r.waiter
	w.since.Store(0)
	if r.receive(fd) {
		if w.slept {
			polled.woken(w)
		}
		w.received()
		return true
	}
	if !w.slept {
		// Not unix.Syscall: the runtime would give the processor of this goroutine away.
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		if r.receive(fd) {
			w.received()
			return true
		}
	}
	w.slept = true
	w.bulk.Store(w.average >= bulkBytes)
	w.since.Store(polled.now())
	return false
}

func (w *waiter) begin() { w.slept, w.arrived = false, 0 }

func (w *waiter) received() { w.average = (3*w.average + w.arrived) / 4 }

// polled are the sockets of this process that wait in the poller, which it has one of.
var polled = sockets{now: func() int64 { return int64(time.Since(start)) + 1 }, wake: wakePoller}

var start = time.Now()

type sockets struct {
	now  func() int64 // nanoseconds, never 0
	wake func()

	mu  sync.Mutex
	all atomic.Pointer[[]*waiter] // replaced as a whole
}

func (s *sockets) add(w *waiter) {
	s.replace(func(all []*waiter) []*waiter { return append(all, w) })
}

func (s *sockets) remove(w *waiter) {
	s.replace(func(all []*waiter) []*waiter {
		return slices.DeleteFunc(all, func(o *waiter) bool { return o == w })
	})
}

func (s *sockets) replace(change func([]*waiter) []*waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*waiter
	if old := s.all.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = change(all)
	s.all.Store(&all)
}

// woken is called by who comes out of the poller. It has another thread take that
// place if another socket needs one.
func (s *sockets) woken(w *waiter) {
	all := s.all.Load()
	if all == nil {
		return
	}
	for _, o := range *all {
		if since := o.since.Load(); o != w && since != 0 && (w.bulk.Load() || o.bulk.Load()) && s.now()-since < int64(bulkPause) {
			s.wake()
			return
		}
	}
}

// wakePoller makes the runtime wake a thread for a goroutine, which then finds
// nothing else to do than to poll. The second one pushes the first one out of the
// place that other threads take goroutines from only after a pause (runqgrab,
// runtime/proc.go).
func wakePoller() {
	go nothing()
	go nothing()
}

func nothing() {}
