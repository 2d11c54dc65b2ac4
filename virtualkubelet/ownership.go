package virtualkubelet

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/objects/mirror"
)

// whose says whose the Node of a name is. Only pods on one that is ours are ours.
type whose int

const (
	// unknown means that the API server was not asked yet.
	unknown whose = iota
	// ours means that there is a virtual node of the provider.
	ours
	// absent means that there is no Node. Pods that still name it are those of nobody.
	absent
	// foreign means that the Node is another's, such as a machine of the cluster.
	foreign
)

// sharedRequest makes one request of all that workers ask at a time.
type sharedRequest struct {
	mu     sync.Mutex // counts
	begun  uint64     // requests
	asking sync.Mutex // held during a request, and for what it has brought
	found  whose
	err    error
}

// askWhose asks the API server whose the Node is. The answer is never older than the call: whoever has read a pod before
// knows whether it was on a node of ours.
func (n *node) askWhose(ctx context.Context) (whose, error) {
	r := &n.request
	r.mu.Lock()
	came := r.begun
	r.mu.Unlock()
	r.asking.Lock()
	defer r.asking.Unlock()
	r.mu.Lock()
	asked := r.begun > came // since, and it is answered
	if !asked {
		r.begun++
	}
	r.mu.Unlock()
	if asked {
		return r.found, r.err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	o := new(corev1.Node)
	err := n.k.home.core.Get().Resource("nodes").Name(n.name).Do(ctx).Into(o)
	switch {
	case apierrors.IsNotFound(err):
		r.found, r.err = absent, nil
	case err != nil:
		r.found, r.err = unknown, fmt.Errorf("get Node %s, which says whose its pods are: %w", n.name, err)
		return r.found, r.err
	case ourNode(o, n.k.options.PeerID):
		r.found, r.err = ours, nil
	default:
		r.found, r.err = foreign, nil
	}
	n.setWhose(r.found)
	return r.found, nil
}

// setWhose notes whose the Node is. When it becomes ours all pods are reflected again, and when it is not ours any more, the keeper ends.
func (n *node) setWhose(is whose) {
	n.mu.Lock()
	was := n.whose
	n.whose = is
	n.mu.Unlock()
	switch {
	case was == is:
	case is == ours:
		n.enqueueAll("")
	default:
		n.wake()
	}
	if (was == foreign) != (is == foreign) { // endpoints on it are of pods here, or are not
		for _, other := range n.k.all() {
			if _, s, _ := other.parts(); s != nil {
				s.enqueueObjects(other, "", endpointSlices)
			}
		}
	}
}

// isRegistered tells whether the Node is there, and is ours.
func (n *node) isRegistered() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.whose == ours
}

// own are session and pods, which may be nil, if the Node is ours.
func (n *node) own() (*session, *follower[corev1.Pod, *corev1.Pod]) {
	_, s, pods := n.parts()
	if !n.isRegistered() {
		return s, nil
	}
	return s, pods
}

// isVirtual tells whether pods on a node do not run in this cluster. As long as nobody knows whose the Node of a VirtualNode is,
// they do not.
func (k *Kubelet) isVirtual(name string) bool {
	n := k.node(name)
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.whose != foreign
}

// followPods begins to follow the pods on the node, unless they are followed.
func (n *node) followPods(ctx context.Context) error {
	if n.stopPods != nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	pods, err := follow(ctx, &n.k.wg, mirror.Watched{Client: n.k.home.core, Resource: "pods", Fields: "spec.nodeName=" + n.name}, n.k.log,
		func(p *corev1.Pod) { n.enqueue(p.Namespace, p.Name) })
	if err != nil {
		stop()
		return err
	}
	n.stopPods = stop
	n.mu.Lock()
	n.pods = pods
	n.mu.Unlock()
	n.k.wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), pods.synced) {
			n.enqueueAll("") // what the provider told of before could not be judged
		}
	})
	return nil
}

// letGo ends all that is done for the pods on the node. They, and what was made of them, stay as they are.
func (n *node) letGo() {
	if n.stopPods != nil {
		n.stopPods()
		n.k.log.Warn("the Node is another's by now: its pods are let go, and what was made of them at the provider stays", "node", n.name)
	}
	if n.stopSecret != nil {
		n.stopSecret()
	}
	n.stopPods, n.stopSecret, n.secret, n.secretName, n.last = nil, nil, nil, "", nil
	n.mu.Lock()
	n.pods, n.away = nil, ""
	n.mu.Unlock()
	n.setSession(nil)
	n.k.unmake(n.name)
}

// taken tells that a VirtualNode has the name of another's Node.
func (n *node) taken(ctx context.Context, v *offloadingv1beta1.VirtualNode) {
	note := fmt.Sprintf("there is a Node %s which is no virtual node of cluster %s: give the VirtualNode another name", n.name, n.k.options.PeerID)
	n.k.event(ctx, reference(offloadingv1beta1.GroupVersion.String(), "VirtualNode", v), ReasonNodeTaken, note)
	n.tell(ctx, v, offloadingv1beta1.VirtualNodeNone, ReasonNodeTaken, note)
}
