package e2e

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/test/lab"
)

// TestStockPeerWithSeveralTunnels joins our gateway by three tunnels with a peer that has three
// devices of stock wireguard-go, over which its kernel spreads the flows.
func TestStockPeerWithSeveralTunnels(t *testing.T) {
	for _, role := range []string{"server", "client"} {
		t.Run("our gateway is the "+role, func(t *testing.T) {
			l := lab.New(t, tools...)
			node := []lab.NodeSpec{{Encapsulation: lab.Geneve}}
			topo := l.NewTopology(node, node)
			w := &world{Topology: topo, A1: topo.A.Nodes[0], B1: topo.B.Nodes[0]}
			ours, stocks := w.A, w.B // a is the server
			if role == "client" {
				ours, stocks = w.B, w.A
			}
			m := ours.Manifests()
			m.FurtherPorts = []int{lab.WireGuardPort + 1, lab.WireGuardPort + 2}
			gateway := ours.StartGateway(lab.Build(t, lab.GatewayPackage), lab.GatewayOptions{Manifests: m})
			wireguard := lab.Build(t, lab.WireGuardPackage)
			stock := stocks.StartStock(wireguard)
			further := []*lab.Stock{stock.AddTunnel(wireguard), stock.AddTunnel(wireguard)}
			gateway.WaitConnected(lab.Patience)

			leftOut := func(want ...bool) {
				t.Helper()
				lab.Eventually(t, lab.Patience, fmt.Sprintf("left out: %v", want), func() error {
					status := gateway.Status().DataPlane
					tunnels := append([]lab.DataPlaneStatus{status}, status.FurtherTunnels()...)
					for i, w := range want {
						if i >= len(tunnels) || (tunnels[i].Tunnel["leftOut"] == true) != w {
							return fmt.Errorf("the tunnels are %v", tunnels)
						}
					}
					return nil
				})
			}
			traffic := func() {
				t.Helper()
				wantAnswers(t, w.A1.Pod, w.fromA(w.B1.PodAddr), 3, "")
				wantAnswers(t, w.B1.Pod, w.fromB(w.A1.PodAddr), 3, "")
				server := w.B1.Pod.StartIperf()
				defer server.Stop(lab.Patience)
				for _, reverse := range []bool{false, true} {
					wantTransfer(t, w.A1.Pod, lab.Iperf{To: w.fromA(w.B1.PodAddr), Reverse: reverse, Streams: 32, Amount: "64M"})
				}
			}
			leftOut(false, false, false)
			traffic()
			status := gateway.Status().DataPlane
			for i, d := range append([]lab.DataPlaneStatus{status}, status.FurtherTunnels()...) {
				if rx, tx := d.TunnelCounter("rxPackets"), d.TunnelCounter("txPackets"); rx < 1000 || tx < 1000 {
					t.Errorf("tunnel %d received %d packets and sent %d", i+1, rx, tx)
				}
			}

			// Who loses one goes on by the others.
			stocks.Gateway.IP("link set %s down", further[0].Interface)
			leftOut(false, true, false)
			traffic()
			gateway.WaitConnected(lab.Patience)
		})
	}
}
