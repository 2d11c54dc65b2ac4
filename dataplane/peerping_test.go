package dataplane_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/test/dataplanetest"
)

func TestPingPeer(t *testing.T) {
	f, _, _, _ := newFabric(t)
	ctx := testContext(t, patience)
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
	defer goleak.VerifyNone(t)
	network := dataplanetest.NewNetwork()
	h := &harness{T: t, network: network, forwarder: newForwarder(t, network, gatewayAddr)}
	ctx, cancel := context.WithCancel(t.Context())
	done := h.running(ctx)
	if _, err := h.forwarder.PingPeer(t.Context(), 100); !errors.Is(err, dataplane.ErrNoPeer) {
		t.Errorf("%v", err)
	}
	cancel()
	if err := ends(t, done); err != nil {
		t.Errorf("Run: %v", err)
	}
}
