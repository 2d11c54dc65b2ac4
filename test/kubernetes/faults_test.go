package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

const (
	// loadedMachine is how much longer than promised things may take on a machine
	// that does other things, too.
	loadedMachine = 2
	// oneReplica and twoReplicas are what is promised after an unplanned end of a
	// gateway.
	oneReplica  = 10 * time.Second
	twoReplicas = 3 * time.Second
	// otherController is how soon another controller works when the node of the one that
	// leads is lost. The Lease lasts for 10 s since its last renewal was seen, and is looked
	// at every 2 to 4.4 s: 19 s at most. The rest is for a machine that does other things, too; with one controller it
	// takes 40 s.
	otherController = 30 * time.Second
	// blink is the outage that a change may cost of which the network should not
	// take notice.
	blink = time.Second
)

// faults is two connected clusters to which things happen.
type faults struct {
	*world
	// clients are in a and servers in b, one on each node.
	clients, servers []*kubelab.Pod
	report           faultReport
}

// testFaults lets one thing after another happen while traffic flows between all
// nodes, and tells what the traffic noticed.
func testFaults(t *testing.T, w *world) {
	w.connect(t)
	f := newFaults(t, w)
	for _, part := range []struct {
		name string
		long bool
		run  func(*testing.T, *faults)
	}{
		{"kubelet", false, testKubeletRestart},
		{"containerd", true, testContainerdRestart},
		{"fabric", false, testFabricRestart},
		{"fabric killed", true, testFabricKilled},
		{"rollout", false, testGatewayRollout},
		{"gateway killed", false, testGatewayKilled},
		{"gateway killed, no API server", false, testGatewayKilledWithoutAPIServer},
		{"gateway deleted", true, testGatewayDeleted},
		{"WAN", true, testWAN},
		{"churn", true, testPodChurn},
		{"controller", true, testControllerDown},
		{"API server", true, testAPIServerDown},
		{"workload node", true, testWorkloadNodeLost},
		{"controller node", true, testControllerNodeLost},
		{"gateway node", true, testGatewayNodeLost},
		{"two replicas", true, testTwoReplicas},
		{"cut off", true, testGatewayCutOff},
	} {
		t.Run(part.name, func(t *testing.T) {
			if part.long && !*long {
				t.Skip("SKIPPED: this takes minutes: -kubernetes.long")
			}
			part.run(t, f)
		})
	}
}

// newFaults has clients in a and servers in b. What happens to them is published at
// the end.
func newFaults(t *testing.T, w *world) *faults {
	t.Helper()
	f := &faults{world: w, clients: w.clients(t, w.a, 2), servers: w.servers(t, w.b, 2)}
	t.Cleanup(func() { f.report.publish(t) })
	return f
}

// promise is what a user may expect of a fault.
type promise struct {
	// within is the longest outage of the network; zero: nothing is promised.
	within time.Duration
	// lossy: connections may be lost, as their pods are.
	lossy bool
}

// measure lets something happen when all is quiet.
func (f *faults) measure(t *testing.T, fault string, p promise, paths []path, happen func()) outcome {
	t.Helper()
	f.quiet(t)
	return f.watch(t, fault, p, paths, happen)
}

// watch lets something happen to traffic and returns what that has seen, when it is
// heard on every path again.
func (f *faults) watch(t *testing.T, fault string, p promise, paths []path, happen func()) outcome {
	t.Helper()
	x := startTraffic(t, paths...)
	defer x.end()
	if *timelines {
		defer f.startTimeline(t).tell(t, fault)
	}
	start := time.Now()
	happen()
	// Twice: what is heard first may have been on its way when it happened.
	for range 2 {
		x.back(t, patience)
	}
	o := x.since(start)
	f.report.add(fault, o, start)
	t.Logf("%s: %v", fault, o)
	if len(o.lost) > 0 && !p.lossy {
		t.Errorf("%s: TCP connections are lost: %v", fault, errors.Join(o.lost...))
	}
	if p.within > 0 && o.outage > loadedMachine*p.within {
		t.Errorf("%s: the network lost what was sent in %v, promised are %v (and allowed %d times that)", fault, o.outage, p.within, loadedMachine)
	}
	return o
}

// quiet waits until nothing is on its way from the last fault: gateways run, one
// of each side leads, and both sides say that they are connected.
func (f *faults) quiet(t *testing.T) {
	t.Helper()
	for _, c := range []*kubelab.Cluster{f.a, f.b} {
		lab.Eventually(t, patience, "the gateway of "+c.Name+" runs, and only one pod leads", func() error {
			_, err := leader(t.Context(), c)
			return err
		})
	}
	f.connected(t)
}

// paths lead from every client to every server.
func (f *faults) paths(t *testing.T) []path {
	t.Helper()
	return f.pathsBetween(t, f.clients, f.servers)
}

// pathsBetween lead from every client, which is in a, to every server, in b.
func (w *world) pathsBetween(t *testing.T, clients, servers []*kubelab.Pod) (paths []path) {
	t.Helper()
	for _, from := range clients {
		for _, to := range servers {
			paths = append(paths, path{
				name: fmt.Sprintf("from %s to %s", from.Node.Name, to.Node.Name),
				from: from, to: to, at: w.remote(t, w.a, to.Addr),
			})
		}
	}
	return paths
}

// repetitions is how often a fault is repeated that takes little time.
func repetitions() int {
	if *long {
		return 5
	}
	return 1
}

// onEachSide runs something for the cluster of the gateway client and for that of
// the server.
func (f *faults) onEachSide(do func(side string, c *kubelab.Cluster)) {
	do("client", f.a)
	do("server", f.b)
}

// lasts lets a fault last for a while. The time that passes is the fault itself.
func lasts(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
