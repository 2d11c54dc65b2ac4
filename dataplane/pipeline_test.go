package dataplane_test

import (
	"context"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// sinkSocket is a socket towards the peer that counts what carries packets, and forgets it.
type sinkSocket struct {
	tunnel.Socket
	messages *atomic.Int64
}

func (s sinkSocket) WriteBatch(ds []underlay.Datagram) (int, error) {
	const transport = 4 // of the message types of WireGuard
	if len(ds) > 0 && ds[0].Body[0] == transport && len(ds[0].Body) > 64 {
		s.messages.Add(int64(len(ds)))
		return len(ds), nil
	}
	return s.Socket.WriteBatch(ds)
}

// nobody is an overlay that has no packets, and takes any.
type nobody struct{ end chan struct{} }

func (o nobody) ReadPackets([][]byte, []int, int) (int, int, error) {
	<-o.end
	return 0, 0, context.Canceled
}
func (o nobody) WritePackets([][]byte, []uint8, int) {}
func (o nobody) CloseRead()                          { close(o.end) }

// BenchmarkOneDirection is everything that a gateway does with what nodes send, from a datagram
// in memory to a message in memory, with as many processors for it as -cpu says. It has no system
// calls. One operation is a message.
func BenchmarkOneDirection(b *testing.B) {
	for _, load := range []struct {
		name string
		ips  [][]byte
	}{
		{"udp/1300", repeat(udpOf(localPod, remoteInside, 1300), 32)},
		{"super-segment/64KiB", repeat(superSegment(64000), 2)},
	} {
		b.Run(load.name, func(b *testing.B) { benchmarkOneDirection(b, load.ips) })
	}
}

func benchmarkOneDirection(b *testing.B, ips [][]byte) {
	network, messages := dataplanetest.NewNetwork(), new(atomic.Int64)
	at := func(host string) func(uint16) (tunnel.Socket, error) {
		return func(port uint16) (tunnel.Socket, error) {
			return sinkSocket{network.Listen(netip.AddrPortFrom(netip.MustParseAddr(host), port)), messages}, nil
		}
	}
	source := &replayUnderlay{src: nodeAddrs[0], wake: make(chan struct{}, 1)}
	f, err := dataplane.New(dataplane.Options{Underlay: source, Tunnel: tunnel.Options{Listen: at("192.0.2.1"), Processors: runtime.GOMAXPROCS(0)}})
	if err != nil {
		b.Fatal(err)
	}
	peer, err := tunnel.New(tunnel.Options{Listen: at("192.0.2.2"), Overlay: nobody{make(chan struct{})}})
	if err != nil {
		b.Fatal(err)
	}
	cfg, key := harnessConfig(), tunnel.GeneratePrivateKey()
	oneNode(&cfg)
	cfg.Tunnel.PeerKey, cfg.Tunnel.Endpoint = key.Public(), "192.0.2.2:51840"
	cfg.Tunnel.AllowedIPs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	r := &replay{TB: b, replayUnderlay: source, nodeMAC: neighbor.MAC{2, 0, 0, 0, 0, 1}}
	r.load(ips...)
	if err := f.Apply(cfg); err != nil {
		b.Fatal(err)
	}
	if err := peer.Apply(tunnel.Config{PrivateKey: key, PeerKey: cfg.Tunnel.PrivateKey.Public(), ListenPort: 51840, MTU: 1340}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{}, 2)
	go func() { _ = peer.Run(ctx); ended <- struct{}{} }()
	go func() { _ = f.Run(ctx); ended <- struct{}{} }()
	defer func() { cancel(); <-ended; <-ended }()
	for i := range 10000 {
		if messages.Load() > 0 {
			break
		}
		if time.Sleep(time.Millisecond); i == 9999 {
			b.Fatalf("no packet leaves: %+v", f.Status())
		}
	}
	b.SetBytes(1340)
	b.ReportAllocs()
	b.ResetTimer()
	for start := messages.Load(); messages.Load()-start < int64(b.N); {
		time.Sleep(100 * time.Microsecond)
	}
}
