package bench

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	loops "github.com/sluice-net/sluice/bench/limit"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/test/lab"
)

// limitPackage is the program of package limit, for lab.Build.
const limitPackage = "github.com/sluice-net/sluice/bench/limit/program"

// startLimit brings up the smallest loop in both gateways' place: keys that both are
// given, no handshake.
func startLimit(t *testing.T, topo *lab.Topology) (gateways []*lab.Process, stop func()) {
	t.Helper()
	a, b := limitOptions(topo.A), limitOptions(topo.B)
	_, _ = rand.Read(a.SendKey[:]) // it does not fail
	_, _ = rand.Read(b.SendKey[:])
	a.ReceiveKey, b.ReceiveKey = b.SendKey, a.SendKey
	pa, stopA := startLoop(t, topo.A, a)
	pb, stopB := startLoop(t, topo.B, b)
	return []*lab.Process{pa, pb}, func() { stopA(); stopB() }
}

// limitOptions describes one end.
func limitOptions(c *lab.Cluster) loops.Options {
	n := c.Nodes[0]
	return loops.Options{
		NodeListen:   netip.AddrPortFrom(c.Underlay, lab.GatewayPort),
		TunnelListen: netip.AddrPortFrom(c.WAN, lab.WireGuardPort),
		Node:         netip.AddrPortFrom(n.Underlay, lab.GatewayPort),
		Peer:         netip.AddrPortFrom(c.Peer.WAN, lab.WireGuardPort),
		VNI:          geneve.VNI(n.VNI),
		Internal:     c.Internal, NodeInternal: n.Internal,
		Remote: []nat.Mapping{{Inside: c.RemotePod, Outside: netip.MustParsePrefix(lab.PodCIDR)}},
		MTU:    c.MTU,
		Pprof:  pprofAddress(),
	}
}

// startLoop starts one end.
func startLoop(t *testing.T, c *lab.Cluster, o loops.Options) (gateway *lab.Process, stop func()) {
	t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	program := lab.Build(t, limitPackage)
	c.Nodes[0].Host.IP("neigh flush all") // the gateway before had another address
	gateway = c.Gateway.Start(lab.Program{Name: "limit", Args: []string{program, string(options)}, Unprivileged: true})
	return gateway, func() {
		if _, err := gateway.Stop(lab.Patience); err != nil {
			t.Error(err)
		}
	}
}

// TestLimit checks that the loops carry what they are compared with: pings, and TCP
// both ways, for nodes that speak VXLAN and Geneve.
func TestLimit(t *testing.T) {
	for _, e := range []lab.Encapsulation{lab.VXLAN, lab.Geneve} {
		t.Run(string(e), func(t *testing.T) {
			node := []lab.NodeSpec{{Encapsulation: e}}
			topo := lab.New(t, "iperf3").NewTopology(node, node)
			_, stop := startLimit(t, topo)
			defer stop()
			checkPath(t, topo.A)
		})
	}
}

// checkPath sends pings, TCP each way and datagrams, from a pod of a cluster to one
// of its peer.
func checkPath(t *testing.T, from *lab.Cluster) {
	t.Helper()
	pod, to := from.Nodes[0].Pod, from.Remote(from.Peer.Nodes[0].PodAddr)
	lab.Eventually(t, lab.Patience, "the first ping", func() error {
		if p := pod.Ping(to, "-c1 -W1"); p.Received == 0 {
			return fmt.Errorf("no answer:\n%s", p.Output)
		}
		return nil
	})
	server := from.Peer.Nodes[0].Pod.StartIperf()
	defer server.Stop(lab.Patience)
	for _, m := range []lab.Iperf{
		{To: to, Amount: "64M"}, {To: to, Reverse: true, Amount: "64M"}, {To: to, Streams: 4, Amount: "64M"},
		{To: to, UDPLength: 1300, Bitrate: "50M", Amount: "1000"},
	} {
		r, err := pod.Iperf(m)
		if err != nil {
			t.Fatal(err)
		}
		if r.BitsPerSecond == 0 {
			t.Errorf("%+v: nothing arrived", m)
		}
		t.Logf("%+v: %.2f Gbit/s, %d lost", m, r.BitsPerSecond/1e9, r.Lost)
	}
}
