package namespaceoffloading

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
)

// Facts are what decides how a namespace's offloading is.
type Facts struct {
	Offloading *offloadingv1beta1.NamespaceOffloading
	// Kept says why the namespace is never offloaded; empty: it can be.
	Kept string
	// Own is the ID of this cluster.
	Own string
	// Providers are the clusters that have a virtual node or a NamespaceMap, by their IDs.
	Providers map[string]Provider
	// Admits tells whether this cluster can change pods as they are made, so that they may run on virtual nodes.
	Admits bool
	Now    metav1.Time
}

// Provider is one other cluster.
type Provider struct {
	// Nodes are its virtual nodes.
	Nodes []placement.Node
	// Map is nil while there is none.
	Map *offloadingv1beta1.NamespaceMap
}

// Build returns the status.
//
//	the selector          the map says              OffloadingRequired          Ready
//	matches a node        nothing, another name     True ClusterSelected        False Creating
//	                      Accepted                                              True NamespaceCreated
//	                      CreationLoopBackOff                                   False CreationLoopBackOff
//	                      Terminating                                           False Terminating
//	matches none          nothing                   False ClusterNotSelected    -
//	                      something                                             False Terminating
//	means nothing         whatever                  False ClusterSelectorInvalid, and Ready as for one that matches none
//	whatever, but the     whatever                  False NamespaceReserved, and Ready as for one that matches none
//	namespace is kept
//
// Where the API server cannot change pods, nothing is Ready whose pods should run on virtual nodes.
func Build(f Facts) offloadingv1beta1.NamespaceOffloadingStatus {
	o := f.Offloading
	s := offloadingv1beta1.NamespaceOffloadingStatus{
		RemoteNamespaceName: placement.RemoteName(o, f.Own),
		ObservedGeneration:  o.Generation,
	}
	var required, ready, failed int
	for _, id := range slices.Sorted(maps.Keys(f.Providers)) {
		p := f.Providers[id]
		c := f.required(p)
		conditions := offloadingv1beta1.RemoteNamespaceConditions{c}
		selected := c.Status == corev1.ConditionTrue
		if state := f.ready(p, selected, s.RemoteNamespaceName); state != nil {
			conditions = append(conditions, *state)
			if selected {
				required++
				ready += count(state.Status == corev1.ConditionTrue)
				failed += count(state.Reason == offloadingv1beta1.ReasonCreationLoopBackOff)
			}
		}
		f.date(conditions, o.Status.RemoteNamespacesConditions[id])
		if s.RemoteNamespacesConditions == nil {
			s.RemoteNamespacesConditions = map[string]offloadingv1beta1.RemoteNamespaceConditions{}
		}
		s.RemoteNamespacesConditions[id] = conditions
	}
	switch {
	case !o.DeletionTimestamp.IsZero():
		s.OffloadingPhase = offloadingv1beta1.OffloadingTerminating
	case required == 0:
		s.OffloadingPhase = offloadingv1beta1.OffloadingNoClusterSelected
	case ready == required:
		s.OffloadingPhase = offloadingv1beta1.OffloadingReady
	case failed == required:
		s.OffloadingPhase = offloadingv1beta1.OffloadingAllFailed
	case failed > 0:
		s.OffloadingPhase = offloadingv1beta1.OffloadingSomeFailed
	default:
		s.OffloadingPhase = offloadingv1beta1.OffloadingInProgress
	}
	return s
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// reasonSelectorInvalid means that the cluster selector means nothing. Other implementations do not have it.
const reasonSelectorInvalid = "ClusterSelectorInvalid"

func (f *Facts) required(p Provider) offloadingv1beta1.RemoteNamespaceCondition {
	c := offloadingv1beta1.RemoteNamespaceCondition{Type: offloadingv1beta1.NamespaceOffloadingRequired, Status: corev1.ConditionFalse}
	switch selected, err := placement.SelectsAny(f.Offloading, p.Nodes); {
	case f.Kept != "":
		c.Reason, c.Message = offloadingv1beta1.ReasonNamespaceReserved, f.Kept
	case !placement.Offloads(f.Offloading, f.Kept):
		c.Reason, c.Message = offloadingv1beta1.ReasonClusterNotSelected, "the NamespaceOffloading is being deleted"
	case err != nil:
		c.Reason, c.Message = reasonSelectorInvalid, err.Error()
	case !selected:
		c.Reason, c.Message = offloadingv1beta1.ReasonClusterNotSelected, "clusterSelector selects no virtual node of the cluster"
	default:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, offloadingv1beta1.ReasonClusterSelected, "clusterSelector selects the cluster"
	}
	return c
}

// maxReason bounds a provider's text, in bytes.
const maxReason = 300

// ready is nil where there is nothing that could be.
func (f *Facts) ready(p Provider, selected bool, name string) *offloadingv1beta1.RemoteNamespaceCondition {
	var state offloadingv1beta1.RemoteNamespaceStatus
	if p.Map != nil {
		state = p.Map.Status.CurrentMapping[f.Offloading.Namespace]
	}
	if !selected && state.RemoteNamespace == "" {
		return nil
	}
	c := &offloadingv1beta1.RemoteNamespaceCondition{Type: offloadingv1beta1.NamespaceReady, Status: corev1.ConditionFalse}
	there := fmt.Sprintf("namespace %s of the cluster", text.Quoted(state.RemoteNamespace))
	switch {
	case !selected || state.Phase == offloadingv1beta1.MappingTerminating:
		c.Reason, c.Message = offloadingv1beta1.ReasonTerminating, there+" is being removed"
	case state.RemoteNamespace != name:
		c.Reason, c.Message = offloadingv1beta1.ReasonCreating, "the cluster has not answered yet"
	case state.Phase == offloadingv1beta1.MappingCreationLoopBackOff:
		why := "the cluster has drained this one's Tenant, has another namespace of that name, or reserves the name. Its administrator can find out"
		c.Reason, c.Message = offloadingv1beta1.ReasonCreationLoopBackOff, there+" cannot be created: "+cmp.Or(text.Printable(state.Message, maxReason), why)
	case state.Phase != offloadingv1beta1.MappingAccepted:
		c.Reason, c.Message = offloadingv1beta1.ReasonCreating, there+" is being made"
	case !f.Admits && f.Offloading.Spec.PodOffloadingStrategy != offloadingv1beta1.LocalPodOffloadingStrategy:
		c.Reason = offloadingv1beta1.ReasonPodAdmissionMissing
		c.Message = there + " is there, but new pods stay off virtual nodes: this API server serves no MutatingAdmissionPolicy (admissionregistration.k8s.io/v1, Kubernetes 1.36)." +
			" Pods of runtime class " + offloadingv1beta1.RuntimeClassName + " run there nevertheless"
	default:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, offloadingv1beta1.ReasonNamespaceCreated, there+" is there"
	}
	return c
}

// date says since when conditions are as they are.
func (f *Facts) date(conditions, before offloadingv1beta1.RemoteNamespaceConditions) {
	for i := range conditions {
		c := &conditions[i]
		c.LastTransitionTime = f.Now
		for _, b := range before {
			if b.Type == c.Type && b.Status == c.Status {
				c.LastTransitionTime = b.LastTransitionTime
			}
		}
	}
}
