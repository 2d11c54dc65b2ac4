package bundle

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

const (
	// maxPods bounds the pods whose logs are read. Those that are not well come
	// first, then gateways, then the rest.
	maxPods = 100
	// maxLines is how much of a log is asked for.
	maxLines = 20000
)

// pod is a pod whose logs and reports are of interest.
type pod struct {
	types.NamespacedName
	gateway    bool
	unwell     bool
	ofLiqo     bool // its programs know none of our commands
	containers []container
	metrics    metricsOf
}

// metricsOf is who shows metrics in a pod, and on which port. No program: nobody who can be asked.
type metricsOf struct {
	container, program string
	port               int32
}

// programs are those that print their metrics, by the names of their containers.
var programs = map[string]string{
	"clusterdns": "clusterdns", "controller": "controller", "fabric": "fabric", "gateway": "gateway",
	offloadingv1beta1.VirtualKubeletName: "virtualkubelet",
}

type container struct {
	name     string
	restarts int32
}

// notePod remembers a pod.
func (g *gatherer) notePod(o *unstructured.Unstructured) {
	var p corev1.Pod
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p) != nil {
		return // its YAML shows what it is
	}
	found := pod{
		NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, unwell: !survey.PodReady(&p),
		gateway: p.Labels[networkingv1beta1.LabelComponent] == networkingv1beta1.ComponentGateway, ofLiqo: survey.OfLiqo(&p.Spec),
	}
	restarts := make(map[string]int32)
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		restarts[s.Name] = s.RestartCount
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		found.containers = append(found.containers, container{c.Name, restarts[c.Name]})
		found.unwell = found.unwell || restarts[c.Name] > 0
		for _, port := range c.Ports {
			if strings.Contains(port.Name, "metrics") {
				found.metrics = metricsOf{c.Name, programs[c.Name], port.ContainerPort}
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pods = append(g.pods, found)
}

// choosePods returns the pods of most interest, and notes that others are left out.
func (g *gatherer) choosePods() []pod {
	rank := func(p pod) int {
		switch {
		case p.unwell:
			return 0
		case p.gateway:
			return 1
		}
		return 2
	}
	slices.SortFunc(g.pods, func(a, b pod) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	if len(g.pods) <= maxPods {
		return g.pods
	}
	g.archive.miss(g.Name, "logs", fmt.Errorf("of %d pods only those of %d are packed, which are not well, gateways, or the first", len(g.pods), maxPods))
	return g.pods[:maxPods]
}

// readLogs packs the logs of containers, also of those before the last restart.
func (g *gatherer) readLogs(ctx context.Context, pods []pod) int {
	type log struct {
		pod       pod
		container string
		previous  bool
	}
	var logs []log
	for _, p := range pods {
		for _, c := range p.containers {
			logs = append(logs, log{p, c.name, false})
			if c.restarts > 0 {
				logs = append(logs, log{p, c.name, true})
			}
		}
	}
	var count atomic.Int32
	each(ctx, g, logs, func(ctx context.Context, l log) {
		suffix := ".log"
		if l.previous {
			suffix = ".previous.log"
		}
		what := fmt.Sprintf("the log of container %s in pod %s", l.container, l.pod)
		text, err := g.log(ctx, l.pod.NamespacedName, l.container, l.previous)
		if len(text) > 0 {
			count.Add(1)
			g.archive.add(g.Name, fileName(g.folder, "logs", l.pod.Namespace, l.pod.Name, l.container+suffix), text)
		}
		g.miss(what, err)
	})
	return int(count.Load())
}

// log reads the end of a log.
func (g *gatherer) log(ctx context.Context, p types.NamespacedName, container string, previous bool) ([]byte, error) {
	lines := int64(maxLines)
	r, err := g.Clientset.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: &lines, Timestamps: true,
	}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	t := &tail{max: int(g.options.LogBytes)}
	_, err = io.Copy(t, r)
	return t.text(), err
}

// tail keeps the end of what is written to it.
type tail struct {
	max     int
	kept    []byte
	dropped int64
}

func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	if n := len(t.kept) - t.max; n > t.max { // not for every line
		t.dropped += int64(n)
		t.kept = append(t.kept[:0], t.kept[n:]...)
	}
	return len(b), nil
}

// text begins with a whole line, and with a note if something was left out. Half
// a line could be half of a secret, which nobody recognizes.
func (t *tail) text() []byte {
	b := t.kept
	if n := len(b) - t.max; n > 0 {
		t.dropped += int64(n)
		b = b[n:]
	}
	if t.dropped == 0 {
		return b
	}
	for i, c := range b {
		if c == '\n' {
			note := fmt.Sprintf("(%d bytes left out)\n", t.dropped+int64(i)+1)
			return append([]byte(note), b[i+1:]...)
		}
	}
	return fmt.Appendf(nil, "(%d bytes left out)\n", t.dropped+int64(len(b)))
}
