package peering

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// found is what a cluster holds of a peering.
type found struct {
	// namespaces are the tenant namespaces labelled for the peer, and the one that
	// would be made if it is there.
	namespaces []corev1.Namespace
	// The objects for the peer, wherever they are; oldest first.
	servers        []*gateway
	clients        []*gateway
	configurations []networkingv1beta1.Configuration
}

// gateways are all of them.
func (f *found) gateways() []*gateway { return slices.Concat(f.servers, f.clients) }

// tenantNamespace decides where the objects of a peering live.
//
//	the user named a namespace                        that one
//	gateways for the peer in one namespace            that one
//	no gateway, Configurations in one namespace       that one
//	either in several, one of which is labelled       that one
//	either in several                                 the user must choose
//	neither, namespaces with the labels               the one named liqo-tenant-ID, else the oldest
//	nothing at all                                    liqo-tenant-ID, which is made if need be
//
// flag is how the user names one.
func tenantNamespace(peerID, given, flag string, f *found) (string, error) {
	if given != "" {
		return given, nil
	}
	var used []string
	for _, g := range f.gateways() {
		used = append(used, g.GetNamespace())
	}
	if len(used) == 0 {
		for _, c := range f.configurations {
			used = append(used, c.Namespace)
		}
	}
	slices.Sort(used)
	used = slices.Compact(used)
	own := TenantNamespaceName(peerID)
	labelled := f.labelled(peerID)
	switch {
	case len(used) == 1:
		return used[0], nil
	case len(used) > 1:
		both := slices.DeleteFunc(slices.Clone(used), func(n string) bool { return !slices.Contains(labelled, n) })
		if len(both) == 1 {
			return both[0], nil
		}
		return "", fmt.Errorf("there are objects for cluster %s in several namespaces, %s: choose one with %s, and delete those in the others", peerID, strings.Join(used, ", "), flag)
	case len(labelled) > 0 && !slices.Contains(labelled, own):
		return labelled[0], nil
	}
	return own, nil
}

// labelled are the names of the namespaces labelled for the peer, oldest first,
// without those that are being deleted.
func (f *found) labelled(peerID string) (names []string) {
	for _, n := range slices.SortedFunc(slices.Values(f.namespaces), func(a, b corev1.Namespace) int { return older(&a, &b) }) {
		if n.DeletionTimestamp == nil && n.Labels[networkingv1beta1.LabelRemoteClusterID] == peerID && n.Labels[networkingv1beta1.LabelTenantNamespace] == networkingv1beta1.LabelTrue {
			names = append(names, n.Name)
		}
	}
	return names
}

// namespaceProblem says why the tenant namespace cannot be used; "" when it can,
// or is to be made.
func namespaceProblem(n *corev1.Namespace, peerID, flag string) string {
	if n == nil {
		return ""
	}
	if n.DeletionTimestamp != nil {
		return fmt.Sprintf("namespace %s is being deleted: run the command again when it is gone", n.Name) + conditionsOf(n)
	}
	if id := n.Labels[networkingv1beta1.LabelRemoteClusterID]; id != "" && id != peerID {
		return fmt.Sprintf("namespace %s belongs to the peering with cluster %s (label %s), not with %s: choose another with %s", n.Name, id, networkingv1beta1.LabelRemoteClusterID, peerID, flag)
	}
	return ""
}

// conditionsOf says why a namespace is not gone yet.
func conditionsOf(n *corev1.Namespace) (text string) {
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			text += "; " + string(c.Type) + ": " + c.Message
		}
	}
	return text
}
