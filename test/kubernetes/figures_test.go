package kubernetes

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

const (
	// setUps is how often the installation is made and removed.
	setUps = 3
	// figureRounds is how often each path is measured, and iperfTime for how long.
	figureRounds = 7
	iperfTime    = 3 * time.Second
	// idleWindows of idleWindow each are what an idle component is looked at.
	idleWindows = 6
	idleWindow  = 10 * time.Second
)

// TestFigures measures and writes what it found. Nothing in it fails for being slow.
func TestFigures(t *testing.T) {
	if *figures == "" {
		t.Skip("SKIPPED: a record of figures takes some five minutes of a machine that does nothing else: -kubernetes.figures FILE")
	}
	lab.Require(t, "iperf3")
	w := newWorld(t, kubelab.Options{Clusters: []string{"rome", "milan"}})
	t.Cleanup(func() { w.explain(t) })
	r := &figureReport{}
	for round := range setUps {
		w.measureSetUp(t, r, round == setUps-1)
	}
	components := w.components(t)
	measureIdle(t, r, components)
	p := w.figurePaths(t)
	for round := range figureRounds {
		p.measure(t, r, components, round)
	}
	r.publish(t)
}

// measureSetUp installs and connects as an administrator does, one step after the
// other, until a pod of a has an answer from one of b.
func (w *world) measureSetUp(t *testing.T, r *figureReport, stays bool) {
	t.Helper()
	client, server := w.clients(t, w.a, 1)[0], w.servers(t, w.b, 1)[0]
	begin := time.Now()
	step := func(name string, do func()) {
		start := time.Now()
		do()
		r.add("setup", name, "s", time.Since(start).Seconds())
	}
	for _, c := range []*kubelab.Cluster{w.a, w.b} {
		step("`liqoctl install`, cluster "+c.Name, func() { w.liqoctl(t, installArgs(c)...) })
	}
	step("`liqoctl network connect --wait`", func() { w.liqoctl(t, w.connectArgs()...) })
	at := w.remote(t, w.a, server.Addr)
	step("first answer over HTTP, pod to pod", func() {
		lab.Eventually(t, patience, "an answer", func() error {
			_, err := get(t.Context(), client, at)
			return err
		})
	})
	r.add("setup", "**all of it**", "s", time.Since(begin).Seconds())
	if stays {
		return
	}
	w.reset(t)
	w.uninstall(t, "--purge")
}

// component is one of the programs of Sluice, in all its pods.
type component struct {
	name string
	pods []*kubelab.Pod
}

// components finds the pods of both clusters.
func (w *world) components(t *testing.T) []component {
	t.Helper()
	var all []component
	for _, kind := range []struct {
		name   string
		labels map[string]string
	}{
		{"gateway", map[string]string{"networking.liqo.io/component": "gateway"}},
		{"controller", map[string]string{"app.kubernetes.io/name": "liqo-controller"}},
		{"fabric", map[string]string{"app.kubernetes.io/name": "liqo-fabric"}},
	} {
		c := component{name: kind.name}
		for _, cluster := range w.Clusters {
			pods, err := cluster.Pods(t.Context(), "", kind.labels)
			if err != nil {
				t.Fatal(err)
			}
			c.pods = append(c.pods, pods...)
		}
		if len(c.pods) == 0 {
			t.Fatalf("there are no pods of %s", kind.name)
		}
		all = append(all, c)
	}
	return all
}

// usage is what the pods of a component have used until now, together, and what each holds.
func (c component) usage(t *testing.T) (cpu time.Duration, rss []float64) {
	t.Helper()
	for _, p := range c.pods {
		used, held, err := p.Usage()
		if err != nil {
			t.Fatal(err)
		}
		cpu += used
		rss = append(rss, float64(held)/(1<<20))
	}
	return cpu, rss
}

// measureIdle looks at components that nobody asks anything.
func measureIdle(t *testing.T, r *figureReport, components []component) {
	t.Helper()
	for range idleWindows {
		before := make([]time.Duration, len(components))
		for i, c := range components {
			before[i], _ = c.usage(t)
		}
		start := time.Now()
		time.Sleep(idleWindow) // what is measured is what happens meanwhile
		for i, c := range components {
			now, rss := c.usage(t)
			r.add("idle", c.name+", each", "% of a core", 100*(now-before[i]).Seconds()/time.Since(start).Seconds()/float64(len(c.pods)))
			r.add("idle", c.name+", each", "MiB resident", rss...)
		}
	}
}

// figurePaths are the ways from one pod that are compared.
type figurePaths struct {
	from, within, across *kubelab.Pod
	acrossAt             netip.Addr
}

// figurePaths chooses pods. Across the clusters neither is on the node of a gateway, so
// that all of the way is measured; within the cluster the other one is on another node.
func (w *world) figurePaths(t *testing.T) *figurePaths {
	t.Helper()
	elsewhere := func(c *kubelab.Cluster) (far, near *kubelab.Pod) {
		gateways, err := c.Pods(t.Context(), "", map[string]string{"networking.liqo.io/component": "gateway"})
		if err != nil || len(gateways) != 1 {
			t.Fatalf("%s has %d gateways (%v), want one", c.Name, len(gateways), err)
		}
		for _, p := range w.servers(t, c, 2) {
			if p.Node == gateways[0].Node {
				near = p
			} else {
				far = p
			}
		}
		if far == nil || near == nil {
			t.Fatalf("%s has no pod on each node", c.Name)
		}
		return far, near
	}
	p := &figurePaths{}
	p.from, p.within = elsewhere(w.a)
	p.across, _ = elsewhere(w.b)
	p.acrossAt = w.remote(t, w.a, p.across.Addr)
	for _, server := range []*kubelab.Pod{p.within, p.across} {
		startIperf(t, server)
	}
	return p
}

// startIperf has a pod answer iperf3 until the end of the test.
func startIperf(t *testing.T, p *kubelab.Pod) {
	t.Helper()
	keepRunning(t, p, "iperf3", "-s")
}

// keepRunning runs a program in the place of a pod until the end of the test.
func keepRunning(t *testing.T, p *kubelab.Pod, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out, err := p.TryContext(ctx, args...)
		if ctx.Err() == nil {
			t.Errorf("%s in %s ended: %v\n%s", args[0], p.Name, err, out)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// measure takes one round of both ways. Neither is always the first.
func (p *figurePaths) measure(t *testing.T, r *figureReport, components []component, round int) {
	t.Helper()
	ways := []struct {
		name string
		to   *kubelab.Pod
		at   netip.Addr
	}{{withinCluster, p.within, p.within.Addr}, {acrossClusters, p.across, p.acrossAt}}
	for i := range ways {
		way := ways[(i+round)%len(ways)]
		trips := roundTrips(t, p.from, way.to, way.at)
		r.path(way.name, "round trip of 64 bytes, p50", "µs", microseconds(trips.p50()))
		r.path(way.name, "round trip of 64 bytes, p99", "µs", microseconds(trips.p99()))
		for _, streams := range []int{1, 4} {
			before := machineAndComponents(t, components)
			result, err := lab.Iperf{To: way.at, Streams: streams, Duration: iperfTime}.Run(p.from.TryContext)
			if err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("TCP, %d connection%s", streams, strings.Repeat("s", min(streams-1, 1)))
			r.path(way.name, what, "Gbit/s", result.BitsPerSecond/1e9)
			gbit := result.BitsPerSecond * iperfTime.Seconds() / 1e9
			used := machineAndComponents(t, components)
			r.path(way.name, what+": the machine", "CPU-s/Gbit", (used[0]-before[0]).Seconds()/gbit)
			if way.name == acrossClusters {
				loaded(t, r, components, what, before, used, gbit)
			}
		}
	}
}

// machineAndComponents is the processor time used by the machine and by each component.
func machineAndComponents(t *testing.T, components []component) []time.Duration {
	t.Helper()
	machine, err := machineTime()
	if err != nil {
		t.Fatal(err)
	}
	all := []time.Duration{machine}
	for _, c := range components {
		used, _ := c.usage(t)
		all = append(all, used)
	}
	return all
}

// loaded notes what the components did during a transfer.
func loaded(t *testing.T, r *figureReport, components []component, what string, before, after []time.Duration, gbit float64) {
	t.Helper()
	for i, c := range components {
		used := (after[i+1] - before[i+1]).Seconds()
		share := 100 * used / iperfTime.Seconds() / float64(len(c.pods))
		_, rss := c.usage(t)
		r.add("loaded", c.name+", each; "+what, "% of a core", share)
		r.add("loaded", c.name+", each; "+what, "MiB resident", rss...)
		if c.name == "gateway" {
			r.add("loaded", "both gateways; "+what, "CPU-s/Gbit", used/gbit)
		}
	}
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
