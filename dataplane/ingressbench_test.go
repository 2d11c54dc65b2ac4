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
// memory, with one loop, with two, and with one for each of two tunnels: run it with -cpu 2. One
// operation is one packet.
func BenchmarkIngressLoops(b *testing.B) {
	for _, size := range []int{64, 1300} {
		for _, c := range []struct{ loops, tunnels int }{{1, 1}, {2, 1}, {1, 2}} {
			name := fmt.Sprintf("udp/%d/loops=%d", size, c.loops)
			if c.tunnels > 1 {
				name = fmt.Sprintf("udp/%d/tunnels=%d", size, c.tunnels)
			}
			b.Run(name, func(b *testing.B) { benchmarkIngressLoops(b, c.loops, c.tunnels, size) })
		}
	}
}

// sealedTunnel is a tunnel whose messages come from memory.
type sealedTunnel struct {
	here   netip.AddrPort
	peer   *tunnel.Tunnel
	seals  *sealingPeer
	pool   *sealed
	keep   *atomic.Bool
	socket *sealedSocket
}

// newSealedTunnel returns the tunnel of a place, between two keys.
func newSealedTunnel(b *testing.B, network *dataplanetest.Network, place uint16, ours tunnel.PublicKey, theirs tunnel.PrivateKey, size int) *sealedTunnel {
	at := func(host string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(host), 51840+place) }
	there := at("192.0.2.2")
	t := &sealedTunnel{
		here: at("192.0.2.1"), pool: new(sealed), keep: new(atomic.Bool),
		seals: &sealingPeer{packet: udpOf(remoteOutside, localPod, size), seal: make(chan int), done: make(chan struct{}, 1)},
	}
	t.socket = &sealedSocket{Socket: network.Listen(t.here), from: there}
	var err error
	t.peer, err = tunnel.New(tunnel.Options{Overlay: t.seals, Listen: func(uint16) (tunnel.Socket, error) {
		return sealingSocket{network.Listen(there), t.keep, t.pool}, nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	if err := t.peer.Apply(tunnel.Config{PrivateKey: theirs, PeerKey: ours, AllowedIPs: everything, Endpoint: t.here.String()}); err != nil {
		b.Fatal(err)
	}
	return t
}

var everything = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}

// seal has the peer seal so many packets into the pool, once keep is set.
func (t *sealedTunnel) seal(n int) {
	t.pool.bytes, t.pool.ends = t.pool.bytes[:0], t.pool.ends[:0]
	t.seals.seal <- n
	<-t.seals.done
}

func benchmarkIngressLoops(b *testing.B, loops, tunnels, size int) {
	network, cfg := dataplanetest.NewNetwork(), harnessConfig()
	oneNode(&cfg)
	key := tunnel.GeneratePrivateKey()
	cfg.Tunnel.PeerKey, cfg.Tunnel.AllowedIPs = key.Public(), everything
	var all []*sealedTunnel
	for i := range tunnels {
		t := newSealedTunnel(b, network, uint16(i), cfg.Tunnel.PrivateKey.Public(), key, size)
		all = append(all, t)
		if i == 0 {
			cfg.Tunnel.ListenPort = t.here.Port()
			continue
		}
		end := func(host int) netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 18, byte(4*i + host)}) }
		cfg.Further = append(cfg.Further, dataplane.TunnelEnds{Own: end(1), Peer: end(2)})
		cfg.Tunnel.Further = append(cfg.Tunnel.Further, tunnel.Further{ListenPort: t.here.Port(), AllowedIPs: everything})
	}
	sink := &countingUnderlay{replayUnderlay: &replayUnderlay{src: nodeAddrs[0], wake: make(chan struct{}, 1)}, done: make(chan struct{}, 1)}
	underlays := []dataplane.Underlay{sink}
	for range loops - 1 {
		underlays = append(underlays, &replayUnderlay{src: nodeAddrs[0], wake: make(chan struct{}, 1)})
	}
	f, err := dataplane.New(dataplane.Options{Underlays: underlays, Tunnel: tunnel.Options{
		Listen: func(port uint16) (tunnel.Socket, error) { return all[port-51840].socket, nil },
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
	ended := make(chan struct{}, 1+tunnels)
	run := func(run func(context.Context) error) { go func() { _ = run(ctx); ended <- struct{}{} }() }
	run(f.Run)
	for i, t := range all {
		run(t.peer.Run)
		t.seal(1) // makes a session
		for f.Status().Ingress.Packets <= uint64(i) {
			time.Sleep(time.Millisecond)
		}
		t.keep.Store(true)
	}
	defer func() {
		cancel()
		for _, t := range all {
			close(t.seals.seal)
		}
		for range 1 + tunnels {
			<-ended
		}
	}()
	wake := network.Listen(netip.MustParseAddrPort("192.0.2.3:1")) // has the gateway look into the pools

	var spent time.Duration
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	for left := b.N; left > 0; {
		n := min(left, 1<<15)
		left -= n
		var wakes []underlay.Datagram
		for i, t := range all {
			if share := (n + i) / tunnels; share > 0 {
				t.seal(share)
				wakes = append(wakes, underlay.Datagram{Addr: t.here, Body: []byte{0}})
			}
		}
		sink.left.Store(int64(n))
		b.StartTimer()
		before := processTime(b)
		for _, t := range all {
			if len(t.pool.ends) > 0 {
				t.socket.in.Store(t.pool)
			}
		}
		if _, err := wake.WriteBatch(wakes); err != nil {
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
