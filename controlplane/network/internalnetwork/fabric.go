package internalnetwork

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

const (
	kindGatewayServer  = "GatewayServer"
	kindGatewayClient  = "GatewayClient"
	kindInternalFabric = "InternalFabric"
	kindInternalNode   = "InternalNode"
)

// refusedRetry is how often an object that an API server refused is tried again:
// what refused it, an admission webhook for example, wakes nobody when it changes.
const refusedRetry = 2 * time.Minute

// fabricReconciler keeps one InternalFabric for each remote cluster that has a
// gateway. A request names the InternalFabric: its namespace is the gateway's,
// its name the ID of the remote cluster.
type fabricReconciler struct {
	client.Client
	live      client.Reader // past the cache
	addresses *addressBook
	events    events.EventRecorder
	// written has the version of each gateway to which a condition was added last.
	// A cache that still shows that version is behind: another write would fail,
	// and the update that comes wakes us.
	written lastValues
}

// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayservers;gatewayclients;configurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayservers/status;gatewayclients/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayservers/finalizers;gatewayclients/finalizers,verbs=update
// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalfabrics,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks at the InternalFabric that the request names, which need not
// be there.
func (r *fabricReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	facts, objects, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	if f := facts.Fabric; f != nil {
		drop := []string{networkingv1beta1.FinalizerInternalFabricLegacy}
		if !f.DeletionTimestamp.IsZero() {
			drop = append(drop, networkingv1beta1.FinalizerInternalFabricGeneve)
		}
		if err := apply.RemoveFinalizers(ctx, r.Client, f, drop...); err != nil || !f.DeletionTimestamp.IsZero() {
			return ctrl.Result{}, err // what follows is decided when it is gone
		}
	}
	plan := planFabric(facts)
	r.tell(facts)
	applyErr := r.apply(ctx, facts, plan)
	again := plan.recheck()
	if message, refused := apply.Refusal(applyErr); refused {
		plan.refuse(facts, message)
		again = refusedRetry
	} else if applyErr != nil {
		return ctrl.Result{}, applyErr
	}
	return ctrl.Result{RequeueAfter: again}, r.setConditions(ctx, plan, objects)
}

func (r *fabricReconciler) gather(ctx context.Context, key types.NamespacedName) (fabricFacts, gatewayObjects, error) {
	f := fabricFacts{Key: key, Fabric: new(networkingv1beta1.InternalFabric)}
	if err := get(ctx, r.Client, key, &f.Fabric); err != nil {
		return f, nil, err
	}
	gateways, objects, err := gatewaysOf(ctx, r.Client, key.Name)
	if err != nil {
		return f, nil, err
	}
	f.Gateways = gateways
	var configurations networkingv1beta1.ConfigurationList
	if err := r.List(ctx, &configurations, client.InNamespace(key.Namespace), client.MatchingFields{indexPeer: key.Name}); err != nil {
		return f, nil, fmt.Errorf("list Configurations: %w", err)
	}
	f.Configurations = configurations.Items
	if !servedIn(key.Namespace, gateways) {
		return f, objects, nil // no address is wanted
	}
	p, err := internalPool(ctx, r.Client, r.addresses.network)
	if err != nil {
		return f, nil, err
	}
	var has networkingv1beta1.Address
	if f.Fabric != nil {
		has = f.Fabric.Spec.Interface.Gateway.IP
	}
	f.Address, err = r.addresses.grant(ctx, p, fabricOwner(key), has)
	return f, objects, err
}

func (r *fabricReconciler) apply(ctx context.Context, f fabricFacts, plan fabricPlan) error {
	switch {
	case plan.Apply != nil:
		_, err := applyUnlessGoing(ctx, r.Client, plan.Apply)
		return err
	case plan.Delete:
		return apply.Delete(ctx, r.Client, f.Fabric)
	case plan.Release && r.addresses.holds(fabricOwner(f.Key)):
		// One that was just written may not be in the cache yet.
		err := r.live.Get(ctx, f.Key, new(networkingv1beta1.InternalFabric))
		if apierrors.IsNotFound(err) {
			r.addresses.release(fabricOwner(f.Key))
			return nil
		}
		return err // when it comes into the cache, it is deleted
	}
	return nil
}

// recheck is for those who wait for an address that somebody else releases.
func (p fabricPlan) recheck() time.Duration {
	for _, c := range p.Conditions {
		if c.Reason == networkingv1beta1.ReasonInternalCIDRExhausted {
			return addressRetry
		}
	}
	return 0
}

// refuse makes the refusal the condition of the gateway for which it was.
func (p *fabricPlan) refuse(f fabricFacts, message string) {
	first, _ := firstGateway(f.Gateways)
	for i := range p.Conditions {
		if c := &p.Conditions[i]; c.Gateway.UID == first.UID {
			c.Reason, c.Message = networkingv1beta1.ReasonObjectRefused, "The API server refused the InternalFabric: "+message
		}
	}
}

// tell makes an event of an address that the fabric lost.
func (r *fabricReconciler) tell(f fabricFacts) {
	if why := f.Address.Lost; why != "" {
		r.events.Eventf(f.Fabric, nil, corev1.EventTypeWarning, eventAddressReplaced, actionAllocate,
			"%s: the gateway is now %s on the internal network", why, f.Address.Addr)
	}
}

func (r *fabricReconciler) setConditions(ctx context.Context, plan fabricPlan, objects gatewayObjects) error {
	for _, c := range plan.Conditions {
		if err := r.setCondition(ctx, c, objects[c.Gateway.UID]); err != nil {
			return err // the others have their turn when this one is retried
		}
	}
	return nil
}

func (r *fabricReconciler) setCondition(ctx context.Context, c gatewayCondition, o gatewayObject) error {
	old := meta.FindStatusCondition(*o.conditions, string(networkingv1beta1.ConditionInternalNetworkReady))
	changed := old == nil || old.Reason != string(c.Reason)
	uid, version := string(o.GetUID()), o.GetResourceVersion()
	if r.written.last(uid) == version {
		return nil
	}
	wrote, err := apply.Status(ctx, r.Client, o.Object, func() {
		meta.SetStatusCondition(o.conditions, metav1.Condition{
			Type: string(networkingv1beta1.ConditionInternalNetworkReady), Status: c.status(), Reason: string(c.Reason), Message: c.Message,
			ObservedGeneration: o.GetGeneration(),
		})
	})
	if apierrors.IsNotFound(err) {
		r.written.forget(uid)
		return nil // it was deleted, and so is what was made for it
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Gateway, err)
	}
	if wrote {
		r.written.update(uid, version)
	}
	if wrote && changed {
		apply.Event(r.events, o.Object, eventType(c.Reason), string(c.Reason), actionJoin, c.Message)
	}
	return nil
}

// eventType is a warning for what waits for the user, and nothing else.
func eventType(reason networkingv1beta1.ConditionReason) string {
	switch reason {
	case networkingv1beta1.ReasonInternalCIDRExhausted, networkingv1beta1.ReasonDuplicateGateway, networkingv1beta1.ReasonObjectRefused:
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}
