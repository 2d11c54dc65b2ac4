package internalnetwork

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// gatewayObject is a GatewayServer or a GatewayClient, to write its status.
type gatewayObject struct {
	client.Object
	conditions *[]metav1.Condition
}

type gatewayObjects map[types.UID]gatewayObject

// gatewaysOf returns the gateways for a remote cluster, in all namespaces.
func gatewaysOf(ctx context.Context, c client.Reader, clusterID string) ([]gateway, gatewayObjects, error) {
	if clusterID == "" {
		return nil, nil, nil
	}
	var servers networkingv1beta1.GatewayServerList
	if err := c.List(ctx, &servers, client.MatchingFields{indexPeer: clusterID}); err != nil {
		return nil, nil, fmt.Errorf("list GatewayServers: %w", err)
	}
	var clients networkingv1beta1.GatewayClientList
	if err := c.List(ctx, &clients, client.MatchingFields{indexPeer: clusterID}); err != nil {
		return nil, nil, fmt.Errorf("list GatewayClients: %w", err)
	}
	n := len(servers.Items) + len(clients.Items)
	gateways, objects := make([]gateway, 0, n), make(gatewayObjects, n)
	for i := range servers.Items {
		s := &servers.Items[i]
		gateways = append(gateways, gatewayOf(s))
		objects[s.UID] = gatewayObject{s, &s.Status.Conditions}
	}
	for i := range clients.Items {
		s := &clients.Items[i]
		gateways = append(gateways, gatewayOf(s))
		objects[s.UID] = gatewayObject{s, &s.Status.Conditions}
	}
	return gateways, objects, nil
}

// gatewayOf reads a GatewayServer or GatewayClient. Of anything else only the
// metadata count.
func gatewayOf(o client.Object) gateway {
	g := gateway{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), Created: o.GetCreationTimestamp(), Deleting: !o.GetDeletionTimestamp().IsZero(),
	}
	var endpoint *networkingv1beta1.InternalEndpoint
	switch o := o.(type) {
	case *networkingv1beta1.GatewayServer:
		g.Kind, g.MTU, endpoint = kindGatewayServer, o.Spec.MTU, o.Status.InternalEndpoint
	case *networkingv1beta1.GatewayClient:
		g.Kind, g.MTU, endpoint = kindGatewayClient, o.Spec.MTU, o.Status.InternalEndpoint
	}
	if endpoint != nil {
		g.PodIP = endpoint.IP
	}
	return g
}

// conditionsOf returns the conditions of a GatewayServer or GatewayClient.
func conditionsOf(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case *networkingv1beta1.GatewayServer:
		return o.Status.Conditions
	case *networkingv1beta1.GatewayClient:
		return o.Status.Conditions
	}
	return nil
}
