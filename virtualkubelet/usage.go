package virtualkubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/objects/mirror"
)

const (
	// usageTimeout bounds how long the provider is asked what pods use: a metrics-server waits for ten seconds.
	usageTimeout = 8 * time.Second
	// usageAtOnce is how many namespaces are asked for at a time: so many answers of up to maxAnswer bytes are held.
	usageAtOnce = 4
	// maxCores and maxMemory, in bytes, bound what a provider says that one container uses.
	maxCores, maxMemory = 1 << 20, 1 << 60
	// leastCPU is what a container has used at least, in seconds: a metrics-server takes zero for a counter that is missing.
	leastCPU = 1e-6
)

// podMetrics is what is read of a PodMetrics (metrics.k8s.io/v1beta1).
type podMetrics struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Containers []struct {
		Name  string              `json:"name"`
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// used is what a container uses: cores, and bytes of memory.
type used struct{ cores, memory float64 }

// usageOf is what the containers of a pod here use, by what the provider says of the pod of its name. Containers that the
// pod does not have, and quantities that cannot be, are left out.
func usageOf(p *corev1.Pod, m *podMetrics) map[string]used {
	out := map[string]used{}
	for _, c := range m.Containers {
		named := func(own corev1.Container) bool { return own.Name == c.Name }
		if !slices.ContainsFunc(p.Spec.Containers, named) && !slices.ContainsFunc(p.Spec.InitContainers, named) {
			continue
		}
		cores, memory := number(c.Usage, corev1.ResourceCPU), number(c.Usage, corev1.ResourceMemory)
		if cores >= 0 && cores <= maxCores && memory >= 0 && memory <= maxMemory {
			out[c.Name] = used{cores, memory}
		}
	}
	return out
}

// number is a quantity; negative: there is none, or none that is a number.
func number(l corev1.ResourceList, name corev1.ResourceName) float64 {
	q, ok := l[name]
	if !ok {
		return -1
	}
	if f := q.AsApproximateFloat64(); !math.IsNaN(f) && !math.IsInf(f, 0) {
		return f
	}
	return -1
}

// counter is the CPU time that a container has used, in seconds, at a time.
type counter struct {
	seconds float64
	at      time.Time
}

// counters make counters of CPU time, which those who ask a kubelet expect, of the cores that a provider says are in
// use: between two looks a container has used what it is said to use at the second.
type counters struct {
	mu sync.Mutex
	by map[types.UID]map[string]counter
}

// advance counts what a container, or "" for the whole, uses. The first time it begins with next to nothing.
func (c *counters) advance(of types.UID, container string, cores float64, now time.Time) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[types.UID]map[string]counter{}
	}
	if c.by[of] == nil {
		c.by[of] = map[string]counter{}
	}
	last, ok := c.by[of][container]
	if !ok {
		last = counter{leastCPU, now}
	}
	if now.After(last.at) {
		last.seconds += cores * now.Sub(last.at).Seconds()
		last.at = now
	}
	c.by[of][container] = last
	return last.seconds
}

// keep forgets all but these.
func (c *counters) keep(alive map[types.UID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.by, func(uid types.UID, _ map[string]counter) bool { return !alive[uid] })
}

// containerUsage is what a container used until a time, and uses of memory then.
type containerUsage struct {
	name            string
	cores           float64
	seconds, memory float64
	started         time.Time // zero: not known
}

// podUsage is what the containers of a pod use.
type podUsage struct {
	pod        *corev1.Pod
	containers []containerUsage
}

// usage is what pods of virtual nodes use.
type usage struct {
	// node is the name of the node; empty: they are those of several, and a request does not say which it is about.
	node string
	// whole is what all of them use together.
	whole containerUsage
	pods  []podUsage
	// err says what could not be asked for.
	err error
}

// usage asks the provider what the pods of nodes use.
func (s *server) usage(ctx context.Context, nodes []*node) (out usage) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	type part struct {
		session *session
		there   string
		pods    map[string]*corev1.Pod
	}
	var parts []part
	const whole types.UID = "" // which no pod has
	alive := map[types.UID]bool{whole: true}
	for _, n := range s.k.all() { // of all: what is counted of nodes that this request is not about stays
		session, pods := n.own()
		by := map[string]map[string]*corev1.Pod{}
		for _, p := range pods.list() {
			alive[p.UID] = true
			if by[p.Namespace] == nil {
				by[p.Namespace] = map[string]*corev1.Pod{}
			}
			by[p.Namespace][p.Name] = p
		}
		if !slices.Contains(nodes, n) || session == nil {
			continue
		}
		for here, pods := range by {
			if there, standing := stand(s.k.namespaceMap(), here); standing == mapped {
				parts = append(parts, part{session, there, pods})
			}
		}
	}
	s.counters.keep(alive)

	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		slots = make(chan struct{}, usageAtOnce)
	)
	for _, p := range parts {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found, err := p.session.podMetrics(ctx, p.there)
			now := time.Now()
			mu.Lock()
			defer mu.Unlock()
			out.err = cmp.Or(out.err, err)
			for i := range found {
				if pod := p.pods[found[i].Metadata.Name]; pod != nil {
					delete(p.pods, pod.Name) // once
					out.pods = append(out.pods, s.count(pod, &found[i], now))
				}
			}
		})
	}
	wg.Wait()
	slices.SortFunc(out.pods, func(a, b podUsage) int {
		return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	if len(nodes) == 1 && len(s.k.all()) == 1 {
		out.node = nodes[0].name
		for _, p := range out.pods {
			sum := total(p.containers)
			out.whole.cores += sum.cores
			out.whole.memory += sum.memory
		}
		out.whole.seconds = s.counters.advance(whole, "", out.whole.cores, time.Now())
	}
	return out
}

// count counts what a pod uses.
func (s *server) count(p *corev1.Pod, m *podMetrics, now time.Time) podUsage {
	out := podUsage{pod: p}
	for name, u := range usageOf(p, m) {
		c := containerUsage{name: name, cores: u.cores, memory: u.memory}
		for _, status := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
			if status.Name == name && status.State.Running != nil {
				c.started = status.State.Running.StartedAt.Time
			}
		}
		c.seconds = s.counters.advance(p.UID, name, u.cores, now)
		out.containers = append(out.containers, c)
	}
	slices.SortFunc(out.containers, func(a, b containerUsage) int { return cmp.Compare(a.name, b.name) })
	return out
}

// podMetrics reads what the pods of a namespace at the provider use.
func (s *session) podMetrics(ctx context.Context, namespace string) ([]podMetrics, error) {
	body, err := s.core.Get().AbsPath("/apis/metrics.k8s.io/v1beta1/namespaces", namespace, "pods").SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("the provider does not say what pods use: %s", mirror.PlainError(err))
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("the provider does not say what pods use: %s", mirror.PlainError(err))
	}
	var list struct {
		Items []podMetrics `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("the provider's answer on what pods use does not parse: %w", err)
	}
	return list.Items, nil
}

// total is what containers use together.
func total(containers []containerUsage) (out containerUsage) {
	for _, c := range containers {
		out.cores += c.cores
		out.seconds += c.seconds
		out.memory += c.memory
	}
	return out
}

// asked are the nodes whose subresource the caller may get. Else it has been answered.
func (s *server) asked(w http.ResponseWriter, r *http.Request, subresource string) (nodes []*node) {
	who, code, why := s.identify(r, true)
	if code == 0 {
		code, why = http.StatusNotFound, "no virtual node is kept by this process"
		for _, n := range s.k.all() {
			var refused int
			if refused, why = s.authorize(r.Context(), who, n.name, subresource, r.Method); refused == 0 {
				nodes = append(nodes, n)
			} else {
				code = refused
			}
		}
	}
	if len(nodes) == 0 {
		refuse(w, code, why)
	}
	return nodes
}

// What a kubelet calls these: pkg/kubelet/metrics/collectors/resource_metrics.go of Kubernetes.
var (
	nodeCPU         = prometheus.NewDesc("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", nil, nil)
	nodeMemory      = prometheus.NewDesc("node_memory_working_set_bytes", "Current working set of the node in bytes", nil, nil)
	podCPU          = prometheus.NewDesc("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", []string{"pod", "namespace"}, nil)
	podMemory       = prometheus.NewDesc("pod_memory_working_set_bytes", "Current working set of the pod in bytes", []string{"pod", "namespace"}, nil)
	containerLabels = []string{"container", "pod", "namespace"}
	containerCPU    = prometheus.NewDesc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", containerLabels, nil)
	containerMemory = prometheus.NewDesc("container_memory_working_set_bytes", "Current working set of the container in bytes", containerLabels, nil)
	containerStart  = prometheus.NewDesc("container_start_time_seconds", "Start time of the container since unix epoch in seconds", containerLabels, nil)
	usageError      = prometheus.NewDesc("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
)

// resources answers /metrics/resource, which a metrics-server reads.
func (s *server) resources(w http.ResponseWriter, r *http.Request) {
	nodes := s.asked(w, r, "metrics")
	if len(nodes) == 0 {
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.usage(r.Context(), nodes))
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// Describe implements prometheus.Collector.
func (usage) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (u usage) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, p := range u.pods {
		for _, c := range p.containers {
			labels := []string{c.name, p.pod.Name, p.pod.Namespace}
			counter(containerCPU, c.seconds, labels...)
			gauge(containerMemory, c.memory, labels...)
			if !c.started.IsZero() {
				gauge(containerStart, float64(c.started.UnixNano())/1e9, labels...)
			}
		}
		sum := total(p.containers)
		counter(podCPU, sum.seconds, p.pod.Name, p.pod.Namespace)
		gauge(podMemory, sum.memory, p.pod.Name, p.pod.Namespace)
	}
	if u.node != "" {
		counter(nodeCPU, u.whole.seconds)
		gauge(nodeMemory, u.whole.memory)
	}
	failed := 0.0
	if u.err != nil {
		failed = 1
	}
	gauge(usageError, failed)
}

// What a kubelet answers under /stats/summary, as far as it is known here: staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1 of
// Kubernetes.
type (
	summary struct {
		Node nodeStats  `json:"node"`
		Pods []podStats `json:"pods"`
	}
	nodeStats struct {
		NodeName  string    `json:"nodeName"`
		StartTime time.Time `json:"startTime"`
		resourceStats
	}
	podStats struct {
		PodRef struct {
			Name      string    `json:"name"`
			Namespace string    `json:"namespace"`
			UID       types.UID `json:"uid"`
		} `json:"podRef"`
		StartTime  time.Time        `json:"startTime"`
		Containers []containerStats `json:"containers"`
		resourceStats
	}
	containerStats struct {
		Name      string    `json:"name"`
		StartTime time.Time `json:"startTime"`
		resourceStats
	}
	resourceStats struct {
		CPU struct {
			Time                 time.Time `json:"time"`
			UsageNanoCores       uint64    `json:"usageNanoCores"`
			UsageCoreNanoSeconds uint64    `json:"usageCoreNanoSeconds"`
		} `json:"cpu"`
		Memory struct {
			Time            time.Time `json:"time"`
			WorkingSetBytes uint64    `json:"workingSetBytes"`
		} `json:"memory"`
	}
)

// stats is what something uses, in a kubelet's words.
func (c containerUsage) stats(now time.Time) (out resourceStats) {
	out.CPU.Time, out.CPU.UsageNanoCores, out.CPU.UsageCoreNanoSeconds = now, whole(c.cores*1e9), whole(c.seconds*1e9)
	out.Memory.Time, out.Memory.WorkingSetBytes = now, whole(c.memory)
	return out
}

// whole is a number that is not negative, without its fraction. What a provider says of many containers, or for long, may
// add up to more than a number here holds.
func whole(x float64) uint64 { return uint64(min(x, 1<<63)) }

// summary answers /stats/summary.
func (s *server) summary(w http.ResponseWriter, r *http.Request) {
	nodes := s.asked(w, r, "stats")
	if len(nodes) == 0 {
		return
	}
	u := s.usage(r.Context(), nodes)
	if u.err != nil {
		http.Error(w, u.err.Error(), http.StatusBadGateway)
		return
	}
	now := time.Now().UTC().Truncate(time.Second)
	out := summary{Node: nodeStats{u.node, s.k.started.UTC(), u.whole.stats(now)}, Pods: []podStats{}}
	for _, p := range u.pods {
		of := podStats{resourceStats: total(p.containers).stats(now), Containers: []containerStats{}}
		of.PodRef.Name, of.PodRef.Namespace, of.PodRef.UID = p.pod.Name, p.pod.Namespace, p.pod.UID
		if t := p.pod.Status.StartTime; t != nil {
			of.StartTime = t.UTC()
		}
		for _, c := range p.containers {
			of.Containers = append(of.Containers, containerStats{c.name, c.started.UTC(), c.stats(now)})
		}
		out.Pods = append(out.Pods, of)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the caller is gone otherwise
}
