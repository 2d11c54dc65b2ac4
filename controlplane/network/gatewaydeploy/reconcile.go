package gatewaydeploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// How soon a refused object is tried again: what it takes for, as a node port that
// another Service gives back, no watch shows. The first time is soon, as the API
// server itself has not given back the node port of a Service in the moment in which
// its end is seen.
const (
	recheckRefusedFirst = time.Second
	recheckRefused      = time.Minute
)

// reconciler keeps what belongs to the gateways of one kind as their specs say. It is
// level-based: it looks at the world, never at the event that woke it.
type reconciler struct {
	client.Client
	kind *kind
	// live reads past the cache.
	live    client.Reader
	events  events.EventRecorder
	options Options
	// nodes are the addresses that policies name.
	nodes *nodeAddresses
	// woken are gateways to reconcile because those addresses changed.
	woken chan event.GenericEvent
	// unmatched remembers whether the CNI knows nodes by their addresses.
	unmatched cachedAnswer
}

// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservers;wggatewayclients,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservers/status;wggatewayclients/status,verbs=get;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=publickeies,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=connections,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=connections/status,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings;clusterrolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=servicemonitors,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
//
// What the gateways get (roles.go), because nobody may grant what he does not have:
//
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations;connections;firewallconfigurations;gatewayclients;gatewayservers;genevetunnels;internalfabrics;publickeies,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=connections/status,verbs=get;patch;update
// +kubebuilder:rbac:groups=networking.liqo.io,resources=firewallconfigurations/status,verbs=get;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;clusterroles,verbs=bind,resourceNames=liqo-gateway;sluice-gateway

// Reconcile makes the objects of one gateway.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g, err := r.kind.get(ctx, r, req.NamespacedName)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, errors.Join(r.sweep(ctx, req.NamespacedName), r.disown(ctx, req.Namespace))
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get %s: %w", r.kind.name, err)
	}
	if !g.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, r.finish(ctx, g)
	}
	facts, refusals, err := r.gather(ctx, g)
	if apply.NamespaceEnds(err) {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := Build(facts)
	more, err := r.apply(ctx, facts, plan)
	refusals = slices.Concat(refusals, plan.Refused, more)
	if len(refusals) > 0 {
		plan.recheck(g.patience(refusals))
	}
	if err := errors.Join(err, r.setStatus(ctx, g, plan, refusals), r.disown(ctx, g.GetNamespace())); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: plan.Recheck}, nil
}

// apply does what the plan says. It does the rest when a part fails.
func (r *reconciler) apply(ctx context.Context, f Facts, p Plan) (refusals []refusal, err error) {
	var errs []error
	for _, o := range p.Delete {
		errs = append(errs, apply.DeleteOurs(ctx, r, o, f.Gateway.ownerOf(o)))
	}
	if len(p.LabelSecret) > 0 {
		errs = append(errs, r.patchMetadata(ctx, f.Secret, p.LabelSecret))
	}
	for _, o := range p.Objects {
		err := r.applyObject(ctx, &p, o)
		if message, refused := apply.Refusal(err); refused {
			refusals = append(refusals, refusal{o, message})
		} else if !apply.NamespaceEnds(err) {
			errs = append(errs, err)
		}
	}
	if p.BeginConnection {
		_, err := apply.Status(ctx, r, f.Connection, func() { f.Connection.Status.Value = networkingv1beta1.Connecting })
		errs = append(errs, err)
	}
	if p.ReleaseLease {
		errs = append(errs, r.release(ctx, f.Lease))
	}
	errs = append(errs, r.mark(ctx, f, p))
	return refusals, errors.Join(errs...)
}

// mark moves the mark of the active pod, so that at no time two have it.
func (r *reconciler) mark(ctx context.Context, f Facts, p Plan) error {
	for _, step := range []struct {
		names []string
		value any
	}{{p.Unlabel, nil}, {p.Label, networkingv1beta1.LabelTrue}} {
		for _, name := range step.names {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.Gateway.GetNamespace()}}
			if err := r.label(ctx, pod, map[string]any{networkingv1beta1.LabelActive: step.value}); err != nil {
				return err
			}
		}
	}
	return nil
}

// label changes labels and nothing else: nil takes one away. An object that is gone
// needs none.
func (r *reconciler) label(ctx context.Context, o client.Object, labels map[string]any) error {
	return r.patchMetadata(ctx, o, map[string]any{"labels": labels})
}

func (r *reconciler) patchMetadata(ctx context.Context, o client.Object, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode labels: %w", err)
	}
	err = r.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(apply.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("label %s %s: %w", kindOf(o), client.ObjectKeyFromObject(o), err)
	}
	return nil
}

// release takes the Lease from its holder, unless anybody wrote the Lease since it was
// read: then somebody lives who holds it, or it has been released.
func (r *reconciler) release(ctx context.Context, l *coordinationv1.Lease) error {
	before := l.DeepCopy()
	l.Spec.HolderIdentity = nil
	err := r.Patch(ctx, l, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("release Lease %s: %w", l.Name, err)
	}
	return nil
}

// finish lets go of a gateway that is being deleted. Owner references delete the
// rest.
func (r *reconciler) finish(ctx context.Context, g *gateway) error {
	if err := errors.Join(r.sweep(ctx, client.ObjectKeyFromObject(g)), r.disown(ctx, g.GetNamespace())); err != nil {
		return err
	}
	return apply.RemoveFinalizers(ctx, r.Client, g.Object, networkingv1beta1.FinalizerClusterRoleBinding)
}

// disown takes away the labels that Secrets of users were given, when no gateway of the
// namespace refers to them any more.
func (r *reconciler) disown(ctx context.Context, namespace string) error {
	var secrets corev1.SecretList // the cache has those that are labelled
	if err := r.List(ctx, &secrets, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list Secrets: %w", err)
	}
	var errs []error
	var used map[string]bool
	for i := range secrets.Items {
		s := &secrets.Items[i]
		patch := withoutLabels(s)
		if patch == nil {
			continue
		}
		if used == nil {
			var err error
			if used, err = r.usedSecrets(ctx, namespace); err != nil {
				return err
			}
		}
		if !used[s.Name] {
			errs = append(errs, r.patchMetadata(ctx, s, patch))
		}
	}
	return errors.Join(errs...)
}

// usedSecrets are the names of the Secrets that the gateways of a namespace use.
func (r *reconciler) usedSecrets(ctx context.Context, namespace string) (map[string]bool, error) {
	used := make(map[string]bool)
	for _, k := range []*kind{r.kind, r.kind.other()} {
		list := k.list()
		if err := r.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list gateways: %w", err)
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error { // fails for what is no list
			if o, ok := o.(client.Object); ok && o.GetDeletionTimestamp().IsZero() {
				used[k.view(o).secretName()] = true
			}
			return nil
		})
	}
	return used, nil
}

// sweep deletes the bindings of a gateway that is gone and that no owner reference
// could reach.
func (r *reconciler) sweep(ctx context.Context, key client.ObjectKey) error {
	switch _, err := r.kind.other().get(ctx, r, key); {
	case err == nil:
		return nil // they are that one's
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get %s: %w", r.kind.other().name, err)
	}
	bindings, clusterBindings, err := r.outsideBindings(ctx, key)
	if err != nil {
		return err
	}
	var errs []error
	for i := range bindings {
		errs = append(errs, apply.DeleteOurs(ctx, r, &bindings[i], nil))
	}
	for i := range clusterBindings {
		errs = append(errs, apply.DeleteOurs(ctx, r, &clusterBindings[i], nil))
	}
	return errors.Join(errs...)
}
