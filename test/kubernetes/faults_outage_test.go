package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// What happens around the gateways.

const (
	// wanAway, apiAway and nodeAway are how long what is lost stays away.
	wanAway  = 30 * time.Second
	apiAway  = 3 * time.Minute
	nodeAway = 30 * time.Second
	// churnTime is how long pods come and go, one in churnPause: 20 a minute.
	churnTime  = time.Minute
	churnPause = 3 * time.Second
	churn      = "churn" // their Deployment
)

// testFabricKilled kills the agents of all nodes. What they made stays in force.
func testFabricKilled(t *testing.T, f *faults) {
	f.measure(t, "agents of all nodes killed", promise{within: blink}, f.paths(t), func() {
		for _, c := range []*kubelab.Cluster{f.a, f.b} {
			pods, err := c.Pods(t.Context(), fabricNamespace, nil)
			if err != nil || len(pods) != len(c.Nodes) {
				t.Fatalf("%s has %d agents (%v)", c.Name, len(pods), err)
			}
			for _, p := range pods {
				kill(t, p)
			}
		}
	})
}

// testWAN takes the network between the clusters away, and then lets it lose
// packets. No connection ends by that.
func testWAN(t *testing.T, f *faults) {
	defer f.Mend()
	o := f.measure(t, "WAN away for "+wanAway.String(), promise{within: wanAway + oneReplica}, f.paths(t), func() {
		f.Cut()
		lasts(t.Context(), wanAway)
		f.Mend()
	})
	t.Logf("back %v after the WAN", round(o.udp.worst()-wanAway))
	for _, percent := range []int{0, 1, 5} {
		f.Lose(percent)
		p := f.paths(t)
		if percent > 0 {
			f.measure(t, fmt.Sprintf("WAN loses %d %%", percent), promise{within: blink}, p, func() { lasts(t.Context(), 10*time.Second) })
		}
		rate, err := bulk(t.Context(), p[0], 5*time.Second)
		if err != nil {
			t.Errorf("a transfer while the WAN loses %d %%: %v", percent, err)
		}
		t.Logf("one TCP connection while the WAN loses %d %%: %.0f Mbit/s", percent, rate/1e6)
	}
}

// testPodChurn lets pods come and go, while streams run between others.
func testPodChurn(t *testing.T, f *faults) {
	const replicas = 4
	for _, c := range []*kubelab.Cluster{f.a, f.b} {
		f.deployment(t, c, churn, replicas)
	}
	f.measure(t, "20 pods a minute come and go in each cluster", promise{within: blink}, f.paths(t), func() {
		tick := time.NewTicker(churnPause)
		defer tick.Stop()
		for start := time.Now(); time.Since(start) < churnTime; <-tick.C {
			f.each(t, func(c *kubelab.Cluster) error { return f.replaceOldest(t.Context(), c) })
		}
	})
	for _, p := range f.deployment(t, f.b, churn, replicas) {
		f.reached(t, p)
	}
	for _, c := range []*kubelab.Cluster{f.a, f.b} {
		f.kubectl(t, c, "delete", "deployment", "-n", appNamespace, churn)
	}
}

// replaceOldest deletes the oldest pod that comes and goes; another one is made.
func (f *faults) replaceOldest(ctx context.Context, c *kubelab.Cluster) error {
	var list corev1.PodList
	if err := c.Client().List(ctx, &list, client.InNamespace(appNamespace), client.MatchingLabels{"app": churn}); err != nil {
		return err
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(pods) == 0 {
		return fmt.Errorf("%s has no pod to delete", c.Name)
	}
	oldest := slices.MinFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return client.IgnoreNotFound(c.Client().Delete(ctx, &oldest))
}

// reached waits until a pod of b answers one of a.
func (f *faults) reached(t *testing.T, p *kubelab.Pod) {
	t.Helper()
	at := f.remote(t, f.a, p.Addr)
	lab.Eventually(t, patience, "pod "+p.Name+" is reached", func() error {
		_, err := get(t.Context(), f.clients[0], at)
		return err
	})
}

// testControllerDown takes the controllers away. Pods come meanwhile, and are
// reached.
func testControllerDown(t *testing.T, f *faults) {
	const controllers = 2 // the default
	scale := func(replicas int) {
		f.each(t, func(c *kubelab.Cluster) error {
			if _, err := c.Kubectl("scale", "-n", liqoNamespace, controller, fmt.Sprintf("--replicas=%d", replicas)); err != nil {
				return err
			}
			_, err := c.Kubectl("rollout", "status", "-n", liqoNamespace, controller, "--timeout="+patience.String())
			return err
		})
	}
	f.measure(t, "controllers away", promise{within: blink}, f.paths(t), func() {
		scale(0)
		defer scale(controllers)
		for _, p := range f.deployment(t, f.b, churn, 2) {
			f.reached(t, p) // although no controller has ever seen it
		}
		lasts(t.Context(), 10*time.Second)
		f.kubectl(t, f.b, "delete", "deployment", "-n", appNamespace, churn)
	})
}

// testGatewayKilledWithoutAPIServer kills the processes of both gateways while the API
// servers of both clusters are away. The kubelets start them again, and what they have
// kept has to do.
func testGatewayKilledWithoutAPIServer(t *testing.T, f *faults) {
	for _, c := range []*kubelab.Cluster{f.a, f.b} {
		f.rolloutGateway(t, c) // a kubelet puts off what it has restarted before
	}
	a, b := leads(t, f.a), leads(t, f.b)
	back := sync.OnceFunc(func() {
		f.a.StartAPIServer()
		f.b.StartAPIServer()
	})
	f.measure(t, "both gateways killed, API servers away", promise{within: oneReplica}, f.paths(t), func() {
		f.a.StopAPIServer()
		f.b.StopAPIServer()
		t.Cleanup(back)
		kill(t, a)
		kill(t, b)
	})
	back()
	f.connected(t)
}

// testAPIServerDown takes the API servers of both clusters away, at the same time.
func testAPIServerDown(t *testing.T, f *faults) {
	f.measure(t, "API servers of both away for "+apiAway.String(), promise{within: blink}, f.paths(t), func() {
		f.a.StopAPIServer()
		f.b.StopAPIServer()
		lasts(t.Context(), apiAway)
		f.a.StartAPIServer()
		f.b.StartAPIServer()
	})
}
