package lab

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Impairment is what happens to the packets on a wire, each way. Shares are of all
// packets, from 0 to 1.
type Impairment struct {
	// Loss is the share that vanishes, Duplicate the share that arrives twice.
	Loss, Duplicate float64
	// Reorder is the share that arrives later than those behind it: lateBy.
	Reorder float64
	// Delay is what every packet takes, Jitter the most that is added to it, by
	// chance, without a change of their order.
	Delay, Jitter time.Duration
}

const (
	lateBy = 2 * time.Millisecond
	// wireQueue is how many packets a wire holds each way: the delay of a link of
	// 1 Gbit/s and 40 ms with small packets. What exceeds it is lost.
	wireQueue = 8192
)

// Wire is a link between the gateways whose packets pass through this process, which
// can do to them what netem does; many kernels lack it. It costs processor time: what
// is measured through it compares only with what else is.
type Wire struct {
	how     atomic.Pointer[Impairment]
	sockets [2]*os.File
	work    sync.WaitGroup
}

// Wire replaces the link between the gateways by a wire, until the end of the lab.
// The gateways must not have been started.
func (t *Topology) Wire() *Wire {
	l := t.Lab
	l.t.Helper()
	t.A.Gateway.IP("link del wan0")
	host := l.Host("wire")
	w := &Wire{}
	w.how.Store(&Impairment{})
	for i, c := range []*Cluster{t.A, t.B} {
		name := "to-" + c.Name
		l.Link(c.Gateway, "wan0", host, name)
		c.Gateway.IP("addr add %s/24 dev wan0", c.WAN)
		// A packet socket sees what a device would still have to divide or to sum up.
		c.Gateway.Run("ethtool", "-K", "wan0", "tx", "off", "tso", "off", "gso", "off", "tx-udp-segmentation", "off")
		var err error
		if err = host.Do(func() error { w.sockets[i], err = OpenPacketSocket(name); return err }); err != nil {
			l.t.Fatalf("a wire at %s: %v", name, err)
		}
	}
	for i := range w.sockets {
		queue := &wireDirection{how: &w.how, out: w.sockets[1-i], wake: make(chan struct{}, 1)}
		w.work.Go(func() { queue.read(w.sockets[i]) })
		w.work.Go(queue.write)
	}
	l.AtEnd(func() {
		for _, s := range w.sockets {
			s.Close()
		}
		w.work.Wait()
	})
	return w
}

// Impair decides what happens to the packets from now on.
func (w *Wire) Impair(i Impairment) { w.how.Store(&i) }

// OpenPacketSocket returns a socket for all frames of a device of the namespace it is
// called in: what others send there is read, what is written leaves.
func OpenPacketSocket(name string) (*os.File, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	const ignoreOutgoing = 23                                                                // PACKET_IGNORE_OUTGOING, packet(7)
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, syscall.ETH_P_ALL)) // in network byte order
	err = errors.Join(
		os.NewSyscallError("SO_RCVBUFFORCE", syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 32<<20)),
		os.NewSyscallError("PACKET_IGNORE_OUTGOING", syscall.SetsockoptInt(fd, syscall.SOL_PACKET, ignoreOutgoing, 1)),
		os.NewSyscallError("bind", syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})))
	if err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// wireDirection is one way of a wire.
type wireDirection struct {
	how *atomic.Pointer[Impairment]
	out *os.File

	mu     sync.Mutex
	queue  frames
	last   time.Time // when the last frame leaves that keeps its place
	number uint64
	ended  bool
	wake   chan struct{}
}

// frame is a frame under way. Those of one time keep their order by number.
type frame struct {
	at     time.Time
	number uint64
	data   []byte
}

type frames []frame

func (q frames) Len() int { return len(q) }
func (q frames) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].number < q[j].number
}
func (q frames) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *frames) Push(x any)   { *q = append(*q, x.(frame)) }
func (q *frames) Pop() any {
	last := len(*q) - 1
	f := (*q)[last]
	*q = (*q)[:last]
	return f
}

func (d *wireDirection) read(in *os.File) {
	buf := make([]byte, 65536)
	for {
		n, err := in.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			d.mu.Lock()
			d.ended = true
			d.mu.Unlock()
			d.signal()
			return
		}
		if err == nil {
			d.accept(append([]byte(nil), buf[:n]...), time.Now())
		}
	}
}

// accept decides the fate of a frame.
func (d *wireDirection) accept(data []byte, now time.Time) {
	how := d.how.Load()
	if rand.Float64() < how.Loss {
		return
	}
	copies := 1
	if rand.Float64() < how.Duplicate {
		copies = 2
	}
	at := now.Add(how.Delay)
	if how.Jitter > 0 {
		at = at.Add(rand.N(how.Jitter))
	}
	d.mu.Lock()
	if late := rand.Float64() < how.Reorder; late {
		at = at.Add(lateBy)
	} else {
		if at.Before(d.last) {
			at = d.last
		}
		d.last = at
	}
	for range copies {
		if len(d.queue) < wireQueue {
			d.number++
			heap.Push(&d.queue, frame{at, d.number, data})
		}
	}
	d.mu.Unlock()
	d.signal()
}

func (d *wireDirection) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// write sends frames when their time has come.
func (d *wireDirection) write() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		d.mu.Lock()
		wait := time.Duration(-1)
		var due []frame
		for now := time.Now(); len(d.queue) > 0; {
			if wait = d.queue[0].at.Sub(now); wait > 0 {
				break
			}
			due = append(due, heap.Pop(&d.queue).(frame))
			wait = -1
		}
		ended := d.ended
		d.mu.Unlock()
		if ended {
			return
		}
		for _, f := range due {
			_, _ = d.out.Write(f.data) // a full device loses it, as a wire does
		}
		if len(due) > 0 {
			continue // time has passed
		}
		if wait < 0 {
			<-d.wake
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-d.wake:
		}
	}
}

// String says what happens to packets, as a table does.
func (i Impairment) String() string {
	text := ""
	add := func(format string, args ...any) {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf(format, args...)
	}
	if i.Delay > 0 {
		add("%v each way", i.Delay)
	}
	if i.Jitter > 0 {
		add("up to %v more", i.Jitter)
	}
	if i.Loss > 0 {
		add("%g %% lost", i.Loss*100)
	}
	if i.Reorder > 0 {
		add("%g %% %v late", i.Reorder*100, lateBy)
	}
	if i.Duplicate > 0 {
		add("%g %% twice", i.Duplicate*100)
	}
	if text == "" {
		return "none"
	}
	return text
}
