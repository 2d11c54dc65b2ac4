package bench

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/dataplanetest"
)

// BenchmarkFabric takes packets from a node through two gateways to another, all in
// this process: the whole path without a kernel, for profiles that show nothing but
// our own stages and wireguard-go's. The network between is made of channels and
// copies each datagram, which costs an allocation.
func BenchmarkFabric(b *testing.B) {
	for _, size := range []int{64, 1300} {
		b.Run(fmt.Sprintf("udp/%d", size), func(b *testing.B) {
			f, err := dataplanetest.NewFabric(dataplanetest.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := f.Close(); err != nil {
					b.Error(err)
				}
			}()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := f.WaitReady(ctx); err != nil {
				b.Fatal(err)
			}
			// What is under way fits all queues, so that nothing is lost.
			const underWay = 256
			room := make(chan struct{}, underWay)
			f.B.Nodes[0].Observe(func([]byte) { <-room })
			ip := dataplanetest.Build(dataplanetest.Packet{
				Src:     netip.AddrPortFrom(dataplanetest.PodAddr(0, 0), 1000),
				Dst:     netip.AddrPortFrom(dataplanetest.Through(dataplanetest.RemappedB, dataplanetest.PodAddr(0, 0)), 9),
				Payload: make([]byte, size),
			})
			b.SetBytes(int64(size))
			take := func() {
				select {
				case room <- struct{}{}:
				case <-time.After(10 * time.Second):
					b.Fatal("packets were lost")
				}
			}
			for b.Loop() {
				take()
				f.A.Nodes[0].FromPod(ip)
			}
			for range underWay { // when there is room for as many, the last have arrived
				take()
			}
		})
	}
}
