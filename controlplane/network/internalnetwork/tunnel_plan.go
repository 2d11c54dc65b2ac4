package internalnetwork

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/objectname"
)

// pair is one gateway and one node: what one GeneveTunnel joins.
type pair struct {
	Namespace string
	Fabric    string
	Node      string
}

func (p pair) String() string {
	return "the tunnel of InternalFabric " + p.fabric().String() + " to node " + p.Node
}

func (p pair) fabric() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Fabric}
}

// pairOf returns what a tunnel joins. An InternalFabric and its tunnels are in
// one namespace.
func pairOf(t *networkingv1beta1.GeneveTunnel) pair {
	return pair{t.Namespace, t.Spec.InternalFabricRef.Name, t.Spec.InternalNodeRef.Name}
}

// tunnelFacts is what there is of a pair.
type tunnelFacts struct {
	Pair pair
	// Fabric and InternalNode are nil if there is none.
	Fabric       *networkingv1beta1.InternalFabric
	InternalNode *networkingv1beta1.InternalNode
	// HasGateway tells, where there is no Fabric, that there is a gateway for one.
	HasGateway bool
	// NodeTakesPart tells that there is a Node for an InternalNode.
	NodeTakesPart bool
	// Tunnels are those of the pair, the oldest first: one, if all is well.
	Tunnels []networkingv1beta1.GeneveTunnel
	// NameTaken tells that another pair's tunnel has the name that this one would
	// get: a-b and c give the same as a and b-c.
	NameTaken bool
}

// tunnelPlan is what to do about it.
type tunnelPlan struct {
	// Apply is the tunnel as it should be, but for its ID.
	Apply *networkingv1beta1.GeneveTunnel
	// Has is the tunnel that there is.
	Has *networkingv1beta1.GeneveTunnel
	// Delete are tunnels that have to go.
	Delete []networkingv1beta1.GeneveTunnel
	// Release means that nothing holds the ID any more.
	Release bool
}

// planTunnel decides about one pair.
//
//	InternalFabric  InternalNode           tunnels    then
//	--------------------------------------------------------------------------------
//	there           there                  none       make one
//	there           there                  some       keep the oldest, delete others
//	there           none, but a Node       any        wait: it comes back
//	there           none                   some       delete them
//	none            any                    owned      wait: garbage collection has it
//	none            any                    not owned  delete them, unless a user's
//	none, but a gateway                    none       wait: it comes back
//	one is missing                         none       release the ID
//
// What is being deleted counts as there: others decide what follows.
func planTunnel(f tunnelFacts) (plan tunnelPlan) {
	switch {
	case f.Fabric == nil:
		for _, t := range f.Tunnels {
			if len(t.OwnerReferences) == 0 && t.Labels[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue {
				plan.Delete = append(plan.Delete, t)
			}
		}
		plan.Release = len(f.Tunnels) == 0 && !f.HasGateway
		return plan
	case f.InternalNode == nil && f.NodeTakesPart:
		return plan
	case f.InternalNode == nil:
		plan.Delete, plan.Release = f.Tunnels, len(f.Tunnels) == 0
		return plan
	}
	if len(f.Tunnels) > 0 {
		plan.Has, plan.Delete = &f.Tunnels[0], f.Tunnels[1:]
	}
	if f.Fabric.DeletionTimestamp.IsZero() && f.InternalNode.DeletionTimestamp.IsZero() {
		plan.Apply = newTunnel(f, plan.Has)
	}
	return plan
}

func newTunnel(f tunnelFacts, has *networkingv1beta1.GeneveTunnel) *networkingv1beta1.GeneveTunnel {
	version := networkingv1beta1.GroupVersion.String()
	labels := managedLabels(f.Fabric.Labels[networkingv1beta1.LabelRemoteClusterID])
	labels[networkingv1beta1.LabelInternalFabricName] = labelValue(f.Pair.Fabric)
	labels[networkingv1beta1.LabelInternalNodeName] = labelValue(f.Pair.Node)
	t := &networkingv1beta1.GeneveTunnel{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Pair.Namespace, Name: tunnelName(f.Pair), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{ownerReference(kindInternalFabric, f.Fabric.Name, f.Fabric.UID)},
		},
		Spec: networkingv1beta1.GeneveTunnelSpec{
			InternalFabricRef: corev1.ObjectReference{APIVersion: version, Kind: kindInternalFabric, Namespace: f.Pair.Namespace, Name: f.Pair.Fabric},
			InternalNodeRef:   corev1.ObjectReference{APIVersion: version, Kind: kindInternalNode, Name: f.Pair.Node},
		},
	}
	switch {
	case has != nil:
		t.Name = has.Name
	case f.NameTaken:
		t.Name = objectname.WithSuffix(f.Pair.Fabric+"-"+f.Pair.Node, hash(f.Pair.String()), validation.DNS1123SubdomainMaxLength)
	}
	return t
}

// tunnelName is the name that a tunnel gets, if it is free.
func tunnelName(p pair) string { return objectName(p.Fabric + "-" + p.Node) }

// indexPairs are the keys of a tunnel in the index by pair.
func indexPairs(o client.Object) []string {
	t, ok := o.(*networkingv1beta1.GeneveTunnel)
	if !ok {
		return nil
	}
	p := pairOf(t)
	return []string{p.Fabric + "/" + p.Node}
}
