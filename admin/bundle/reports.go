package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// reportBytes bounds one report: that of a gateway in a large cluster has many
// routes.
const reportBytes = 8 << 20

// metricsWithin bounds what metrics may take. They come through the API server's proxy, for
// which a NetworkPolicy drops packets without a word.
const metricsWithin = 5 * time.Second

// readReports packs what gateways and node agents say of themselves, and their
// metrics.
func (g *gatherer) readReports(ctx context.Context, pods []pod) int {
	type question struct {
		pod     pod
		program string // empty: for metrics
	}
	var reports, metrics []question
	for _, p := range pods {
		for _, program := range []string{"gateway", "fabric"} {
			if slices.ContainsFunc(p.containers, func(c container) bool { return c.name == program }) {
				reports = append(reports, question{p, program})
			}
		}
		if p.metrics != 0 {
			metrics = append(metrics, question{pod: p})
		}
	}
	var asked atomic.Int32
	each(ctx, g, slices.Concat(reports, metrics), func(ctx context.Context, q question) {
		if q.program == "" {
			text, err := g.metrics(ctx, q.pod)
			if len(text) > 0 {
				g.archive.add(g.Name, fileName(g.folder, "metrics", q.pod.Namespace, q.pod.Name+".txt"), text)
			}
			g.miss("the metrics of pod "+q.pod.String(), err)
			return
		}
		text, err := g.report(ctx, q.pod.NamespacedName, q.program)
		if err == nil {
			asked.Add(1)
			g.archive.add(g.Name, fileName(g.folder, "reports", q.pod.Namespace, q.pod.Name+".json"), text)
		}
		g.miss("the report of pod "+q.pod.String(), err)
	})
	return int(asked.Load())
}

// report runs the status command of a program in its container.
func (g *gatherer) report(ctx context.Context, p types.NamespacedName, program string) ([]byte, error) {
	out := &limited{max: reportBytes}
	if err := g.Exec(ctx, p, program, []string{program, "status", "-o", "json"}, out); err != nil {
		return nil, err
	}
	var keys struct {
		DataPlane struct {
			Tunnel struct{ Self, Peer, FormerPeer string }
		}
	}
	if err := json.Unmarshal(out.kept, &keys); err != nil {
		return nil, g.Errorf("the answer of '%s status' is no JSON: %w", program, err)
	}
	t := keys.DataPlane.Tunnel
	g.archive.learn(slices.DeleteFunc([]string{t.Self, t.Peer, t.FormerPeer}, func(k string) bool { return k == "" }), nil)
	return out.kept, nil
}

// limited is a Writer that takes so much and no more.
type limited struct {
	max  int
	kept []byte
}

func (l *limited) Write(b []byte) (int, error) {
	if len(l.kept)+len(b) > l.max {
		return 0, fmt.Errorf("more than %d MiB", l.max>>20)
	}
	l.kept = append(l.kept, b...)
	return len(b), nil
}

// metrics reads what a pod shows to Prometheus, through the API server, where the
// pod says that it shows any. Most listen on their own host only: their reports
// hold the same numbers.
func (g *gatherer) metrics(ctx context.Context, p pod) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsWithin)
	defer cancel()
	return g.Clientset.CoreV1().RESTClient().Get().Resource("pods").Namespace(p.Namespace).
		Name(fmt.Sprintf("%s:%d", p.Name, p.metrics)).SubResource("proxy").Suffix("metrics").DoRaw(ctx)
}
