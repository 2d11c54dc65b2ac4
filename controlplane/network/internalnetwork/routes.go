package internalnetwork

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// A RouteConfiguration holds the routes to all pods of a node and is written as
// a whole, and every gateway reads it. So changes are gathered:
const (
	// settle is how long the first change after a quiet time waits for others. The
	// pods of a rollout get their addresses within a fraction of a second. A
	// person does not notice it, and neither does the pod: until a gateway knows
	// its route, it reaches the pod through any node.
	settle = 200 * time.Millisecond
	// pace is the least time between two writes for one node. It bounds what a
	// node whose pods crash in a loop costs an API server and every gateway.
	pace = time.Second
)

// routesReconciler keeps the RouteConfiguration with the routes to the pods of
// each node. A request names the node.
type routesReconciler struct {
	client.Client
	liqoNamespace string
	pace          pacer
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalnodes/finalizers,verbs=update
// +kubebuilder:rbac:groups=networking.liqo.io,resources=routeconfigurations,verbs=get;list;watch;create;update;patch;delete

// Reconcile looks at the routes to one node.
func (r *routesReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if wait := r.pace.wait(req.Name, time.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	facts, err := r.gather(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	if facts.InternalNode == nil {
		r.pace.forget(req.Name)
		return ctrl.Result{}, r.removeOrphan(ctx, req.Name)
	}
	desired := planRoutes(facts)
	if desired == nil {
		return ctrl.Result{}, nil
	}
	wrote, err := applyUnlessGoing(ctx, r.Client, desired)
	if wrote {
		r.pace.wrote(req.Name, time.Now())
	}
	return ctrl.Result{}, err
}

func (r *routesReconciler) gather(ctx context.Context, node string) (routesFacts, error) {
	f := routesFacts{LiqoNamespace: r.liqoNamespace, InternalNode: new(networkingv1beta1.InternalNode)}
	if err := get(ctx, r.Client, client.ObjectKey{Name: node}, &f.InternalNode); err != nil || f.InternalNode == nil {
		return f, err
	}
	var pods corev1.PodList
	// Not copied, because they are only read.
	if err := r.List(ctx, &pods, client.MatchingFields{indexNode: node}, client.UnsafeDisableDeepCopy); err != nil {
		return f, fmt.Errorf("list Pods: %w", err)
	}
	f.Pods = pods.Items
	return f, nil
}

// removeOrphan deletes routes to a node that is gone. Garbage collection does
// that for all that have an owner.
func (r *routesReconciler) removeOrphan(ctx context.Context, node string) error {
	rc := new(networkingv1beta1.RouteConfiguration)
	if err := get(ctx, r.Client, client.ObjectKey{Namespace: r.liqoNamespace, Name: routesName(node)}, &rc); err != nil || rc == nil {
		return err
	}
	if len(rc.OwnerReferences) > 0 || rc.Labels[networkingv1beta1.LabelManaged] != networkingv1beta1.LabelTrue {
		return nil
	}
	return apply.Delete(ctx, r.Client, rc)
}

// pacer keeps the writes for one node apart.
type pacer struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// wait returns how long the next write for a node has to wait.
func (p *pacer) wait(node string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.last[node]
	if !ok {
		return 0
	}
	if wait := last.Add(pace).Sub(now); wait > 0 {
		return wait
	}
	delete(p.last, node)
	return 0
}

// wrote notes a write.
func (p *pacer) wrote(node string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = make(map[string]time.Time)
	}
	p.last[node] = now
}

func (p *pacer) forget(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, node)
}
