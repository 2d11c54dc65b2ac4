package underlay

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// fakeSender is sendmmsg: it records what is sent, cut as the kernel cuts it.
type fakeSender struct {
	sent  []received
	runs  []int // datagrams per message
	calls int
	// refuse returns the error for a message, given where to, its datagrams and their
	// size. nil accepts everything.
	refuse func(to netip.AddrPort, n, segment int) syscall.Errno
	// atMost is how many messages a call takes; 0 = all.
	atMost int
}

func (k *fakeSender) sendmmsg(_ uintptr, msgs []mmsghdr) (int, syscall.Errno) {
	k.calls++
	if k.atMost > 0 {
		msgs = msgs[:min(len(msgs), k.atMost)]
	}
	for i := range msgs {
		m := gathered(&msgs[i])
		ds := m.datagrams()
		if k.refuse != nil {
			if errno := k.refuse(m.from, len(ds), len(ds[0].data)); errno != 0 {
				if i == 0 {
					return 0, errno
				}
				return i, 0 // sendmmsg(2): the error is for the next call
			}
		}
		k.sent = append(k.sent, ds...)
		k.runs = append(k.runs, len(ds))
	}
	return len(msgs), 0
}

// gathered is the message in h, as the kernel reads it. Its from is the destination.
func gathered(h *mmsghdr) message {
	var z zone
	m := message{from: addrPort((*sockaddr)(unsafe.Pointer(h.hdr.Name)), &z)}
	for _, v := range unsafe.Slice(h.hdr.Iov, h.hdr.Iovlen) {
		m.data = append(m.data, unsafe.Slice(v.Base, v.Len)...)
	}
	msgs, err := unix.ParseSocketControlMessage(bytes.Clone(unsafe.Slice(h.hdr.Control, h.hdr.Controllen)))
	if err != nil {
		panic(err)
	}
	for _, c := range msgs {
		if c.Header.Level == unix.SOL_UDP && c.Header.Type == unix.UDP_SEGMENT {
			m.segment = int(*(*uint16)(unsafe.Pointer(&c.Data[0])))
		}
	}
	return m
}

func newWriter(k *fakeSender) *writer {
	w := &writer{}
	w.init()
	w.sendmmsg = k.sendmmsg
	w.gso.supported = true
	w.gso.set(true)
	return w
}

// write calls what WriteBatch calls.
func write(w *writer, ds []Datagram) (int, error) {
	w.begin(ds)
	defer w.end()
	for !w.flush(0) {
	}
	return w.result()
}

var (
	nodeA = netip.MustParseAddrPort("192.0.2.1:6091")
	nodeB = netip.MustParseAddrPort("[2001:db8::2]:6091")
)

// to makes datagrams of the given sizes for one address, each with a head where there is room.
func to(addr netip.AddrPort, sizes ...int) (ds []Datagram) {
	for i, size := range sizes {
		b := pattern(i, size)
		head := min(22, size)
		ds = append(ds, Datagram{Addr: addr, Head: b[:head], Body: b[head:]})
	}
	return ds
}

// repeat is n times size.
func repeat(n, size int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = size
	}
	return sizes
}

// asReceived is what the other side gets.
func asReceived(ds []Datagram) (rs []received) {
	for _, d := range ds {
		rs = append(rs, received{d.Addr, append(bytes.Clone(d.Head), d.Body...)})
	}
	return rs
}

func concat[T any](parts ...[]T) (all []T) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func TestWriterMakesRuns(t *testing.T) {
	tests := []struct {
		name string
		ds   []Datagram
		want []int // datagrams per message
	}{
		{"nothing", nil, nil},
		{"one datagram", to(nodeA, 100), []int{1}},
		{"equal lengths", to(nodeA, repeat(10, 100)...), []int{10}},
		{"a shorter one ends the run", to(nodeA, 100, 100, 99, 99), []int{3, 1}},
		{"a longer one starts another", to(nodeA, 100, 100, 101, 101), []int{2, 2}},
		{"another address starts another", concat(to(nodeA, 100, 100), to(nodeB, 100, 100), to(nodeA, 100)), []int{2, 2, 1}},
		{"another port starts another", concat(to(nodeA, 100), to(netip.AddrPortFrom(nodeA.Addr(), 1), 100)), []int{1, 1}},
		{"empty datagrams are no run", to(nodeA, 0, 0, 100, 100, 0), []int{1, 1, 2, 1}},
		{"no more than the kernel cuts", to(nodeA, repeat(70, 100)...), []int{64, 6}},
		{"no more than an IP packet holds", to(nodeA, repeat(50, 1452)...), []int{45, 5}},
		{"exactly what an IP packet holds", to(nodeA, 65506, 1, 1), []int{2, 1}},
		{"larger than any datagram", to(nodeA, 65508, 65508), []int{1, 1}},
		{"more than a call carries", to(nodeA, repeat(300, 8)...), []int{64, 64, 64, 64, 44}},
		{"more messages than a call carries", to(nodeA, descending(300)...), pairs(300)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := &fakeSender{}
			sent, err := write(newWriter(k), tt.ds)
			if sent != len(tt.ds) || err != nil {
				t.Errorf("sent %d, %v, want %d", sent, err, len(tt.ds))
			}
			if fmt.Sprint(k.runs) != fmt.Sprint(tt.want) {
				t.Errorf("runs of %v, want %v", k.runs, tt.want)
			}
			if d := diff(k.sent, asReceived(tt.ds)); d != "" {
				t.Errorf("datagrams (-want +got):\n%s", d)
			}
		})
	}
}

// descending is n sizes of which each two neighbours make a run.
func descending(n int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = 2*n - i
	}
	return sizes
}

// pairs is n datagrams in runs of two.
func pairs(n int) []int { return repeat(n/2, 2) }

func TestWriterWithoutGSO(t *testing.T) {
	k := &fakeSender{}
	w := newWriter(k)
	w.gso.set(false)
	ds := to(nodeA, repeat(200, 100)...)
	if sent, err := write(w, ds); sent != 200 || err != nil {
		t.Errorf("sent %d, %v", sent, err)
	}
	if len(k.runs) != 200 || k.calls != 2 {
		t.Errorf("%d messages in %d calls, want 200 in 2", len(k.runs), k.calls)
	}
	w.gso.supported = false
	if w.gso.set(true); w.gso.on.Load() {
		t.Error("switched on on a kernel without it")
	}
}

// refuseTo refuses everything to one address.
func refuseTo(addr netip.AddrPort, errno syscall.Errno) func(netip.AddrPort, int, int) syscall.Errno {
	return func(to netip.AddrPort, _, _ int) syscall.Errno {
		if to == addr {
			return errno
		}
		return 0
	}
}

// refuseRuns refuses runs with segments above a size.
func refuseRuns(above int, errno syscall.Errno) func(netip.AddrPort, int, int) syscall.Errno {
	return func(_ netip.AddrPort, n, segment int) syscall.Errno {
		if n > 1 && segment > above {
			return errno
		}
		return 0
	}
}

func TestWriterDropsWhatOneDestinationRefuses(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EPERM, unix.EMSGSIZE, unix.EINVAL, unix.EIO, unix.ENOBUFS} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			k := &fakeSender{refuse: refuseTo(nodeB, errno)}
			w := newWriter(k)
			ds := concat(to(nodeA, 100, 100), to(nodeB, 200, 200, 100), to(nodeA, 100, 100), to(nodeB, 5))
			sent, err := write(w, ds)
			if sent != 4 || err != nil {
				t.Errorf("sent %d, %v, want 4", sent, err)
			}
			if d := diff(k.sent, asReceived(concat(ds[:2], ds[5:7]))); d != "" {
				t.Errorf("datagrams (-want +got):\n%s", d)
			}
			var s Stats
			w.stats(&s)
			if s.WriteErrors != 4 || s.LastWriteError != errno.Error() || s.WriteDatagrams != 4 {
				t.Errorf("counted %d errors, last %q, %d sent", s.WriteErrors, s.LastWriteError, s.WriteDatagrams)
			}
			if !s.GSO || w.gso.limit != 0 {
				t.Error("an unreachable destination cost the offload")
			}
		})
	}
}

func TestWriterResumes(t *testing.T) {
	ds := to(nodeA, descending(300)...)
	t.Run("partial sends", func(t *testing.T) {
		k := &fakeSender{atMost: 3}
		if sent, err := write(newWriter(k), ds); sent != 300 || err != nil || k.calls != 52 {
			t.Errorf("sent %d in %d calls, %v", sent, k.calls, err)
		}
		if d := diff(k.sent, asReceived(ds)); d != "" {
			t.Errorf("datagrams (-want +got):\n%s", d)
		}
	})
	t.Run("full buffer and interrupts", func(t *testing.T) {
		waits := 0
		k := &fakeSender{atMost: 5}
		calls := 0
		k.refuse = func(netip.AddrPort, int, int) syscall.Errno {
			switch calls++; {
			case calls%7 == 3:
				return unix.EINTR
			case calls%7 == 5:
				return unix.EAGAIN
			}
			return 0
		}
		w := newWriter(k)
		w.begin(ds)
		for !w.flush(0) {
			waits++
		}
		sent, err := w.result()
		w.end()
		if sent != 300 || err != nil || waits == 0 {
			t.Errorf("sent %d, waited %d times, %v", sent, waits, err)
		}
		if d := diff(k.sent, asReceived(ds)); d != "" {
			t.Errorf("datagrams (-want +got):\n%s", d)
		}
	})
	t.Run("socket gone", func(t *testing.T) {
		k := &fakeSender{refuse: refuseTo(nodeB, unix.EBADF)}
		sent, err := write(newWriter(k), concat(to(nodeA, 5), to(nodeB, 5), to(nodeA, 5)))
		if sent != 1 || err == nil {
			t.Errorf("sent %d, %v, want 1 and the error", sent, err)
		}
	})
}

func TestWriterReplaysRefusedRuns(t *testing.T) {
	full, small := to(nodeA, repeat(20, 1452)...), to(nodeA, repeat(20, 100)...)
	tests := []struct {
		name   string
		refuse func(netip.AddrPort, int, int) syscall.Errno
		// Messages that a batch of 20 full and 20 small datagrams takes: the first time, the
		// second time, and again after limitTime. The first small datagram is the short end
		// of the full run, if there is one.
		first, second, later int
		on                   bool
	}{
		{"accepted", nil, 2, 2, 2, true},
		{"segment above the MTU", refuseRuns(1400, unix.EINVAL), 22, 21, 22, true},
		{"segment above the MTU, newer kernels", refuseRuns(1400, unix.EMSGSIZE), 22, 21, 22, true},
		{"device cannot", refuseRuns(0, unix.EIO), 40, 40, 40, false},
		{"kernel cannot", refuseRuns(0, unix.EINVAL), 40, 40, 40, false},
		{"operation not supported", refuseRuns(0, unix.EOPNOTSUPP), 40, 40, 40, false},
		{"out of memory for large messages", refuseRuns(1400, unix.ENOBUFS), 22, 22, 22, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := &fakeSender{refuse: tt.refuse}
			w := newWriter(k)
			now := time.Unix(0, 0)
			w.now = func() time.Time { return now }
			ds := concat(full, small)
			for i, want := range []int{tt.first, tt.second, tt.later} {
				if i == 2 {
					now = now.Add(limitTime)
				}
				*k = fakeSender{refuse: tt.refuse}
				if sent, err := write(w, ds); sent != len(ds) || err != nil {
					t.Fatalf("round %d: sent %d, %v", i, sent, err)
				}
				if d := diff(k.sent, asReceived(ds)); d != "" {
					t.Fatalf("round %d: datagrams (-want +got):\n%s", i, d)
				}
				if len(k.runs) != want {
					t.Errorf("round %d: %d messages, want %d", i, len(k.runs), want)
				}
			}
			if w.gso.on.Load() != tt.on {
				t.Errorf("runs are on: %v, want %v", w.gso.on.Load(), tt.on)
			}
			var s Stats
			if w.stats(&s); s.WriteErrors != 0 {
				t.Errorf("%d errors counted, but every datagram was sent", s.WriteErrors)
			}
		})
	}
}

func TestWriterTriesARefusedSizeOncePerPeriod(t *testing.T) {
	k := &fakeSender{refuse: refuseRuns(1400, unix.EINVAL)}
	w := newWriter(k)
	now := time.Unix(0, 0)
	w.now = func() time.Time { return now }
	ds := to(nodeA, repeat(20, 1452)...)
	for range 5 {
		for range 100 {
			if sent, err := write(w, ds); sent != len(ds) || err != nil {
				t.Fatalf("sent %d, %v", sent, err)
			}
		}
		now = now.Add(limitTime)
	}
	if n := w.replays.Load(); n != 5 {
		t.Errorf("%d refused attempts in 5 periods, want 5", n)
	}
	k.refuse = nil // the path has become wider
	k.runs = nil
	if _, err := write(w, ds); err != nil || len(k.runs) != 1 {
		t.Errorf("after the path became wider: %d messages, %v, want 1", len(k.runs), err)
	}
}

func TestSetGSOTriesAgain(t *testing.T) {
	k := &fakeSender{refuse: refuseRuns(0, unix.EIO)}
	w := newWriter(k)
	ds := to(nodeA, repeat(20, 1452)...)
	for range 2 {
		if _, err := write(w, ds); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.replays.Load(); n != 1 {
		t.Errorf("%d refused attempts after EIO, want 1", n)
	}
	k.refuse, k.runs = nil, nil
	w.gso.set(true)
	if _, err := write(w, ds); err != nil || len(k.runs) != 1 {
		t.Errorf("after switching on again: %d messages, %v, want 1", len(k.runs), err)
	}
}

func TestWriterAgainstTheObvious(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ds []Datagram
		for range rapid.IntRange(0, 20).Draw(t, "groups") {
			addr := rapid.SampledFrom([]netip.AddrPort{nodeA, nodeB}).Draw(t, "addr")
			size := rapid.SampledFrom([]int{0, 1, 22, 100, 1452, 9000, 65507}).Draw(t, "size")
			ds = append(ds, to(addr, repeat(rapid.IntRange(1, 80).Draw(t, "n"), size)...)...)
		}
		errnos := []syscall.Errno{0, 0, 0, unix.EINTR, unix.EAGAIN, unix.EINVAL, unix.EMSGSIZE, unix.EIO, unix.ENOBUFS}
		k := &fakeSender{atMost: rapid.IntRange(0, 5).Draw(t, "at most")}
		k.refuse = func(_ netip.AddrPort, n, _ int) syscall.Errno {
			errno := rapid.SampledFrom(errnos).Draw(t, "errno")
			if n == 1 && errno != unix.EINTR && errno != unix.EAGAIN {
				return 0 // single datagrams are always taken, so everything has to arrive
			}
			return errno
		}
		w := newWriter(k)
		sent, err := write(w, ds)
		if sent != len(ds) || err != nil {
			t.Fatalf("sent %d of %d, %v", sent, len(ds), err)
		}
		if d := diff(k.sent, asReceived(ds)); d != "" {
			t.Fatalf("datagrams (-want +got):\n%s", d)
		}
	})
}

func TestWriterForgetsTheCallersBytes(t *testing.T) {
	w := newWriter(&fakeSender{})
	if _, err := write(w, to(nodeA, append(repeat(128, 100), 1)...)); err != nil {
		t.Fatal(err)
	}
	for i, v := range w.iovs {
		if v.Base != nil {
			t.Fatalf("iovec %d still points to the caller's bytes", i)
		}
	}
}

func TestCloseEndsWriteBatch(t *testing.T) {
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	called := make(chan struct{}, 1)
	c.writers[0].sendmmsg = func(uintptr, []mmsghdr) (int, syscall.Errno) {
		select {
		case called <- struct{}{}:
		default:
		}
		return 0, unix.EAGAIN // the send buffer never has room
	}
	done := make(chan error)
	go func() {
		_, err := c.WriteBatch(to(nodeA, 100))
		done <- err
	}()
	<-called
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != net.ErrClosed {
		t.Errorf("WriteBatch = %v, want net.ErrClosed itself", err)
	}
}
