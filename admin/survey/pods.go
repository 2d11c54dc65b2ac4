package survey

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/reflection"
)

// OffloadedPod is a pod that may run in another cluster, or one of another cluster that runs in this one. Its JSON form is
// what scripts read: fields are added, not renamed.
type OffloadedPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// From is the ID of the cluster whose pod it is, In that of the one in which it runs. In and Node are empty while it
	// waits for a node.
	From  string          `json:"from"`
	In    string          `json:"in,omitempty"`
	Node  string          `json:"node,omitempty"`
	Phase corev1.PodPhase `json:"phase"`
	Ready bool            `json:"ready"`
	// Reason is why it is not ready, or what it waits for although it is, in few words; empty: nothing.
	Reason string `json:"reason,omitempty"`
	IP     string `json:"ip,omitempty"`
	// OtherNamespace is its namespace in the other one of the two clusters; empty: it runs where it is from, or that is not
	// known.
	OtherNamespace string    `json:"otherNamespace,omitempty"`
	Created        time.Time `json:"created,omitzero"`
}

// podFacts are the objects that tell where pods run.
type podFacts struct {
	own        string // the ID of the cluster
	virtual    []offloadingv1beta1.VirtualNode
	offloaded  []offloadingv1beta1.NamespaceOffloading
	namespaces []corev1.Namespace // those made for other clusters
	pods       []corev1.Pod
	// events are the warnings about pods, of namespaces with a pod whose status has no reason.
	events []corev1.Event
}

// OffloadedPods returns the pods of offloaded namespaces and those of other clusters, of one namespace or, if that is
// empty, of all, sorted.
func OffloadedPods(ctx context.Context, c *access.Cluster, namespace string) ([]OffloadedPod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	f, err := gatherPods(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	return f.place(), nil
}

func gatherPods(ctx context.Context, c *access.Cluster, namespace string) (f podFacts, err error) {
	if f.own, err = c.ID(ctx); err != nil {
		return f, err
	}
	list := func(what string, into client.ObjectList, o ...client.ListOption) {
		if err == nil {
			if e := c.Client.List(ctx, into, o...); !meta.IsNoMatchError(e) {
				err = c.Explain("list "+what, e)
			}
		}
	}
	var virtual offloadingv1beta1.VirtualNodeList
	var offloaded offloadingv1beta1.NamespaceOffloadingList
	list("VirtualNodes", &virtual)
	list("NamespaceOffloadings", &offloaded, client.InNamespace(namespace))
	f.virtual, f.offloaded = virtual.Items, offloaded.Items
	seen := map[client.ObjectKey]bool{}
	pods := func(in string, o ...client.ListOption) {
		var found corev1.PodList
		list("pods", &found, append(o, client.InNamespace(in))...)
		for _, p := range found.Items {
			if key := client.ObjectKeyFromObject(&p); !seen[key] {
				seen[key] = true
				f.pods = append(f.pods, p)
			}
		}
	}
	for i := range f.offloaded {
		pods(f.offloaded[i].Namespace)
	}
	// One can be on a virtual node whose namespace is not offloaded, or not any more.
	pods(namespace, client.MatchingLabels{networkingv1beta1.LabelShadowPod: networkingv1beta1.LabelTrue})
	pods(namespace, client.MatchingLabels{offloadingv1beta1.LabelManagedBy: offloadingv1beta1.ManagedByShadowPod})
	if err != nil {
		return f, err
	}
	var namespaces corev1.NamespaceList
	list("namespaces", &namespaces, client.MatchingLabels{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue})
	if apierrors.IsForbidden(err) {
		err = nil // what they are called elsewhere is not known then
	}
	f.namespaces = namespaces.Items
	if err != nil {
		return f, err
	}
	for _, in := range f.unexplained() {
		var found corev1.EventList
		list("events of namespace "+in, &found, client.InNamespace(in), client.MatchingFields{"type": corev1.EventTypeWarning, "involvedObject.kind": "Pod"})
		if apierrors.IsForbidden(err) {
			err = nil // only the reasons are missing
		}
		f.events = append(f.events, found.Items...)
	}
	return f, err
}

// unexplained are the namespaces of pods whose status does not say why they are not ready, each once.
func (f *podFacts) unexplained() (namespaces []string) {
	for i := range f.pods {
		if p := &f.pods[i]; silent(p, podOf(p).Reason) && !slices.Contains(namespaces, p.Namespace) {
			namespaces = append(namespaces, p.Namespace)
		}
	}
	return namespaces
}

// silent tells whether the reason that the status of a pod gives is none: a provider that is not one of ours says it by Events
// alone.
func silent(p *corev1.Pod, reason string) bool {
	return reason == phaseOnly(p) || strings.Contains(reason, reflection.ReasonRecreating)
}

// warned is the newest warning about a pod, as a provider gives that refuses it: its virtual kubelet, or the provider's own
// controllers, write it as an Event; empty: there is none.
func (f *podFacts) warned(p *corev1.Pod) string {
	var last *corev1.Event
	for i := range f.events {
		e := &f.events[i]
		about := e.InvolvedObject.Namespace == p.Namespace && e.InvolvedObject.Name == p.Name && (e.InvolvedObject.UID == "" || e.InvolvedObject.UID == p.UID)
		if about && (last == nil || !EventTime(e).Before(EventTime(last))) {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	return because(last.Reason, last.Message)
}

// place says where each pod is from and where it runs.
//
//	the pod                                   from         in
//	was made for a ShadowPod                  its origin   this cluster
//	is on a virtual node                      this cluster that of the node
//	is on another node                        this cluster this cluster
//	has no node                               this cluster -
func (f *podFacts) place() []OffloadedPod {
	out := []OffloadedPod{}
	for i := range f.pods {
		p := &f.pods[i]
		seen := podOf(p)
		if silent(p, seen.Reason) {
			seen.Reason += f.warned(p)
		}
		o := OffloadedPod{
			Namespace: p.Namespace, Name: p.Name, From: f.own, Node: p.Spec.NodeName, Phase: p.Status.Phase,
			Ready: seen.Ready, Reason: cmp.Or(seen.Reason, notResized(p)), IP: p.Status.PodIP, Created: p.CreationTimestamp.Time,
		}
		virtual := slices.IndexFunc(f.virtual, func(v offloadingv1beta1.VirtualNode) bool { return v.Name == p.Spec.NodeName })
		switch {
		case p.Labels[offloadingv1beta1.LabelManagedBy] == offloadingv1beta1.ManagedByShadowPod:
			o.From = p.Labels[offloadingv1beta1.LabelOrigin]
			if p.Spec.NodeName != "" {
				o.In = f.own
			}
			if n := slices.IndexFunc(f.namespaces, func(n corev1.Namespace) bool { return n.Name == p.Namespace }); n >= 0 {
				o.OtherNamespace = f.namespaces[n].Annotations[offloadingv1beta1.AnnotationOriginalName]
			}
		case virtual >= 0:
			o.In = string(f.virtual[virtual].Spec.ClusterID)
			if n := slices.IndexFunc(f.offloaded, func(n offloadingv1beta1.NamespaceOffloading) bool { return n.Namespace == p.Namespace }); n >= 0 {
				o.OtherNamespace = f.offloaded[n].Status.RemoteNamespaceName
			}
		case p.Spec.NodeName != "":
			o.In = f.own
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b OffloadedPod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// notResized says that a pod which is ready has not got the resources yet that somebody wants for it; empty: it has.
func notResized(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress && c.Reason == corev1.PodReasonError) {
			return "it is ready, and its resize is not done" + because(c.Reason, c.Message)
		}
	}
	return ""
}

// EventTime is when an event happened last.
func EventTime(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
