package peering

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/virtualnode"
)

// NewVirtualNode returns what asks for a Node that stands for the cluster that m names.
func NewVirtualNode(m Metadata, spec offloadingv1beta1.VirtualNodeSpec) *offloadingv1beta1.VirtualNode {
	spec.ClusterID = offloadingv1beta1.ClusterID(m.RemoteClusterID)
	o := &offloadingv1beta1.VirtualNode{ObjectMeta: m.of("", nil), Spec: spec}
	o.SetGroupVersionKind(offloadingv1beta1.GroupVersion.WithKind("VirtualNode"))
	return o
}

// CreateVirtualNode makes a virtual node and waits until it is ready. m names it and the provider; without a namespace it
// is made in the tenant namespace of that. slice, if any, is the ResourceSlice that says what the provider gives, and has
// the credentials: then the fields of spec for these are not looked at.
func CreateVirtualNode(ctx context.Context, consumer *access.Cluster, m Metadata, spec offloadingv1beta1.VirtualNodeSpec, slice string, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e, err := lookAlone(ctx, consumer, m.RemoteClusterID, &o, tell)
	if err != nil {
		return err
	}
	if err := e.checkOffloading(ctx); err != nil {
		return err
	}
	if e.namespaceFound() == nil {
		return e.Errorf("there is no tenant namespace for cluster %s; nothing was changed: run 'liqoctl authenticate' first", m.RemoteClusterID)
	}
	m.Namespace = e.namespace
	wanted := NewVirtualNode(m, spec)
	switch taken, err := e.nodeNameTaken(ctx, wanted.Name); {
	case err != nil:
		return err
	case taken != "":
		return e.Errorf("%s; nothing was changed: choose another name for the virtual node", taken)
	}
	var p plan
	made := p.add(nil, e.virtualNodeMade(wanted, slice))
	if spec.CreateNode == nil || *spec.CreateNode {
		p.add(after(made), e.nodeReady(wanted.Name))
	}
	return p.run(ctx, tell)
}

// nodeNameTaken says that there is a Node of a name that does not stand for the peer, such as a machine; empty: there is none.
// Whether there is one is unknown to those who may not see Nodes.
func (e *end) nodeNameTaken(ctx context.Context, name string) (taken string, err error) {
	n := new(corev1.Node)
	switch err := e.Client.Get(ctx, client.ObjectKey{Name: name}, n); {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", e.Explain("read Node "+name, err)
	case n.Labels[networkingv1beta1.LabelNodeType] != networkingv1beta1.NodeTypeVirtual || n.Labels[networkingv1beta1.LabelRemoteClusterID] != e.peer.id:
		return fmt.Sprintf("there is a Node %s, and it is not a virtual node for cluster %s", name, e.peer.id), nil
	}
	return "", nil
}

// virtualNodeMade makes a virtual node, from a ResourceSlice if one is named.
func (e *end) virtualNodeMade(wanted *offloadingv1beta1.VirtualNode, slice string) *step {
	s := &step{in: e.Cluster, waiting: "Creating the virtual node", detailed: true, done: "Virtual node created"}
	s.try = func(ctx context.Context) (missing string, err error) {
		o := wanted.DeepCopy()
		if slice != "" {
			if missing, err := e.takeSlice(ctx, o, slice); missing != "" || err != nil {
				return missing, err
			}
		}
		err = e.write.Create(ctx, o.DeepCopy())
		if !apierrors.IsAlreadyExists(err) {
			return "", e.Explain("create VirtualNode "+o.Name, err)
		}
		live := new(offloadingv1beta1.VirtualNode)
		switch err := e.Client.Get(ctx, client.ObjectKeyFromObject(o), live); {
		case err != nil:
			return "", e.Explain("read VirtualNode "+o.Name, err)
		case live.DeletionTimestamp != nil:
			return "an earlier VirtualNode is being deleted", nil
		case !equality.Semantic.DeepDerivative(o.Spec, live.Spec):
			s.note(progress.Warning, fmt.Sprintf("VirtualNode %s already exists with another spec: it is left unchanged; change it with 'kubectl -n %s edit virtualnode %[1]s'", live.Name, live.Namespace))
		}
		return "", nil
	}
	return s
}

// takeSlice gives a virtual node what a ResourceSlice was granted. The node is removed with the slice.
func (e *end) takeSlice(ctx context.Context, o *offloadingv1beta1.VirtualNode, name string) (missing string, err error) {
	slice := new(authv1beta1.ResourceSlice)
	switch err := e.Client.Get(ctx, e.named(name), slice); {
	case apierrors.IsNotFound(err):
		return "", e.Errorf("there is no ResourceSlice %s/%s: create one with 'liqoctl create resourceslice'", e.namespace, name)
	case err != nil:
		return "", e.Explain("read ResourceSlice "+name, err)
	case slice.Labels[authv1beta1.LabelReplicationDestination] != e.peer.id:
		return "", e.Errorf("ResourceSlice %s/%s does not ask cluster %s for resources", e.namespace, name, e.peer.id)
	}
	var secrets corev1.SecretList
	if err := e.list(ctx, "Secrets", &secrets, client.InNamespace(e.namespace), client.MatchingLabels{authv1beta1.LabelResourceSliceName: name}); err != nil {
		return "", err
	}
	granted, missing := virtualnode.FromSlice(slice, secrets.Items)
	if granted == nil {
		return missing, nil
	}
	of, asked := o.Spec, granted.Spec
	asked.CreateNode, asked.DisableNetworkCheck, asked.VkOptionsTemplateRef = of.CreateNode, of.DisableNetworkCheck, of.VkOptionsTemplateRef
	asked.Labels = merged(asked.Labels, of.Labels)
	if of.OffloadingPatch != nil {
		if asked.OffloadingPatch == nil {
			asked.OffloadingPatch = new(offloadingv1beta1.OffloadingPatch)
		}
		// What the provider wants counts.
		asked.OffloadingPatch.NodeSelector = merged(of.OffloadingPatch.NodeSelector, asked.OffloadingPatch.NodeSelector)
		asked.OffloadingPatch.RuntimeClassName = of.OffloadingPatch.RuntimeClassName
	}
	o.Spec, o.OwnerReferences = asked, granted.OwnerReferences
	metav1.SetMetaDataLabel(&o.ObjectMeta, authv1beta1.LabelResourceSliceName, name)
	return "", nil
}

// merged are all labels. Of one that both have the second counts.
func merged(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// reasonNodeTaken is the virtual kubelet's, in a condition and an Event: there is a Node of the name that is none of its own.
const reasonNodeTaken = "NodeNameTaken"

// nodeReady waits until the Node of a VirtualNode, or of the ResourceSlice of that name, is ready.
func (e *end) nodeReady(name string) *step {
	return &step{
		in: e.Cluster, waiting: "Waiting for node " + name, detailed: true, done: fmt.Sprintf("Node %s is Ready", name),
		clues: func(ctx context.Context, told string) []string { return e.virtualNodeClues(ctx, told, name) },
		try: func(ctx context.Context) (missing string, err error) {
			v := new(offloadingv1beta1.VirtualNode)
			err = e.Client.Get(ctx, e.named(name), v)
			if apierrors.IsNotFound(err) {
				return "the controller has not created the VirtualNode yet", nil
			}
			if err != nil {
				return "", e.Explain("read VirtualNode "+name, err)
			}
			node := new(corev1.Node)
			switch err := e.Client.Get(ctx, client.ObjectKey{Name: name}, node); {
			case apierrors.IsNotFound(err):
				node = nil
			case apierrors.IsForbidden(err): // the VirtualNode has to do
				return notRunning(v)
			case err != nil:
				return "", e.Explain("read Node "+name, err)
			}
			return nodeMissing(v, node)
		},
	}
}

// notRunning says what a VirtualNode lacks by its conditions. What only a person can cure is a complaint.
func notRunning(v *offloadingv1beta1.VirtualNode) (missing string, err error) {
	for _, of := range []offloadingv1beta1.VirtualNodeConditionType{offloadingv1beta1.VirtualNodeVirtualKubelet, offloadingv1beta1.VirtualNodeNode} {
		i := slices.IndexFunc(v.Status.Conditions, func(c offloadingv1beta1.VirtualNodeCondition) bool { return c.Type == of })
		if i < 0 {
			return fmt.Sprintf("VirtualNode %s has no condition %s yet", v.Name, of), nil
		}
		switch c := v.Status.Conditions[i]; c.Status {
		case offloadingv1beta1.VirtualNodeRunning:
		case offloadingv1beta1.VirtualNodeNone:
			why := complaint{fmt.Sprintf("VirtualNode %s, %s (%s): %s", v.Name, of, c.Reason, c.Message)}
			if c.Reason == reasonNodeTaken {
				return "", &final{why}
			}
			return "", &why
		default:
			return c.Message, nil
		}
	}
	return "", nil
}

// nodeMissing says what the Node of a VirtualNode lacks.
func nodeMissing(v *offloadingv1beta1.VirtualNode, node *corev1.Node) (missing string, err error) {
	if missing, err := notRunning(v); missing != "" || err != nil {
		return missing, err
	}
	if node == nil {
		return "there is no Node " + v.Name + " yet", nil
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return fmt.Sprintf("Node %s is not ready: %s", node.Name, c.Message), nil
		}
	}
	return "", nil
}

// virtualNodeClues describes the process of the virtual nodes and, for a named one, its events and those of its
// ResourceSlice.
func (e *end) virtualNodeClues(ctx context.Context, told, name string) []string {
	if name != "" && strings.Contains(told, reasonNodeTaken) { // the Node came later, or the user may not see it
		return []string{"Next: delete it with " + e.Command("delete", "virtualnode", name, "-n", e.namespace) + ", and create a virtual node with another name"}
	}
	v := evidence{Now: time.Now()}
	e.seeInstallation(ctx, &v)
	e.seePods(ctx, &v, client.MatchingLabels{offloadingv1beta1.LabelComponent: offloadingv1beta1.ComponentVirtualKubelet})
	if name != "" {
		e.seeEvents(ctx, &v, name)
		// An earlier object of the name explains nothing, nor does a name that was taken: a VirtualNode says so as long as it is.
		made := false
		for kind, o := range map[string]client.Object{"VirtualNode": new(offloadingv1beta1.VirtualNode), "ResourceSlice": new(authv1beta1.ResourceSlice)} {
			if e.Client.Get(ctx, e.named(name), o) == nil {
				made = made || kind == "VirtualNode"
				v.Objects = append(v.Objects, judged{Name: kind + " " + e.namespace + "/" + name, UID: o.GetUID()})
			}
		}
		v.Events = slices.DeleteFunc(v.Events, func(ev corev1.Event) bool {
			return ev.Reason == reasonNodeTaken || made && ev.Reason == virtualnode.ReasonNameTaken
		})
	}
	// An event that is not a warning says that a slice is waiting.
	for i := range v.Events {
		v.Events[i].Type = corev1.EventTypeWarning
	}
	return v.explain(told)
}

// drainClues describes the process that ends the pods.
func (e *end) drainClues(ctx context.Context, told string) []string {
	return e.virtualNodeClues(ctx, told, "")
}

// DeleteVirtualNode removes a virtual node, and waits until its pods have ended and its Node is gone. A ResourceSlice that
// asks for it asks no more.
func DeleteVirtualNode(ctx context.Context, in *access.Cluster, name string, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	var all offloadingv1beta1.VirtualNodeList
	if err := in.Client.List(ctx, &all, within(in)...); err != nil {
		return in.Explain("list VirtualNodes", err)
	}
	found, err := only(in, "VirtualNode", name, all.Items)
	if err != nil {
		return err
	}
	e := alone(in, string(found.Spec.ClusterID), &o)[0]
	e.namespace = found.Namespace
	s := &step{in: in, waiting: "Deleting the virtual node", detailed: true, done: "Virtual node deleted", clues: e.drainClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		if asked, err := e.unask(ctx, name); err != nil {
			return "", err
		} else if asked {
			s.note(progress.Warning, fmt.Sprintf("ResourceSlice %s no longer asks for the virtual node: its annotation %s is now false", name, authv1beta1.AnnotationCreateVirtualNode))
		}
		// It is read each time: the controller may have made another one before it knew.
		live := new(offloadingv1beta1.VirtualNode)
		err = in.Client.Get(ctx, client.ObjectKeyFromObject(found), live)
		if err == nil {
			return e.removeAll(ctx, live)
		}
		if !apierrors.IsNotFound(err) {
			return "", in.Explain("read VirtualNode "+name, err)
		}
		return e.nodesLeft(ctx, name)
	}
	return s.runAlone(ctx, tell)
}

// unask has ResourceSlices for the peer ask for no virtual node, the one of a name or, if that is empty, all. It tells
// whether one did.
func (e *end) unask(ctx context.Context, name string) (asked bool, err error) {
	var list authv1beta1.ResourceSliceList
	if err := e.list(ctx, "ResourceSlices", &list, e.ownSlices()...); err != nil {
		return false, err
	}
	for i := range list.Items {
		s := &list.Items[i]
		if v := s.Annotations[authv1beta1.AnnotationCreateVirtualNode]; v == "" || v == "false" || name != "" && s.Name != name {
			continue
		}
		before := s.DeepCopy()
		s.Annotations[authv1beta1.AnnotationCreateVirtualNode] = "false"
		if err := e.write.Patch(ctx, s, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return false, e.Explain("change ResourceSlice "+s.Name, err)
		}
		asked = true
	}
	return asked, nil
}

// ownSlices selects the ResourceSlices by which this end asks the peer.
func (e *end) ownSlices() []client.ListOption {
	return []client.ListOption{client.InNamespace(e.namespace), client.MatchingLabels{
		authv1beta1.LabelReplication: networkingv1beta1.LabelTrue, authv1beta1.LabelReplicationDestination: e.peer.id,
	}}
}

// virtualNodesGone deletes the virtual nodes of the peer. While the peer can be reached, their pods are removed first:
// without credentials for the peer nobody could remove them there.
func (e *end) virtualNodesGone(reachable bool) *step {
	s := &step{in: e.Cluster, waiting: "Deleting virtual nodes", detailed: true, done: "No virtualnodes found", clues: e.drainClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		if _, err := e.unask(ctx, ""); err != nil {
			return "", err
		}
		var list offloadingv1beta1.VirtualNodeList
		if err := e.list(ctx, "VirtualNodes", &list, client.InNamespace(e.namespace)); err != nil {
			if meta.IsNoMatchError(err) {
				return "", nil
			}
			return "", err
		}
		list.Items = slices.DeleteFunc(list.Items, func(v offloadingv1beta1.VirtualNode) bool { return string(v.Spec.ClusterID) != e.peer.id })
		if len(list.Items) > 0 {
			s.done = "All virtualnodes deleted"
		}
		if missing, err := e.removeAll(ctx, objects(list.Items)...); missing != "" || err != nil || !reachable {
			return missing, err
		}
		return e.nodesLeft(ctx, "")
	}
	return s
}

// nodesLeft says which Nodes of the peer are left, of a name or, if that is empty, of any, and what keeps them. What the
// user may not see is not there.
func (e *end) nodesLeft(ctx context.Context, name string) (missing string, err error) {
	var nodes corev1.NodeList
	err = e.list(ctx, "Nodes", &nodes, client.MatchingLabels{
		networkingv1beta1.LabelNodeType: networkingv1beta1.NodeTypeVirtual, networkingv1beta1.LabelRemoteClusterID: e.peer.id,
	})
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	for i := range nodes.Items {
		n := nodes.Items[i].Name
		if name != "" && n != name {
			continue
		}
		var pods corev1.PodList
		if err := e.Client.List(ctx, &pods, client.MatchingFields{"spec.nodeName": n}); err != nil || len(pods.Items) == 0 {
			return "Node " + n + " is being removed", nil
		}
		return fmt.Sprintf("Node %s is being drained: %d pods are still on it, such as %s", n, len(pods.Items), client.ObjectKeyFromObject(&pods.Items[0])), nil
	}
	return "", err
}

// namespacesGone deletes what the peer has asked for in the way of namespaces, and waits until those are gone that were
// made for it. What the user may not see is not there.
func (e *end) namespacesGone() *step {
	s := &step{in: e.Cluster, waiting: "Deleting offloaded namespaces", detailed: true, clues: e.controllerClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		var requests offloadingv1beta1.NamespaceMapList
		err = e.list(ctx, "NamespaceMaps", &requests, e.copies()...)
		if meta.IsNoMatchError(err) {
			return "", nil
		}
		if err == nil {
			missing, err = e.removeAll(ctx, objects(requests.Items)...)
		}
		if missing != "" || err != nil && !apierrors.IsForbidden(err) {
			return missing, err
		}
		var namespaces corev1.NamespaceList
		err = e.list(ctx, "namespaces", &namespaces, client.MatchingLabels{
			networkingv1beta1.LabelRemoteClusterID: e.peer.id, networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue,
		})
		if err != nil {
			if apierrors.IsForbidden(err) {
				err = nil
			}
			return "", err
		}
		for i := range namespaces.Items {
			n := &namespaces.Items[i]
			if _, made := n.Annotations[offloadingv1beta1.AnnotationManagedByNamespaceMap]; made {
				s.done = "All offloaded namespaces deleted"
				return "namespace " + n.Name + " is being deleted", nil
			}
		}
		return "", nil
	}
	return s
}

// copies selects what the peer has copied to this end.
func (e *end) copies() []client.ListOption {
	return []client.ListOption{client.InNamespace(e.namespace), client.MatchingLabels{
		authv1beta1.LabelReplicated: networkingv1beta1.LabelTrue, authv1beta1.LabelReplicationOrigin: e.peer.id,
	}}
}
