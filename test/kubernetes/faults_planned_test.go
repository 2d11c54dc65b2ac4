package kubernetes

import (
	"testing"

	"github.com/sluice-net/sluice/test/kubelab"
)

// What an administrator does on purpose costs no connection, and hardly a packet.

const (
	liqoNamespace   = "liqo"
	fabricNamespace = "liqo-fabric"
	controller      = "deployment/liqo-controller"
	fabricAgents    = "daemonset/liqo-fabric"
)

// nodes are those of both clusters.
func (f *faults) nodes() (nodes []*kubelab.Node) {
	return append(append(nodes, f.a.Nodes...), f.b.Nodes...)
}

// testKubeletRestart restarts the kubelets of all nodes, one after another.
func testKubeletRestart(t *testing.T, f *faults) {
	f.measure(t, "kubelets of all nodes restarted", promise{within: blink}, f.paths(t), func() {
		for _, n := range f.nodes() {
			n.RestartKubelet()
		}
	})
}

// testContainerdRestart does the same to what runs the containers.
func testContainerdRestart(t *testing.T, f *faults) {
	f.measure(t, "containerd of all nodes restarted", promise{within: blink}, f.paths(t), func() {
		for _, n := range f.nodes() {
			n.RestartContainerd()
		}
	})
}

// testFabricRestart replaces the agents of all nodes.
func testFabricRestart(t *testing.T, f *faults) {
	f.measure(t, "agents of all nodes rolled out anew", promise{within: blink}, f.paths(t), func() {
		f.each(t, func(c *kubelab.Cluster) error {
			if _, err := c.Kubectl("rollout", "restart", "-n", fabricNamespace, fabricAgents); err != nil {
				return err
			}
			_, err := c.Kubectl("rollout", "status", "-n", fabricNamespace, fabricAgents, "--timeout="+patience.String())
			return err
		})
	})
}

// testGatewayRollout replaces the gateways' pods, as an upgrade does, and as one
// does that evicts a pod from its node.
func testGatewayRollout(t *testing.T, f *faults) {
	f.onEachSide(func(side string, c *kubelab.Cluster) {
		for range repetitions() {
			f.measure(t, "gateway "+side+" rolled out anew", promise{within: oneReplica}, f.paths(t), func() {
				f.rolloutGateway(t, c)
			})
		}
	})
	if !*long {
		return
	}
	f.onEachSide(func(side string, c *kubelab.Cluster) {
		for range repetitions() {
			p := leads(t, c)
			f.measure(t, "gateway "+side+" evicted", promise{within: oneReplica}, f.paths(t), func() {
				f.kubectl(t, c, "delete", "pod", "-n", p.Namespace, p.Name, "--wait=false")
				f.gone(t, c, p)
			})
		}
	})
}
