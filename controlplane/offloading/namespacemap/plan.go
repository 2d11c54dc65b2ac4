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
}

// Build returns the desired mapping. A NamespaceOffloading whose selector means nothing selects no cluster; its status
// says so.
//
//	a NamespaceOffloading                      entry
//	selects one of the virtual nodes           its namespace -> the name there
//	selects none of them                       -
//	is being deleted, or has another name      -
//	is gone                                    -
func Build(f Facts) map[string]string {
	mapping := map[string]string{}
	for i := range f.Offloadings {
		o := &f.Offloadings[i]
		if !placement.Offloads(o) {
			continue
		}
		if selected, err := placement.SelectsAny(o, f.Nodes); err == nil && selected {
			mapping[o.Namespace] = placement.RemoteName(o, f.Own)
		}
	}
	return mapping
}
