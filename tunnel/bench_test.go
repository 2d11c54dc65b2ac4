package tunnel

import (
	"context"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// pump is an Overlay that offers packets without end, and one that counts what
// it gets.
type pump struct {
	packet  []byte
	got     atomic.Int64
	stopped atomic.Bool
	done    chan struct{}
}

func (p *pump) ReadPackets(bufs [][]byte, sizes []int, offset int) (int, int, error) {
	if p.packet == nil {
		<-p.done
	}
	if p.stopped.Load() {
		return 0, 0, os.ErrClosed
	}
	for i := range bufs {
		sizes[i] = copy(bufs[i][offset:], p.packet)
	}
	return len(bufs), 0, nil
}

func (p *pump) WritePackets(bufs [][]byte, _ []uint8, _ int, _ func()) { p.got.Add(int64(len(bufs))) }
func (p *pump) CloseRead() {
	if !p.stopped.Swap(true) {
		close(p.done)
	}
}

// BenchmarkTunnel sends through two tunnels over loopback sockets. One operation
// is one packet that arrived; the processor time is that of both ends.
func BenchmarkTunnel(b *testing.B) {
	for _, size := range []int{64, 1340} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { benchmarkTunnel(b, size) })
	}
}

func benchmarkTunnel(b *testing.B, size int) {
	from := &pump{packet: ipPacket("10.1.0.1", "10.2.0.1", 1, size), done: make(chan struct{})}
	to := &pump{done: make(chan struct{})}
	newEnd := func(o Overlay, host string, c Config) (*Tunnel, func()) {
		t, err := New(Options{Overlay: o, Listen: udp(host)})
		if err != nil {
			b.Fatal(err)
		}
		if err := t.Apply(c); err != nil {
			b.Fatal(err)
		}
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		go func() { defer close(done); _ = t.Run(ctx) }()
		return t, func() { cancel(); <-done }
	}
	keys := [2]PrivateKey{GeneratePrivateKey(), GeneratePrivateKey()}
	server, stopServer := newEnd(to, "127.0.0.2", Config{PrivateKey: keys[1], PeerKey: keys[0].Public(), AllowedIPs: prefixes("10.1.0.0/16")})
	defer stopServer()
	endpoint := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), server.Stats().ListenPort).String()
	_, stopClient := newEnd(from, "127.0.0.1", Config{PrivateKey: keys[0], PeerKey: keys[1].Public(), AllowedIPs: prefixes("10.2.0.0/16"), Endpoint: endpoint})
	defer stopClient()
	for to.got.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	start, cpu := to.got.Load(), processTime()
	for to.got.Load()-start < int64(b.N) {
		time.Sleep(100 * time.Microsecond)
	}
	b.StopTimer()
	b.ReportMetric(float64((processTime()-cpu).Nanoseconds())/float64(to.got.Load()-start), "cpu-ns/op")
}

// processTime returns the processor time that this process has used.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
