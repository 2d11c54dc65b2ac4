package prefixes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/reserved"
)

// Reconciler answers Networks, one at a time: its ledger is the state that keeps
// two of them from getting the same.
type Reconciler struct {
	client.Client
	// Reader reads past the cache, which may be behind what was granted before this
	// process became the leader.
	Reader   client.Reader
	Recorder events.EventRecorder

	liqoNamespace string
	ledger        *ledger
	loaded        bool
	metrics       *metrics
	queue         workqueue.TypedRateLimitingInterface[ctrl.Request]
}

// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile decides on one Network and on those that its decision concerns.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.load(ctx); err != nil {
		return ctrl.Result{}, fmt.Errorf("load what was granted: %w", err)
	}
	n, err := r.get(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if n == nil {
		r.ledger.forget(req.String())
	} else {
		err = r.reconcile(ctx, n)
	}
	err = errors.Join(err, r.retry(ctx))
	r.metrics.set(r.ledger)
	return ctrl.Result{}, err
}

// load reads what was granted before, once.
func (r *Reconciler) load(ctx context.Context) error {
	if r.loaded {
		return nil
	}
	var list ipamv1alpha1.NetworkList
	if err := r.Reader.List(ctx, &list); err != nil {
		return err
	}
	if err := r.reserve(ctx); err != nil {
		return err
	}
	claims := make([]claim, len(list.Items))
	for i := range list.Items {
		claims[i] = claimOf(&list.Items[i], r.liqoNamespace)
		// One that goes before the cache sees it would never be given back.
		r.wake(claims[i].key)
	}
	r.ledger.load(claims)
	r.loaded = true
	return nil
}

// reserve reads the addresses that are to be kept free, before anything is granted.
func (r *Reconciler) reserve(ctx context.Context) error {
	addresses, err := reserved.Addresses(ctx, r.Client, r.Reader)
	if err != nil {
		return err
	}
	r.ledger.reserve(addresses)
	return nil
}

// installed returns the Networks of the installation.
func (r *Reconciler) installed(ctx context.Context) ([]claim, error) {
	var list ipamv1alpha1.NetworkList
	err := r.List(ctx, &list, client.InNamespace(r.liqoNamespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list Networks: %w", err)
	}
	var claims []claim
	for i := range list.Items {
		if c := claimOf(&list.Items[i], r.liqoNamespace); c.countsAsInstalled() {
			claims = append(claims, c)
		}
	}
	return claims, nil
}

// get returns a Network, or nil if it is gone. What it held is given to others
// then, so that a cache which is behind is not believed.
func (r *Reconciler) get(ctx context.Context, key types.NamespacedName) (*ipamv1alpha1.Network, error) {
	n := new(ipamv1alpha1.Network)
	err := r.Get(ctx, key, n)
	if _, known := r.ledger.entries[key.String()]; known && apierrors.IsNotFound(err) {
		err = r.Reader.Get(ctx, key, n)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Network: %w", err)
	}
	return n, nil
}

func (r *Reconciler) reconcile(ctx context.Context, n *ipamv1alpha1.Network) error {
	c := claimOf(n, r.liqoNamespace)
	if c.deleting {
		return r.leave(ctx, n, c)
	}
	var installed []claim
	if c.granted == "" {
		var err error
		if installed, err = r.installed(ctx); err != nil {
			return err
		}
		if err := r.reserve(ctx); err != nil {
			return err
		}
	}
	d := r.ledger.decide(c, installed)
	if d.reason == "" {
		return nil // it is woken when its turn comes
	}
	before := meta.FindStatusCondition(n.Status.Conditions, string(ipamv1alpha1.ConditionAllocated))
	if before != nil {
		before = before.DeepCopy()
	}
	wrote, err := apply.Status(ctx, r.Client, n, func() { setStatus(n, d) })
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if wrote {
		log.FromContext(ctx).Info("decided", "reason", d.reason, "asked", c.asked, "granted", n.Status.CIDR)
	}
	if wrote && !d.held() && !d.granted() && (before == nil || before.Message != d.message) {
		apply.Event(r.Recorder, n, corev1.EventTypeWarning, string(d.reason), "Allocate", d.message)
	}
	return nil
}

// retry has those Networks reconciled that get another answer now.
func (r *Reconciler) retry(ctx context.Context) error {
	if !r.ledger.changed {
		return nil
	}
	installed, err := r.installed(ctx)
	if err != nil {
		return err // changed stays, so the next call makes up for it
	}
	for _, key := range r.ledger.retry(installed) {
		r.wake(key)
	}
	return nil
}

// leave lets a Network go that is being deleted. What it holds stays its own
// until it is gone.
func (r *Reconciler) leave(ctx context.Context, n *ipamv1alpha1.Network, c claim) error {
	if c.granted != "" {
		r.ledger.decide(c, nil)
	} else {
		r.ledger.forget(c.key)
	}
	return apply.RemoveFinalizers(ctx, r.Client, n, ipamv1alpha1.FinalizerNetwork)
}

func setStatus(n *ipamv1alpha1.Network, d decision) {
	if d.prefix.IsValid() {
		n.Status.CIDR = ipamv1alpha1.CIDR(d.prefix.String())
	}
	status := metav1.ConditionFalse
	if d.granted() {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{
		Type: string(ipamv1alpha1.ConditionAllocated), Status: status, ObservedGeneration: n.Generation,
		Reason: string(d.reason), Message: d.message,
	})
}

// wake has a Network reconciled.
func (r *Reconciler) wake(key string) {
	namespace, name, _ := strings.Cut(key, "/")
	r.queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
}
