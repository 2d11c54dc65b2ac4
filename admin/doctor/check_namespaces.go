package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/reserved"
)

// offloadedNamespaces judges the NamespaceOffloadings: those that a provider refuses, and those without effect.
func offloadedNamespaces(c *cluster) (out []Finding) {
	if err := c.offloads.namespaces.err; err != nil {
		return []Finding{skip("%s", plain(err))}
	}
	all := c.offloads.namespaces.items
	for i := range all {
		o := &all[i]
		if o.DeletionTimestamp != nil {
			continue
		}
		object := "NamespaceOffloading " + o.Namespace + "/" + o.Name
		switch why := c.neverOffloaded(o.Namespace); {
		case why != "":
			out = append(out, warn("it has no effect").on(object).because("%s", why).fix("kubectl -n %s delete namespaceoffloading %s", o.Namespace, o.Name))
		case o.Status.OffloadingPhase == offloadingv1beta1.OffloadingSomeFailed, o.Status.OffloadingPhase == offloadingv1beta1.OffloadingAllFailed:
			out = append(out, c.refusedNamespace(o).on(object))
		}
	}
	switch {
	case len(out) > 0:
		return out
	case len(all) == 0:
		return []Finding{pass("no offloaded namespaces")}
	}
	return []Finding{pass("no provider refuses an offloaded namespace")}
}

// refusedNamespace is about a namespace that some providers do not create.
func (c *cluster) refusedNamespace(o *offloadingv1beta1.NamespaceOffloading) Finding {
	var refuse, why, drained []string
	for _, id := range slices.Sorted(maps.Keys(o.Status.RemoteNamespacesConditions)) {
		for _, rc := range o.Status.RemoteNamespacesConditions[id] {
			if rc.Type != offloadingv1beta1.NamespaceReady || rc.Reason != offloadingv1beta1.ReasonCreationLoopBackOff {
				continue
			}
			if t, yes := c.drained(id); yes {
				why, drained = append(why, t.cause), append(drained, t.fix)
				continue
			}
			refuse, why = append(refuse, id), append(why, fmt.Sprintf("cluster %s: %s", id, text.Cut(rc.Message, maxSaid)))
		}
	}
	fixes := drained
	if len(refuse) > 0 {
		fixes = append(fixes, fmt.Sprintf("ask the administrators of cluster %s why namespace %s cannot be created, or choose another name: liqoctl unoffload namespace %s; "+
			"liqoctl offload namespace %[3]s --namespace-mapping-strategy SelectedName --remote-namespace-name NAME", strings.Join(refuse, ", "), o.Status.RemoteNamespaceName, o.Namespace))
	}
	return fail("it is %s: not every provider has the namespace for its pods", o.Status.OffloadingPhase).
		because("%s", strings.Join(why, "; ")).fix("%s", strings.Join(fixes, "; "))
}

// neverOffloaded says why a namespace is never offloaded; empty: it can be.
func (c *cluster) neverOffloaded(namespace string) string {
	var labels map[string]string
	if i := slices.IndexFunc(c.namespaces.items, func(n corev1.Namespace) bool { return n.Name == namespace }); i >= 0 {
		labels = c.namespaces.items[i].Labels
	}
	return reserved.FromOffloading(namespace, labels, c.Installation.Namespace)
}
