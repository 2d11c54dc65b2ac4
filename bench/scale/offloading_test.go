package scale

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// local is the namespace of pods that are not offloaded.
const local = "local"

// podArrivals are pods on the way to be seen as something.
type podArrivals struct {
	is func(*corev1.Pod) bool

	mu      sync.Mutex
	waiting map[cache.ObjectName]time.Time
	lags    []time.Duration
}

func (a *podArrivals) expect(at cache.ObjectName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[cache.ObjectName]time.Time{}
	}
	a.waiting[at] = time.Now()
}

func (a *podArrivals) note(p *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := cache.MetaObjectToName(p)
	if since, ok := a.waiting[at]; ok && a.is(p) {
		delete(a.waiting, at)
		a.lags = append(a.lags, time.Since(since))
	}
}

func (a *podArrivals) left() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.waiting); n > 0 {
		return fmt.Errorf("%d wait", n)
	}
	return nil
}

func isReady(p *corev1.Pod, want corev1.ConditionStatus) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == want })
}

// offloadingRun is a pair with pods.
type offloadingRun struct {
	*pair
	mu   sync.Mutex
	now  *podArrivals
	made int
}

func newOffloadingRun(t *testing.T, namespaces int) *offloadingRun {
	var names []string
	for i := range namespaces {
		names = append(names, fmt.Sprintf("shop-%d", i))
	}
	o := &offloadingRun{pair: newPair(t, names...)}
	o.Namespace(t, local, nil)
	next := 0
	turn := func(*corev1.Pod) string {
		o.mu.Lock()
		defer o.mu.Unlock()
		next++
		return nodeName(next % fewWorkers)
	}
	o.play(func(p *corev1.Pod) string {
		if p.Namespace != local {
			return provider
		}
		return turn(p)
	}, func(p *corev1.Pod, _ bool) {
		o.mu.Lock()
		now := o.now
		o.mu.Unlock()
		if now != nil {
			now.note(p)
		}
	})
	o.there.play(turn, nil)
	return o
}

// expect has what is seen at the consumer from now on be taken for what is waited for.
func (o *offloadingRun) expect(is func(*corev1.Pod) bool) *podArrivals {
	a := &podArrivals{is: is}
	o.mu.Lock()
	o.now = a
	o.mu.Unlock()
	return a
}

// arrive makes pods at once, some in each namespace, and tells how long until the last of them runs, and each.
func (o *offloadingRun) arrive(n int, namespaces ...string) (took time.Duration, each []time.Duration) {
	o.t.Helper()
	a := o.expect(func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && isReady(p, corev1.ConditionTrue)
	})
	start, first := time.Now(), o.made
	o.made += n
	o.many("pods", n, func(i int) error {
		p := newPod(fmt.Sprintf("server-6d4b75cb6d-%06d", first+i), "")
		p.Namespace = namespaces[i%len(namespaces)]
		a.expect(cache.MetaObjectToName(p))
		_, err := o.core.CoreV1().Pods(p.Namespace).Create(o.ctx, p, metav1.CreateOptions{})
		return err
	})
	until(o.t, fmt.Sprintf("%d pods run", n), a.left)
	return time.Since(start), a.lags
}

// change changes the readiness of n pods at the provider, some each second, and tells how long until the consumer has it.
func (o *offloadingRun) change(n, rate int) []time.Duration {
	o.t.Helper()
	var list []cache.ObjectName
	for _, here := range o.namespaces {
		pods, err := o.core.CoreV1().Pods(here).List(o.ctx, metav1.ListOptions{Limit: int64(n)})
		o.must(err)
		for i := range pods.Items {
			list = append(list, cache.MetaObjectToName(&pods.Items[i]))
		}
	}
	n = min(n, len(list))
	a := o.expect(func(p *corev1.Pod) bool { return isReady(p, corev1.ConditionFalse) })
	start := time.Now()
	o.many("changes", n, func(i int) error {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		at := list[i]
		text := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"ContainersNotReady","lastTransitionTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		a.expect(at) // the answer may come after the news
		_, err := o.there.core.CoreV1().Pods(remoteNamespace(at.Namespace)).Patch(o.ctx, at.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status")
		return err
	})
	until(o.t, "all changes are known", a.left)
	return a.lags
}

// told waits until all ShadowPods tell a phase, which they do when their pods are some seconds old.
func (o *offloadingRun) told() {
	o.t.Helper()
	until(o.t, "all phases are told", func() error {
		var list offloadingv1beta1.ShadowPodList
		if err := o.there.Client.List(o.ctx, &list); err != nil {
			return err
		}
		if n := len(slices.DeleteFunc(list.Items, func(s offloadingv1beta1.ShadowPod) bool { return s.Status.Phase != "" })); n > 0 {
			return fmt.Errorf("%d are not", n)
		}
		return nil
	})
}

// restart ends the virtual kubelet and starts it again, and tells what was written since on both sides.
func (o *offloadingRun) restart(pods int) (took time.Duration, f figures, writes map[string]int) {
	o.t.Helper()
	o.told()
	o.kubelet.stop()
	here, there := o.writesOfWork(), o.there.writesOfWork()
	start := time.Now()
	o.startKubelet()
	f = o.kubelet.rest(o.t, func(f figures) bool { return f.Reconciled["pods"] >= pods }, quick)
	took = time.Since(start) - restFor
	writes = since(o.writesOfWork(), here)
	for what, n := range since(o.there.writesOfWork(), there) {
		writes[what+" at the provider"] = n
	}
	return took, f, writes
}

// TestFewOffloaded judges what does not depend on the machine.
func TestFewOffloaded(t *testing.T) {
	const pods = 12
	o := newOffloadingRun(t, 2)
	here, there := o.writesOfWork(), o.there.writesOfWork()
	o.arrive(pods, o.namespaces...)
	all := func(f figures) bool { return f.Reconciled["pods"] >= pods }
	o.kubelet.rest(t, all, quick)
	o.told()
	// The pod, its node; the label and tolerations; the token; the status, and again where somebody wrote in between.
	if got := since(o.writesOfWork(), here); sum(got) > 6*pods {
		t.Errorf("%d writes at the consumer for %d pods: %v", sum(got), pods, got)
	}
	// ShadowPod, Secret with the token; pod, node, status; the phase of the ShadowPod, which a late cache has written again.
	if got := since(o.there.writesOfWork(), there); sum(got) > 7*pods {
		t.Errorf("%d writes at the provider for %d pods: %v", sum(got), pods, got)
	}
	o.change(pods, 1000)
	if _, _, writes := o.restart(pods); len(writes) > 0 {
		t.Errorf("a start of the virtual kubelet with pods that are there writes %v", writes)
	}
}

// TestOffloading measures pods that run in another cluster, and the virtual kubelet that holds them.
func TestOffloading(t *testing.T) {
	if !*measure {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -scale runs it")
	}
	o := newOffloadingRun(t, (*offloaded+2499)/2500)
	out := newReport("offloading-scale", "two etcds, two kube-apiservers, the provider's controllers, and the test, which plays schedulers and kubelets",
		fmt.Sprintf("%d pods that come at once, then %d that are held", *atOnce, *offloaded))

	before := o.apiServerCPU()
	usual, each := o.arrive(*atOnce, local)
	out.row("pods that come at once, to the last that runs", "%.1f s", usual.Seconds())
	out.row("  each, p50, p99", "%v, %v", quantile(each, 0.5), quantile(each, 0.99))
	out.row("  CPU time of the API server", "%.1f s", o.apiServerCPU()-before)
	o.must(o.core.CoreV1().Pods(local).DeleteCollection(o.ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}))

	here, there, cpu, controllers := o.writesOfWork(), o.there.writesOfWork(), o.kubelet.figures(t, quick), o.controllers.figures(t, quick)
	before, beforeThere := o.apiServerCPU(), o.there.apiServerCPU()
	took, each := o.arrive(*atOnce, o.namespaces...)
	f := o.kubelet.rest(t, func(f figures) bool { return f.Reconciled["pods"] >= *atOnce }, quick)
	o.told()
	out.row("the same, offloaded", "%.1f s", took.Seconds())
	out.row("  each, p50, p99", "%v, %v", quantile(each, 0.5), quantile(each, 0.99))
	out.row("  of the time without offloading", "%.2f", took.Seconds()/usual.Seconds())
	out.row("  goal", "%.1f s", 1.5*usual.Seconds()+2)
	out.row("  CPU time of the virtual kubelet", "%.1f s", (f.CPU - cpu.CPU).Seconds())
	out.row("  CPU time of the provider's controllers", "%.1f s", (o.controllers.figures(t, quick).CPU - controllers.CPU).Seconds())
	out.row("  CPU time of the API servers, here, there", "%.1f, %.1f s", o.apiServerCPU()-before, o.there.apiServerCPU()-beforeThere)
	out.row("  reads of the virtual kubelet", "")
	out.requests("", f.since(cpu).Reads)
	out.row("  reads of the provider's controllers", "")
	out.requests("", o.controllers.figures(t, quick).since(controllers).Reads)
	out.row("  writes for each pod, at the consumer", "%.2f", float64(sum(since(o.writesOfWork(), here)))/float64(*atOnce))
	out.requests("", since(o.writesOfWork(), here))
	out.row("  writes for each pod, at the provider", "%.2f", float64(sum(since(o.there.writesOfWork(), there)))/float64(*atOnce))
	out.requests("", since(o.there.writesOfWork(), there))

	if more := *offloaded - *atOnce; more > 0 {
		took, _ = o.arrive(more, o.namespaces...)
		out.row(fmt.Sprintf("%d more", more), "%.1f s", took.Seconds())
	}
	held := func(f figures) bool { return f.Reconciled["pods"] >= *offloaded }
	o.told()
	f = o.kubelet.rest(t, held, cmp.Or(*profile, collect))
	out.row(fmt.Sprintf("%d pods held: heap after a collection", *offloaded), "%.0f MiB", f.HeapMiB)
	out.row("  resident, and its peak", "%.0f, %.0f MiB", f.RSSMiB, f.PeakMiB)

	here, there, cpu = o.writesOfWork(), o.there.writesOfWork(), o.kubelet.figures(t, quick)
	start := time.Now()
	time.Sleep(time.Minute) // what is measured
	idle := o.kubelet.figures(t, quick)
	span := time.Since(start).Seconds()
	out.row("idle: writes each second, without leases", "%.2f", float64(sum(since(o.writesOfWork(), here))+sum(since(o.there.writesOfWork(), there)))/span)
	out.row("  leases", "%.2f", float64(idle.since(cpu).Writes["PUT leases"])/span)
	out.row("  CPU time", "%.1f ms/s", float64((idle.CPU-cpu.CPU).Milliseconds())/span)

	lags := o.change(*rate**seconds, *rate)
	out.row(fmt.Sprintf("status changed at the provider to known, %d/s", *rate), "")
	out.row("  p50, p99, worst", "%v, %v, %v", quantile(lags, 0.5), quantile(lags, 0.99), quantile(lags, 1))

	o.kubelet.rest(t, held, quick)
	took, f, writes := o.restart(*offloaded)
	out.row("second start until all is looked at", "%.1f s", took.Seconds())
	out.row("  CPU time", "%.1f s", f.CPU.Seconds())
	out.row("  resident, and its peak", "%.0f, %.0f MiB", f.RSSMiB, f.PeakMiB)
	out.row("  writes, here and at the provider", "%v", writes)
	out.done(t)
	if len(writes) > 0 {
		t.Errorf("a start with pods that are there writes %v", writes)
	}
}
