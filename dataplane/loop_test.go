package dataplane_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// peerSide is the peer's tunnel: what comes out of it goes to deliver, and what is sent to out
// goes into it.
type peerSide struct {
	deliver func(packet []byte)
	out     chan []byte
	end     chan struct{}
}

func (p *peerSide) ReadPackets(bufs [][]byte, sizes []int, offset int) (n, own int, err error) {
	select {
	case b := <-p.out:
		sizes[0] = copy(bufs[0][offset:], b)
	case <-p.end:
		return 0, 0, context.Canceled
	}
	for n = 1; n < len(bufs) && len(p.out) > 0; n++ {
		sizes[n] = copy(bufs[n][offset:], <-p.out)
	}
	return n, 0, nil
}

func (p *peerSide) WritePackets(bufs [][]byte, _ []uint8, offset int, _ func()) {
	for _, b := range bufs {
		p.deliver(b[offset:])
	}
}

// runPeer runs the peer of a configuration, which it completes.
func runPeer(tb testing.TB, network *dataplanetest.Network, cfg *dataplane.Config, deliver func(packet []byte)) *peerSide {
	tb.Helper()
	p, key := &peerSide{deliver: deliver, out: make(chan []byte, 4*tunnel.BatchSize), end: make(chan struct{})}, tunnel.GeneratePrivateKey()
	at := netip.MustParseAddrPort("192.0.2.2:51840")
	peer, err := tunnel.New(tunnel.Options{Overlay: p, Listen: func(uint16) (tunnel.Socket, error) { return network.Listen(at), nil }})
	if err != nil {
		tb.Fatal(err)
	}
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	if err := peer.Apply(tunnel.Config{PrivateKey: key, PeerKey: cfg.Tunnel.PrivateKey.Public(), ListenPort: at.Port(), AllowedIPs: everything}); err != nil {
		tb.Fatal(err)
	}
	cfg.Tunnel.PeerKey, cfg.Tunnel.Endpoint, cfg.Tunnel.AllowedIPs = key.Public(), at.String(), everything
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = peer.Run(ctx) }()
	tb.Cleanup(func() { cancel(); close(p.end); <-ended })
	return p
}

// loopHarness is a Forwarder with several sockets that runs, and a node with many ports, which
// are the flows that a kernel would spread over the sockets.
type loopHarness struct {
	*harness
	peer  *peerSide
	flows []*dataplanetest.Socket
	stop  func()
}

func newLoopHarness(t *testing.T, loops, flows int, deliver func([]byte)) *loopHarness {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	network := dataplanetest.NewNetwork()
	h := &loopHarness{harness: &harness{T: t, network: network, config: harnessConfig()}}
	h.peer = runPeer(t, network, &h.config, deliver)
	var err error
	h.forwarder, err = dataplane.New(dataplane.Options{
		Underlays: dataplanetest.Underlays(network.ListenShared(gatewayAddr, loops)),
		Tunnel: tunnel.Options{Listen: func(port uint16) (tunnel.Socket, error) {
			return network.Listen(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)), nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.forwarder.Apply(h.config); err != nil {
		t.Fatal(err)
	}
	for i := range flows {
		h.flows = append(h.flows, network.Listen(netip.AddrPortFrom(nodeAddrs[0].Addr(), uint16(10000+i))))
	}
	h.stop = sync.OnceFunc(h.run())
	t.Cleanup(h.stop)
	return h
}

// send sends packets of one flow, numbered from first on.
func (h *loopHarness) send(flow int, first, n uint32) {
	var ds []underlay.Datagram
	for i := range n {
		ip := udp(localPod, uint16(flow), remoteInside, 53, string(binary.BigEndian.AppendUint32(nil, first+i)))
		ds = append(ds, underlay.Datagram{Addr: gatewayAddr, Body: packettest.Geneve(7, neighbor.EtherTypeIPv4, ip)})
	}
	if _, err := h.flows[flow].WriteBatch(ds); err != nil {
		h.Error(err)
	}
}

// reconfigure changes the configuration again and again until done is closed.
func (h *loopHarness) reconfigure(done <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		cfg := h.config
		cfg.Sources = dataplane.SourceCheck(i % 2)
		if i%3 == 0 {
			cfg.Filter = filter.Config{Chains: []filter.Chain{forwardChain(ruleFor(filter.Accept, filter.Match{}))}}
		}
		if err := h.forwarder.Apply(cfg); err != nil {
			h.Error(err)
		}
		if err := h.forwarder.SetPathMTU(1300 + i%2*40); err != nil {
			h.Error(err)
		}
		_ = h.forwarder.Status()
		_ = h.forwarder.Dropped(0)
		runtime.Gosched()
	}
}

// Several loops carry the flows of a node. Each packet comes out once, those of a flow in
// their order, also while the configuration changes and the gateway has packets of its own.
func TestLoopsKeepTheOrderOfFlows(t *testing.T) {
	const loops, flows, rounds, each = 4, 24, 12, 40
	type number struct {
		flow   uint16
		number uint32
	}
	arrived := make(chan number, flows*each)
	h := newLoopHarness(t, loops, flows, func(b []byte) {
		if p, ok := packet.Parse(b); ok && p.Proto == packet.ProtoUDP {
			flow, _ := p.Ports()
			arrived <- number{flow, binary.BigEndian.Uint32(p.Transport()[packet.UDPHeaderLen:])}
		}
	})
	done := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { h.reconfigure(done) })
	var next [flows]uint32
	for round := range uint32(rounds) {
		var wg sync.WaitGroup
		for flow := range flows {
			wg.Go(func() { h.send(flow, round*each, each) })
		}
		h.forwarder.SendOwn(echoRequest(tunnelIP, peerTunnelIP))
		for range flows * each {
			select {
			case got := <-arrived:
				if got.number != next[got.flow] {
					t.Fatalf("flow %d: packet %d, want %d", got.flow, got.number, next[got.flow])
				}
				next[got.flow]++
			case <-time.After(patience):
				t.Fatalf("%v have come of %d each: %+v", next, (round+1)*each, h.forwarder.Status().Egress)
			}
		}
		wg.Wait()
	}
	close(done)
	background.Wait()
	h.stop()
	const total = flows * rounds * each
	s := h.forwarder.Status()
	if n := s.Nodes[0].RxPackets; n != total || s.Egress.Verdicts["Forwarded"] != total || len(arrived) != 0 {
		t.Errorf("%d packets from the node, %v, and %d came too often, want %d", n, s.Egress.Verdicts, len(arrived), total)
	}
	if got := s.Sockets["geneve"]; got.Sockets != loops || got.ReadDatagrams != total {
		t.Errorf("%d sockets have read %d datagrams, want %d and %d", got.Sockets, got.ReadDatagrams, loops, total)
	}
	for i, n := range h.forwarder.LoopPackets() {
		if n < total/loops/2 {
			t.Errorf("loop %d has carried %d packets of %d", i, n, total)
		}
	}
}

// Run ends while all loops are at work.
func TestRunEndsUnderTraffic(t *testing.T) {
	const loops, flows = 3, 6
	var came atomic.Int64
	h := newLoopHarness(t, loops, flows, func([]byte) { came.Add(1) })
	done := make(chan struct{})
	var background sync.WaitGroup
	for flow := range flows {
		background.Go(func() {
			for n := uint32(0); ; n += 8 {
				select {
				case <-done:
					return
				default:
					h.send(flow, n, 8)
				}
			}
		})
	}
	for deadline := time.Now().Add(patience); came.Load() < 1000; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing comes")
		}
	}
	h.stop()
	close(done)
	background.Wait()
	for i, r := range h.forwarder.Readers() {
		if _, _, err := r.ReadPackets(h.bufs, h.sizes, offset); err == nil {
			t.Errorf("loop %d still reads", i)
		}
	}
}

// Several loops, each with all kinds of packets, allocate as little as one.
func TestLoopsAllocateNothing(t *testing.T) {
	const loops = 3
	r := newReplays(t, loops, filtered(longChain(10)))
	r.load(
		udpOf(localPod, remoteInside, 64), udpOf(localPod6, remoteInside6, 64), superSegment(20000), udpOf(unknownIP, remoteInside, 64),
		udpOf(nodeIPs[0], remoteInside, 64), udpOf(mappedPod, remoteInside, 64), tcpOf(localPod, remoteInside, packet.TCPSyn, mss(1460), 0),
		udpOf(localPod, remoteInside, 4000), udpOf(netip.MustParseAddr("8.8.8.8"), remoteInside, 64), expiring(localPod, remoteInside),
	)
	var begin [loops]chan struct{}
	end := make(chan int, loops)
	for i, reader := range r.forwarder.Readers() {
		begin[i] = make(chan struct{})
		bufs, sizes := newTunnelBatch()
		go func() {
			for range begin[i] {
				n, _, err := reader.ReadPackets(bufs, sizes, offset)
				if err != nil {
					t.Error(err)
				}
				end <- n
			}
		}()
	}
	packets := 0
	allocations := testing.AllocsPerRun(200, func() {
		for _, b := range begin {
			b <- struct{}{}
		}
		for range loops {
			packets += <-end
		}
	})
	for _, b := range begin {
		close(b)
	}
	if packets < 200*loops {
		t.Fatalf("only %d packets came out: %v", packets, r.forwarder.Status().Egress.Verdicts)
	}
	checkAllocations(t, allocations)
}

// Who spreads his packets over the loops is told of no more errors than by one loop.
func TestLoopsShareTheBudgetOfErrors(t *testing.T) {
	const loops, allowed = 3, 20
	r := newReplays(t, loops, oneNode)
	r.forwarder.StopClock()
	r.load(append(repeat(expiring(localPod, remoteInside), 30), udpOf(localPod, remoteInside, 64))...)
	for _, reader := range r.forwarder.Readers() {
		if _, _, err := reader.ReadPackets(r.bufs, r.sizes, offset); err != nil {
			t.Fatal(err)
		}
	}
	written := 0
	for _, u := range r.all {
		written += u.written
	}
	if written != allowed {
		t.Errorf("%d errors, want %d", written, allowed)
	}
	if n := r.forwarder.Status().Egress.Verdicts["DropHopLimit"]; n != 30*loops {
		t.Errorf("%d drops are counted, want %d", n, 30*loops)
	}
}

func TestNewNeedsASocket(t *testing.T) {
	if _, err := dataplane.New(dataplane.Options{}); err == nil {
		t.Error("built without Underlays")
	}
}

// TCP of several nodes through several loops, while the configuration changes.
func TestFabricWithSeveralNodeSockets(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	const nodes = 3
	f, err := dataplanetest.NewFabric(dataplanetest.Options{
		Sockets: 3, SuperSegments: true,
		NodesA: []geneve.Encapsulation{geneve.Geneve, geneve.VXLAN, geneve.GeneveIP},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	far, err := f.B.AddPod(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var transfers sync.WaitGroup
	farAddr := dataplanetest.PodAddr(0, 0)
	for i := range nodes {
		pod, err := f.A.AddPod(i, 0)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := f.WaitReady(testContext(t, patience)); err != nil {
				t.Fatal(err)
			}
		}
		listen := port(farAddr, uint16(80+i))
		transfers.Go(func() {
			to := port(dataplanetest.Through(dataplanetest.RemappedB, farAddr), listen.Port())
			from := dataplanetest.Through(dataplanetest.RemappedA, dataplanetest.PodAddr(i, 0))
			if err := transferErr(testContext(t, patience), pod, far, to, listen, from, 1<<20); err != nil {
				t.Errorf("node %d: %v", i, err)
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); transfers.Wait() }()
	for i := 0; ; i++ {
		select {
		case <-done:
			for i, n := range f.A.Gateway.LoopPackets() {
				if n == 0 {
					t.Errorf("loop %d has carried nothing", i)
				}
			}
			return
		default:
		}
		cfg := f.A.Config
		cfg.Sources = dataplane.SourceCheck(i % 2)
		if err := f.A.Gateway.Apply(cfg); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// sinkSocket is the tunnel's socket. It counts messages with packets and sends the others.
type sinkSocket struct {
	*dataplanetest.Socket
	sent *atomic.Int64
}

func (s sinkSocket) WriteBatch(ds []underlay.Datagram) (int, error) {
	const transport = 4
	if len(ds) > 1 && ds[0].Body[0] == transport {
		s.sent.Add(int64(len(ds)))
		return len(ds), nil
	}
	return s.Socket.WriteBatch(ds)
}

// BenchmarkLoops measures all of egress, from datagrams in memory to sealed messages in
// memory, with as many loops as processors: run it with -cpu 1,2. One operation is one packet.
func BenchmarkLoops(b *testing.B) {
	for _, size := range []int{64, 1300} {
		b.Run(fmt.Sprintf("udp/%d", size), func(b *testing.B) {
			network, sent := dataplanetest.NewNetwork(), new(atomic.Int64)
			cfg := harnessConfig()
			runPeer(b, network, &cfg, func([]byte) {})
			oneNode(&cfg)
			var underlays []dataplane.Underlay
			r := &replay{nodeMAC: [6]byte{2, 0, 0, 0, 0, 1}}
			for i := range runtime.GOMAXPROCS(0) {
				u := &replayUnderlay{src: netip.AddrPortFrom(nodeAddrs[0].Addr(), uint16(1000+i)), wake: make(chan struct{}, 1)}
				u.datagrams = repeat(r.encapsulated(udpOf(localPod, remoteInside, size)), 32)
				underlays = append(underlays, u)
			}
			f, err := dataplane.New(dataplane.Options{Underlays: underlays, Tunnel: tunnel.Options{
				Listen: func(port uint16) (tunnel.Socket, error) {
					return sinkSocket{network.Listen(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)), sent}, nil
				},
			}})
			if err != nil {
				b.Fatal(err)
			}
			if err := f.Apply(cfg); err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- f.Run(ctx) }()
			for sent.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for start := sent.Load(); sent.Load()-start < int64(b.N); {
				time.Sleep(100 * time.Microsecond)
			}
			b.StopTimer()
			cancel()
			if err := <-ended; err != nil {
				b.Error(err)
			}
		})
	}
}
