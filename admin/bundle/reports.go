package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// reportBytes bounds one report: that of a gateway in a large cluster has many
// routes.
const reportBytes = 8 << 20

// errOfLiqo is why pods of Liqo are not asked.
var errOfLiqo = errors.New("they know none of Sluice's commands")

// readReports packs what gateways and node agents say of themselves, and their
// metrics.
func (g *gatherer) readReports(ctx context.Context, pods []pod) int {
	type question struct {
		pod     pod
		program string
		metrics bool // not the report
	}
	var reports, metrics []question
	for _, p := range pods {
		for _, program := range []string{"gateway", "fabric"} {
			if slices.ContainsFunc(p.containers, func(c container) bool { return c.name == program }) {
				reports = append(reports, question{p, program, false})
			}
		}
		if p.metrics.program != "" {
			metrics = append(metrics, question{p, p.metrics.program, true})
		}
	}
	ofLiqo := make(map[types.NamespacedName]bool)
	questions := slices.DeleteFunc(slices.Concat(reports, metrics), func(q question) bool {
		if q.pod.ofLiqo {
			ofLiqo[q.pod.NamespacedName] = true
		}
		return q.pod.ofLiqo
	})
	if len(ofLiqo) > 0 {
		g.archive.miss(g.Name, fmt.Sprintf("the reports and metrics of pods of Liqo (%d)", len(ofLiqo)), errOfLiqo)
	}
	var asked atomic.Int32
	each(ctx, g, questions, func(ctx context.Context, q question) {
		if q.metrics {
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

// metrics has the program of a pod print its metrics. From outside of the pod nobody may
// read them whom its NetworkPolicy does not name. Where a program serves them to its own host
// only, as node agents do, its report holds the same numbers.
func (g *gatherer) metrics(ctx context.Context, p pod) ([]byte, error) {
	out := &limited{max: reportBytes}
	argv := []string{p.metrics.program, "metrics", fmt.Sprintf("--metrics-address=127.0.0.1:%d", p.metrics.port)}
	if err := g.Exec(ctx, p.NamespacedName, p.metrics.container, argv, out); err != nil {
		return nil, err
	}
	return out.kept, nil
}
