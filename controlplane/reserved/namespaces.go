package reserved

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// systemNamespaces are those of Kubernetes itself. The chart names them once more, for its policies.
var systemNamespaces = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// SystemNamespace tells whether a namespace is one of Kubernetes itself, and not of a user, whatever it sounds like.
func SystemNamespace(name string) bool { return slices.Contains(systemNamespaces, name) }
