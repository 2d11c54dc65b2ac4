package doctor

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// eventfulNamespaces is of how many namespaces the events are read.
const eventfulNamespaces = 20

// readOffloading reads what there is of virtual nodes and offloaded namespaces and, where there is some, the pods that do
// not run yet.
func (p *clusterReader) readOffloading(ctx context.Context) {
	c, o := p.access, &p.offloads
	o.virtualNodes = listIfServed[offloadingv1beta1.VirtualNode](ctx, p, "VirtualNodes", &offloadingv1beta1.VirtualNodeList{})
	o.namespaces = served(list[offloadingv1beta1.NamespaceOffloading](ctx, c, "NamespaceOffloadings", &offloadingv1beta1.NamespaceOffloadingList{}))
	o.slices = listIfServed[authv1beta1.ResourceSlice](ctx, p, "ResourceSlices", &authv1beta1.ResourceSliceList{})
	if len(o.virtualNodes.items)+len(o.namespaces.items) == 0 {
		return
	}
	o.pods = list[corev1.Pod](ctx, c, "Pods", &corev1.PodList{}, client.MatchingFields{"status.phase": string(corev1.PodPending)}, client.Limit(enough))
	var namespaces []string
	for i := range o.pods.items {
		if ns := o.pods.items[i].Namespace; o.pods.items[i].Spec.NodeName != "" && !slices.Contains(namespaces, ns) && len(namespaces) < eventfulNamespaces {
			namespaces = append(namespaces, ns)
		}
	}
	o.events = readEvents(ctx, c, namespaces, client.MatchingFields{"involvedObject.kind": "Pod"})
}

// listIfServed reads all objects of a kind that peerings have. A user who may only look into the namespace of a peering has
// them from there.
func listIfServed[T any](ctx context.Context, p *clusterReader, what string, into client.ObjectList) (r read[T]) {
	listIn := func(namespace string) error {
		r = list[T](ctx, p.access, what, into, client.InNamespace(namespace))
		return r.err
	}
	if p.Within == "" {
		r.err = listIn("")
	} else {
		_, r.err = p.access.WhereAllowed(listIn)
	}
	return served(r)
}

// served is what was read of a kind. Where the API server does not know it there are none.
func served[T any](r read[T]) read[T] {
	if meta.IsNoMatchError(r.err) {
		return read[T]{}
	}
	return r
}
