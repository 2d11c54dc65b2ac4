package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// gateways are the pods of the gateways of a cluster, those that end included.
func gateways(ctx context.Context, c *kubelab.Cluster) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.Client().List(ctx, &list, client.MatchingLabels{networkingv1beta1.LabelComponent: networkingv1beta1.ComponentGateway})
	return list.Items, err
}

// leader is the pod of the gateway of a cluster that forwards. All pods of the
// gateway must be ready, and none may be about to end.
func leader(ctx context.Context, c *kubelab.Cluster) (*kubelab.Pod, error) {
	pods, err := gateways(ctx, c)
	if err != nil {
		return nil, err
	}
	var leaders []*corev1.Pod
	for i := range pods {
		if !ready(&pods[i]) {
			return nil, fmt.Errorf("pod %s is not ready", pods[i].Name)
		}
		if pods[i].Labels[networkingv1beta1.LabelActive] == networkingv1beta1.LabelTrue {
			leaders = append(leaders, &pods[i])
		}
	}
	if len(leaders) != 1 {
		return nil, fmt.Errorf("of %d gateway pods %d lead", len(pods), len(leaders))
	}
	return c.Pod(ctx, leaders[0].Namespace, leaders[0].Name)
}

// leaseHolder is the pod that the Lease of the gateway names.
func leaseHolder(ctx context.Context, c *kubelab.Cluster) (*kubelab.Pod, error) {
	pods, err := gateways(ctx, c)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, errors.New("there is no gateway pod")
	}
	var leases coordinationv1.LeaseList
	if err := c.Client().List(ctx, &leases, client.InNamespace(pods[0].Namespace)); err != nil {
		return nil, err
	}
	for _, l := range leases.Items { // a tenant namespace has no others
		if holder := l.Spec.HolderIdentity; holder != nil && *holder != "" {
			return c.Pod(ctx, l.Namespace, *holder)
		}
	}
	return nil, errors.New("no gateway has the Lease")
}

// leads is leader that ends the test.
func leads(t *testing.T, c *kubelab.Cluster) (p *kubelab.Pod) {
	t.Helper()
	lab.Eventually(t, patience, "a gateway leads in "+c.Name, func() (err error) {
		p, err = leader(t.Context(), c)
		return err
	})
	return p
}

// kill ends all processes of a pod's containers at once, and returns when the
// kubelet has started others.
func kill(t *testing.T, p *kubelab.Pod) {
	t.Helper()
	before, err := p.PIDs()
	if err != nil || len(before) == 0 {
		t.Fatalf("pod %s has no process to kill (%v)", p.Name, err)
	}
	for _, pid := range before {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill process %d of pod %s: %v", pid, p.Name, err)
		}
	}
	lab.Eventually(t, patience, "new processes of pod "+p.Name, func() error {
		now, err := p.PIDs()
		if err != nil || len(now) == 0 || slices.ContainsFunc(now, func(pid int) bool { return slices.Contains(before, pid) }) {
			return fmt.Errorf("they are %v, before %v (%v)", now, before, err)
		}
		return nil
	})
}

// rollout starts the pods of a workload anew, and waits until that is done.
func (f *faults) rollout(t *testing.T, c *kubelab.Cluster, namespace, workload string) {
	t.Helper()
	f.kubectl(t, c, "rollout", "restart", "-n", namespace, workload)
	f.kubectl(t, c, "rollout", "status", "-n", namespace, workload, "--timeout="+patience.String())
}

// rolloutGateway replaces the pods of the gateway, and with them the count of
// their restarts, by which kubelets put off the next one.
func (f *faults) rolloutGateway(t *testing.T, c *kubelab.Cluster) {
	t.Helper()
	p := leads(t, c)
	// A tenant namespace has no other Deployments.
	for _, d := range strings.Fields(f.kubectl(t, c, "get", "deployments", "-n", p.Namespace, "-o", "name")) {
		f.rollout(t, c, p.Namespace, d)
	}
}

// placeGateway lets the gateway be led on a node.
func (f *faults) placeGateway(t *testing.T, c *kubelab.Cluster, node *kubelab.Node) {
	t.Helper()
	p := leads(t, c)
	if p.Node == node {
		return
	}
	pods, err := gateways(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) > 1 { // the other one is on the other node
		// It takes over, unless it still waits for connections that a cut has left dead: then
		// the new one may be faster.
		for range 3 {
			f.kubectl(t, c, "delete", "pod", "-n", p.Namespace, p.Name, "--wait=false")
			f.gone(t, c, p)
			if p = leads(t, c); p.Node == node {
				break
			}
		}
	} else {
		f.onlyOn(t, c, node, func() { f.rolloutGateway(t, c) })
	}
	if got := leads(t, c).Node; got != node {
		t.Fatalf("the gateway of %s is led on %s, where it should not be", c.Name, got.Name)
	}
}

// onlyOn does something that makes pods while they can only come to one node.
func (f *faults) onlyOn(t *testing.T, c *kubelab.Cluster, node *kubelab.Node, do func()) {
	t.Helper()
	for _, n := range c.Nodes {
		if n != node {
			f.kubectl(t, c, "cordon", n.Name)
			defer f.kubectl(t, c, "uncordon", n.Name)
		}
	}
	do()
}

// placeController lets the controller that leads in a cluster run on a node. There is
// one on each; who ends hands over to another one.
func (f *faults) placeController(t *testing.T, c *kubelab.Cluster, node *kubelab.Node) {
	t.Helper()
	lab.Eventually(t, patience, "the controller of "+c.Name+" leads on "+node.Name, func() error {
		p, err := f.leadingController(t.Context(), c)
		if err != nil || p.Node == node {
			return err
		}
		out, err := c.Kubectl("delete", "pod", "-n", liqoNamespace, p.Name, "--wait=true", "--timeout="+patience.String())
		return errors.Join(fmt.Errorf("it led on %s: %s", p.Node.Name, out), err)
	})
}

// leadingController is the pod that the Lease of the controllers names.
func (f *faults) leadingController(ctx context.Context, c *kubelab.Cluster) (*kubelab.Pod, error) {
	var lease coordinationv1.Lease
	if err := c.Client().Get(ctx, client.ObjectKey{Namespace: liqoNamespace, Name: kinds.Lease}, &lease); err != nil {
		return nil, err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return nil, errors.New("none leads")
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_") // what follows differs with each process
	return c.Pod(ctx, liqoNamespace, pod)
}
