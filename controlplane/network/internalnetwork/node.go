package internalnetwork

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// addressRetry is how often those ask again who got no address. A Network that
// changes wakes them at once; this is for an address that was released.
const addressRetry = 30 * time.Second

// nodeReconciler keeps one InternalNode for each Node.
type nodeReconciler struct {
	client.Client
	live      client.Reader // past the cache
	addresses *addressBook
	events    events.EventRecorder
	said      lastValues
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalnodes,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks at the node that the request names.
func (r *nodeReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	facts, err := r.gather(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	if n := facts.InternalNode; n != nil && !n.DeletionTimestamp.IsZero() {
		// What follows is decided when it is gone.
		return ctrl.Result{}, apply.RemoveFinalizers(ctx, r.Client, n, networkingv1beta1.FinalizerInternalNodeRoute)
	}
	plan := planNode(facts)
	r.tell(facts)
	switch {
	case plan.Delete:
		return ctrl.Result{}, apply.Delete(ctx, r.Client, facts.InternalNode)
	case plan.Release:
		return ctrl.Result{}, r.release(ctx, req.Name)
	case plan.Wait:
		return ctrl.Result{RequeueAfter: addressRetry}, nil
	}
	_, err = apply.Object(ctx, r.Client, nil, plan.Apply)
	return ctrl.Result{}, err
}

func (r *nodeReconciler) gather(ctx context.Context, name string) (nodeFacts, error) {
	f := nodeFacts{Name: name, Node: new(corev1.Node), InternalNode: new(networkingv1beta1.InternalNode)}
	if err := get(ctx, r.Client, client.ObjectKey{Name: name}, &f.Node); err != nil {
		return f, err
	}
	if err := get(ctx, r.Client, client.ObjectKey{Name: name}, &f.InternalNode); err != nil {
		return f, err
	}
	if !takesPart(f.Node) {
		return f, nil
	}
	p, err := internalPool(ctx, r.Client, r.addresses.network)
	if err != nil {
		return f, err
	}
	var has networkingv1beta1.Address
	if f.InternalNode != nil {
		has = f.InternalNode.Spec.Interface.Node.IP
	}
	f.Address, err = r.addresses.grant(ctx, p, nodeOwner(name), has)
	return f, err
}

// release gives the address back once the InternalNode is gone from the API
// server as well: one that was just written may not be in the cache yet.
func (r *nodeReconciler) release(ctx context.Context, name string) error {
	if !r.addresses.holds(nodeOwner(name)) {
		return nil
	}
	n := new(networkingv1beta1.InternalNode)
	switch err := r.live.Get(ctx, client.ObjectKey{Name: name}, n); {
	case apierrors.IsNotFound(err):
		r.addresses.release(nodeOwner(name))
		return nil
	case err != nil:
		return fmt.Errorf("get InternalNode %s: %w", name, err)
	}
	return apply.Delete(ctx, r.Client, n)
}

// tell makes an event of an address that is missing or lost: a Node has no
// condition of ours.
func (r *nodeReconciler) tell(f nodeFacts) {
	if f.Node == nil {
		r.said.forget(f.Name)
		return
	}
	if why := f.Address.Lost; why != "" && f.InternalNode != nil {
		r.events.Eventf(f.InternalNode, nil, corev1.EventTypeWarning, eventAddressReplaced, actionAllocate,
			"%s: the node is now %s on the internal network", why, f.Address.Addr)
	}
	if r.said.update(f.Name, string(f.Address.Reason)) && f.Address.Reason != "" {
		apply.Event(r.events, f.Node, corev1.EventTypeWarning, string(f.Address.Reason), actionAllocate, f.Address.Message)
	}
}
