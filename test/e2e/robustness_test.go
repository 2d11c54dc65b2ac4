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

// robustnessChecks are about changes of the configuration.
var robustnessChecks = []check{
	{"changes while traffic flows", testReload, false},
	{"a change that is refused", testRefusedChange, false},
}

// testReload changes the configuration of both gateways again and again while
// traffic flows. Not one packet may be lost.
func testReload(t *testing.T, w *world) {
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)

	const changes = 8
	var result lab.IperfResult
	var measureErr error
	var ping lab.PingResult
	var traffic sync.WaitGroup
	traffic.Go(func() {
		result, measureErr = w.A1.Pod.Iperf(lab.Iperf{
			To: w.fromA(w.B1.PodAddr), UDPLength: 512, Bitrate: "4M", Duration: changes * 500 * time.Millisecond,
		})
	})
	traffic.Go(func() {
		ping = w.A2.Pod.Ping(w.fromA(w.B1.PodAddr), fmt.Sprintf("-i0.01 -c%d -W5", changes*50))
	})
	overrunsBefore := overruns(w)
	for i := range changes {
		for _, side := range []struct {
			cluster *lab.Cluster
			gateway *lab.Gateway
		}{{w.A, w.gatewayA}, {w.B, w.gatewayB}} {
			m := side.cluster.Manifests()
			// One more node with a hundred pods, there or not; the gateway takes it within a
			// second, so half a second apart every change is a change of a change.
			if i%2 == 0 {
				extra := lab.NodeManifest{
					Name: "node9", VNI: 999,
					Underlay: netip.MustParseAddr("172.30.0.99"), Internal: netip.MustParseAddr("10.80.0.99"),
				}
				for pod := range 100 {
					extra.Pods = append(extra.Pods, netip.MustParsePrefix(fmt.Sprintf("10.243.99.%d/32", pod)))
				}
				m.Nodes = append(m.Nodes, extra)
			}
			side.gateway.Write(m)
			if i%2 != 0 {
				side.gateway.Remove("node9.yaml")
			}
		}
		time.Sleep(500 * time.Millisecond) // the traffic's time, not a wait for something
	}
	traffic.Wait()
	// What the kernel dropped in front of a socket of a busy machine is not the
	// gateway's loss.
	kernel := int(overruns(w) - overrunsBefore)
	if measureErr != nil || result.Packets == 0 || result.Lost > kernel {
		t.Errorf("%d of %d datagrams lost (%d socket overruns), %v", result.Lost, result.Packets, kernel, measureErr)
	}
	if ping.Lost > kernel || ping.Received < ping.Sent*9/10 {
		t.Errorf("%d of %d pings lost, %d answered (%d socket overruns)", ping.Lost, ping.Sent, ping.Received, kernel)
	}
}

// overruns sums the datagrams that the kernel dropped because a socket of a gateway, or of
// a pod, was full.
func overruns(w *world) (sum uint64) {
	for _, g := range []*lab.Gateway{w.gatewayA, w.gatewayB} {
		for _, socket := range g.Status().DataPlane.Sockets {
			sum += socket.Overruns
		}
	}
	for _, n := range []*lab.Node{w.A1, w.A2, w.B1} {
		sum += n.Pod.UDPOverruns()
	}
	return sum
}

// testRefusedChange writes a configuration with a mistake. The gateway says
// what is wrong and keeps carrying traffic by the old one.
func testRefusedChange(t *testing.T, w *world) {
	good := w.A.Manifests().Files()["configuration.yaml"]
	defer w.gatewayA.WriteFile("configuration.yaml", good)
	w.gatewayA.WriteFile("configuration.yaml", strings.Replace(good, "10.71.0.0/16", "10.71.0.0/17", 1))
	lab.Eventually(t, lab.Patience, "the refusal in the log", func() error {
		if log := w.gatewayA.Log(); !strings.Contains(log, "configuration.yaml") || !strings.Contains(log, "10.71.0.0/17") {
			return fmt.Errorf("the log says nothing of it")
		}
		return nil
	})
	wantAnswers(t, w.A1.Pod, w.fromA(w.B1.PodAddr), 3, "")
}

// testStop asks for the end with traffic under way.
func testStop(t *testing.T, w *world) {
	serveEcho(t, w.B1.Pod)
	l := startLoad(t)
	l.add(t, "udp", w.A1.Pod, netip.AddrPortFrom(w.fromA(w.B1.PodAddr), echoPort))
	l.recovered(t)
	for name, g := range map[string]*lab.Gateway{"a": w.gatewayA, "b": w.gatewayB} {
		took, err := g.Stop(lab.Patience)
		t.Logf("gateway %s ended after %v", name, took.Round(time.Millisecond))
		if err != nil {
			t.Errorf("gateway %s: %v", name, err)
		}
	}
}

// testSilentNodes sends to pods whose nodes have not sent anything yet. The
// gateway has to find out the node's MAC address and its encapsulation; the
// first packets may be lost meanwhile, but not more than a second of them.
func testSilentNodes(t *testing.T, w *world) {
	for _, n := range []*lab.Node{w.A1, w.A2} {
		if r := w.B1.Pod.Ping(w.fromB(n.PodAddr), "-c20 -i0.1 -W5"); r.Received < 10 {
			t.Errorf("%s, %s: %d of %d answered", n.Host.Name, n.Spec.Encapsulation, r.Received, r.Sent)
		}
	}
}
