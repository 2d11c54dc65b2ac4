package virtualkubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

// register makes Node, lease and status. A node that is not wanted any more takes no further pods.
func (n *node) register(ctx context.Context, v *offloadingv1beta1.VirtualNode, wanted bool, s *session) error {
	o, err := n.object(ctx, v, wanted)
	if err != nil {
		return err
	}
	if o == nil {
		return nil
	}
	n.setWhose(ours)
	if err := n.renew(ctx, o); err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	// At the start of the process, and with new credentials. The first answer wakes this. A node that is not ready for a
	// moment has Kubernetes call all its pods not ready.
	if !n.looked || s != nil && !s.known() {
		return nil
	}
	facts := nodeFacts{address: n.k.options.Address, port: n.k.options.Port, now: metav1.Now(), provider: s.problem()}
	if v.Spec.DisableNetworkCheck == nil || !*v.Spec.DisableNetworkCheck {
		facts.network = n.k.networkProblem()
	}
	n.setAway(cmp.Or(facts.provider, facts.network))
	if facts.version, err = n.serverVersion(ctx); err != nil {
		return fmt.Errorf("get the version of the API server: %w", err)
	}
	status := nodeStatus(v, o.Status, facts)
	same := heartbeatOnly(o.Status, status, equality.Semantic.DeepEqual)
	if !same || stale(o.Status, facts.now.Time) {
		o.Status = status
		if err := n.k.home.core.Put().Resource("nodes").Name(o.Name).SubResource("status").Body(o).Do(ctx).Error(); err != nil {
			return fmt.Errorf("write the status: %w", err)
		}
	}
	if !wanted {
		n.tell(ctx, v, offloadingv1beta1.VirtualNodeDraining, "PodsLeft", "the Node goes when no pod is left on it")
		return nil
	}
	for _, c := range status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			n.tell(ctx, v, offloadingv1beta1.VirtualNodeCreating, c.Reason, c.Message)
			return nil
		}
	}
	n.tell(ctx, v, offloadingv1beta1.VirtualNodeRunning, "NodeReady", "the Node is ready")
	return nil
}

// setAway says why the provider is out of reach; empty: it is not. When that changes all pods are looked at, whose
// readiness depends on it.
func (n *node) setAway(why string) {
	n.mu.Lock()
	changed := (n.away == "") != (why == "")
	if changed {
		n.away = why
	}
	n.mu.Unlock()
	if changed {
		n.enqueueAll("")
	}
}

// unreachable says why the provider is out of reach; empty: it is not.
func (n *node) unreachable() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.away
}

// stale tells whether the heartbeats of a status are too old.
func stale(s corev1.NodeStatus, now time.Time) bool {
	for _, c := range s.Conditions {
		if c.Type == corev1.NodeReady {
			return now.Sub(c.LastHeartbeatTime.Time) > heartbeat
		}
	}
	return true
}

func (n *node) serverVersion(ctx context.Context) (string, error) {
	if n.version != "" {
		return n.version, nil
	}
	body, err := n.k.home.core.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return "", err
	}
	n.version = v.GitVersion
	return n.version, nil
}

// object makes the Node, with its labels and taints. It is nil if the Node is another's.
func (n *node) object(ctx context.Context, v *offloadingv1beta1.VirtualNode, wanted bool) (*corev1.Node, error) {
	core := n.k.home.core
	o := new(corev1.Node)
	err := core.Get().Resource("nodes").Name(n.name).Do(ctx).Into(o)
	switch {
	case apierrors.IsNotFound(err) && !wanted:
		n.setWhose(absent)
		return nil, nil
	case apierrors.IsNotFound(err):
		// With what says whose it is. The other labels follow by server-side apply, which takes back what it has given.
		made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: identityLabels(v)}, Spec: corev1.NodeSpec{Taints: nodeTaints(nil, v)}}
		o = new(corev1.Node)
		if err := core.Post().Resource("nodes").Body(made).Do(ctx).Into(o); err != nil {
			return nil, fmt.Errorf("create the Node: %w", err)
		}
		n.k.log.Info("virtual node created", "node", n.name)
	case err != nil:
		return nil, fmt.Errorf("get the Node: %w", err)
	case !ourNode(o, n.k.options.PeerID):
		n.setWhose(foreign) // since this round began: the next one lets go
		return nil, nil
	}
	// Labels and annotations by server-side apply: one that leaves the spec leaves the Node.
	labels := map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{
		"name": n.name, "uid": string(o.UID), "labels": nodeLabels(v), "annotations": v.Spec.Annotations,
	}}
	if n.last == nil || !equality.Semantic.DeepEqual(n.last.Spec, v.Spec) || !contains(o.Labels, nodeLabels(v)) || !contains(o.Annotations, v.Spec.Annotations) {
		body, err := json.Marshal(labels)
		if err != nil {
			return nil, err
		}
		o = new(corev1.Node) // decoding into one that has labels would add to them
		if err := core.Patch(types.ApplyPatchType).Resource("nodes").Name(n.name).
			VersionedParams(&metav1.PatchOptions{FieldManager: component, Force: new(true)}, metav1.ParameterCodec).Body(body).Do(ctx).Into(o); err != nil {
			return nil, fmt.Errorf("label the Node: %w", err)
		}
	}
	taints := nodeTaints(o.Spec.Taints, v)
	if equality.Semantic.DeepEqual(taints, o.Spec.Taints) && (wanted || o.Spec.Unschedulable) {
		return o, nil
	}
	o.Spec.Taints = taints
	o.Spec.Unschedulable = o.Spec.Unschedulable || !wanted
	tainted := new(corev1.Node)
	if err := core.Put().Resource("nodes").Name(n.name).Body(o).Do(ctx).Into(tainted); err != nil {
		return nil, fmt.Errorf("taint the Node: %w", err)
	}
	return tainted, nil
}

func contains(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// renew renews the lease, which keeps the node from counting as lost.
func (n *node) renew(ctx context.Context, o *corev1.Node) error {
	if time.Since(n.renewed) < n.k.options.LeaseDuration/renewals*9/10 {
		return nil
	}
	leases := n.k.home.coordination
	l := new(coordinationv1.Lease)
	err := leases.Get().Namespace(corev1.NamespaceNodeLease).Resource("leases").Name(n.name).Do(ctx).Into(l)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return err
	}
	l.Namespace, l.Name = corev1.NamespaceNodeLease, n.name
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: o.Name, UID: o.UID}}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &n.name, new(int32(n.k.options.LeaseDuration/time.Second))
	l.Spec.RenewTime = new(metav1.NowMicro())
	if absent {
		err = leases.Post().Namespace(l.Namespace).Resource("leases").Body(l).Do(ctx).Error()
	} else {
		err = leases.Put().Namespace(l.Namespace).Resource("leases").Name(l.Name).Body(l).Do(ctx).Error()
	}
	if err == nil {
		n.renewed = time.Now()
	}
	return err
}

// remove deletes the Node, if it is a virtual node of the provider. Its lease goes with it.
func (n *node) remove(ctx context.Context) error {
	o := new(corev1.Node)
	err := n.k.home.core.Get().Resource("nodes").Name(n.name).Do(ctx).Into(o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !ourNode(o, n.k.options.PeerID) {
		return err
	}
	if err := (resource{client: n.k.home.core, name: "nodes"}).delete(ctx, o, nil); err != nil {
		return err
	}
	n.k.log.Info("virtual node removed", "node", n.name)
	return nil
}

// tell writes the condition Node of the VirtualNode. Other conditions are others'.
func (n *node) tell(ctx context.Context, v *offloadingv1beta1.VirtualNode, status offloadingv1beta1.VirtualNodeConditionStatus, reason, message string) {
	c := offloadingv1beta1.VirtualNodeCondition{
		Type: offloadingv1beta1.VirtualNodeNode, Status: status, Reason: reason, Message: text.Cut(message, text.MaxEvent), LastTransitionTime: metav1.Now(),
	}
	for _, had := range v.Status.Conditions {
		if had.Type == c.Type {
			if had.Status == c.Status && had.Reason == c.Reason && had.Message == c.Message {
				return
			}
			if had.Status == c.Status {
				c.LastTransitionTime = had.LastTransitionTime
			}
		}
	}
	said := fmt.Sprint(v.UID, v.ResourceVersion, c.Status, c.Reason, c.Message)
	if said == n.told {
		return // the watch is late
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": offloadingv1beta1.GroupVersion.String(), "kind": "VirtualNode",
		"metadata": map[string]any{"name": v.Name, "namespace": v.Namespace, "uid": v.UID},
		"status":   map[string]any{"conditions": []any{c}},
	})
	if err == nil {
		err = n.k.home.offloading.Patch(types.ApplyPatchType).Namespace(v.Namespace).Resource("virtualnodes").Name(v.Name).SubResource("status").
			VersionedParams(&metav1.PatchOptions{FieldManager: component, Force: new(true)}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		n.problem("write the condition of the VirtualNode", err)
		return
	}
	n.told = said
}
