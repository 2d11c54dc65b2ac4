package internalnetwork

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// tunnelReconciler keeps one GeneveTunnel for each pair of an InternalFabric and
// an InternalNode. Its requests are pairs: with one for all nodes of a fabric,
// each node that comes would cost a look at all others.
type tunnelReconciler struct {
	client.Client
	vnis   *vniBook
	events events.EventRecorder
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalnodes;internalfabrics;gatewayservers;gatewayclients,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalfabrics/finalizers,verbs=update
// +kubebuilder:rbac:groups=networking.liqo.io,resources=genevetunnels,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks at one pair.
func (r *tunnelReconciler) Reconcile(ctx context.Context, p pair) (ctrl.Result, error) {
	facts, err := r.gather(ctx, p)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	plan := planTunnel(facts)
	var errs []error
	for i := range plan.Delete {
		errs = append(errs, apply.Delete(ctx, r.Client, &plan.Delete[i]))
	}
	if plan.Apply != nil {
		errs = append(errs, r.apply(ctx, facts, plan))
	}
	if plan.Release {
		r.vnis.release(p)
	}
	return ctrl.Result{}, errors.Join(errs...)
}

func (r *tunnelReconciler) gather(ctx context.Context, p pair) (tunnelFacts, error) {
	f := tunnelFacts{Pair: p, Fabric: new(networkingv1beta1.InternalFabric), InternalNode: new(networkingv1beta1.InternalNode)}
	if err := get(ctx, r.Client, p.fabric(), &f.Fabric); err != nil {
		return f, err
	}
	if f.Fabric == nil {
		gateways, _, err := gatewaysOf(ctx, r.Client, p.Fabric)
		if err != nil {
			return f, err
		}
		f.HasGateway = servedIn(p.Namespace, gateways)
	}
	if err := get(ctx, r.Client, client.ObjectKey{Name: p.Node}, &f.InternalNode); err != nil {
		return f, err
	}
	var tunnels networkingv1beta1.GeneveTunnelList
	if err := r.List(ctx, &tunnels, client.InNamespace(p.Namespace), client.MatchingFields{indexPair: p.Fabric + "/" + p.Node}); err != nil {
		return f, fmt.Errorf("list GeneveTunnels: %w", err)
	}
	f.Tunnels = tunnels.Items
	slices.SortFunc(f.Tunnels, older)
	if f.InternalNode == nil {
		n := new(corev1.Node)
		if err := get(ctx, r.Client, client.ObjectKey{Name: p.Node}, &n); err != nil {
			return f, err
		}
		f.NodeTakesPart = takesPart(n)
	}
	if len(f.Tunnels) == 0 {
		t := new(networkingv1beta1.GeneveTunnel)
		if err := get(ctx, r.Client, client.ObjectKey{Namespace: p.Namespace, Name: tunnelName(p)}, &t); err != nil {
			return f, err
		}
		f.NameTaken = t != nil
	}
	return f, nil
}

func (r *tunnelReconciler) apply(ctx context.Context, f tunnelFacts, plan tunnelPlan) error {
	id, lost, err := r.vnis.grant(ctx, f.Pair, plan.Has)
	if err != nil {
		return err
	}
	if lost != "" {
		r.events.Eventf(plan.Has, nil, corev1.EventTypeWarning, eventVNIReplaced, actionAllocate, "%s: the tunnel now has %d", lost, id)
	}
	plan.Apply.Spec.ID = id
	_, err = applyUnlessGoing(ctx, r.Client, plan.Apply)
	return err
}
