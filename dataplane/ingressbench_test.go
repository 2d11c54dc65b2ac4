package dataplane_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// sealed are messages with packets, one after another in memory.
type sealed struct {
	bytes []byte
	ends  []int
}

func (s *sealed) add(m []byte) {
	s.bytes = append(s.bytes, m...)
	s.ends = append(s.ends, len(s.bytes))
}

// sealingSocket is the socket of a peer. Messages with packets go to the pool once keep is set.
type sealingSocket struct {
	*dataplanetest.Socket
	keep *atomic.Bool
	pool *sealed
}

func (s sealingSocket) WriteBatch(ds []underlay.Datagram) (int, error) {
	const transport, keepalive = 4, 32
	if !s.keep.Load() || ds[0].Body[0] != transport || len(ds[0].Body) == keepalive {
		return s.Socket.WriteBatch(ds)
	}
	for _, d := range ds {
		s.pool.add(d.Body)
	}
	return len(ds), nil
}

// sealingPeer seals what it is told to.
type sealingPeer struct {
	packet []byte
	seal   chan int      // how many packets; closed at the end
	done   chan struct{} // sent to when they are sealed
	left   int
	asked  bool
}

func (p *sealingPeer) ReadPackets(bufs [][]byte, sizes []int, offset int) (int, int, error) {
	if p.left == 0 {
		if p.asked {
			p.done <- struct{}{}
		}
		p.asked = true
		var ok bool
		if p.left, ok = <-p.seal; !ok {
			return 0, 0, context.Canceled
		}
	}
	n := min(p.left, len(bufs))
	p.left -= n
	for i := range n {
		sizes[i] = copy(bufs[i][offset:], p.packet)
	}
	return n, 0, nil
}

func (p *sealingPeer) WritePackets([][]byte, []uint8, int, func()) {}

// sealedSocket is the gateway's socket, on which messages come from memory, or else by the network.
type sealedSocket struct {
	*dataplanetest.Socket
	from netip.AddrPort
	in   atomic.Pointer[sealed]
	next int // of whoever reads
}

func (s *sealedSocket) ReadBatch(bufs [][]byte, sizes []int, from []underlay.Origin) (n int, err error) {
	in := s.in.Load()
	if in == nil {
		return s.Socket.ReadBatch(bufs, sizes, from)
	}
	for n < len(bufs) && s.next < len(in.ends) {
		start := 0
		if s.next > 0 {
			start = in.ends[s.next-1]
		}
		sizes[n], from[n] = copy(bufs[n], in.bytes[start:in.ends[s.next]]), underlay.Origin{Addr: s.from}
		n, s.next = n+1, s.next+1
	}
	if s.next == len(in.ends) {
		s.next = 0
		s.in.Store(nil)
	}
	return n, nil
}

// countingUnderlay tells when so many datagrams were written.
type countingUnderlay struct {
	*replayUnderlay
	left atomic.Int64
	done chan struct{}
}

func (u *countingUnderlay) WriteBatch(ds []underlay.Datagram) (int, error) {
	if u.left.Add(-int64(len(ds))) == 0 {
		u.done <- struct{}{}
	}
	return len(ds), nil
}

// BenchmarkIngressLoops measures all of ingress, from sealed messages in memory to datagrams in
// memory, with one loop and with two: run it with -cpu 2. One operation is one packet.
func BenchmarkIngressLoops(b *testing.B) {
	for _, size := range []int{64, 1300} {
		for _, loops := range []int{1, 2} {
			b.Run(fmt.Sprintf("udp/%d/loops=%d", size, loops), func(b *testing.B) { benchmarkIngressLoops(b, loops, size) })
		}
	}
}

func benchmarkIngressLoops(b *testing.B, loops, size int) {
	network, cfg := dataplanetest.NewNetwork(), harnessConfig()
	here, there := netip.MustParseAddrPort("192.0.2.1:51840"), netip.MustParseAddrPort("192.0.2.2:51840")
	oneNode(&cfg)

	pool, keep, key := new(sealed), new(atomic.Bool), tunnel.GeneratePrivateKey()
	p := &sealingPeer{packet: udpOf(remoteOutside, localPod, size), seal: make(chan int), done: make(chan struct{}, 1)}
	peer, err := tunnel.New(tunnel.Options{Overlay: p, Listen: func(uint16) (tunnel.Socket, error) {
		return sealingSocket{network.Listen(there), keep, pool}, nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	if err := peer.Apply(tunnel.Config{PrivateKey: key, PeerKey: cfg.Tunnel.PrivateKey.Public(), AllowedIPs: everything, Endpoint: here.String()}); err != nil {
		b.Fatal(err)
	}
	cfg.Tunnel.PeerKey, cfg.Tunnel.ListenPort, cfg.Tunnel.AllowedIPs = key.Public(), here.Port(), everything

	socket := &sealedSocket{Socket: network.Listen(here), from: there}
	sink := &countingUnderlay{replayUnderlay: &replayUnderlay{src: nodeAddrs[0], wake: make(chan struct{}, 1)}, done: make(chan struct{}, 1)}
	underlays := []dataplane.Underlay{sink}
	for range loops - 1 {
		underlays = append(underlays, &replayUnderlay{src: nodeAddrs[0], wake: make(chan struct{}, 1)})
	}
	f, err := dataplane.New(dataplane.Options{Underlays: underlays, Tunnel: tunnel.Options{
		Listen: func(uint16) (tunnel.Socket, error) { return socket, nil },
	}})
	if err != nil {
		b.Fatal(err)
	}
	if err := f.Apply(cfg); err != nil {
		b.Fatal(err)
	}
	r := &replay{nodeMAC: [6]byte{2, 0, 0, 0, 0, 1}}
	sink.datagrams = [][]byte{r.encapsulated(udp(localPod, 1, remoteInside, 1, ""))} // teaches the gateway the node's MAC
	bufs, sizes := newTunnelBatch()
	if _, _, err := f.ReadPackets(bufs, sizes, offset); err != nil {
		b.Fatal(err)
	}
	sink.datagrams = nil

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	for _, run := range []func(context.Context) error{peer.Run, f.Run} {
		go func() { _ = run(ctx); ended <- struct{}{} }()
	}
	defer func() { cancel(); close(p.seal); <-ended; <-ended }()
	p.seal <- 1 // makes a session
	<-p.done
	for f.Status().Ingress.Packets == 0 {
		time.Sleep(time.Millisecond)
	}

	keep.Store(true)
	wake := network.Listen(netip.MustParseAddrPort("192.0.2.3:1")) // has the gateway look into the pool

	var spent time.Duration
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	for left := b.N; left > 0; {
		n := min(left, 1<<15)
		left -= n
		pool.bytes, pool.ends = pool.bytes[:0], pool.ends[:0]
		p.seal <- n
		<-p.done
		sink.left.Store(int64(n))
		b.StartTimer()
		before := processTime(b)
		socket.in.Store(pool)
		if _, err := wake.WriteBatch([]underlay.Datagram{{Addr: here, Body: []byte{0}}}); err != nil {
			b.Fatal(err)
		}
		<-sink.done
		spent += processTime(b) - before
		b.StopTimer()
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// processTime returns the processor time that this process has used.
func processTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
