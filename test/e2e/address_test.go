package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

// addressChecks are about single addresses.
var addressChecks = []check{
	{"a host behind an IP object", testAddress, false},
	{"a pod with the address of the gateway's pod", testGatewaysAddress, false},
}

// testGatewaysAddress: with overlapping pod CIDRs a pod of the peer may have the address of the gateway's own pod. A gateway
// in the kernel delivers packets to it to itself, as the stock one does.
func testGatewaysAddress(t *testing.T, w *world) {
	w.A.Gateway.IP("addr add %s/32 dev eth0", w.B1.PodAddr)
	defer w.A.Gateway.IP("addr del %s/32 dev eth0", w.B1.PodAddr)
	for _, n := range []*lab.Node{w.A1, w.A2} {
		wantAnswers(t, n.Pod, w.fromA(w.B1.PodAddr), 3, "")
	}
	wantAnswers(t, w.B1.Pod, w.fromB(w.A1.PodAddr), 3, "")
}

// ipObject makes the host 172.30.0.77 known to the peer as 10.70.0.5, an
// address of the external CIDR.
const ipObject = `apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata:
  name: server
  namespace: liqo-tenant-cluster-b
spec:
  ip: 172.30.0.77
status:
  ip: 10.70.0.5
  cidr: 10.70.0.0/16
`

// testAddress reaches a host beside the nodes of cluster a, while the gateway
// runs, once an IP object says so.
func testAddress(t *testing.T, w *world) {
	server := w.Lab.Host("a-server")
	w.A.Join(server, "eth0")
	server.IP("addr add 172.30.0.77/24 dev eth0")
	server.IP("route add %s via %s", w.A.RemotePod, w.A1.Underlay)

	// 10.70.0.5 as cluster b addresses it: the external CIDR of a is remapped too.
	to := netip.AddrFrom4([4]byte{10, w.B.RemoteExternal.Addr().As4()[1], 0, 5})
	if r := w.B1.Pod.Ping(to, "-c1 -W1"); r.Received != 0 {
		t.Errorf("the host answers without an IP object\n%s", r.Output)
	}
	w.gatewayA.WriteFile("ip.yaml", ipObject)
	defer w.gatewayA.Remove("ip.yaml")
	start := time.Now()
	for w.B1.Pod.Ping(to, "-c1 -W1").Received == 0 {
		if time.Since(start) > lab.Patience {
			t.Fatalf("no answer from %s in 30 s", to)
		}
	}
	wantAnswers(t, w.B1.Pod, to, 3, "")

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page"), []byte("no pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("http://%s:%d/page", to, serve(t, server, dir))
	if out, err := w.B1.Pod.Try("curl", "-sS", "--max-time", "30", url); err != nil || out != "no pod" {
		t.Errorf("curl: %q, %v", out, err)
	}
}
