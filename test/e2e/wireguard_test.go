package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

// TestStockPeer joins our gateway with a peer made of stock wireguard-go,
// kernel tunnels and nftables: once as the server, once as the client.
func TestStockPeer(t *testing.T) {
	for _, role := range []string{"server", "client"} {
		t.Run("our gateway is the "+role, func(t *testing.T) {
			l := lab.New(t, tools...)
			node := []lab.NodeSpec{{Encapsulation: lab.VXLAN}}
			topo := l.NewTopology(node, node)
			w := &world{Topology: topo, A1: topo.A.Nodes[0], B1: topo.B.Nodes[0]}
			ours, stocks := w.A, w.B // a is the server
			if role == "client" {
				ours, stocks = w.B, w.A
			}
			gateway := ours.StartGateway(lab.Build(t, lab.GatewayPackage), lab.GatewayOptions{})
			stock := stocks.StartStock(lab.Build(t, lab.WireGuardPackage))
			gateway.WaitConnected(lab.Patience)

			t.Run("ping", func(t *testing.T) {
				wantAnswers(t, w.A1.Pod, w.fromA(w.B1.PodAddr), 3, "")
				wantAnswers(t, w.B1.Pod, w.fromB(w.A1.PodAddr), 3, "")
			})
			t.Run("TCP", func(t *testing.T) { wantTCP(t, w) })
			if role == "server" {
				t.Run("the peer roams", func(t *testing.T) { testRoaming(t, w, gateway, stock) })
			}
			t.Run("rekey", func(t *testing.T) { testRekey(t, w, gateway) })
		})
	}
}

// wantTCP fails unless TCP works both ways between the first pods.
func wantTCP(t *testing.T, w *world) {
	t.Helper()
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	for _, reverse := range []bool{false, true} {
		wantTransfer(t, w.A1.Pod, lab.Iperf{To: w.fromA(w.B1.PodAddr), Reverse: reverse, Amount: "64M"})
	}
}

// testRoaming moves the peer to another port and then to another address, as a
// rebooted router does. The session stays; the gateway answers to where the
// last authenticated packet came from.
func testRoaming(t *testing.T, w *world, gateway *lab.Gateway, stock *lab.Stock) {
	endpoint := func() string { return gateway.Status().DataPlane.TunnelText("endpoint") }
	wantEndpoint := func(want string) {
		t.Helper()
		lab.Eventually(t, lab.Patience, "the endpoint "+want, func() error {
			w.B1.Pod.Ping(w.fromB(w.A1.PodAddr), "-c1 -W1") // the peer has to speak first
			if got := endpoint(); got != want {
				return fmt.Errorf("it is %s", got)
			}
			return nil
		})
		wantAnswers(t, w.A1.Pod, w.fromA(w.B1.PodAddr), 3, "")
	}
	wantEndpoint(netip.AddrPortFrom(w.B.WAN, lab.WireGuardPort).String())

	if _, err := stock.UAPI("set=1\nlisten_port=40001\n"); err != nil {
		t.Fatal(err)
	}
	wantEndpoint(netip.AddrPortFrom(w.B.WAN, 40001).String())

	w.B.Gateway.IP("addr del %s/24 dev wan0", w.B.WAN)
	w.B.Gateway.IP("addr add 192.0.2.77/24 dev wan0")
	wantEndpoint("192.0.2.77:40001")
}

// testRekey keeps traffic going for longer than a session lives: WireGuard makes
// new keys after 120 seconds.
func testRekey(t *testing.T, w *world, gateway *lab.Gateway) {
	if !*rekey {
		t.Skip("SKIPPED: takes 130 s; -e2e.rekey runs it")
	}
	const duration = 130 * time.Second
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	before := gateway.Status().DataPlane.TunnelText("lastHandshake")
	var result lab.IperfResult
	var err error
	var ping lab.PingResult
	var traffic sync.WaitGroup
	traffic.Go(func() {
		result, err = w.A1.Pod.Iperf(lab.Iperf{To: w.fromA(w.B1.PodAddr), Bitrate: "20M", Duration: duration})
	})
	traffic.Go(func() {
		ping = w.B1.Pod.Ping(w.fromB(w.A1.PodAddr), fmt.Sprintf("-i0.1 -c%d -W5", int(duration.Seconds()*10)))
	})
	traffic.Wait()
	if err != nil || result.BitsPerSecond < 19e6 {
		t.Errorf("TCP over a rekey: %.0f bit/s, %v", result.BitsPerSecond, err)
	}
	if ping.Lost > 0 || ping.Received < ping.Sent*9/10 {
		t.Errorf("%d of %d pings lost over a rekey, %d answered", ping.Lost, ping.Sent, ping.Received)
	}
	if after := gateway.Status().DataPlane.TunnelText("lastHandshake"); after == before || strings.HasPrefix(after, "0001") {
		t.Errorf("no new handshake in %v: %s", duration, after)
	}
}
