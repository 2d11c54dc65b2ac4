// Package reserved knows what a cluster cannot do without. It is the addresses of its
// nodes and of its API servers: no peer is given a prefix with one of them, and no
// Service leads to them because an object of a user says so. And it is the namespaces of
// Kubernetes itself, out of which no pod is moved, and the names of namespaces that no
// peer gets.
package reserved

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get

// apiServers is the EndpointSlice that the API servers write about themselves.
var apiServers = client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// Node begins the words for who has the address of a node.
const Node = "Node "

// Addresses returns the addresses and who has each. Nodes are read through c; the API
// servers through live, as caches hold only EndpointSlices that are ours.
func Addresses(ctx context.Context, c, live client.Reader) (map[netip.Addr]string, error) {
	addresses := make(map[netip.Addr]string)
	add := func(text, who string) {
		if addr, err := netip.ParseAddr(text); err == nil { // else a host name
			addresses[addr.Unmap().WithZone("")] = who
		}
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, a := range nodes.Items[i].Status.Addresses {
			add(a.Address, Node+nodes.Items[i].Name)
		}
	}
	var slice discoveryv1.EndpointSlice
	if err := live.Get(ctx, apiServers, &slice); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get the EndpointSlice of the API servers: %w", err)
	}
	for _, e := range slice.Endpoints {
		for _, a := range e.Addresses {
			add(a, "the API server")
		}
	}
	return addresses, nil
}
