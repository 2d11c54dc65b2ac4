package scale

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

var (
	measure      = flag.Bool("scale", false, "measure the controllers on a large control plane; takes minutes")
	results      = flag.String("results", "", "directory that -scale writes its results to")
	nodes        = flag.Int("nodes", 500, "nodes of TestPods")
	pods         = flag.Int("pods", 10_000, "pods of TestPods")
	rate         = flag.Int("rate", 100, "changes of pods each second of TestPods")
	seconds      = flag.Int("seconds", 60, "length of the changes of TestPods")
	peerings     = flag.Int("peerings", 1000, "peerings of TestPeerings")
	tunnels      = flag.Int("tunnels", 5000, "tunnels of TestHostNetwork and TestAgent")
	tuns         = flag.Int("tuns", 300, "tunnels of those, where each is a TUN device")
	peers        = flag.Int("peers", 100, "peers of TestSlices")
	slicesOfPeer = flag.Int("slices", 10, "slices that each of them asks for, and is asked for")
	exports      = flag.Int("services", 1000, "Services that TestServices exports")
	endpoints    = flag.Int("endpoints", 10, "endpoints of each of them")
	readiness    = flag.Int("readiness", 10, "changes of endpoints each second of TestServices")
	attempts     = flag.Int("attempts", 100_000, "slices that the consumer of TestHostileConsumer tries to create")
	attack       = flag.Duration("attack", time.Minute, "time that each provider of TestHostileProvider gets")
	atOnce       = flag.Int("at-once", 1000, "pods that come at once in TestOffloading")
	offloaded    = flag.Int("offloaded", 10_000, "pods that are held then")
	kills        = flag.Int("kills", 0, "how often TestKilled kills something; 0: it is skipped")
	seed         = flag.Uint64("seed", 0, "what TestKilled does when; 0: something new")
	profile      = flag.String("heap", "", "file for a heap profile of the controllers, at their largest")
)

// controlPlane is what the controllers share the machine with.
const controlPlane = "etcd, kube-apiserver and the load"

const patience = 10 * time.Minute

func intOrString(n int) intstr.IntOrString { return intstr.FromInt32(int32(n)) }

// until waits for check, and returns how long that took.
func until(t *testing.T, what string, check func() error) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		err := check()
		if err == nil {
			took := time.Since(start)
			t.Logf("%s after %v", what, took.Round(time.Millisecond))
			return took
		}
		if time.Since(start) > patience {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestPods measures one peering of a cluster with many pods, which come and go.
func TestPods(t *testing.T) {
	if !*measure {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -scale runs it")
	}
	w := newWorld(t)
	w.network()
	w.must(w.CreateNamespace(podNamespace, nil))
	w.nodes(*nodes)
	p := &placement{hosts: map[int]int{}}
	w.many("pods", *pods, func(i int) error {
		_, err := w.add(p, i%*nodes)
		return err
	})
	w.must(w.observed(w.peering(0)))
	r := w.watchRoutes()

	start := time.Now()
	c := startControllers(t, w.Cluster, internalNetworkOnly)
	until(t, "all routes are written", func() error { return r.converged(*nodes, *pods) })
	until(t, "all tunnels are there", func() error { return w.count(new(networkingv1beta1.GeneveTunnelList), *nodes) })
	converged := time.Since(start)
	first := c.figures(t, collect)

	took := w.churn(r, p)
	followed := until(t, "all changes are followed", func() error {
		if n := r.waiting(); n > 0 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	last := c.figures(t, cmp.Or(*profile, collect))
	delta := last.since(first)
	changes := *rate * *seconds
	c.rest(t, func(figures) bool { return true }, quick)
	c.stop()

	start = time.Now()
	c = startControllers(t, w.Cluster, internalNetworkOnly)
	again := c.rest(t, func(f figures) bool {
		seen := f.Reconciled
		return seen["node"] >= *nodes && seen["genevetunnel"] >= *nodes && seen["internalnode_route"] >= *nodes
	}, quick)
	restarted := time.Since(start) - restFor

	out := newReport("controller-scale", controlPlane, fmt.Sprintf("One peering, %d nodes, %d pods; then %d changes of pods each second for %d s", *nodes, *pods, *rate, *seconds))
	out.row("start of the controllers to all routes", "%.1f s", converged.Seconds())
	out.row("  CPU time of the controllers", "%.1f s", first.CPU.Seconds())
	out.row("  writes", "%d", first.writes())
	out.requests("", first.Writes)
	out.row("  heap after a collection", "%.0f MiB", first.HeapMiB)
	out.row("  resident, and its peak", "%.0f, %.0f MiB", first.RSSMiB, first.PeakMiB)
	out.row("changes", "%d", changes)
	out.row("  each second, as the API server allowed", "%.0f", float64(changes)/took.Seconds())
	out.row("  writes for each change", "%.2f", float64(delta.writes())/float64(changes))
	out.requests("", delta.Writes)
	out.row("  pod changed to route written, p50", "%v", quantile(r.lags, 0.5))
	out.row("  pod changed to route written, p99", "%v", quantile(r.lags, 0.99))
	out.row("  pod changed to route written, worst", "%v", quantile(r.lags, 1))
	out.row("  last change to last route", "%v", followed.Round(time.Millisecond))
	out.row("  CPU time of the controllers", "%.1f s", delta.CPU.Seconds())
	out.row("  heap after a collection", "%.0f MiB", last.HeapMiB)
	out.row("  resident, and its peak", "%.0f, %.0f MiB", last.RSSMiB, last.PeakMiB)
	out.row("second start until all is looked at", "%.1f s", restarted.Seconds())
	out.row("  CPU time of the controllers", "%.1f s", again.CPU.Seconds())
	out.row("  writes", "%d", again.writes())
	out.requests("", again.Writes)
	out.done(t)
}

// placement remembers which pod has which address.
type placement struct {
	mu    sync.Mutex
	pods  []placed
	made  int
	hosts map[int]int // how many addresses of a node were used
}

type placed struct {
	name string
	node int
	ip   string
}

// next returns a new pod for a node, with an address that was not used lately.
func (p *placement) next(node int) placed {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := placed{fmt.Sprintf("server-6d4b75cb6d-%06d", p.made), node, podIP(node, p.hosts[node])}
	p.made++
	p.hosts[node]++
	return q
}

// put remembers a pod that is there.
func (p *placement) put(q placed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods = append(p.pods, q)
}

// take forgets any pod.
func (p *placement) take() placed {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := rand.IntN(len(p.pods))
	q := p.pods[i]
	p.pods[i] = p.pods[len(p.pods)-1]
	p.pods = p.pods[:len(p.pods)-1]
	return q
}

// add makes a pod on a node.
func (w *world) add(p *placement, node int) (placed, error) {
	q := p.next(node)
	if err := w.pod(q.name, node, q.ip); err != nil {
		return q, err
	}
	p.put(q)
	return q, nil
}

// churn deletes a pod and makes one, again and again.
func (w *world) churn(r *routes, p *placement) time.Duration {
	w.t.Helper()
	start := time.Now()
	w.many("changes", *rate**seconds, func(i int) error {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(*rate))))
		if i%2 == 0 {
			q := p.take()
			if err := w.core.CoreV1().Pods(podNamespace).Delete(w.ctx, q.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
				return err
			}
			r.expect(nodeName(q.node), q.ip, false)
			return nil
		}
		q, err := w.add(p, rand.IntN(*nodes))
		r.expect(nodeName(q.node), q.ip, true)
		return err
	})
	return time.Since(start)
}
