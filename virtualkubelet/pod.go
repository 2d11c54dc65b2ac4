package virtualkubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/reflection"
)

// pod makes the two sides of a pod agree:
//
//	here            at the provider          what is done
//	there           nothing                  the ShadowPod is made
//	there           as it is to be           the status is taken over
//	there           the phase of its end     the pod here has ended
//	there           of a former pod          the ShadowPod is deleted, and made anew when it is gone
//	there           not ours                 an Event, nothing else
//	being deleted   there                    the ShadowPod is deleted
//	being deleted   gone                     the pod here is let go
//	gone            there                    the ShadowPod is deleted
//	ended           whatever                 nothing
//
// Where the namespace does not stand at the provider, or not all that is there is known, nothing is made or removed; windUp
// says what is done while it is being removed there. Nothing is either where the Node is not ours: the pods on it are another's,
// and those here are not even written. While there is no Node at all, what is left of pods that are gone is still deleted at
// the provider.
func (k *Kubelet) pod(ctx context.Context, at key) error {
	n := k.node(at.node)
	if n == nil {
		return nil
	}
	v, s, pods := n.parts()
	if v == nil || !pods.synced() {
		return nil // the informer tells of each pod when it has them
	}
	here := pods.get(at.namespace, at.name)
	switch is, err := n.askWhose(ctx); { // past every cache, and after the pod was read
	case err != nil:
		return err
	case is == foreign, is != ours && here != nil:
		return nil // when it becomes ours all pods are looked at
	}
	there, standing := stand(k.namespaceMap(), at.namespace)
	switch {
	case standing == unmapped && here != nil:
		if over, err := k.over(ctx, here, s); !over {
			return err
		}
		return k.abandon(ctx, here)
	case here == nil && standing != mapped:
		k.made.Delete(at)
		s.space(at.namespace).miss() // a ShadowPod is to be deleted, perhaps
		return nil
	case standing == ending:
		sp := s.space(at.namespace)
		sp.miss() // it may be made again
		if !sp.synced() || sp.there != there {
			return nil
		}
		return k.windUp(ctx, n, here, s, sp)
	case standing != mapped: // the node looks again when the NamespaceMap changes
		sp := s.space(at.namespace)
		sp.miss()
		return k.lost(ctx, n, here, sp)
	}
	sp := s.space(at.namespace)
	if !sp.synced() || sp.there != there {
		return nil // once it is, all pods are looked at
	}
	shadow, copied := sp.shadows.get(there, at.name), sp.pods.get(there, at.name)
	shadows := s.resource(s.offloading, "shadowpods")
	switch {
	case here == nil && shadow == nil:
		k.made.Delete(at)
		return k.dropTokens(ctx, at, s, sp)
	case here == nil, shadow != nil && reflection.IsOfAnother(here, shadow):
		if shadow.DeletionTimestamp != nil {
			return nil
		}
		return shadows.delete(ctx, shadow, nil)
	case here.DeletionTimestamp != nil:
		return k.finish(ctx, n, here, shadow, copied, shadows, s.resource(s.core, "pods"), there)
	case ended(here.Status.Phase):
		return nil
	}
	if err := k.mark(ctx, here); err != nil {
		return err
	}
	if shadow != nil && shadow.DeletionTimestamp != nil {
		return nil // it is made again when it is gone
	}
	api := k.apiAccess()
	desired, err := reflection.ShadowPod(here, reflection.PodOptions{Peering: k.peering, Namespace: there, Patch: patchOf(v), API: api})
	if refused := new(reflection.RefusedError); errors.As(err, &refused) {
		return k.refuse(ctx, here, refused.Error())
	}
	if err != nil {
		return err
	}
	if err := k.tokens(ctx, at, here, s, sp, api.Tokens(here)); err != nil {
		if refused(err) || apierrors.IsNotFound(err) {
			return errors.Join(k.refuse(ctx, here, err.Error()), err)
		}
		return err
	}
	if _, err := shadows.apply(ctx, k.peering, desired, nilled(shadow)); err != nil {
		if refused(err) {
			return errors.Join(k.refuse(ctx, here, err.Error()), err) // tried again: nobody tells when it would work
		}
		return err
	}
	k.made.Store(at, nil)
	if e := here.Spec.EphemeralContainers; len(e) > 0 {
		k.event(ctx, reference("v1", "Pod", here), ReasonFailedReflection, fmt.Sprintf("ephemeral container %s does not run: the pod goes on in the other cluster without it", e[len(e)-1].Name))
	}
	if copied != nil && reflection.IsOfAnother(here, copied) {
		return nil // of the pod before, which ends
	}
	if copied != nil || shadow == nil || !ended(shadow.Status.Phase) {
		return k.takeOver(ctx, n, here, copied, shadow)
	}
	// It has ended, and the provider has removed it. Unless the cache is late, which then tells.
	live, err := s.resource(s.core, "pods").metadata(ctx, there, here.Name)
	if err != nil || live != nil {
		return err
	}
	return k.takeOver(ctx, n, here, nil, shadow)
}

// ended tells whether a phase is the last one.
func ended(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// nilled makes no object of a nil pointer.
func nilled(o *offloadingv1beta1.ShadowPod) metav1.Object {
	if o == nil {
		return nil
	}
	return o
}

// refused tells whether the provider has answered, and will answer the same until somebody changes something.
func refused(err error) bool {
	return errors.As(err, new(*foreignError)) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err) || apierrors.IsBadRequest(err)
}

// patchOf is what a VirtualNode adds to its pods.
func patchOf(v *offloadingv1beta1.VirtualNode) reflection.Patch {
	p := reflection.Patch{Filter: reflection.DefaultFilter}
	o := v.Spec.OffloadingPatch
	if o == nil {
		return p
	}
	p.Filter.Labels = append(p.Filter.Labels, o.LabelsNotReflected...)
	p.Filter.Annotations = append(append([]string(nil), p.Filter.Annotations...), o.AnnotationsNotReflected...)
	p.NodeSelector, p.Tolerations = o.NodeSelector, o.Tolerations
	if o.Affinity != nil {
		p.NodeAffinity = o.Affinity.NodeAffinity
	}
	if o.RuntimeClassName != nil {
		p.RuntimeClassName = *o.RuntimeClassName
	}
	return p
}

// mark gives the pod the label by which others know that it does not run here, and the tolerations by which it stays on the
// node while the provider is away. That is done here and not at admission, as a pod that runs on another node is to be
// evicted from there.
func (k *Kubelet) mark(ctx context.Context, here *corev1.Pod) error {
	tolerations, changed := reflection.Staying(here.Spec.Tolerations)
	marked := here.Labels[networkingv1beta1.LabelShadowPod] == networkingv1beta1.LabelTrue
	if marked && !changed {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"uid": here.UID, "labels": map[string]string{networkingv1beta1.LabelShadowPod: networkingv1beta1.LabelTrue}}}
	if changed {
		patch["spec"] = map[string]any{"tolerations": tolerations}
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	err = k.home.core.Patch(types.MergePatchType).Namespace(here.Namespace).Resource("pods").Name(here.Name).Body(text).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("mark pod %s/%s: %w", here.Namespace, here.Name, err)
	}
	return nil
}

// takeOver writes the status that the pod at the provider has. Of a pod that is not there it writes what its ShadowPod says,
// if that is not nil: its last phase, or why there is none.
func (k *Kubelet) takeOver(ctx context.Context, n *node, here, copied *corev1.Pod, shadow *offloadingv1beta1.ShadowPod) error {
	o := reflection.StatusOptions{Addresses: k.addresses(), HostIP: k.options.Address, Away: n.unreachable(), Now: metav1.Now()}
	if copied == nil && shadow != nil {
		o.Ended, o.Reason, o.Message = shadow.Status.Phase, shadow.Status.Reason, shadow.Status.Message
	}
	return k.writeStatus(ctx, here, reflection.PodStatus(here, copied, o))
}

// lost tells of a pod whose namespace does not stand at the provider now that it does not run, where that is certain: a provider
// that drains a Tenant removes its namespaces.
func (k *Kubelet) lost(ctx context.Context, n *node, here *corev1.Pod, sp *space) error {
	if !sp.synced() || here.DeletionTimestamp != nil || ended(here.Status.Phase) ||
		sp.shadows.get(sp.there, here.Name) != nil || sp.pods.get(sp.there, here.Name) != nil {
		return nil
	}
	return k.takeOver(ctx, n, here, nil, nil)
}

// writeStatus writes a status, if it is another one. A conflict is an error: the informer will have what is newer.
func (k *Kubelet) writeStatus(ctx context.Context, here *corev1.Pod, status corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(here.Status, status) {
		return nil
	}
	o := here.DeepCopy() // others read it
	o.Status = status
	err := k.home.core.Put().Namespace(o.Namespace).Resource("pods").Name(o.Name).SubResource("status").Body(o).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of pod %s/%s: %w", o.Namespace, o.Name, err)
	}
	return nil
}

// refuse says on the pod why it does not run. It stays Pending: a controller would replace one that has failed at once,
// again and again.
func (k *Kubelet) refuse(ctx context.Context, here *corev1.Pod, why string) error {
	k.event(ctx, reference("v1", "Pod", here), ReasonFailedReflection, why)
	status := *here.Status.DeepCopy()
	status.Reason, status.Message = ReasonFailedReflection, text.Cut(why, text.MaxEvent)
	return k.writeStatus(ctx, here, status)
}

// over tells whether a pod in a namespace that the NamespaceMap does not have may be given up. A map that was lost and
// made anew is empty as well, so one that ran is given up only if it is gone at the provider or, where it is not known
// any more where that was, if nobody wants the namespace offloaded. Whoever may not ask at the provider has no pod there.
func (k *Kubelet) over(ctx context.Context, here *corev1.Pod, s *session) (bool, error) {
	if len(here.Status.ContainerStatuses) == 0 && here.DeletionTimestamp == nil {
		return true, nil
	}
	sp := s.space(here.Namespace)
	if sp == nil {
		namespace := new(corev1.Namespace)
		if err := k.home.core.Get().Resource("namespaces").Name(here.Namespace).Do(ctx).Into(namespace); err != nil {
			return false, fmt.Errorf("get namespace %s: %w", here.Namespace, err)
		}
		return namespace.Labels[offloadingv1beta1.LabelSchedulingEnabled] != networkingv1beta1.LabelTrue || here.Labels[networkingv1beta1.LabelShadowPod] != networkingv1beta1.LabelTrue, nil
	}
	for _, r := range []resource{s.resource(s.offloading, "shadowpods"), s.resource(s.core, "pods")} {
		o, err := r.metadata(ctx, sp.there, here.Name)
		if apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		if o != nil && k.peering.Ours(o.Labels) && !reflection.IsOfAnother(here, o) {
			return false, fmt.Errorf("the namespace is not offloaded, and %s %s/%s is still there", r.name, sp.there, here.Name)
		}
	}
	return true, nil
}

// abandon ends a pod on the node in a namespace that is not offloaded. One that ran there has failed. One that never
// ran waits: its namespace may be offloaded in a moment. One that is being deleted has nothing to wait for.
func (k *Kubelet) abandon(ctx context.Context, here *corev1.Pod) error {
	status := *here.Status.DeepCopy()
	switch {
	case here.DeletionTimestamp != nil:
		return resource{client: k.home.core, name: "pods"}.delete(ctx, here, new(int64(0)))
	case ended(status.Phase):
		return nil
	case len(status.ContainerStatuses) > 0:
		status = reflection.PodStatus(here, nil, reflection.StatusOptions{Ended: corev1.PodFailed, Now: metav1.Now()})
		status.Reason, status.Message = ReasonAborted, "its namespace is not offloaded any more"
		for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
			for i := range list { // kubectl shows the reason of a container, if there is one
				if t := list[i].State.Terminated; t.Reason == reflection.ReasonUnknown {
					t.Reason, t.Message = status.Reason, status.Message
				}
			}
		}
	default:
		status.Phase, status.Reason = corev1.PodPending, ReasonNotOffloaded
		status.Message = "it is on a virtual node, and its namespace is not offloaded: make a NamespaceOffloading, or delete the pod"
	}
	if !equality.Semantic.DeepEqual(here.Status, status) {
		k.event(ctx, reference("v1", "Pod", here), status.Reason, status.Message)
	}
	return k.writeStatus(ctx, here, status)
}

// finish ends a pod that is being deleted: first at the provider, then here.
func (k *Kubelet) finish(ctx context.Context, n *node, here *corev1.Pod, shadow *offloadingv1beta1.ShadowPod, copied *corev1.Pod, shadows, pods resource, there string) error {
	if shadow != nil {
		if shadow.DeletionTimestamp == nil {
			if err := shadows.delete(ctx, shadow, nil); err != nil {
				return err
			}
		}
		if copied != nil {
			return k.takeOver(ctx, n, here, copied, nil)
		}
		return nil // its end wakes us
	}
	if copied != nil && !reflection.IsOfAnother(here, copied) {
		return k.takeOver(ctx, n, here, copied, nil)
	}
	// The caches are late perhaps: after an outage a watch may wait a minute. A pod that goes here while it runs there would
	// run twice.
	for _, r := range []resource{shadows, pods} {
		o, err := r.metadata(ctx, there, here.Name)
		if err != nil {
			return err
		}
		if o != nil && k.peering.Ours(o.Labels) && o.Labels[offloadingv1beta1.LabelNodeName] == here.Spec.NodeName && !reflection.IsOfAnother(here, o) {
			err := fmt.Errorf("%s %s/%s is still there", r.name, there, here.Name)
			if r == shadows {
				err = errors.Join(err, r.delete(ctx, o, nil))
			}
			return err
		}
	}
	return resource{client: k.home.core, name: "pods"}.delete(ctx, here, new(int64(0)))
}
