package e2e

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/deploy/e2e/lab"
)

// testGatewayMoves gives the gateway of cluster a another address, as a new pod
// has. The agents follow.
func testGatewayMoves(t *testing.T, w *fabricWorld) {
	l := w.startLoad(t)
	to := netip.MustParseAddr("172.30.0.252")
	old := w.A.Underlay
	start := time.Now()
	if _, err := w.gatewayA.Stop(2 * time.Second); err != nil {
		t.Error(err)
	}
	w.A.Gateway.IP("addr del %s/24 dev eth0", old)
	w.A.Gateway.IP("addr add %s/24 dev eth0", to)
	w.A.Underlay = to
	w.gatewayA = w.A.StartGateway(w.gateway, lab.GatewayOptions{Manifests: w.manifests(w.A)})
	for _, n := range w.A.Nodes {
		w.agents[n].Write(w.manifests(w.A))
	}
	w.gatewayA.WaitConnected(20 * time.Second)
	connected := time.Since(start)
	for _, n := range w.A.Nodes {
		for w.B1.Pod.Ping(w.fromB(n.PodAddr), "-c1 -W1").Received == 0 {
			if time.Since(start) > 20*time.Second {
				t.Fatalf("%s cannot be reached", n.Pod.Name)
			}
		}
	}
	l.recovered(t)
	s := l.since(start)
	t.Logf("connected after %v, with the start of a new gateway; %v", connected.Round(time.Millisecond), s)
	if len(s.broken) > 0 {
		t.Errorf("connections broke: %v", s.broken)
	}
	testPing(t, w.world)
}
