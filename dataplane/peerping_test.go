package dataplane_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/tunnel"
)

func TestPingPeer(t *testing.T) {
	f, _, _, _ := newFabric(t)
	ctx := testContext(t, 10*time.Second)
	for _, size := range []int{28, 576, 1340, 1341, 1500, 9000} {
		if rtt, err := f.A.Gateway.PingPeer(ctx, size); err != nil || rtt <= 0 {
			t.Errorf("%d bytes: %v, %v", size, rtt, err)
		}
	}
	if got, want := f.A.Gateway.PeerTunnelAddr(), f.B.Gateway.Status().TunnelAddr; got != want {
		t.Errorf("peer is %v, want %v", got, want)
	}
}

func TestPingPeerWithoutPeering(t *testing.T) {
	g, err := dataplane.New(dataplane.Options{Tunnel: tunnel.Options{Listen: func(uint16) (tunnel.Socket, error) { return nil, errors.New("never asked") }}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.PingPeer(t.Context(), 100); !errors.Is(err, dataplane.ErrNoPeer) {
		t.Errorf("%v", err)
	}
}
