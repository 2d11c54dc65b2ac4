package addresses

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// refusedAgain is how soon what an API server refused is tried again: nothing
// wakes us when its reason goes.
const refusedAgain = 5 * time.Minute

// Reconciler answers IPs, one at a time: its ledger is the state that keeps two
// of them from getting the same.
type Reconciler struct {
	client.Client
	// Reader reads past the cache, which may be behind what was given before this
	// process became the leader, and which sees only Services that are ours.
	Reader   client.Reader
	Recorder events.EventRecorder

	liqoNamespace string
	ledger        *ledger
	loaded        bool
	queue         workqueue.TypedRateLimitingInterface[ctrl.Request]
}

// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips/status,verbs=patch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile decides on one IP and on those that its decision concerns.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.load(ctx); err != nil {
		return ctrl.Result{}, fmt.Errorf("load what was given: %w", err)
	}
	ip, err := r.get(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	networks := &networks{reader: r.Client, liqoNamespace: r.liqoNamespace}
	var result ctrl.Result
	if ip == nil {
		r.ledger.forget(req.String())
	} else {
		result, err = r.reconcile(ctx, ip, networks)
	}
	for _, key := range r.ledger.retry(networks.of(ctx)) {
		r.wake(key)
	}
	return result, errors.Join(err, networks.err)
}

// load reads what was given before, once.
func (r *Reconciler) load(ctx context.Context) error {
	if r.loaded {
		return nil
	}
	var list ipamv1alpha1.IPList
	if err := r.Reader.List(ctx, &list); err != nil {
		return err
	}
	networks, err := readNetworks(ctx, r.Reader, r.liqoNamespace)
	if err != nil {
		return err
	}
	claims := make([]claim, len(list.Items))
	for i := range list.Items {
		claims[i] = claimOf(&list.Items[i])
		// One that goes before the cache sees it would never be given back.
		r.wake(claims[i].key)
	}
	r.ledger.load(claims, networks)
	r.loaded = true
	return nil
}

// get returns an IP, or nil if it is gone. What it had is given to others then,
// so that a cache which is behind is not believed.
func (r *Reconciler) get(ctx context.Context, key types.NamespacedName) (*ipamv1alpha1.IP, error) {
	ip := new(ipamv1alpha1.IP)
	err := r.Get(ctx, key, ip)
	if _, known := r.ledger.entries[key.String()]; known && apierrors.IsNotFound(err) {
		err = r.Reader.Get(ctx, key, ip)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get IP: %w", err)
	}
	return ip, nil
}

func (r *Reconciler) reconcile(ctx context.Context, ip *ipamv1alpha1.IP, networks *networks) (ctrl.Result, error) {
	c := claimOf(ip)
	if c.deleting {
		if c.granted != "" {
			r.ledger.decide(c, networks.of(ctx))
		} else {
			r.ledger.forget(c.key)
		}
		return ctrl.Result{}, apply.RemoveFinalizers(ctx, r.Client, ip, ipamv1alpha1.FinalizerIP, ipamv1alpha1.FinalizerIPMapping)
	}
	d := r.ledger.decide(c, networks.of(ctx))
	if networks.err != nil {
		return ctrl.Result{}, networks.err
	}
	if err := r.label(ctx, ip, d); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	serviceReady, err := r.service(ctx, ip)
	if statusErr := r.status(ctx, ip, d, serviceReady); client.IgnoreNotFound(statusErr) != nil {
		err = errors.Join(err, statusErr)
	}
	if err == nil && serviceReady != nil && serviceReady.Status == metav1.ConditionFalse {
		return ctrl.Result{RequeueAfter: refusedAgain}, nil
	}
	return ctrl.Result{}, err
}

// label writes which Network the address is of, before the address itself, so
// that whoever sees the one sees the other.
func (r *Reconciler) label(ctx context.Context, ip *ipamv1alpha1.IP, d decision) error {
	namespace, name, _ := strings.Cut(d.network, "/")
	// A Network may have a longer name than a label holds. Its IPs are found by
	// their reference then.
	if !d.granted() || len(name) > validation.LabelValueMaxLength {
		return nil
	}
	want := map[string]string{ipamv1alpha1.LabelNetworkNamespace: namespace, ipamv1alpha1.LabelNetworkName: name}
	before := ip.DeepCopy()
	if ip.Labels == nil {
		ip.Labels = make(map[string]string, len(want))
	}
	if maps.Copy(ip.Labels, want); maps.Equal(ip.Labels, before.Labels) {
		return nil
	}
	if err := r.Patch(ctx, ip, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldOwner)); err != nil {
		return fmt.Errorf("label: %w", err)
	}
	return nil
}

// status writes the answer. serviceReady is nil for an IP without a template.
func (r *Reconciler) status(ctx context.Context, ip *ipamv1alpha1.IP, d decision, serviceReady *metav1.Condition) error {
	before := ip.Status.DeepCopy()
	wrote, err := apply.Status(ctx, r.Client, ip, func() {
		if d.granted() {
			ip.Status.IP, ip.Status.CIDR = ipamv1alpha1.Address(d.addr.String()), ipamv1alpha1.CIDR(d.prefix.String())
		}
		set(ip, metav1.Condition{Type: string(ipamv1alpha1.ConditionAllocated), Status: is(d.granted()), Reason: string(d.reason), Message: d.message})
		if serviceReady == nil {
			meta.RemoveStatusCondition(&ip.Status.Conditions, string(ipamv1alpha1.ConditionServiceReady))
		} else {
			set(ip, *serviceReady)
		}
	})
	if err != nil || !wrote {
		return err
	}
	log.FromContext(ctx).Info("decided", "reason", d.reason, "ip", ip.Spec.IP, "granted", ip.Status.IP)
	for _, c := range ip.Status.Conditions {
		old := meta.FindStatusCondition(before.Conditions, c.Type)
		// That a Network is not there yet is the usual course of things.
		if c.Status == metav1.ConditionFalse && c.Reason != string(ipamv1alpha1.ReasonNetworkNotReady) && (old == nil || old.Message != c.Message) {
			apply.Event(r.Recorder, ip, corev1.EventTypeWarning, c.Reason, "Allocate", c.Message)
		}
	}
	return nil
}

func set(ip *ipamv1alpha1.IP, c metav1.Condition) {
	c.ObservedGeneration = ip.Generation
	meta.SetStatusCondition(&ip.Status.Conditions, c)
}

func is(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// wake has an IP reconciled.
func (r *Reconciler) wake(key string) {
	namespace, name, _ := strings.Cut(key, "/")
	r.queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
}
