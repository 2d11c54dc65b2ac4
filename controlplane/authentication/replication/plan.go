package replication

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// peer says between which clusters and namespaces a session copies.
type peer struct {
	// consumer is this cluster, provider the other one: their IDs.
	consumer, provider string
	// here and there are the namespaces.
	here, there string
}

// notCopied are the labels and annotations that say something of the object here only. Those of replication are set
// anew.
var notCopied = []string{
	"liqo.io/ownership", networkingv1beta1.LabelManaged, corev1.LastAppliedConfigAnnotation,
	authv1beta1.AnnotationCordon, authv1beta1.AnnotationCordonTenant, // the provider's word
}

// appliedHash ends the annotations by which controllers remember what they wrote.
const appliedHash = "/applied-hash"

// copyOf is what is to be there of an object here.
func (p peer) copyOf(o *unstructured.Unstructured) *unstructured.Unstructured {
	labels := kept(o.GetLabels())
	maps.Copy(labels, p.marks())
	labels[authv1beta1.LabelReplication] = "false"
	labels[networkingv1beta1.LabelRemoteClusterID] = p.consumer
	labels[authv1beta1.LabelReplicationDestination] = p.provider
	c := &unstructured.Unstructured{Object: map[string]any{}}
	c.SetGroupVersionKind(o.GroupVersionKind())
	c.SetNamespace(p.there)
	c.SetName(o.GetName())
	c.SetLabels(labels)
	if a := kept(o.GetAnnotations()); len(a) > 0 {
		c.SetAnnotations(a)
	}
	if spec, ok := o.Object["spec"]; ok {
		c.Object["spec"] = spec
	}
	return c
}

// marks are the labels of everything that is copied from here.
func (p peer) marks() client.MatchingLabels {
	return client.MatchingLabels{authv1beta1.LabelReplicated: networkingv1beta1.LabelTrue, authv1beta1.LabelReplicationOrigin: p.consumer}
}

// wanted are the labels of everything that is to be copied.
func (p peer) wanted() client.MatchingLabels {
	return client.MatchingLabels{authv1beta1.LabelReplication: networkingv1beta1.LabelTrue, authv1beta1.LabelReplicationDestination: p.provider}
}

func kept(m map[string]string) map[string]string {
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(k, _ string) bool { return slices.Contains(notCopied, k) || strings.HasSuffix(k, appliedHash) })
	if m == nil {
		m = map[string]string{}
	}
	return m
}

// ours tells whether an object there is a copy from here: a server may answer with something else than was asked for.
func (p peer) ours(o client.Object) bool {
	l := o.GetLabels()
	return o.GetNamespace() == p.there && l[authv1beta1.LabelReplicated] == networkingv1beta1.LabelTrue && l[authv1beta1.LabelReplicationOrigin] == p.consumer
}

// difference is what to do with one kind.
type difference struct {
	// write are to be written there.
	write []*unstructured.Unstructured
	// remove are to be deleted there.
	remove []*unstructured.Unstructured
	// answers pairs objects here with their copies, whose status is to be taken over if it differs.
	answers []answer
}

type answer struct{ here, there *unstructured.Unstructured }

// incomplete tells whether the controller of this cluster has yet to say in a ResourceSlice who asks.
func incomplete(o *unstructured.Unstructured) bool {
	consumer, _, _ := unstructured.NestedString(o.Object, "spec", "consumerClusterID")
	return o.GetKind() == "ResourceSlice" && consumer == ""
}

// compare compares what is here with what is there. A copy that is being deleted there is left alone: it is written
// again when it is gone.
func (p peer) compare(here, there []unstructured.Unstructured) (d difference) {
	copies := make(map[string]*unstructured.Unstructured, len(there))
	for i := range there {
		if o := &there[i]; p.ours(o) {
			copies[o.GetName()] = o
		}
	}
	for i := range here {
		o := &here[i]
		if o.GetNamespace() != p.here || o.GetDeletionTimestamp() != nil || o.GetLabels()[authv1beta1.LabelReplicated] == networkingv1beta1.LabelTrue {
			continue
		}
		c := copies[o.GetName()]
		delete(copies, o.GetName())
		if c == nil && incomplete(o) {
			continue // the provider would deny it
		}
		d.write = append(d.write, p.copyOf(o))
		if c != nil && c.GetDeletionTimestamp() == nil {
			d.answers = append(d.answers, answer{o, c})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(copies)) {
		if c := copies[name]; c.GetDeletionTimestamp() == nil {
			d.remove = append(d.remove, c)
		}
	}
	return d
}
