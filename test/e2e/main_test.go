package e2e

import (
	"flag"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

var rekey = flag.Bool("e2e.rekey", false, "also test traffic over a rekey, which takes 130 s")

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// tools are the programs that the tests here run, beyond what a lab needs.
var tools = []string{"iperf3", "traceroute", "curl"}

// world is a topology whose gateways are up.
type world struct {
	*lab.Topology
	// A1, A2 and B1 are the nodes: VXLAN, Geneve, VXLAN.
	A1, A2, B1 *lab.Node
	// gatewayA and gatewayB are nil when the gateways are not ours.
	gatewayA, gatewayB *lab.Gateway
}

// newWorld builds the topology that most tests use, without gateways.
func newWorld(t *testing.T) *world {
	t.Helper()
	l := lab.New(t, tools...)
	topo := l.NewTopology(
		[]lab.NodeSpec{{Encapsulation: lab.VXLAN}, {Encapsulation: lab.Geneve}},
		[]lab.NodeSpec{{Encapsulation: lab.VXLAN}},
	)
	return &world{Topology: topo, A1: topo.A.Nodes[0], A2: topo.A.Nodes[1], B1: topo.B.Nodes[0]}
}

// startGateways runs our gateway on both sides, with further arguments, and waits for
// the connection.
func (w *world) startGateways(t *testing.T, args ...string) {
	t.Helper()
	binary := lab.Build(t, lab.GatewayPackage)
	w.gatewayA = w.A.StartGateway(binary, lab.GatewayOptions{Args: args})
	w.gatewayB = w.B.StartGateway(binary, lab.GatewayOptions{Args: args})
	start := time.Now()
	w.gatewayA.WaitConnected(lab.Patience)
	w.gatewayB.WaitConnected(lab.Patience)
	t.Logf("connected after %v", time.Since(start).Round(time.Millisecond))
}

// routeIPv6 gives the nodes their routes to the peer's IPv6 pods.
func (w *world) routeIPv6(t *testing.T) {
	t.Helper()
	for _, n := range []*lab.Node{w.A1, w.A2, w.B1} {
		if err := n.RouteIPv6(); err != nil {
			t.Fatal(err)
		}
	}
}

// report logs what the gateways say when t has failed.
func (w *world) report(t *testing.T) {
	t.Helper()
	if !t.Failed() || w.gatewayA == nil {
		return
	}
	for _, g := range []*lab.Gateway{w.gatewayA, w.gatewayB} {
		t.Logf("the gateway says:\n%s", g.StatusText())
	}
}

// fromA is the address by which cluster A reaches an address of cluster B, and
// fromB the other way.
func (w *world) fromA(addr netip.Addr) netip.Addr { return w.A.Remote(addr) }
func (w *world) fromB(addr netip.Addr) netip.Addr { return w.B.Remote(addr) }

// check is one test of a running world.
type check struct {
	name string
	run  func(t *testing.T, w *world)
	// stock marks what the stock composition does as well. Such a check proves
	// the lab, not the gateway.
	stock bool
}

func runChecks(t *testing.T, w *world, checks []check, stock bool) {
	for _, c := range checks {
		if stock && !c.stock {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			defer w.report(t)
			c.run(t, w)
		})
	}
}

// allChecks is every check of a running world.
var allChecks = slices.Concat(pathChecks, addressChecks, trafficChecks)

// TestTwoClusters carries traffic between two clusters with the same pod CIDR, and does
// to their gateways what they have to bear. One topology serves all checks; what ends the
// gateways comes last.
func TestTwoClusters(t *testing.T) {
	w := newWorld(t)
	w.startGateways(t)
	runChecks(t, w, []check{{"nodes that have not sent anything", testSilentNodes, false}}, false)
	w.routeIPv6(t)
	runChecks(t, w, slices.Concat(allChecks, robustnessChecks, captureChecks, []check{
		{"malformed datagrams", testMalformed, false},
		{"the end", testStop, false},
	}), false)
}

// TestLab runs the same network with kernel tunnels, nftables and stock
// wireguard-go instead of gateways: when this fails, the lab is wrong.
func TestLab(t *testing.T) {
	w := newWorld(t)
	binary := lab.Build(t, lab.WireGuardPackage)
	w.A.StartStock(binary)
	w.B.StartStock(binary)
	runChecks(t, w, allChecks, true)
}
