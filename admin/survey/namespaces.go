package survey

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// OffloadedNamespace is a namespace whose pods may run in other clusters.
type OffloadedNamespace struct {
	Namespace string
	// RemoteName is what it is called in the other clusters.
	RemoteName string
	// Phase is empty while no controller has looked at it.
	Phase offloadingv1beta1.OffloadingPhase
	// Alerts say what is not as it should be, for each cluster.
	Alerts []string
}

// offloadedNamespaces are those of NamespaceOffloadings, by name.
func offloadedNamespaces(all []offloadingv1beta1.NamespaceOffloading) (out []OffloadedNamespace) {
	for i := range all {
		s := &all[i].Status
		n := OffloadedNamespace{Namespace: all[i].Namespace, RemoteName: s.RemoteNamespaceName, Phase: s.OffloadingPhase}
		nowhere := s.OffloadingPhase == offloadingv1beta1.OffloadingNoClusterSelected
		for _, id := range slices.Sorted(maps.Keys(s.RemoteNamespacesConditions)) {
			for _, c := range s.RemoteNamespacesConditions[id] {
				// That one cluster is not selected is as somebody wants it, unless none is.
				if c.Status != corev1.ConditionTrue && (c.Type == offloadingv1beta1.NamespaceReady || nowhere) {
					n.Alerts = append(n.Alerts, fmt.Sprintf("cluster %s: %s", id, c.Message))
				}
			}
		}
		if nowhere && len(n.Alerts) == 0 {
			n.Alerts = []string{"there is no virtual node"}
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b OffloadedNamespace) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.RemoteName, b.RemoteName))
	})
	return out
}
