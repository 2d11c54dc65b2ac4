package dataplanetest

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestLongestRoute(t *testing.T) {
	n := NewNode(NodeConfig{Name: "n", Socket: NewNetwork().Listen(netip.MustParseAddrPort("172.30.0.11:6091"))})
	gateway := func(host byte, routes ...string) *Link {
		cfg := LinkConfig{Gateway: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 30, 0, host}), 6091)}
		for _, r := range routes {
			cfg.Routes = append(cfg.Routes, netip.MustParsePrefix(r))
		}
		return n.Connect(cfg)
	}
	wide, narrow := gateway(1, "10.71.0.0/16", "10.73.0.0/16"), gateway(2, "10.71.8.0/24")
	check := func(dst string, want *Link) {
		t.Helper()
		if got := n.linkLocked(netip.MustParseAddr(dst)); got != want {
			t.Errorf("%s goes to %v, want %v", dst, got, want)
		}
	}
	check("10.71.8.1", narrow)
	check("10.71.9.1", wide)
	check("10.74.0.1", nil)
	narrow.Close()
	check("10.71.8.1", wide)
	all := gateway(3)
	check("10.74.0.1", all)
	check("10.73.0.1", wide)
}

// TestNeighborNodes lets pods of two nodes talk through the CNI, without a
// gateway, and ends one of them.
func TestNeighborNodes(t *testing.T) {
	defer goleak.VerifyNone(t)
	network := NewNetwork()
	var nodes [2]*Node
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error)
	for i := range nodes {
		nodes[i] = NewNode(NodeConfig{
			MTU: 1500, Socket: network.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 30, 0, byte(i)}), 6091)),
			CNI: func(ip []byte) { nodes[1-i].Deliver(ip) },
		})
	}
	first, err := nodes[0].AddPod(PodAddr(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		go func() { ended <- n.Run(ctx) }()
	}
	second, err := nodes[1].AddPod(PodAddr(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Ping(ctx, PodAddr(1, 0), 56, false); err != nil {
		t.Error(err)
	}
	nodes[1].RemovePod(second)
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if _, err := first.Ping(short, PodAddr(1, 0), 56, false); err == nil {
		t.Error("a pod that has ended answers")
	}
	cancel()
	for range nodes {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
