package scale

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// routes follows the RouteConfigurations, as gateways do.
type routes struct {
	mu      sync.Mutex
	byNode  map[string]map[string]bool // destinations
	total   int
	pending map[string]map[string]change // by node and destination
	lags    []time.Duration
}

// change is a route that has to come or go.
type change struct {
	present bool
	since   time.Time
}

func (w *world) watchRoutes() *routes {
	w.t.Helper()
	r := &routes{byNode: map[string]map[string]bool{}, pending: map[string]map[string]change{}}
	w.follow(new(networkingv1beta1.RouteConfigurationList), func(o client.Object) {
		if rc, ok := o.(*networkingv1beta1.RouteConfiguration); ok {
			r.take(rc)
		}
	}, client.InNamespace(controlplanetest.LiqoNamespace))
	return r
}

// take takes the newest state of the routes to a node.
func (r *routes) take(rc *networkingv1beta1.RouteConfiguration) {
	node, now := rc.Spec.Table.Name, time.Now()
	dsts := map[string]bool{}
	for _, rule := range rc.Spec.Table.Rules[1:] {
		for _, rt := range rule.Routes {
			dsts[strings.TrimSuffix(string(rt.Dst), "/32")] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total += len(dsts) - len(r.byNode[node])
	r.byNode[node] = dsts
	for dst, c := range r.pending[node] {
		if dsts[dst] == c.present {
			r.lags = append(r.lags, now.Sub(c.since))
			delete(r.pending[node], dst)
		}
	}
	if len(r.pending[node]) == 0 {
		delete(r.pending, node)
	}
}

// expect notes a change of a pod that an API server has just accepted.
func (r *routes) expect(node, dst string, present bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byNode[node][dst] == present {
		if _, undone := r.pending[node][dst]; undone {
			delete(r.pending[node], dst) // it came and went between two writes
			return
		}
		r.lags = append(r.lags, 0) // the route was faster than the acknowledgement
		return
	}
	if r.pending[node] == nil {
		r.pending[node] = map[string]change{}
	}
	r.pending[node][dst] = change{present, time.Now()}
}

// converged tells whether there are so many nodes with so many routes.
func (r *routes) converged(nodes, pods int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.byNode) != nodes || r.total != pods {
		return fmt.Errorf("%d nodes with %d routes", len(r.byNode), r.total)
	}
	return nil
}

// waiting returns how many changes were not followed yet.
func (r *routes) waiting() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dsts := range r.pending {
		n += len(dsts)
	}
	return n
}
