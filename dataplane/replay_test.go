package dataplane_test

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// replayUnderlay is a socket that hands out the same datagrams with every read
// and forgets what is written. It allocates nothing, so that what a test or a
// benchmark sees is the forwarder's.
type replayUnderlay struct {
	datagrams [][]byte
	segment   int // of the first of them, if that is a run
	src       netip.AddrPort
	// onWrite sees what goes out, if set.
	onWrite func(underlay.Datagram)

	woken   atomic.Bool
	wake    chan struct{}
	written int // datagrams
}

func (r *replayUnderlay) WaitMessages(bufs [][]byte, ms []underlay.Message) (int, error) {
	if r.woken.Swap(false) {
		return 0, underlay.ErrWoken
	}
	if len(r.datagrams) == 0 {
		<-r.wake
		return 0, underlay.ErrWoken
	}
	n := min(len(bufs), len(r.datagrams))
	for i := range n {
		k := copy(bufs[i], r.datagrams[i])
		ms[i] = underlay.Message{Data: bufs[i][:k], Segment: k, Origin: underlay.Origin{Addr: r.src, Local: gatewayAddr.Addr(), ECN: packet.ECT0}}
		if i == 0 && r.segment > 0 {
			ms[i].Segment = min(k, r.segment)
		}
	}
	return n, nil
}

func (r *replayUnderlay) TryWriteBatch(ds []underlay.Datagram) (int, error) { return r.WriteBatch(ds) }

func (r *replayUnderlay) WriteBatch(ds []underlay.Datagram) (int, error) {
	r.written += len(ds)
	if r.onWrite != nil {
		for _, d := range ds {
			r.onWrite(d)
		}
	}
	return len(ds), nil
}

func (r *replayUnderlay) Wake() {
	r.woken.Store(true)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *replayUnderlay) LocalAddr() netip.AddrPort { return gatewayAddr }
func (r *replayUnderlay) Stats() underlay.Stats     { return underlay.Stats{} }
func (r *replayUnderlay) Close() error              { return nil }

// replay is a Forwarder on a replayUnderlay, or several.
type replay struct {
	testing.TB
	*replayUnderlay
	all       []*replayUnderlay // that one and the others
	forwarder *dataplane.Forwarder
	bufs      [][]byte
	sizes     []int
	nodeMAC   neighbor.MAC
}

func newReplay(tb testing.TB, change func(*dataplane.Config)) *replay {
	return newReplays(tb, 1, change)
}

// newReplays is newReplay with several sockets.
func newReplays(tb testing.TB, sockets int, change func(*dataplane.Config)) *replay {
	r := &replay{TB: tb, nodeMAC: neighbor.MAC{2, 0, 0, 0, 0, 1}}
	r.bufs, r.sizes = newTunnelBatch()
	var underlays []dataplane.Underlay
	for range sockets {
		u := &replayUnderlay{src: nodeAddrs[0], wake: make(chan struct{}, 1)}
		r.all, underlays = append(r.all, u), append(underlays, u)
	}
	r.replayUnderlay = r.all[0]
	cfg := harnessConfig()
	if change != nil {
		change(&cfg)
	}
	network := dataplanetest.NewNetwork()
	var err error
	r.forwarder, err = dataplane.New(dataplane.Options{
		Underlays: underlays,
		Tunnel: tunnel.Options{Listen: func(port uint16) (tunnel.Socket, error) {
			return network.Listen(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)), nil
		}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.close)
	if err := r.forwarder.Apply(cfg); err != nil {
		tb.Fatal(err)
	}
	// One packet teaches the gateway the node's MAC.
	r.load(udp(localPod, 1, remoteInside, 1, ""))
	r.egress()
	return r
}

// newTunnelBatch returns the buffers of one loop of the tunnel.
func newTunnelBatch() (bufs [][]byte, sizes []int) {
	for range tunnel.BatchSize {
		bufs = append(bufs, make([]byte, 2048))
	}
	return bufs, make([]int, tunnel.BatchSize)
}

func (r *replay) close() {
	for _, u := range r.all {
		u.datagrams = nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.forwarder.Run(ctx); err != nil {
		r.Errorf("Run: %v", err)
	}
}

// encapsulated returns ip as the first node would send it.
func (r *replay) encapsulated(ip []byte) []byte {
	et := neighbor.EtherTypeIPv4
	if ip[0]>>4 == 6 {
		et = neighbor.EtherTypeIPv6
	}
	return inGeneve(7, frame(r.nodeMAC, r.nodeMAC, et, ip))
}

// load makes these packets what every read returns.
func (r *replay) load(ips ...[]byte) {
	for _, u := range r.all {
		u.datagrams = u.datagrams[:0]
		for _, ip := range ips {
			u.datagrams = append(u.datagrams, r.encapsulated(ip))
		}
	}
}

// egress runs ReadPackets once and returns the number of packets.
func (r *replay) egress() int {
	n, _, err := r.forwarder.ReadPackets(r.bufs, r.sizes, offset)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// ingressBatch returns a function that carries these packets through
// WritePackets, fresh each time.
func (r *replay) ingressBatch(ips ...[]byte) func() {
	bufs, room, ecn := make([][]byte, len(ips)), make([][]byte, len(ips)), make([]uint8, len(ips))
	for i, ip := range ips {
		room[i], ecn[i] = make([]byte, offset+len(ip)), packet.ECT0
	}
	return func() {
		for i, ip := range ips {
			copy(room[i][offset:], ip)
			bufs[i] = room[i]
		}
		r.forwarder.WritePackets(bufs, ecn, offset, func() {})
	}
}
