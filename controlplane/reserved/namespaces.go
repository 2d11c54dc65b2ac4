package reserved

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// systemNamespaces are those of Kubernetes itself. The chart names them once more, for its policies.
var systemNamespaces = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// SystemNamespace tells whether a namespace is one of Kubernetes itself, and not of a user, whatever it sounds like.
func SystemNamespace(name string) bool { return slices.Contains(systemNamespaces, name) }

// Installation tells whether a namespace is one of the installation in liqoNamespace: that one, or the one of the node agents.
func Installation(name, liqoNamespace string) bool {
	return name == liqoNamespace || name == liqoNamespace+"-fabric"
}

// FromPeers tells whether no peer has a namespace of that name made, not even where nothing has it: those of Kubernetes,
// of distributions and of what is installed into clusters (kube-flannel, kube-ovn), and of an installation in
// liqoNamespace, which may need them later.
func FromPeers(name, liqoNamespace string) bool {
	return slices.ContainsFunc([]string{"kube-", "openshift-", "liqo-tenant-"}, func(theirs string) bool { return strings.HasPrefix(name, theirs) }) ||
		slices.Contains([]string{metav1.NamespaceDefault, "openshift", "liqo", "liqo-fabric", "liqo-storage"}, name) || Installation(name, liqoNamespace)
}

// FromOffloading says why a namespace of this cluster is never offloaded; empty: it can be. What is in such a namespace,
// Secrets with keys and tokens above all, must not get to a provider. The namespace default is not among them, unless an
// installation lives there: users run pods in it.
func FromOffloading(name string, labels map[string]string, liqoNamespace string) string {
	switch {
	case Installation(name, liqoNamespace) || labels[networkingv1beta1.LabelTenantNamespace] == networkingv1beta1.LabelTrue,
		name != metav1.NamespaceDefault && FromPeers(name, liqoNamespace):
		return "namespace " + name + " is never offloaded: it belongs to Kubernetes, to its distribution, to the installation or to a peering, and its Secrets must not leave this cluster"
	}
	return ""
}
