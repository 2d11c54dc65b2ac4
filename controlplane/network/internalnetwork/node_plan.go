package internalnetwork

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// nodeFacts is what there is of a node.
type nodeFacts struct {
	Name string
	// Node is nil if there is none.
	Node *corev1.Node
	// InternalNode is nil if there is none.
	InternalNode *networkingv1beta1.InternalNode
	// Address is what a node that takes part may use.
	Address grant
}

// nodePlan is what to do about it.
type nodePlan struct {
	// Apply is the InternalNode as it should be.
	Apply *networkingv1beta1.InternalNode
	// Delete means that the InternalNode has to go.
	Delete bool
	// Release means that the address is free once the InternalNode is gone.
	Release bool
	// Wait means that there is no address to give.
	Wait bool
}

// takesPart tells whether a node is an end of the internal network. One that
// stands for a remote cluster is not.
func takesPart(n *corev1.Node) bool {
	return n != nil && n.Labels[networkingv1beta1.LabelNodeType] != networkingv1beta1.NodeTypeVirtual
}

// planNode decides about one node.
//
//	Node             InternalNode   address    then
//	------------------------------------------------------------------
//	takes part       any            granted    apply it
//	takes part       any            none       leave it, wait
//	none or virtual  there                     delete it
//	none or virtual  none                      release the address
func planNode(f nodeFacts) nodePlan {
	switch {
	case !takesPart(f.Node):
		return nodePlan{Delete: f.InternalNode != nil, Release: f.InternalNode == nil}
	case !f.Address.Addr.IsValid():
		return nodePlan{Wait: true}
	}
	n := &networkingv1beta1.InternalNode{
		ObjectMeta: metav1.ObjectMeta{Name: f.Name, Labels: map[string]string{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}},
	}
	var has string
	if f.InternalNode != nil {
		has = f.InternalNode.Spec.Interface.Gateway.Name
	}
	n.Spec.Interface.Gateway.Name = keptLinkName(has, f.Name)
	n.Spec.Interface.Node.IP = networkingv1beta1.Address(f.Address.Addr.String())
	return nodePlan{Apply: n}
}
