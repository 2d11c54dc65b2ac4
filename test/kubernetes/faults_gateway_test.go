package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// What happens to gateways without a warning.

// testGatewayKilled kills the process of the only pod of a gateway. The kubelet
// starts it again in its place.
func testGatewayKilled(t *testing.T, f *faults) { killGateways(t, f, "", oneReplica) }

// testGatewayDeleted takes the pod away at once; another one is made.
func testGatewayDeleted(t *testing.T, f *faults) { deleteGateways(t, f, "", oneReplica) }

// testTwoReplicas does both where another pod stands by.
func testTwoReplicas(t *testing.T, f *faults) {
	f.replicas(t, 2)
	defer f.replicas(t, 1)
	killGateways(t, f, ", 2 replicas", twoReplicas)
	deleteGateways(t, f, ", 2 replicas", twoReplicas)
	loseGatewayNodes(t, f, ", 2 replicas")
}

// replicas sets the number of pods of gateways in both clusters, as an administrator
// does.
func (f *faults) replicas(t *testing.T, n int) {
	t.Helper()
	f.install(t, "--set", fmt.Sprintf("networking.gatewayTemplates.replicas=%d", n))
	f.altered = n != 1
	for _, c := range []*kubelab.Cluster{f.a, f.b} {
		lab.Eventually(t, patience, fmt.Sprintf("%d gateway pods in %s", n, c.Name), func() error {
			if pods, err := gateways(t.Context(), c); err != nil || len(pods) != n {
				return fmt.Errorf("there are %d (%v)", len(pods), err)
			}
			_, err := leader(t.Context(), c)
			return err
		})
	}
}

func killGateways(t *testing.T, f *faults, how string, within time.Duration) {
	f.onEachSide(func(side string, c *kubelab.Cluster) {
		for i := range repetitions() {
			if i > 0 {
				// A kubelet puts off the second restart of a container by 10 s, and each
				// further one by more: what is meant here is a first one.
				f.rolloutGateway(t, c)
			}
			p := leads(t, c)
			f.measure(t, "gateway "+side+" killed"+how, promise{within: within}, f.paths(t), func() {
				kill(t, p)
			})
		}
	})
}

func deleteGateways(t *testing.T, f *faults, how string, within time.Duration) {
	f.onEachSide(func(side string, c *kubelab.Cluster) {
		for range repetitions() {
			p := leads(t, c)
			f.measure(t, "gateway "+side+" deleted"+how, promise{within: within}, f.paths(t), func() {
				f.kubectl(t, c, "delete", "pod", "-n", p.Namespace, p.Name, "--grace-period=0", "--force", "--wait=false")
				f.gone(t, c, p)
			})
		}
	})
}

// gone waits until a pod has ended: its object and its processes.
func (f *faults) gone(t *testing.T, c *kubelab.Cluster, p *kubelab.Pod) {
	t.Helper()
	lab.Eventually(t, patience, "the end of pod "+p.Name, func() error {
		var pod corev1.Pod
		err := c.Client().Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: p.Name}, &pod)
		if err == nil {
			return errors.New("its object is there")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		if pids, err := p.PIDs(); err == nil && len(pids) > 0 {
			return fmt.Errorf("its processes %v are there", pids)
		}
		return nil
	})
}

// testGatewayNodeLost takes the power of the node of the only pod of a gateway
// away, and gives it back.
func testGatewayNodeLost(t *testing.T, f *faults) { loseGatewayNodes(t, f, "") }

func loseGatewayNodes(t *testing.T, f *faults, how string) {
	f.onEachSide(func(side string, c *kubelab.Cluster) {
		// The worst case: the NAT router leads to this node, too, until it is lost, and
		// who tells the others of another gateway is lost with it.
		node := c.Nodes[0]
		f.placeGateway(t, c, node)
		f.placeController(t, c, node)
		f.loseNode(t, c, node, "node of the gateway "+side+" lost"+how, promise{}, f.nodeAway(t))
	})
}

// testWorkloadNodeLost takes the power of a node away on which pods run that use
// the connection, and no gateway. Nobody else must notice.
func testWorkloadNodeLost(t *testing.T, f *faults) {
	f.onEachSide(func(side string, c *kubelab.Cluster) {
		f.placeGateway(t, c, c.Nodes[0])
		f.placeController(t, c, c.Nodes[0])
		f.loseNode(t, c, c.Nodes[1], "node of pods of the "+side+" lost", promise{within: blink}, f.nodeAway(t))
	})
}

// testControllerNodeLost takes the power of the node away on which the controller
// leads, and no gateway. The network must not notice, and another controller does soon
// what there is to do.
func testControllerNodeLost(t *testing.T, f *faults) {
	f.onEachSide(func(side string, c *kubelab.Cluster) {
		f.placeGateway(t, c, c.Nodes[0])
		f.placeController(t, c, c.Nodes[1])
		f.kubectl(t, c, "rollout", "status", "-n", liqoNamespace, controller, "--timeout="+patience.String()) // who stands by
		fault := "node of the controller of the " + side + " lost"
		f.loseNode(t, c, c.Nodes[1], fault, promise{within: blink}, func() {
			start := time.Now()
			deadline := func() time.Duration { return time.Until(start.Add(otherController)) }
			ip := &ipamv1alpha1.IP{
				ObjectMeta: metav1.ObjectMeta{Namespace: appNamespace, Name: "controller-node"},
				Spec:       ipamv1alpha1.IPSpec{IP: "198.51.100.7"},
			}
			if err := c.Client().Create(t.Context(), ip); err != nil {
				t.Fatal(err)
			}
			defer f.kubectl(t, c, "delete", "ip.ipam.liqo.io", "-n", ip.Namespace, ip.Name, "--wait=false")
			lab.Eventually(t, deadline(), "a controller on another node has the Lease", func() error {
				p, err := f.leadingController(t.Context(), c)
				if err == nil && p.Node == c.Nodes[1] {
					err = fmt.Errorf("%s has it", p.Name)
				}
				return err
			})
			took := time.Since(start)
			lab.Eventually(t, deadline(), "the new IP has an address", func() error {
				if err := c.Client().Get(t.Context(), client.ObjectKeyFromObject(ip), ip); err != nil || ip.Status.IP != "" {
					return err
				}
				return errors.New("it has none")
			})
			t.Logf("%s: another one had the Lease after %v, and a new IP its address after %v", fault, took, time.Since(start))
		})
	})
}

// nodeAway lets a node stay away for a while.
func (f *faults) nodeAway(t *testing.T) func() {
	return func() { lasts(t.Context(), nodeAway) }
}

// loseNode lets a node go, and come back when what happens meanwhile is over, while
// traffic flows between the pods on other nodes, and waits until those on it are reached
// again.
func (f *faults) loseNode(t *testing.T, c *kubelab.Cluster, node *kubelab.Node, fault string, p promise, meanwhile func()) {
	t.Helper()
	paths := f.pathsBetween(t, elsewhere(f.clients, node), elsewhere(f.servers, node))
	back := sync.OnceFunc(node.Start)
	f.measure(t, fault, p, paths, func() {
		node.Kill()
		t.Cleanup(back)
		meanwhile()
	})
	f.watch(t, fault+", and back", p, paths, back)
	f.clients, f.servers = f.world.clients(t, f.a, 2), f.world.servers(t, f.b, 2)
	x := startTraffic(t, f.paths(t)...)
	x.end()
}

// elsewhere are the pods that are not on a node.
func elsewhere(pods []*kubelab.Pod, node *kubelab.Node) []*kubelab.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *kubelab.Pod) bool { return p.Node == node })
}
