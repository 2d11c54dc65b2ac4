package underlay

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkBatch sends 128 datagrams over loopback and reads them, in one goroutine, and
// reports the CPU time that both ends and the kernel between them take for each.
func BenchmarkBatch(b *testing.B) {
	for _, size := range []int{64, 1400} {
		for _, offload := range []struct {
			name     string
			gso, gro bool
		}{{"plain", false, false}, {"gso", true, false}, {"gso+gro", true, true}} {
			b.Run(fmt.Sprintf("%d/%s", size, offload.name), func(b *testing.B) {
				tx, rx := loopPair(b, loopback4, offload.gso, offload.gro)
				benchmarkBatch(b, tx, rx, to(rx.LocalAddr(), repeat(128, size)...))
			})
		}
	}
}

// BenchmarkOrigin is BenchmarkBatch on sockets that are bound to no address, as a gateway's
// are: the kernel tells with each message which address it was sent to, and is told which
// one to send from.
func BenchmarkOrigin(b *testing.B) {
	for _, size := range []int{64, 1400} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			tx, rx := open(b, Config{GSO: true}), open(b, Config{GRO: true})
			ds := to(netip.AddrPortFrom(loopback4, rx.LocalAddr().Port()), repeat(128, size)...)
			for i := range ds {
				ds[i].Local, ds[i].ECN = loopback4, 2
			}
			benchmarkBatch(b, tx, rx, ds)
		})
	}
}

// BenchmarkMixedRuns alternates data and acknowledgements, as a tunnel with traffic
// both ways does: the worst case for the reader's prediction.
func BenchmarkMixedRuns(b *testing.B) {
	tx, rx := loopPair(b, loopback4, true, true)
	var ds []Datagram
	for range 3 {
		ds = append(ds, to(rx.LocalAddr(), repeat(40, 1452)...)...)
		ds = append(ds, to(rx.LocalAddr(), 96)...) // closes the run of data
		ds = append(ds, to(rx.LocalAddr(), repeat(10, 112)...)...)
	}
	benchmarkBatch(b, tx, rx, ds)
}

func benchmarkBatch(b *testing.B, tx, rx *Conn, ds []Datagram) {
	bufs := newBatch(128, MaxDatagram)
	bytes := 0
	for i := range ds {
		bytes += ds[i].size()
	}
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	start := cpuTime(b)
	for b.Loop() {
		if sent, err := tx.WriteBatch(ds); sent != len(ds) || err != nil {
			b.Fatalf("sent %d, %v", sent, err)
		}
		for got := 0; got < len(ds); {
			n, err := rx.ReadBatch(bufs.bufs, bufs.sizes, bufs.from)
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
	}
	b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N*len(ds)), "cpu-ns/datagram")
	s := rx.Stats()
	b.ReportMetric(float64(s.ReadDatagrams)/float64(s.Reads), "datagrams/read")
}

// cpuTime is the user and system time of this process in nanoseconds.
func cpuTime(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkReader is the cost of laying out and taking runs without a kernel.
func BenchmarkReader(b *testing.B) {
	for _, run := range []struct {
		name string
		m    message
	}{{"run of 45", runOf(0, 45*1452, 1452)}, {"single", single(0, 1452)}} {
		b.Run(run.name, func(b *testing.B) {
			n := len(run.m.datagrams())
			r := newReader(&fakeReceiver{}, true)
			calls := 0
			r.recvmmsg = func(_ uintptr, msgs []mmsghdr) (int, syscall.Errno) {
				if calls++; calls > 1 {
					return 0, unix.EAGAIN
				}
				msgs[0].len = uint32(len(run.m.data))
				msgs[0].hdr.SetControllen(0)
				if run.m.segment != 0 {
					msgs[0].hdr.SetControllen(copy(r.controls[0][:], groControl45))
				}
				return 1, 0
			}
			bufs := newBatch(128, MaxDatagram)
			b.ReportAllocs()
			for b.Loop() {
				calls = 0
				r.begin(bufs.bufs, bufs.sizes, bufs.from)
				r.fill(0)
				if got, err := r.result(); got != n || err != nil {
					b.Fatalf("%d datagrams, %v", got, err)
				}
				r.end()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/datagram")
		})
	}
}

var groControl45 = groControl(1452)

// BenchmarkPlan is the cost of making messages without a kernel.
func BenchmarkPlan(b *testing.B) {
	w := newWriter(&fakeSender{})
	w.sendmmsg = func(_ uintptr, msgs []mmsghdr) (int, syscall.Errno) { return len(msgs), 0 }
	for _, gso := range []bool{true, false} {
		b.Run(fmt.Sprintf("gso=%v", gso), func(b *testing.B) {
			w.gso.set(gso)
			ds := to(nodeA, repeat(128, 1452)...)
			b.ReportAllocs()
			for b.Loop() {
				if sent, err := write(w, ds); sent != 128 || err != nil {
					b.Fatal(sent, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*128), "ns/datagram")
		})
	}
}

func BenchmarkWake(b *testing.B) {
	c, _ := loopPair(b, loopback4, false, false)
	bufs := newBatch(1, 100)
	b.ReportAllocs()
	for b.Loop() {
		c.Wake()
		if _, err := c.ReadBatch(bufs.bufs, bufs.sizes, bufs.from); err != ErrWoken {
			b.Fatal(err)
		}
	}
}

// BenchmarkWriters sends batches of 128 datagrams on as many processors as there are, by
// one socket, to one that is full: its kernel drops them. Run it with -cpu 1,2. One operation
// is one batch. With one writer, those who send wait for each other.
func BenchmarkWriters(b *testing.B) {
	for _, writers := range []int{1, 4} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			tx := open(b, Config{Addr: netip.AddrPortFrom(loopback4, 0), GSO: true, Writers: writers})
			full := open(b, Config{Addr: netip.AddrPortFrom(loopback4, 0), ReadBuffer: 1})
			const size = 1400
			b.SetBytes(128 * size)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				ds := to(full.LocalAddr(), repeat(128, size)...)
				for pb.Next() {
					if _, err := tx.WriteBatch(ds); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
