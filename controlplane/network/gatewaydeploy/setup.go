package gatewaydeploy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

// Options is what the program decides.
type Options struct {
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
	// Role is the ClusterRole, and the Role in the Liqo namespace, of every gateway; empty: liqo-gateway.
	Role string
	// NetworkPolicies makes a NetworkPolicy for each gateway; otherwise there is none.
	NetworkPolicies bool
	// MetricsNamespace is the one whose pods may read metrics then; empty: none.
	MetricsNamespace string
	// GenevePort is the port of the node tunnels; zero: 6091.
	GenevePort uint16
	// DisruptionBudgets makes a PodDisruptionBudget for each gateway of several
	// replicas; otherwise there is none.
	DisruptionBudgets bool
	// Services lets gateways exchange what clusters export; otherwise they may not read or write it.
	Services bool
}

// workers is how many gateways of a kind are worked on at once. Most of the time is
// spent waiting for the API server.
const workers = 4

// podsByNode is the index that leads from a node to the gateway pods on it.
const podsByNode = "wggateway.node"

// SetupWithManager adds the controllers of both kinds.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	if err := indexPods(mgr); err != nil {
		return err
	}
	nodes := &nodeAddresses{Reader: mgr.GetClient()}
	for _, k := range []*kind{&serverKind, &clientKind} {
		r := newReconciler(mgr, k, o, nodes)
		if err := r.setup(mgr); err != nil {
			return fmt.Errorf("set up %s: %w", k.name, err)
		}
		nodes.wake = append(nodes.wake, r.wakeAll)
	}
	if !o.NetworkPolicies {
		return nil
	}
	if err := nodes.setup(mgr); err != nil {
		return fmt.Errorf("set up the addresses of nodes: %w", err)
	}
	return nil
}

func newReconciler(mgr ctrl.Manager, k *kind, o Options, nodes *nodeAddresses) *reconciler {
	return &reconciler{
		Client: mgr.GetClient(), kind: k, live: mgr.GetAPIReader(),
		events: mgr.GetEventRecorder("liqo-controller"), options: o, nodes: nodes, woken: make(chan event.GenericEvent),
	}
}

func indexPods(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), new(corev1.Pod), podsByNode, func(o client.Object) []string {
		p, ok := o.(*corev1.Pod)
		if !ok || !isGatewayPod(o) || p.Spec.NodeName == "" {
			return nil
		}
		return []string{p.Spec.NodeName}
	})
	if err != nil {
		return fmt.Errorf("index pods by node: %w", err)
	}
	return nil
}

func (r *reconciler) setup(mgr ctrl.Manager) error {
	// ServiceMonitors are not watched: most clusters do not know the kind.
	return controllers.New(mgr, strings.ToLower(r.kind.name), controllers.Options{MaxConcurrentReconciles: workers, NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
		For(r.kind.new()).
		// What was edited or deleted comes back. Deployment and Service also tell how they fare.
		Owns(new(appsv1.Deployment)).
		Owns(new(corev1.Service)).
		Owns(new(corev1.ServiceAccount)).
		Owns(new(rbacv1.Role)).
		Owns(new(rbacv1.RoleBinding)).
		// Who leads. A renewal, every other second, is no news.
		Owns(new(coordinationv1.Lease), builder.WithPredicates(enqueue.When(leaseMoved))).
		// No owner reference leads from here to the gateway. At the start they all come by, so that orphans are found.
		Watches(new(rbacv1.RoleBinding), handler.EnqueueRequestsFromMapFunc(byGatewayLabels)).
		Watches(new(rbacv1.ClusterRoleBinding), handler.EnqueueRequestsFromMapFunc(byGatewayLabels)).
		// It may belong to the GatewayServer or GatewayClient. The gateway writes its status often.
		Watches(new(networkingv1beta1.Connection), handler.EnqueueRequestsFromMapFunc(r.byChildName), builder.WithPredicates(enqueue.When(described))).
		// Keys, and those of the peer.
		Watches(new(corev1.Secret), handler.EnqueueRequestsFromMapFunc(r.inNamespace)).
		Watches(new(networkingv1beta1.PublicKey), handler.EnqueueRequestsFromMapFunc(r.inNamespace)).
		// Which pod leads, and where it is.
		Watches(new(corev1.Pod), handler.EnqueueRequestsFromMapFunc(byPodLabel), builder.WithPredicates(gatewayPods)).
		// Its addresses are the endpoint of a NodePort.
		Watches(new(corev1.Node), handler.EnqueueRequestsFromMapFunc(r.onNode), builder.WithPredicates(enqueue.When(nodeChanged))).
		// What lets packets in comes back, and so does what forbids to drain.
		Owns(new(networkingv1.NetworkPolicy)).
		Owns(new(policyv1.PodDisruptionBudget), builder.WithPredicates(enqueue.When(described))).
		// All gateways take packets from the addresses of all nodes.
		WatchesRawSource(source.Channel(r.woken, new(handler.EnqueueRequestForObject))).
		// A gateway of the other kind that has this one's name may come or go.
		Watches(r.kind.other().new(), new(handler.EnqueueRequestForObject), builder.WithPredicates(enqueue.When(func(before, now client.Object) bool {
			return before.GetDeletionTimestamp().IsZero() != now.GetDeletionTimestamp().IsZero()
		}))).
		Complete(r)
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}
}

// byGatewayLabels follows the labels that name a gateway.
func byGatewayLabels(_ context.Context, o client.Object) []reconcile.Request {
	namespace, name := o.GetLabels()[networkingv1beta1.LabelGatewayNamespace], o.GetLabels()[networkingv1beta1.LabelGatewayName]
	if namespace == "" || name == "" {
		return nil
	}
	return []reconcile.Request{request(namespace, name)}
}

// byPodLabel is byGatewayLabels for pods, which are beside their gateway.
func byPodLabel(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[networkingv1beta1.LabelGatewayName]
	if name == "" {
		return nil
	}
	return []reconcile.Request{request(o.GetNamespace(), name)}
}

// byChildName follows the name of an object that is named after its gateway.
func (r *reconciler) byChildName(_ context.Context, o client.Object) []reconcile.Request {
	name, ok := strings.CutPrefix(o.GetName(), childPrefix)
	if !ok {
		return nil
	}
	return []reconcile.Request{request(o.GetNamespace(), name)}
}

// inNamespace is every gateway beside the object.
func (r *reconciler) inNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return r.gateways(ctx, client.InNamespace(o.GetNamespace()))
}

// wakeAll has every gateway reconciled.
func (r *reconciler) wakeAll(ctx context.Context) {
	for _, request := range r.gateways(ctx) {
		o := r.kind.new()
		o.SetNamespace(request.Namespace)
		o.SetName(request.Name)
		select {
		case r.woken <- event.GenericEvent{Object: o}:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reconciler) gateways(ctx context.Context, which ...client.ListOption) []reconcile.Request {
	return enqueue.Each(ctx, r, r.kind.list(), client.ObjectKeyFromObject, which...)
}

// onNode is every gateway with a pod on the node.
func (r *reconciler) onNode(ctx context.Context, o client.Object) []reconcile.Request {
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.MatchingFields{podsByNode: o.GetName()}); err != nil {
		return nil // the cache has ended
	}
	var requests []reconcile.Request
	for i := range pods.Items {
		requests = append(requests, byPodLabel(ctx, &pods.Items[i])...)
	}
	return requests
}

// gatewayPods lets pods through that are a gateway's, or were until now.
var gatewayPods = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return isGatewayPod(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool { return isGatewayPod(e.ObjectOld) || isGatewayPod(e.ObjectNew) },
	DeleteFunc: func(e event.DeleteEvent) bool { return isGatewayPod(e.Object) },
}

func isGatewayPod(o client.Object) bool {
	return o.GetLabels()[networkingv1beta1.LabelComponent] == networkingv1beta1.ComponentGateway
}

// leaseMoved tells whether a Lease has another holder, or was edited.
func leaseMoved(before, now *coordinationv1.Lease) bool {
	return holder(before) != holder(now) || described(before, now)
}

// described tells whether anything but the status of an object changed.
func described(a, b client.Object) bool {
	return a.GetGeneration() != b.GetGeneration() || !equality.Semantic.DeepEqual(a.GetLabels(), b.GetLabels()) ||
		!equality.Semantic.DeepEqual(a.GetAnnotations(), b.GetAnnotations()) ||
		!equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences())
}

// nodeChanged tells whether the addresses of a node changed, or whether it is ready.
func nodeChanged(before, now *corev1.Node) bool {
	return nodeReady(before) != nodeReady(now) || nodeMoved(before, now)
}

// nodeMoved tells whether a node has other addresses.
func nodeMoved(before, now *corev1.Node) bool {
	return !slices.Equal(before.Status.Addresses, now.Status.Addresses)
}

// internalNodeMoved tells whether the agent found other addresses.
func internalNodeMoved(before, now *networkingv1beta1.InternalNode) bool {
	return before.Status.NodeIP != now.Status.NodeIP
}
