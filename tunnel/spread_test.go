package tunnel

import (
	"testing"
	"testing/synctest"
	"time"
)

// A further tunnel may end while a loop of the first one sends by it.
func TestFurtherTunnelEndsWhileItSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBundle(t, 1, 51820, 51821)
		x.greet(t, 2)
		f := x.a.further.tunnels[0]
		sender := f.egress.senders[0]
		bufs, sizes := newBuffers()[:1], []int{0}
		sizes[0] = copy(bufs[0][sealFront:], tcp(x.a.inner, x.b.inner, 1, 1))
		if !sender.direct.Ready(bufs, sizes) {
			t.Fatal("there is no session")
		}
		f.end()
		sender.direct.Send(bufs, sizes)
		x.settle() // it begins anew
	})
}

// Pings by a tunnel that does not work never hold up what the others carry.
func TestDeadTunnelHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBundle(t, 1, 51820, 51821)
		x.wire.block(51821)
		x.flows(t, 8, 1)
		x.a.SetUsable([]bool{true, false})
		client, server := ends(1)
		for i := range 2 * maxWaiting {
			x.a.overlay.own <- ipPacket(client.Addr().String(), server.Addr().String(), uint32(i), 100)
			synctest.Wait()
			start := time.Now()
			x.flows(t, 8, 1)
			if took := time.Since(start); took > 0 {
				t.Fatalf("after ping %d other flows are held up for %v", i, took)
			}
			time.Sleep(2 * time.Second)
		}
	})
}
