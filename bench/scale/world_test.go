package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const podNamespace = "workload"

// world fills a control plane, in place of users, kubelets and the controllers
// that are not measured.
type world struct {
	*controlplanetest.Cluster
	t   *testing.T
	ctx context.Context
	// core speaks protobuf, which costs both sides less than JSON.
	core *kubernetes.Clientset
}

func newWorld(t *testing.T) *world {
	ctrl.SetLogger(logr.Discard())
	w := &world{Cluster: controlplanetest.Start(t), t: t, ctx: t.Context()}
	cfg := rest.CopyConfig(w.Config)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	var err error
	if w.core, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	return w
}

// internalCIDR is the prefix of the internal network.
const internalCIDR = "10.80.0.0/16"

// network makes the Network of the internal CIDR.
func (w *world) network() {
	n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "internal-cidr"}, Spec: ipamv1alpha1.NetworkSpec{CIDR: internalCIDR}}
	w.must(w.Client.Create(w.ctx, n))
	w.status(n, map[string]any{"cidr": internalCIDR})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) status(o client.Object, status any) {
	w.t.Helper()
	w.must(w.writeStatus(o, status))
}

func (w *world) writeStatus(o client.Object, status any) error {
	b, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return w.Client.Status().Patch(w.ctx, o, client.RawPatch(types.MergePatchType, b))
}

// follow calls see with all objects of a list, and with what becomes of each of them, until the test ends.
func (w *world) follow(list client.ObjectList, see func(client.Object), of ...client.ListOption) {
	w.t.Helper()
	c, err := client.NewWithWatch(w.Config, client.Options{Scheme: w.Client.Scheme()})
	w.must(err)
	w.must(c.List(w.ctx, list, of...))
	w.must(meta.EachListItem(list, func(o runtime.Object) error {
		if o, ok := o.(client.Object); ok {
			see(o)
		}
		return nil
	}))
	last := list.GetResourceVersion()
	from := func() (watch.Interface, error) {
		return c.Watch(w.ctx, list, append(slices.Clone(of), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: last}})...)
	}
	events, err := from()
	w.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			for e := range events.ResultChan() {
				if o, ok := e.Object.(client.Object); ok {
					last = o.GetResourceVersion()
					see(o)
				}
			}
			// An API server ends a watch after some minutes.
			if events, err = from(); err != nil {
				return // the end of the test
			}
		}
	}()
	w.t.Cleanup(func() { <-done })
}

// written is how many writes of a kind the API server has answered, those of statuses apart.
func (w *world) written(group, resource string) int {
	w.t.Helper()
	return sum(w.writes(func(label func(string) string) bool {
		return label("group") == group && label("subresource") == "" && (resource == "" || label("resource") == resource)
	}))
}

// apiServerCPU is the processor time that the API server has spent, in seconds.
func (w *world) apiServerCPU() (seconds float64) {
	w.t.Helper()
	text, err := w.Clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(w.ctx)
	w.must(err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "process_cpu_seconds_total "); ok {
			_, err := fmt.Sscan(value, &seconds)
			w.must(err)
		}
	}
	return seconds
}

// writes is how many writes the API server has answered, by verb and resource, as far as they are wanted.
func (w *world) writes(wanted func(label func(name string) string) bool) map[string]int {
	w.t.Helper()
	text, err := w.Clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(w.ctx)
	w.must(err)
	out := map[string]int{}
	for line := range strings.Lines(string(text)) {
		labels, found := strings.CutPrefix(line, "apiserver_request_total{")
		labels, value, ok := strings.Cut(labels, "} ")
		if !found || !ok {
			continue
		}
		label := func(name string) string {
			_, after, _ := strings.Cut(","+labels, ","+name+`="`)
			v, _, _ := strings.Cut(after, `"`)
			return v
		}
		verb, what := label("verb"), label("resource")
		if slices.Contains([]string{"LIST", "GET", "WATCH", "CONNECT"}, verb) || !wanted(label) {
			continue
		}
		if sub := label("subresource"); sub != "" {
			what += "/" + sub
		}
		var n float64
		_, err := fmt.Sscan(value, &n)
		w.must(err)
		out[verb+" "+what] += int(n)
	}
	return out
}

// many calls do for 0 to n-1, some at a time, and says how it goes.
func (w *world) many(what string, n int, do func(i int) error) {
	w.t.Helper()
	const workers = 16
	var next, failed atomic.Int64
	done := make(chan error, workers)
	start := time.Now()
	for range workers {
		go func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || failed.Load() > 0 {
					done <- nil
					return
				}
				if err := do(i); err != nil {
					failed.Add(1)
					done <- fmt.Errorf("%s %d: %w", what, i, err)
					return
				}
			}
		}()
	}
	for range workers {
		w.must(<-done)
	}
	w.t.Logf("%d %s in %v", n, what, time.Since(start).Round(time.Second))
}

// workerPrefix begins the names of nodes that pods run on.
const workerPrefix = "worker-"

func nodeName(i int) string { return fmt.Sprintf(workerPrefix+"%04d", i) }

func (w *world) nodes(n int) {
	w.t.Helper()
	w.many("nodes", n, func(i int) error {
		_, err := w.core.CoreV1().Nodes().Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}, metav1.CreateOptions{})
		return err
	})
}

// podIP is an address of a node's own /24.
func podIP(node, host int) string {
	return fmt.Sprintf("10.%d.%d.%d", 128+node/256, node%256, 1+host%250)
}

// pod makes a pod that runs on a node.
func (w *world) pod(name string, node int, ip string) error {
	p, err := w.core.CoreV1().Pods(podNamespace).Create(w.ctx, newPod(name, nodeName(node)), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	now := metav1.Now()
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, HostIP: "172.18.0.2", StartTime: &now,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "server", Ready: true, Image: "registry.example/team/server:v1.2.3", ImageID: "registry.example/team/server@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			ContainerID: "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}},
	}
	_, err = w.core.CoreV1().Pods(podNamespace).UpdateStatus(w.ctx, p, metav1.UpdateOptions{})
	return err
}

// newPod is of the size that pods of Deployments have: 2 to 3 KiB.
func newPod(name, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: podNamespace, Name: name,
		Labels:      map[string]string{"app.kubernetes.io/name": "server", "app.kubernetes.io/instance": name, "app.kubernetes.io/component": "backend", "pod-template-hash": "6d4b75cb6d"},
		Annotations: map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "checksum/config": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
	}}
	c := corev1.Container{Name: "server", Image: "registry.example/team/server:v1.2.3", Args: []string{"--config=/etc/server/config.yaml", "--log-level=info"}}
	for i := range 12 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SERVICE_%d_ENDPOINT", i), Value: fmt.Sprintf("https://service-%d.backend.svc.cluster.local:8443", i)})
	}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intOrString(8080)}}}
	c.LivenessProbe, c.ReadinessProbe = probe, probe
	c.VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/etc/server"}, {Name: "tmp", MountPath: "/tmp"}}
	p.Spec = corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{c},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "server"}}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
	return p
}
