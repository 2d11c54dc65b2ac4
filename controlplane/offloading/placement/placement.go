// Package placement decides which clusters a namespace is offloaded to, and what it is called there; and reads in the other
// direction for whom a namespace of this cluster was made. It is pure: the reconcilers of both sides share it.
package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/objectname"
	"github.com/sluice-net/sluice/controlplane/reserved"
)

// maxNamespace is the length of the longest name of a namespace: that of an RFC 1123 label.
const maxNamespace = 63

// RemoteName is what the namespace of o is called at its providers; own is the ID of this cluster. A default name that
// would be too long has its end replaced by a digest: NamespaceMap and status tell it, so nobody has to guess.
func RemoteName(o *offloadingv1beta1.NamespaceOffloading, own string) string {
	switch o.Spec.NamespaceMappingStrategy {
	case offloadingv1beta1.EnforceSameNameMappingStrategy:
		return o.Namespace
	case offloadingv1beta1.SelectedNameMappingStrategy:
		return o.Spec.RemoteNamespaceName
	}
	return objectname.Shorten(o.Namespace+"-"+own, maxNamespace)
}

// Offloads tells whether o asks for namespaces: it is the one of its namespace, and not being deleted, and the namespace
// is not kept here. kept says why it is; empty: it is not.
func Offloads(o *offloadingv1beta1.NamespaceOffloading, kept string) bool {
	return kept == "" && o.Name == offloadingv1beta1.NamespaceOffloadingName && o.DeletionTimestamp.IsZero()
}

// Kept returns what says why a namespace is never offloaded; empty: it can be. namespaces are all there are: one that is
// not among them is kept, as nobody knows its labels. liqoNamespace is where the installation lives.
func Kept(namespaces []metav1.PartialObjectMetadata, liqoNamespace string) func(name string) string {
	kept := make(map[string]string, len(namespaces))
	for i := range namespaces {
		n := &namespaces[i]
		kept[n.Name] = reserved.FromOffloading(n.Name, n.Labels, liqoNamespace)
	}
	return func(name string) string {
		why, known := kept[name]
		if !known {
			return "namespace " + name + " is not known yet"
		}
		return why
	}
}

// Consumer is the cluster that a namespace here was made for.
type Consumer struct {
	// ID is the ID of the cluster.
	ID string
	// Tenant is its tenant namespace here.
	Tenant string
}

// ConsumerOf reads whom a namespace was made for; ok is false if it was made for nobody.
func ConsumerOf(n *corev1.Namespace) (c Consumer, ok bool) {
	c.ID = n.Labels[networkingv1beta1.LabelRemoteClusterID]
	c.Tenant, _, ok = strings.Cut(n.Annotations[offloadingv1beta1.AnnotationManagedByNamespaceMap], "/")
	return c, ok && n.Labels[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue && len(validation.IsDNS1123Label(c.ID)) == 0
}

// Node is what a selector sees of a virtual node.
type Node struct {
	Name   string
	Labels map[string]string
}

// NodeOf is v as a selector sees it: the labels of its Node or, while there is none, those that it is going to have.
func NodeOf(v *offloadingv1beta1.VirtualNode, nodes []corev1.Node) Node {
	for i := range nodes {
		n := &nodes[i]
		if n.Name == v.Name && n.Labels[networkingv1beta1.LabelRemoteClusterID] == string(v.Spec.ClusterID) {
			return Node{n.Name, n.Labels}
		}
	}
	l := make(map[string]string, len(v.Spec.Labels)+3)
	for key, value := range v.Spec.Labels {
		l[key] = value
	}
	l[networkingv1beta1.LabelRemoteClusterID] = string(v.Spec.ClusterID)
	l[networkingv1beta1.LabelNodeType] = networkingv1beta1.NodeTypeVirtual
	if len(v.Spec.StorageClasses) > 0 {
		l[offloadingv1beta1.LabelStorageAvailable] = networkingv1beta1.LabelTrue
	}
	return Node{v.Name, l}
}

// Selects tells whether a cluster selector selects a node. Without terms it selects every node; otherwise it does what
// Kubernetes does for pods: one of the terms must match, and a term without expressions and fields matches nothing. The
// error is about a selector that means nothing.
func Selects(selector corev1.NodeSelector, n Node) (bool, error) {
	if len(selector.NodeSelectorTerms) == 0 {
		return true, nil
	}
	selected := false
	for i, term := range selector.NodeSelectorTerms {
		matches, err := termMatches(term, n)
		if err != nil {
			return false, fmt.Errorf("clusterSelector.nodeSelectorTerms[%d]: %w", i, err)
		}
		selected = selected || matches
	}
	return selected, nil
}

func termMatches(term corev1.NodeSelectorTerm, n Node) (bool, error) {
	byLabel, err := requirements(term.MatchExpressions)
	if err != nil {
		return false, err
	}
	byField, err := requirements(term.MatchFields)
	if err != nil {
		return false, err
	}
	for _, r := range byField {
		if r.Key() != metav1.ObjectNameField {
			return false, fmt.Errorf("matchFields: there is no field %q, only %s", r.Key(), metav1.ObjectNameField)
		}
	}
	if len(byLabel)+len(byField) == 0 {
		return false, nil
	}
	return labels.NewSelector().Add(byLabel...).Matches(labels.Set(n.Labels)) &&
		labels.NewSelector().Add(byField...).Matches(labels.Set{metav1.ObjectNameField: n.Name}), nil
}

var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

func requirements(expressions []corev1.NodeSelectorRequirement) ([]labels.Requirement, error) {
	var rs []labels.Requirement
	for _, e := range expressions {
		operator, ok := operators[e.Operator]
		if !ok {
			return nil, fmt.Errorf("there is no operator %q", e.Operator)
		}
		r, err := labels.NewRequirement(e.Key, operator, e.Values)
		if err != nil {
			return nil, err
		}
		rs = append(rs, *r)
	}
	return rs, nil
}

// SelectsAny tells whether the selector of o selects one of the virtual nodes of a cluster.
func SelectsAny(o *offloadingv1beta1.NamespaceOffloading, nodes []Node) (bool, error) {
	for _, n := range nodes {
		if selected, err := Selects(o.Spec.ClusterSelector, n); selected || err != nil {
			return selected, err
		}
	}
	return false, nil
}

// Mapping is what a provider with these virtual nodes is asked for: names of namespaces here, and there; own is the ID of this
// cluster, and kept says why a namespace is never offloaded. A NamespaceOffloading whose selector means nothing selects no
// cluster; its status says so.
//
//	a NamespaceOffloading                      entry
//	selects one of the virtual nodes           its namespace -> the name there
//	selects none of them                       -
//	is being deleted, or has another name      -
//	is gone                                    -
//	is in a namespace that is kept here        -
func Mapping(own string, nodes []Node, offloadings []offloadingv1beta1.NamespaceOffloading, kept func(namespace string) string) map[string]string {
	mapping := map[string]string{}
	for i := range offloadings {
		o := &offloadings[i]
		if !Offloads(o, kept(o.Namespace)) {
			continue
		}
		if selected, err := SelectsAny(o, nodes); err == nil && selected {
			mapping[o.Namespace] = RemoteName(o, own)
		}
	}
	return mapping
}

// IsRequest tells whether m is the NamespaceMap by which this cluster asks a provider for namespaces, and not the copy of
// one by which another cluster asks this one.
func IsRequest(m *offloadingv1beta1.NamespaceMap) bool {
	return m.Labels[authv1beta1.LabelReplication] == networkingv1beta1.LabelTrue &&
		m.Labels[authv1beta1.LabelReplicationDestination] == m.Name && m.Labels[authv1beta1.LabelReplicationOrigin] == ""
}

// LeftOver are the Nodes of one cluster that none of its virtual nodes stands behind any more: pods on them have not ended.
func LeftOver(of []Node, nodes []corev1.Node, cluster string) (left []Node) {
	for i := range nodes {
		n := &nodes[i]
		if n.Labels[networkingv1beta1.LabelRemoteClusterID] == cluster && n.Labels[networkingv1beta1.LabelNodeType] == networkingv1beta1.NodeTypeVirtual &&
			!slices.ContainsFunc(of, func(v Node) bool { return v.Name == n.Name }) {
			left = append(left, Node{n.Name, n.Labels})
		}
	}
	return left
}

// Nodes are the virtual nodes of one cluster, without those that are being deleted.
func Nodes(all []offloadingv1beta1.VirtualNode, nodes []corev1.Node, in, cluster string) (of []Node) {
	for i := range all {
		v := &all[i]
		if v.Namespace == in && string(v.Spec.ClusterID) == cluster && v.DeletionTimestamp.IsZero() {
			of = append(of, NodeOf(v, nodes))
		}
	}
	slices.SortFunc(of, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return of
}

// ByRuntimeClass tells whether a pod has the runtime class of virtual nodes.
func ByRuntimeClass(p *corev1.Pod) bool {
	return p.Spec.RuntimeClassName != nil && *p.Spec.RuntimeClassName == offloadingv1beta1.RuntimeClassName
}

// OnlyVirtual tells whether no other node than a virtual one can take a pod: its runtime class, its node selector or each
// term of its node affinity says so.
func OnlyVirtual(p *corev1.Pod) bool {
	if ByRuntimeClass(p) || p.Spec.NodeSelector[networkingv1beta1.LabelNodeType] == networkingv1beta1.NodeTypeVirtual {
		return true
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return len(terms) > 0 && !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == networkingv1beta1.LabelNodeType && r.Operator == corev1.NodeSelectorOpIn && slices.Equal(r.Values, []string{networkingv1beta1.NodeTypeVirtual})
		})
	})
}
