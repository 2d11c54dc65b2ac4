package underlay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// message is what the fake kernel has in its receive queue.
type message struct {
	from    netip.AddrPort
	data    []byte
	segment int // of a run; 0 = a single datagram
	control []byte
}

// fakeReceiver is recvmmsg over a queue of messages.
type fakeReceiver struct {
	queue  []message
	errnos []syscall.Errno // to return before anything else
	calls  int
}

func (k *fakeReceiver) recvmmsg(_ uintptr, msgs []mmsghdr) (int, syscall.Errno) {
	k.calls++
	if len(k.errnos) > 0 {
		errno := k.errnos[0]
		k.errnos = k.errnos[1:]
		return 0, errno
	}
	if len(k.queue) == 0 {
		return 0, unix.EAGAIN
	}
	n := min(len(msgs), len(k.queue))
	for i, m := range k.queue[:n] {
		m.deliver(&msgs[i])
	}
	k.queue = k.queue[n:]
	return n, 0
}

// deliver scatters m as the kernel does.
func (m message) deliver(h *mmsghdr) {
	rest := m.data
	for _, v := range unsafe.Slice(h.hdr.Iov, h.hdr.Iovlen) {
		n := copy(unsafe.Slice(v.Base, v.Len), rest)
		rest = rest[n:]
	}
	h.len = uint32(len(m.data) - len(rest))
	if len(rest) > 0 {
		h.hdr.Flags |= unix.MSG_TRUNC
	}
	var z zone
	h.hdr.Namelen = putSockaddr((*sockaddr)(unsafe.Pointer(h.hdr.Name)), m.from, false, &z)
	control := m.control
	if m.segment != 0 {
		control = append(control, groControl(m.segment)...)
	}
	copy(unsafe.Slice(h.hdr.Control, h.hdr.Controllen), control)
	h.hdr.SetControllen(len(control))
}

// datagrams is m as ReadBatch has to return it to buffers of the given size.
func (m message) datagrams() (ds []received) {
	size := m.segment
	if size == 0 {
		size = len(m.data)
	}
	for rest := m.data; ; {
		n := min(size, len(rest))
		ds = append(ds, received{m.from, rest[:n]})
		if rest = rest[n:]; len(rest) == 0 {
			return ds
		}
	}
}

func newReader(k *fakeReceiver, gro bool) *reader {
	r := &reader{}
	r.init()
	r.recvmmsg = k.recvmmsg
	r.gro.Store(gro)
	return r
}

// readAll calls what ReadBatch calls until nothing is left.
func readAll(t fataler, r *reader, b batch) (got []received) {
	t.Helper()
	for {
		r.begin(b.bufs, b.sizes, b.from)
		ok := r.fill(0)
		n, err := r.result()
		r.end()
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if ok != (n > 0) {
			t.Fatalf("fill reports %v with %d datagrams", ok, n)
		}
		if !ok {
			return got
		}
		for i := range n {
			got = append(got, received{b.from[i].Addr, bytes.Clone(b.bufs[i][:b.sizes[i]])})
		}
	}
}

// fataler is what testing.TB and rapid.T have in common here.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// diff is "" when got and want are equal, in every byte.
func diff(got, want []received) string {
	for i := range min(len(got), len(want)) {
		if got[i].addr != want[i].addr || !bytes.Equal(got[i].data, want[i].data) {
			from, to := max(0, i-1), min(i+4, len(got), len(want))
			return fmt.Sprintf("from datagram %d on\n%s", i, cmp.Diff(summary(want[from:to]), summary(got[from:to])))
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("-%d datagrams\n+%d datagrams", len(want), len(got))
	}
	return ""
}

// summary makes datagrams short enough to print.
func summary(ds []received) (s []string) {
	for _, d := range ds {
		s = append(s, fmt.Sprintf("%v %d bytes %x %.8x", d.addr, len(d.data), sha256.Sum256(d.data), d.data))
	}
	return s
}

// pattern is n bytes that tell where in which message they were.
func pattern(seed, n int) []byte {
	b := make([]byte, n+4)
	for i := 0; i < n; i += 4 {
		binary.BigEndian.PutUint32(b[i:], uint32(seed)<<20|uint32(i))
	}
	return b[:n]
}

// runOf is n bytes in a run of the given segment size.
func runOf(seed, n, segment int) message {
	return message{from: netip.AddrPortFrom(loopback4, uint16(seed+1)), data: pattern(seed, n), segment: segment}
}

func single(seed, n int) message { return runOf(seed, n, 0) }

func TestReaderReturnsEveryDatagramInOrder(t *testing.T) {
	tests := []struct {
		name  string
		queue []message
	}{
		{"single datagrams", []message{single(0, 100), single(1, 1452), single(2, 1)}},
		{"empty datagram", []message{single(0, 0), single(1, 5)}},
		{"one run", []message{runOf(0, 10*1452, 1452)}},
		{"one run with a short end", []message{runOf(0, 10*1452+1, 1452)}},
		{"the same run again", []message{runOf(0, 10*1452, 1452), runOf(1, 10*1452, 1452), runOf(2, 10*1452, 1452)}},
		{"longer than the last", []message{runOf(0, 10*1452, 1452), runOf(1, 45*1452, 1452)}},
		{"larger segments than the last", []message{runOf(0, 1000, 100), runOf(1, 10*1452, 1452), runOf(2, 64000, 9000)}},
		{"smaller segments than the last", []message{runOf(0, 10*1452, 1452), runOf(1, 1000, 100), runOf(2, 6400, 100)}},
		{"singles between runs", []message{runOf(0, 10*1452, 1452), single(1, 32), single(2, 1452), single(3, 9000), runOf(4, 200, 100), single(5, 0)}},
		{"runs among singles not expected", []message{single(0, 10), single(1, 10), runOf(2, 60000, 1000), single(3, 10), runOf(4, 4000, 8), single(5, 10)}},
		{"largest message", []message{runOf(0, 65507, 1452), single(1, MaxDatagram), runOf(2, MaxDatagram, 50), runOf(3, 3000, 1)}},
		{"segment larger than the message", []message{runOf(0, 100, 1452)}},
		{"segment equal to the message", []message{runOf(0, 100, 100)}},
	}
	pool := newBatch(128, 65536)
	for _, tt := range tests {
		for _, size := range []int{65536, 65535, 10000} {
			for _, n := range []int{1, 3, 128} {
				t.Run(fmt.Sprintf("%s/%d buffers of %d", tt.name, n, size), func(t *testing.T) {
					k := &fakeReceiver{queue: tt.queue}
					r := newReader(k, true)
					var want []received
					for _, m := range tt.queue {
						for _, d := range m.datagrams() {
							if len(d.data) > size {
								d.data = nil
							}
							want = append(want, d)
						}
					}
					if d := diff(readAll(t, r, pool.cut(n, size)), want); d != "" {
						t.Errorf("datagrams (-want +got):\n%s", d)
					}
				})
			}
		}
	}
}

func TestReaderAgainstTheObvious(t *testing.T) {
	pool := newBatch(200, 65536)
	rapid.Check(t, func(t *rapid.T) {
		gro := rapid.Bool().Draw(t, "gro")
		k := &fakeReceiver{}
		var want []received
		size := rapid.SampledFrom([]int{0, 1, 100, 1452, 2048, 65535, 65536}).Draw(t, "buffer size")
		for i := range rapid.IntRange(1, 40).Draw(t, "messages") {
			m := single(i, rapid.SampledFrom([]int{0, 1, 32, 100, 148, 1452, 9000, 65507}).Draw(t, "length"))
			if gro && rapid.Bool().Draw(t, "run") {
				m.segment = rapid.SampledFrom([]int{1, 8, 100, 148, 1452, 1500, 9000, 65507}).Draw(t, "segment")
			}
			k.queue = append(k.queue, m)
			for _, d := range m.datagrams() {
				if len(d.data) > size {
					d.data = nil
				}
				want = append(want, d)
			}
		}
		r := newReader(k, gro)
		got := readAll(t, r, pool.cut(rapid.IntRange(1, 200).Draw(t, "buffers"), size))
		if d := diff(got, want); d != "" {
			t.Fatalf("datagrams (-want +got):\n%s", d)
		}
	})
}

// FuzzReader reads its input as a script: two bytes per message, length and segment
// in coarse steps.
func FuzzReader(f *testing.F) {
	pool := newBatch(255, 65535)
	f.Add([]byte{100, 10, 100, 10, 1, 0, 255, 3}, uint8(128), uint16(65535))
	f.Add([]byte{1, 0, 255, 1, 1, 0}, uint8(3), uint16(1500))
	f.Add([]byte{0, 0, 0, 255}, uint8(1), uint16(0))
	f.Fuzz(func(t *testing.T, script []byte, n uint8, size uint16) {
		if n == 0 || len(script) > 64 {
			t.Skip()
		}
		k := &fakeReceiver{}
		var want []received
		for i := 0; i+1 < len(script); i += 2 {
			m := runOf(i, int(script[i])*256, int(script[i+1])*37)
			k.queue = append(k.queue, m)
			for _, d := range m.datagrams() {
				if len(d.data) > int(size) {
					d.data = nil
				}
				want = append(want, d)
			}
		}
		if d := diff(readAll(t, newReader(k, true), pool.cut(int(n), int(size))), want); d != "" {
			t.Fatalf("datagrams (-want +got):\n%s", d)
		}
	})
}

func TestReaderPredicts(t *testing.T) {
	k := &fakeReceiver{}
	r := newReader(k, true)
	b := newBatch(128, 65535)
	read := func(queue ...message) (calls, repairs int) {
		k.calls, k.queue = 0, queue
		before := r.repairs.Load()
		readAll(t, r, b)
		return k.calls - 1, int(r.repairs.Load() - before) // the last call finds nothing
	}
	many := func(n int, m message) []message {
		queue := make([]message, n)
		for i := range queue {
			queue[i] = m
		}
		return queue
	}

	if _, repairs := read(single(0, 100), single(1, 100)); repairs != 0 {
		t.Errorf("single datagrams needed %d repairs", repairs)
	}
	if _, repairs := read(runOf(0, 45*1452, 1452)); repairs != 1 {
		t.Errorf("the first run needed %d repairs, want 1", repairs)
	}
	if _, repairs := read(many(20, runOf(0, 45*1452, 1452))...); repairs != 0 {
		t.Errorf("equal runs needed %d repairs", repairs)
	}
	if _, repairs := read(single(0, 1452), runOf(0, 30*1452+77, 1452), single(0, 32)); repairs != 0 {
		t.Errorf("shorter runs and single datagrams of the same segment needed %d repairs", repairs)
	}
	// Acknowledgements between data must not make the data be copied.
	if _, repairs := read(runOf(0, 1000, 100), runOf(0, 45*1452, 1452), runOf(0, 1000, 100), runOf(0, 45*1452, 1452)); repairs != 2 {
		t.Errorf("two short runs between long ones needed %d repairs, want one each for the short", repairs)
	}
	read(many(runsToShrink, runOf(0, 5000, 500))...)
	if _, repairs := read(runOf(0, 5000, 500)); repairs != 0 {
		t.Errorf("a run of the new, smaller segment needed %d repairs", repairs)
	}
	read(many(singlesToLeave, single(0, 100))...)
	if calls, repairs := read(many(singleMessages, single(0, 100))...); calls != 2 || repairs != 0 {
		t.Errorf("%d single datagrams took %d calls and %d repairs, want 2 (the second finds no more) and 0", singleMessages, calls, repairs)
	}
}

func TestReaderAsksForAsMuchAsArrives(t *testing.T) {
	k := &fakeReceiver{}
	r := newReader(k, false)
	b := newBatch(128, 2048)
	var flood []message
	for i := range 128 {
		flood = append(flood, single(i, 100))
	}
	k.queue = flood
	readAll(t, r, b)
	k.queue, k.calls = flood, 0
	if got := readAll(t, r, b); len(got) != 128 || k.calls != 2 {
		t.Errorf("%d datagrams in %d calls, want 128 in one, and one that finds no more", len(got), k.calls)
	}
	for range 10 {
		k.queue = flood[:1]
		readAll(t, r, b)
	}
	if r.window != minWindow {
		t.Errorf("asks for %d messages when one comes at a time, want %d", r.window, minWindow)
	}
	if r.spares[0] != nil {
		t.Error("spare memory was made that nothing needs without GRO")
	}
}

func TestReaderTruncatesOnlyWhatNeverFits(t *testing.T) {
	for _, gro := range []bool{false, true} {
		k := &fakeReceiver{queue: []message{single(0, 10), single(1, 101), single(2, 20)}}
		r := newReader(k, gro)
		want := []received{single(0, 10).datagrams()[0], {single(1, 0).from, nil}, single(2, 20).datagrams()[0]}
		if d := diff(readAll(t, r, newBatch(8, 100)), want); d != "" {
			t.Errorf("gro %v: datagrams (-want +got):\n%s", gro, d)
		}
		if n := r.truncated.Load(); n != 1 {
			t.Errorf("gro %v: %d counted as truncated, want 1", gro, n)
		}
	}
}

// A run may already be queued as one message when GRO is switched off, and may arrive
// in a layout of before when it is switched on.
func TestReaderAcceptsRunsWithGROOff(t *testing.T) {
	queue := []message{single(0, 10), runOf(1, 5000, 1000), single(2, 10)}
	var want []received
	for _, m := range queue {
		want = append(want, m.datagrams()...)
	}
	r := newReader(&fakeReceiver{queue: queue}, false)
	if d := diff(readAll(t, r, newBatch(3, 65535)), want); d != "" {
		t.Errorf("datagrams (-want +got):\n%s", d)
	}
}

func TestReaderErrors(t *testing.T) {
	k := &fakeReceiver{queue: []message{single(0, 10)}, errnos: []syscall.Errno{unix.EINTR, unix.EINTR}}
	r := newReader(k, false)
	b := newBatch(8, 100)
	if got := readAll(t, r, b); len(got) != 1 {
		t.Errorf("%d datagrams after EINTR, want 1", len(got))
	}
	k.errnos = []syscall.Errno{unix.ENOMEM}
	r.begin(b.bufs, b.sizes, b.from)
	if !r.fill(0) {
		t.Fatal("fill wants to wait after an error")
	}
	if n, err := r.result(); n != 0 || err == nil || !bytes.Contains([]byte(err.Error()), []byte(unix.ENOMEM.Error())) {
		t.Errorf("result = %d, %v, want the error", n, err)
	}
	r.end()
}

func TestReaderForgetsTheCallersBuffers(t *testing.T) {
	k := &fakeReceiver{queue: []message{runOf(0, 64000, 1000), runOf(1, 64000, 1000), single(2, 1)}}
	r := newReader(k, true)
	readAll(t, r, newBatch(128, 65535))
	for i, v := range r.iovs {
		if v.Base != nil {
			t.Fatalf("iovec %d still points into a buffer", i)
		}
	}
}
