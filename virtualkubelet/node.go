package virtualkubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/objects/mirror"
)

const (
	// renewals is how often a lease is renewed while it is valid, as by a kubelet.
	renewals = 4
	// heartbeat is how old the times of the conditions may become.
	heartbeat = 5 * time.Minute
	// retryEvery is how soon what failed is tried again.
	retryEvery = time.Second
)

// node keeps one virtual node: its Node, its lease, and the session at the provider for its pods.
type node struct {
	k    *Kubelet
	name string
	kick chan struct{} // one slot

	request sharedRequest
	// secret follows the kubeconfig, pods the pods on the node. They are those of run.
	secret     *follower[corev1.Secret, *corev1.Secret]
	secretName string
	stopSecret context.CancelFunc
	stopPods   context.CancelFunc // nil: they are not followed
	looked     bool               // at the kubeconfig, in this round: that there is no session says something
	version    string             // of the API server here
	told       string             // the condition that was written last
	renewed    time.Time          // the lease
	failed     bool               // something in this round
	localPods  string             // the pod CIDRs of this cluster, when EndpointSlices were looked at last
	last       *offloadingv1beta1.VirtualNode

	mu      sync.Mutex
	virtual *offloadingv1beta1.VirtualNode // as it was when there was one last
	pods    *follower[corev1.Pod, *corev1.Pod]
	session *session // nil: no credentials
	away    string   // why the provider is out of reach; empty: it is not
	whose   whose    // the Node is, by the last answer
}

func (k *Kubelet) newNode(name string) *node {
	return &node{k: k, name: name, kick: make(chan struct{}, 1)}
}

func (n *node) wake() {
	select {
	case n.kick <- struct{}{}:
	default: // it will look
	}
}

// parts are what a worker needs. Session and pods may be nil.
func (n *node) parts() (*offloadingv1beta1.VirtualNode, *session, *follower[corev1.Pod, *corev1.Pod]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.virtual, n.session, n.pods
}

// run keeps the node until ctx ends, or the VirtualNode is gone and nothing is left on the node, or the Node is another's.
func (n *node) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer n.end()
	for {
		n.failed = false
		if n.keep(ctx) {
			n.k.forget(n.name)
			return
		}
		next := n.k.options.LeaseDuration / renewals
		if n.failed {
			next = retryEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-n.kick:
		case <-time.After(next):
		}
	}
}

func (n *node) end() {
	if n.stopSecret != nil {
		n.stopSecret()
	}
	n.setSession(nil)
}

func (n *node) enqueue(namespace, name string) {
	n.k.queue.Add(key{node: n.name, namespace: namespace, name: name})
}

// enqueueAll has workers look at all pods of the node, and at those that are only at the provider, in one namespace or,
// if that is empty, in all.
func (n *node) enqueueAll(namespace string) {
	_, s, pods := n.parts()
	for _, p := range pods.list() {
		if namespace == "" || p.Namespace == namespace {
			n.enqueue(p.Namespace, p.Name)
		}
	}
	for _, sp := range s.opened(namespace) {
		for _, o := range sp.shadows.list() {
			n.enqueue(sp.here, o.Name)
		}
	}
}

// hasPods tells whether pods of a namespace are on the node, or may be.
func (n *node) hasPods(namespace string) bool {
	_, _, pods := n.parts()
	return !pods.synced() || slices.ContainsFunc(pods.list(), func(p *corev1.Pod) bool {
		return p.Namespace == namespace && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
	})
}

// keep makes everything of the node as it is to be, once. It is true when nothing is left to keep.
func (n *node) keep(ctx context.Context) (gone bool) {
	v := n.k.virtualNode(n.name)
	n.mu.Lock()
	if v != nil {
		n.virtual = v
	}
	known := n.virtual
	n.mu.Unlock()
	if known == nil {
		return true
	}
	is, err := n.askWhose(ctx)
	if err != nil {
		n.problem("see whose the Node is", err)
		return false
	}
	if is == foreign {
		n.letGo()
		if v != nil {
			n.taken(ctx, v) // the name may become free
		}
		return v == nil
	}
	if err := n.followPods(ctx); err != nil {
		n.problem("follow the pods", err)
		return false
	}
	n.credentials(ctx, known)
	_, s, pods := n.parts()
	if s != nil {
		for _, here := range s.synchronize(n, n.k.namespaceMap(), n.k.leads(n)) {
			n.enqueueAll(here)
			s.enqueueObjects(n, here, "")
		}
		if _, text := n.k.localPods(); text != n.localPods {
			n.localPods = text
			s.enqueueObjects(n, "", endpointSlices)
		}
		if n.last != nil && !(slices.Equal(n.last.Spec.IngressClasses, known.Spec.IngressClasses) &&
			slices.Equal(n.last.Spec.LoadBalancerClasses, known.Spec.LoadBalancerClasses)) {
			s.enqueueObjects(n, "", ingresses)
			s.enqueueObjects(n, "", services)
		}
	}
	if patchChanged(n.last, known) || v == nil {
		n.enqueueAll("")
	}
	n.last = known
	// A namespace that is offloaded no more concerns pods that no watch tells of.
	n.enqueueStray()
	wanted := v != nil && (v.Spec.CreateNode == nil || *v.Spec.CreateNode)
	if !wanted && pods.synced() && len(pods.list()) == 0 && (s == nil || s.empty()) {
		if err := n.remove(ctx); err != nil {
			n.problem("remove the node", err)
			return false
		}
		if v == nil {
			return true
		}
		n.tell(ctx, v, offloadingv1beta1.VirtualNodeNone, "NodeNotWanted", "spec.createNode is false")
		return false
	}
	if err := n.register(ctx, known, wanted, s); err != nil {
		n.problem("keep the node", err)
	}
	return false
}

// problem logs what failed, except that somebody else wrote in between. The next round, which comes soon, tries again.
func (n *node) problem(what string, err error) {
	n.failed = true
	if !errors.Is(err, context.Canceled) && !apierrors.IsConflict(err) {
		n.k.log.Warn("virtual node: something failed and is tried again", "node", n.name, "what", what, "error", mirror.PlainError(err))
	}
}

func patchChanged(a, b *offloadingv1beta1.VirtualNode) bool {
	return a != nil && !equality.Semantic.DeepEqual(a.Spec.OffloadingPatch, b.Spec.OffloadingPatch)
}

// enqueueStray has workers look at pods whose namespace does not stand at the provider, or is being removed there.
func (n *node) enqueueStray() {
	_, _, pods := n.parts()
	m := n.k.namespaceMap()
	for _, p := range pods.list() {
		if _, s := stand(m, p.Namespace); s == unmapped || s == ending {
			n.enqueue(p.Namespace, p.Name)
		}
	}
}

// credentials begins a session when the kubeconfig is there, and another one when it changes.
func (n *node) credentials(ctx context.Context, v *offloadingv1beta1.VirtualNode) {
	name := ""
	if v.Spec.KubeconfigSecretRef != nil {
		name = v.Spec.KubeconfigSecretRef.Name
	}
	if name != n.secretName {
		if n.stopSecret != nil {
			n.stopSecret()
		}
		n.secret, n.stopSecret, n.secretName = nil, nil, name
		if name != "" {
			followed, stop := context.WithCancel(ctx)
			f, err := follow(followed, &n.k.wg, mirror.Watched{
				Client: n.k.home.core, Resource: "secrets", Namespace: v.Namespace, Fields: "metadata.name=" + name,
			}, n.k.log, func(*corev1.Secret) { n.wake() })
			if err != nil {
				stop()
				n.problem("follow the kubeconfig", err)
				return
			}
			n.secret, n.stopSecret = f, stop
		}
	}
	n.looked = name == "" || n.secret.synced() // once: it may be read in the middle of a round
	if name == "" || !n.looked {
		return // what there is goes on
	}
	secret := n.secret.get(v.Namespace, name)
	if secret == nil {
		return // it may come back; what the API server there refuses is seen by the session
	}
	kubeconfig := secret.Data[authv1beta1.KubeconfigKey]
	if _, s, _ := n.parts(); s != nil && bytes.Equal(s.kubeconfig, kubeconfig) {
		return
	}
	cfg, err := credentials.ReadKubeconfig(kubeconfig)
	if err != nil {
		n.k.event(ctx, reference(offloadingv1beta1.GroupVersion.String(), "VirtualNode", v), ReasonKubeconfig,
			fmt.Sprintf("Secret %s, data.%s: %v", name, authv1beta1.KubeconfigKey, err))
		return
	}
	s, err := newSession(ctx, n, cfg, kubeconfig)
	if err != nil {
		n.problem("use the kubeconfig", err)
		return
	}
	n.setSession(s)
}

// setSession replaces the session. The one before is ended.
func (n *node) setSession(s *session) {
	n.mu.Lock()
	before := n.session
	n.session = s
	n.mu.Unlock()
	if before != nil {
		before.end()
	}
}
