package virtualkubelet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/reflection"
)

// last is what is still to be done with a pod whose namespace is being removed at the provider.
type last int

const (
	// leave means nothing: it has ended.
	leave last = iota
	// follows means that it has the status of the pod there, which still runs or ends.
	follows
	// missing means that it does not run: the pod there is gone, and none can be made.
	missing
	// hasEnded means that it has the phase of the end that its ShadowPod tells.
	hasEnded
	// release means that it is being deleted and may go: the pod there is gone.
	release
)

// lastOf decides by what there is: Kubernetes deletes the pods of a namespace before their ShadowPods. Shadow and copied are nil
// where there is none.
func lastOf(here *corev1.Pod, shadow *offloadingv1beta1.ShadowPod, copied *corev1.Pod) last {
	runs := copied != nil && !reflection.IsOfAnother(here, copied)
	switch {
	case here.DeletionTimestamp == nil && ended(here.Status.Phase):
		return leave
	case runs:
		return follows
	case here.DeletionTimestamp != nil:
		return release
	case shadow != nil && !reflection.IsOfAnother(here, shadow) && ended(shadow.Status.Phase):
		return hasEnded
	}
	return missing
}

// windUp does what is left to do with a pod while its namespace is being removed at the provider. It makes and deletes nothing
// there: the provider does.
func (k *Kubelet) windUp(ctx context.Context, n *node, here *corev1.Pod, s *session, sp *space) error {
	shadow, copied := sp.shadows.get(sp.there, here.Name), sp.pods.get(sp.there, here.Name)
	switch lastOf(here, shadow, copied) {
	case follows:
		return k.takeOver(ctx, n, here, copied, nil)
	case missing:
		return k.takeOver(ctx, n, here, nil, nil)
	case hasEnded:
		if there, err := k.stillThere(ctx, here, s, sp); there || err != nil {
			return err // the cache is late, and tells
		}
		return k.takeOver(ctx, n, here, nil, shadow)
	case release:
		switch there, err := k.stillThere(ctx, here, s, sp); {
		case err != nil:
			return err
		case there:
			return fmt.Errorf("pod %s/%s is still there", sp.there, here.Name)
		}
		return resource{client: k.home.core, name: "pods"}.delete(ctx, here, new(int64(0)))
	}
	return nil
}

// stillThere asks the provider whether it has the pod of one here, of which its watch has told that it is gone. The right to ask
// goes with the namespace, mostly before the last pod: the word of the watch, which goes on, has to do then.
func (k *Kubelet) stillThere(ctx context.Context, here *corev1.Pod, s *session, sp *space) (bool, error) {
	o, err := s.resource(s.core, "pods").metadata(ctx, sp.there, here.Name)
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil || o == nil {
		return false, err
	}
	return k.peering.Ours(o.Labels) && o.Labels[offloadingv1beta1.LabelNodeName] == here.Spec.NodeName && !reflection.IsOfAnother(here, o), nil
}
