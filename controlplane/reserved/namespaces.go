package reserved

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// systemNamespaces are those of Kubernetes itself. The chart names them once more, for its policies.
var systemNamespaces = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// SystemNamespace tells whether a namespace is one of Kubernetes itself, and not of a user, whatever it sounds like.
func SystemNamespace(name string) bool { return slices.Contains(systemNamespaces, name) }

// FromPeers tells whether no peer has a namespace of that name made, not even where nothing has it: those of Kubernetes,
// of distributions and of what is installed into clusters (kube-flannel, kube-ovn), and of an installation in
// liqoNamespace, which may need them later.
func FromPeers(name, liqoNamespace string) bool {
	return slices.ContainsFunc([]string{"kube-", "openshift-", "liqo-tenant-"}, func(theirs string) bool { return strings.HasPrefix(name, theirs) }) ||
		slices.Contains([]string{metav1.NamespaceDefault, "openshift", "liqo", "liqo-fabric", "liqo-storage", liqoNamespace, liqoNamespace + "-fabric"}, name)
}
