package configuration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// recheckRefused is how soon a Network that the API server refused is tried again.
const recheckRefused = time.Minute

// reconciler keeps the Networks and the status of Configurations equal to their
// specs. It is level-based: it looks at the world, never at the event that woke it.
type reconciler struct {
	client.Client
	events        events.EventRecorder
	liqoNamespace string
}

// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations/status,verbs=get;patch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile serves one Configuration.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var c networkingv1beta1.Configuration
	if err := r.Get(ctx, req.NamespacedName, &c); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !c.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // its Networks go with it, by their owner reference
	}
	facts, err := r.gather(ctx, &c)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	plan := Build(facts)
	if plan.Local != nil {
		return ctrl.Result{}, r.fillLocal(ctx, &c, plan.Local) // which wakes us again
	}
	refused, err := r.apply(ctx, plan)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, err
	case refused == "":
		return ctrl.Result{}, r.setStatus(ctx, &c, plan)
	}
	plan.Ready, plan.Remote = false, kept(&c)
	return ctrl.Result{RequeueAfter: recheckRefused}, r.setStatus(ctx, &c, plan.because(networkingv1beta1.ReasonNetworkRefused, refused))
}

// gather reads what the plan depends on.
func (r *reconciler) gather(ctx context.Context, c *networkingv1beta1.Configuration) (f Facts, err error) {
	f.Configuration = c
	if id := c.Labels[networkingv1beta1.LabelRemoteClusterID]; id != "" {
		var others networkingv1beta1.ConfigurationList
		if err := r.List(ctx, &others, client.InNamespace(c.Namespace), client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: id}); err != nil {
			return f, fmt.Errorf("list Configurations: %w", err)
		}
		f.Others = others.Items
	}
	wanted := wantedNetworks(c)
	f.Networks, err = r.networks(ctx, c.Namespace, func(n *ipamv1alpha1.Network) bool {
		return metav1.IsControlledBy(n, c) || slices.ContainsFunc(wanted, func(w *ipamv1alpha1.Network) bool { return w.Name == n.Name })
	})
	if err == nil && isEmpty(c.Spec.Local) {
		f.Installed, err = r.networks(ctx, r.liqoNamespace, func(n *ipamv1alpha1.Network) bool {
			return n.Labels[ipamv1alpha1.LabelNetworkType] != ""
		})
	}
	return f, err
}

// networks returns the Networks of a namespace for which a test holds, by name.
func (r *reconciler) networks(ctx context.Context, namespace string, test func(*ipamv1alpha1.Network) bool) ([]*ipamv1alpha1.Network, error) {
	var list ipamv1alpha1.NetworkList
	// Not copied, as most of them may be somebody else's: nobody writes to them here.
	if err := r.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Networks: %w", err)
	}
	var found []*ipamv1alpha1.Network
	for i := range list.Items {
		if test(&list.Items[i]) {
			found = append(found, list.Items[i].DeepCopy())
		}
	}
	slices.SortFunc(found, func(a, b *ipamv1alpha1.Network) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// fillLocal writes spec.local. It is no apply, which would bring back a Configuration
// that was deleted just now, and it fails if anybody wrote since it was read.
func (r *reconciler) fillLocal(ctx context.Context, c *networkingv1beta1.Configuration, local *networkingv1beta1.ClusterConfig) error {
	before := c.DeepCopy()
	c.Spec.Local = local
	err := r.Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("fill in spec.local: %w", err)
	}
	return nil
}

// apply does what the plan says about Networks. Refused is what the API server said
// of those that it does not take.
func (r *reconciler) apply(ctx context.Context, p Plan) (refused string, err error) {
	var errs []error
	for _, n := range p.Delete {
		if n.DeletionTimestamp.IsZero() {
			errs = append(errs, apply.Delete(ctx, r, n))
		}
	}
	for _, n := range p.Apply {
		_, err := apply.Object(ctx, r, nil, n)
		if message, is := apply.Refusal(err); is {
			refused = "Network " + n.Name + ": " + message
			continue
		}
		errs = append(errs, err)
	}
	return refused, errors.Join(errs...)
}

// setStatus writes the status, and tells by an event when the reason is another.
func (r *reconciler) setStatus(ctx context.Context, c *networkingv1beta1.Configuration, p Plan) error {
	const about = string(networkingv1beta1.ConditionNetworkCIDRsConfigured)
	now := metav1.Condition{
		Type: about, Status: metav1.ConditionFalse, Reason: string(p.Reason), Message: p.Message, ObservedGeneration: c.Generation,
	}
	kind := corev1.EventTypeWarning
	if p.Ready {
		now.Status, kind = metav1.ConditionTrue, corev1.EventTypeNormal
	}
	before := meta.FindStatusCondition(c.Status.Conditions, about)
	changed := before == nil || before.Reason != now.Reason
	wrote, err := apply.Status(ctx, r, c, func() {
		c.Status.Remote = p.Remote
		meta.SetStatusCondition(&c.Status.Conditions, now)
	})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	waits := p.Reason == networkingv1beta1.ReasonWaitingForNetworks || p.Reason == networkingv1beta1.ReasonWaitingForLocalNetworks
	if wrote && changed && !waits { // waiting is no news
		apply.Event(r.events, c, kind, now.Reason, "Reconcile", now.Message)
	}
	return nil
}
