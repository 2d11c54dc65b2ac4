package e2e

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/lab"
)

// pathChecks are about single packets: who answers, what size passes.
var pathChecks = []check{
	{"ping between all pods", testPing, true},
	{"ping at the MTU with DF", testPingDF, true},
	{"ping above the MTU without DF", testPingFragments, true},
	{"path MTU is discovered", testPathMTU, true},
	{"traceroute shows both gateways", testTraceroute, false},
	{"IPv6", testIPv6, false},
	{"gateway's internal address answers", testInternalAddress, true},
	{"traffic of nodes", testUnknownSource, false},
}

// wantAnswers fails unless every ping was answered.
func wantAnswers(t *testing.T, from *lab.Host, to netip.Addr, n int, args string) {
	t.Helper()
	for i := range n {
		if r := from.Ping(to, "-c1 -W10 "+args); r.Received == 0 {
			t.Errorf("%s: ping %d of %d, %s %s, is not answered\n%s", from.Name, i+1, n, args, to, r.Output)
		}
	}
}

func testPing(t *testing.T, w *world) {
	for _, n := range []*lab.Node{w.A1, w.A2} {
		wantAnswers(t, n.Pod, w.fromA(w.B1.PodAddr), 3, "")
		wantAnswers(t, w.B1.Pod, w.fromB(n.PodAddr), 3, "")
	}
}

func testPingDF(t *testing.T, w *world) {
	for _, n := range []*lab.Node{w.A1, w.A2} {
		to := w.fromA(w.B1.PodAddr)
		wantAnswers(t, n.Pod, to, 2, "-M do -s 1312") // 20 + 8 + 1312 = 1340
		n.Pod.IP("route flush cache")
		r := n.Pod.Ping(to, "-c2 -i0.1 -W5 -M do -s 1313")
		// The first packet is refused by the router, the second by the sender itself,
		// which has learned.
		said := strings.ToLower(r.Output)
		if r.Received != 0 || !strings.Contains(said, "mtu = 1340") && !strings.Contains(said, "mtu=1340") {
			t.Errorf("%s: a packet of 1341 bytes with DF: want it refused with an MTU of 1340, got\n%s", n.Pod.Name, r.Output)
		}
		n.Pod.IP("route flush cache")
	}
}

func testPingFragments(t *testing.T, w *world) {
	// The sender's stack would fragment by itself once it knew the path MTU.
	for _, n := range []*lab.Node{w.A1, w.A2} {
		n.Pod.IP("route flush cache")
		wantAnswers(t, n.Pod, w.fromA(w.B1.PodAddr), 2, "-M dont -s 1313")
		wantAnswers(t, n.Pod, w.fromA(w.B1.PodAddr), 2, "-M dont -s 1400")
		wantAnswers(t, n.Pod, w.fromA(w.B1.PodAddr), 2, "-M dont -s 8000")
	}
}

// testPathMTU sends with DF by the kernel's own path-MTU discovery (ping -M
// want): after the first refusal the packets come in fragments of the right
// size.
func testPathMTU(t *testing.T, w *world) {
	to := w.fromA(w.B1.PodAddr)
	w.A1.Pod.IP("route flush cache")
	defer w.A1.Pod.IP("route flush cache")
	r := w.A1.Pod.Ping(to, "-c5 -i0.2 -W5 -M want -s 1400")
	if r.Received < 3 {
		t.Errorf("%d of %d answered after path-MTU discovery\n%s", r.Received, r.Sent, r.Output)
	}
	if route := w.A1.Pod.IP("route get %s", to); !strings.Contains(route, "mtu 1340") {
		t.Errorf("the sender's route has not learned the MTU:\n%s", route)
	}
}

func testTraceroute(t *testing.T, w *world) {
	to := w.fromA(w.B1.PodAddr).String()
	out := w.A1.Pod.Run("traceroute", "-n", "-q1", "-w2", "-m8", to)
	lines := strings.Split(strings.TrimSpace(out), "\n")[1:]
	// node, gateway, gateway, node (which may have no address to answer from), pod
	if len(lines) != 5 {
		t.Fatalf("want 5 hops, got\n%s", out)
	}
	for i, want := range []string{w.A1.PodNet.Addr().Next().String(), w.A.Internal.String()} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("hop %d is not %s:\n%s", i+1, want, out)
		}
	}
	if strings.Contains(lines[2], "*") {
		t.Errorf("the gateway of cluster b does not answer:\n%s", out)
	}
	if !strings.Contains(lines[4], to) {
		t.Errorf("the last hop is not %s:\n%s", to, out)
	}
}

func testIPv6(t *testing.T, w *world) {
	for _, n := range []*lab.Node{w.A1, w.A2} {
		to := w.fromA(w.B1.PodAddr6)
		wantAnswers(t, n.Pod, to, 3, "")
		wantAnswers(t, w.B1.Pod, w.fromB(n.PodAddr6), 3, "")
		wantAnswers(t, n.Pod, to, 2, "-M do -s 1292") // 40 + 8 + 1292 = 1340
		r := n.Pod.Ping(to, "-c2 -i0.1 -W5 -M do -s 1293")
		if said := strings.ToLower(r.Output); r.Received != 0 || !strings.Contains(said, "mtu=1340") && !strings.Contains(said, "mtu = 1340") {
			t.Errorf("%s: an IPv6 packet of 1341 bytes: want Packet Too Big with 1340, got\n%s", n.Pod.Name, r.Output)
		}
		n.Pod.IP("-6 route flush cache")
	}
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	for _, reverse := range []bool{false, true} {
		wantTransfer(t, w.A1.Pod, lab.Iperf{To: w.fromA(w.B1.PodAddr6), Reverse: reverse, Amount: "16M"})
	}
}

func testInternalAddress(t *testing.T, w *world) {
	for _, n := range []*lab.Node{w.A1, w.A2} {
		wantAnswers(t, n.Host, w.A.Internal, 2, "")
		wantAnswers(t, n.Pod, w.A.Internal, 2, "")
	}
	wantAnswers(t, w.B1.Host, w.B.Internal, 2, "")
}

// testUnknownSource sends from the nodes themselves. Their own addresses mean
// nothing to the peer: the node translates them to the unknown-source address,
// the same on every node, and the gateway knows to which node an answer belongs.
func testUnknownSource(t *testing.T, w *world) {
	to := w.fromA(w.B1.PodAddr)
	wantAnswers(t, w.A1.Host, to, 3, "")
	wantAnswers(t, w.A2.Host, to, 3, "")
	wantAnswers(t, w.B1.Host, w.fromB(w.A2.PodAddr), 3, "")
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	for _, n := range []*lab.Node{w.A1, w.A2} {
		wantTransfer(t, n.Host, lab.Iperf{To: to, Amount: "16M"})
	}
}
