package namespacemap

import (
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
)

// Facts are what decides what is asked of one provider.
type Facts struct {
	// Own is the ID of this cluster.
	Own string
	// Nodes are the virtual nodes of the provider.
	Nodes []placement.Node
	// Offloadings are all there are.
	Offloadings []offloadingv1beta1.NamespaceOffloading
	// Kept says why a namespace is never offloaded; empty: it can be.
	Kept func(namespace string) string
}

// Build returns the desired mapping.
func Build(f Facts) map[string]string {
	return placement.Mapping(f.Own, f.Nodes, f.Offloadings, f.Kept)
}
