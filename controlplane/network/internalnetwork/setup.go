package internalnetwork

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
)

// Options are what the reconcilers need to know of the installation.
type Options struct {
	// LiqoNamespace holds the Network of the internal CIDR, and the routes to the
	// nodes.
	LiqoNamespace string
}

// Workers are how many objects of one kind are worked on at a time. They wait for
// the API server most of the time. One that answers a write within 50 ms limits
// four of them to 80 writes a second, which is enough for what users do. Pods of
// a large cluster change more often.
const (
	workers       = 4
	routesWorkers = 16
)

// SetupWithManager adds the reconcilers to a manager.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	if err := indexFields(context.Background(), mgr); err != nil {
		return fmt.Errorf("index the cache: %w", err)
	}
	network := client.ObjectKey{Namespace: o.LiqoNamespace, Name: networkName}
	addresses := &addressBook{reader: mgr.GetAPIReader(), network: network}
	for _, setup := range []func(ctrl.Manager, Options, *addressBook) error{setupNodes, setupFabrics, setupTunnels, setupRoutes, setupFinalizers} {
		if err := setup(mgr, o, addresses); err != nil {
			return err
		}
	}
	return nil
}

func setupNodes(mgr ctrl.Manager, _ Options, addresses *addressBook) error {
	r := &nodeReconciler{Client: mgr.GetClient(), live: mgr.GetAPIReader(), addresses: addresses, events: mgr.GetEventRecorder(recorder)}
	nodes := func() client.ObjectList { return new(corev1.NodeList) }
	return controllers.New(mgr, "node", controllers.Options{MaxConcurrentReconciles: workers}).
		For(&corev1.Node{}, builder.WithPredicates(partChanged)).
		// Named as its Node, with or without one: what was changed or deleted comes
		// back, and what has no Node goes.
		Watches(&networkingv1beta1.InternalNode{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(notStatus)).
		// Nodes wait for its prefix, or get other addresses when it is replaced.
		Watches(&ipamv1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(all(r.Client, nodes, client.ObjectKeyFromObject)),
			builder.WithPredicates(internalCIDR(addresses.network))).
		Complete(apply.RequeueOnConflict(r))
}

func setupFabrics(mgr ctrl.Manager, _ Options, addresses *addressBook) error {
	r := &fabricReconciler{Client: mgr.GetClient(), live: mgr.GetAPIReader(), addresses: addresses, events: mgr.GetEventRecorder(recorder)}
	ofGateway := handler.EnqueueRequestsFromMapFunc(fabricsOfPeer(r.Client))
	servers := func() client.ObjectList { return new(networkingv1beta1.GatewayServerList) }
	clients := func() client.ObjectList { return new(networkingv1beta1.GatewayClientList) }
	fabric := func(o client.Object) types.NamespacedName {
		return types.NamespacedName{Namespace: o.GetNamespace(), Name: peerOf(o)}
	}
	thisCIDR := builder.WithPredicates(internalCIDR(addresses.network))
	return controllers.New(mgr, "internalfabric", controllers.Options{MaxConcurrentReconciles: workers}).
		For(&networkingv1beta1.InternalFabric{}, builder.WithPredicates(notStatus)).
		// What the fabric shows of its gateway. If the gateway goes, or is for
		// another remote cluster, one that was a duplicate may be the first now.
		Watches(&networkingv1beta1.GatewayServer{}, ofGateway, builder.WithPredicates(gatewayChanged)).
		Watches(&networkingv1beta1.GatewayClient{}, ofGateway, builder.WithPredicates(gatewayChanged)).
		// Its status has the remote CIDRs.
		Watches(&networkingv1beta1.Configuration{}, handler.EnqueueRequestsFromMapFunc(fabricOfPeer), builder.WithPredicates(configurationChanged)).
		// Fabrics wait for its prefix, or get other addresses when it is replaced.
		Watches(&ipamv1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(all(r.Client, servers, fabric)), thisCIDR).
		Watches(&ipamv1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(all(r.Client, clients, fabric)), thisCIDR).
		Complete(apply.RequeueOnConflict(r)) // others write to the status of a gateway, above all when it is new
}

func setupTunnels(mgr ctrl.Manager, _ Options, _ *addressBook) error {
	r := &tunnelReconciler{Client: mgr.GetClient(), vnis: &vniBook{reader: mgr.GetAPIReader()}, events: mgr.GetEventRecorder(recorder)}
	enqueue := handler.TypedEnqueueRequestsFromMapFunc[client.Object, pair]
	ofGateway := enqueue(func(_ context.Context, o client.Object) []pair {
		return r.vnis.heldFor(types.NamespacedName{Namespace: o.GetNamespace(), Name: peerOf(o)})
	})
	return controllers.NewTyped(mgr, "genevetunnel", controllers.TypedOptions[pair]{MaxConcurrentReconciles: workers}).
		// A gateway that comes or goes concerns its tunnels to all nodes.
		Watches(&networkingv1beta1.InternalFabric{}, enqueue(func(ctx context.Context, o client.Object) (pairs []pair) {
			list(ctx, r.Client, new(networkingv1beta1.InternalNodeList), func(n client.Object) {
				pairs = append(pairs, pair{o.GetNamespace(), o.GetName(), n.GetName()})
			})
			return pairs
		}), builder.WithPredicates(comesOrGoes)).
		// A node that comes or goes concerns its tunnels to all gateways.
		Watches(&networkingv1beta1.InternalNode{}, enqueue(func(ctx context.Context, o client.Object) (pairs []pair) {
			list(ctx, r.Client, new(networkingv1beta1.InternalFabricList), func(f client.Object) {
				pairs = append(pairs, pair{f.GetNamespace(), f.GetName(), o.GetName()})
			})
			return pairs
		}), builder.WithPredicates(comesOrGoes)).
		// A number is kept as long as there is a gateway.
		Watches(&networkingv1beta1.GatewayServer{}, ofGateway, builder.WithPredicates(comesOrGoes)).
		Watches(&networkingv1beta1.GatewayClient{}, ofGateway, builder.WithPredicates(comesOrGoes)).
		// What was changed or deleted comes back.
		Watches(&networkingv1beta1.GeneveTunnel{}, enqueue(func(_ context.Context, o client.Object) []pair {
			if t, ok := o.(*networkingv1beta1.GeneveTunnel); ok {
				return []pair{pairOf(t)}
			}
			return nil
		}), builder.WithPredicates(notStatus)).
		Complete(r)
}

func setupRoutes(mgr ctrl.Manager, o Options, _ *addressBook) error {
	r := &routesReconciler{Client: mgr.GetClient(), liqoNamespace: o.LiqoNamespace}
	return controllers.New(mgr, "internalnode_route", controllers.Options{MaxConcurrentReconciles: routesWorkers}).
		For(&networkingv1beta1.InternalNode{}, builder.WithPredicates(notStatus)).
		// What was changed or deleted comes back. Those of gateways for other
		// purposes are named after other things.
		Watches(&networkingv1beta1.RouteConfiguration{}, handler.EnqueueRequestsFromMapFunc(nodeOfRoutes(o.LiqoNamespace)), builder.WithPredicates(notStatus)).
		// Each pod has a route to its node.
		Watches(&corev1.Pod{}, podEvents{}).
		Complete(r)
}

// nodeOfRoutes maps a RouteConfiguration to the node whose routes it holds.
func nodeOfRoutes(namespace string) handler.MapFunc {
	return func(_ context.Context, o client.Object) []ctrl.Request {
		rc, ok := o.(*networkingv1beta1.RouteConfiguration)
		if !ok || rc.Namespace != namespace || rc.Name != routesName(rc.Spec.Table.Name) {
			return nil
		}
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: rc.Spec.Table.Name}}}
	}
}
