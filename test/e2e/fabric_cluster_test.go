package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/lab"
)

// TestFabricInCluster runs the agents by an API server, with the controllers and
// the gateway of a cluster: from the objects that a user makes to HTTP between
// pods, over the absence of the API server, and to the end of the peering.
func TestFabricInCluster(t *testing.T) {
	m := newManaged(t)
	for _, n := range append(m.A.Nodes, m.B.Nodes...) {
		serveName(t, n.Pod, httpPort)
		serveEcho(t, n.Pod)
	}
	gatewayOnNode(m.Lab, m.A, m.A.Nodes[0])
	first, late := m.A.Nodes[:2], m.A.Nodes[2]
	for _, n := range first {
		m.addNode(t, n)
	}
	start := time.Now()
	gatewayB := m.connect(t)
	m.nodesReported(t, first...)
	t.Logf("nodes reported after %v", time.Since(start).Round(time.Millisecond))
	gatewayB.WaitConnected(lab.Patience)
	m.learnRemapped(t)
	for _, n := range first {
		m.reached(t, n)
	}
	t.Logf("traffic after %v", time.Since(start).Round(time.Millisecond))

	t.Run("HTTP both ways", func(t *testing.T) {
		for _, n := range first {
			m.wantHTTP(t, n)
		}
	})
	t.Run("without the API server", func(t *testing.T) { m.testOutage(t, first) })
	t.Run("a new node", func(t *testing.T) {
		start := time.Now()
		m.addNode(t, late)
		m.nodesReported(t, late)
		t.Logf("reported after %v", time.Since(start).Round(time.Millisecond))
		m.reached(t, late)
		t.Logf("traffic after %v", time.Since(start).Round(time.Millisecond))
		m.wantHTTP(t, late)
	})
	t.Run("a node goes", func(t *testing.T) {
		for _, args := range [][]string{{"pod", "-n", "default", "web-" + late.Name}, {"node", late.Name}} {
			if _, err := m.Kubectl(append([]string{"delete", "--force", "--grace-period=0"}, args...)...); err != nil {
				t.Error(err)
			}
		}
		m.wantNothingLeft(t, late)
	})
	t.Run("the peering goes", func(t *testing.T) {
		if _, err := m.Kubectl("delete", "-n", tenant, "gatewayservers,configurations,publickeies", "--all", "--wait=false"); err != nil {
			t.Fatal(err)
		}
		m.wantNothingLeft(t, first...)
	})
}

// reached waits until the pod of cluster b reaches that of a node.
func (m *managed) reached(t *testing.T, n *lab.Node) {
	t.Helper()
	lab.Eventually(t, lab.Patience, "an answer from "+n.Pod.Name, func() error {
		if r := m.B.Nodes[0].Pod.Ping(m.B.Remote(n.PodAddr), "-c1 -W1"); r.Received == 0 {
			return errors.New(r.Output)
		}
		return nil
	})
}

// wantHTTP has a node and its pod ask the pod of cluster b, and be asked.
func (m *managed) wantHTTP(t *testing.T, n *lab.Node) {
	t.Helper()
	b := m.B.Nodes[0]
	for _, ask := range []struct {
		from *lab.Host
		to   netip.Addr
		want answer
	}{
		{n.Pod, m.A.Remote(b.PodAddr), answer{b.Pod.Name, m.B.Remote(n.PodAddr)}},
		{n.Host, m.A.Remote(b.PodAddr), answer{b.Pod.Name, m.B.RemoteExternal.Addr()}},
		{b.Pod, m.B.Remote(n.PodAddr), answer{n.Pod.Name, m.A.Remote(b.PodAddr)}},
	} {
		if got := requests(t, ask.from, netip.AddrPortFrom(ask.to, httpPort)); len(got) != 1 || got[0] != ask.want {
			t.Errorf("%s to %s: %v, want %v", ask.from.Name, ask.to, got, ask.want)
		}
	}
}

// testOutage restarts agents while there is no API server to tell them what
// they have to do.
func (m *managed) testOutage(t *testing.T, nodes []*lab.Node) {
	l := startLoad(t)
	b := m.B.Nodes[0]
	for _, n := range nodes {
		for _, network := range []string{"tcp", "udp"} {
			l.add(t, network, n.Pod, netip.AddrPortFrom(m.A.Remote(b.PodAddr), echoPort))
			l.add(t, network, b.Pod, netip.AddrPortFrom(m.B.Remote(n.PodAddr), echoPort))
		}
	}
	start := time.Now()
	m.StopAPIServer()
	for i, n := range nodes {
		if i == 0 {
			if _, err := m.agents[n].Stop(lab.Patience); err != nil {
				t.Error(err)
			}
		} else {
			_ = m.agents[n].Kill()
		}
		m.startAgent(n)
	}
	time.Sleep(20*time.Second - time.Since(start)) // long enough that nothing waits only by accident
	if err := m.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	m.startController(m.testing) // by itself it takes up to a minute to watch again
	for _, n := range nodes {
		m.agents[n].Ready(lab.Patience)
	}
	s := l.since(start, longest)
	t.Logf("ready %v after the API server was; %v", time.Since(back).Round(time.Millisecond), s)
	if s.lost > 0 || len(s.broken) > 0 {
		t.Errorf("%v; %v", s, s.broken)
	}
}

// wantNothingLeft waits until nodes are as they were before the agent.
func (m *managed) wantNothingLeft(t *testing.T, nodes ...*lab.Node) {
	t.Helper()
	start := time.Now()
	for _, n := range nodes {
		lab.Eventually(t, lab.Patience, "nothing is left on "+n.Name, func() error {
			if diff := cmp.Diff(m.before[n], network(t, n, true)); diff != "" {
				return fmt.Errorf("the network (-before the agent +after):\n%s\n%s", diff, m.agents[n].StatusText())
			}
			return nil
		})
	}
	t.Logf("nothing left after %v", time.Since(start).Round(time.Millisecond))
}
