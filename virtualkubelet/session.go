package virtualkubelet

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/reflection"
)

const (
	// probeEvery is how often the provider's API server is asked whether it lives, probeTimeout how long it may take.
	probeEvery, probeTimeout = 15 * time.Second, 5 * time.Second
)

// session is the access to the provider of one virtual node, with the identity of its slice: the provider counts by it
// what the pods use.
type session struct {
	kubeconfig       []byte // what it was made of
	clients          *mirror.Clients
	core, offloading rest.Interface
	made             made
	config           *rest.Config
	base             *url.URL // of the API server

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	spaces map[string]*space // by the namespace's name here
	// objects are what pods need, in the same namespaces, if this session reflects them.
	objects map[string]*objects
	why     string // the API server does not answer; empty: it does
	asked   bool   // it was asked at least once
	// upgrades is the way for requests that are upgraded; nil: there was none yet.
	upgrades http.RoundTripper
}

// space is a namespace at the provider, as far as it concerns the node.
type space struct {
	here, there string
	stop        context.CancelFunc
	shadows     *follower[offloadingv1beta1.ShadowPod, *offloadingv1beta1.ShadowPod]
	pods        *follower[corev1.Pod, *corev1.Pod]
	// tokens are the Secrets with tokens of pods here.
	tokens *follower[corev1.Secret, *corev1.Secret]
	// missed says that something was not done, as the namespace did not stand at the provider.
	missed atomic.Bool
}

// miss notes that something is to be done once the namespace stands at the provider. Nil: all is looked at then anyway.
func (s *space) miss() {
	if s != nil {
		s.missed.Store(true)
	}
}

// synced tells whether what the space lacks is not at the provider.
func (s *space) synced() bool { return s != nil && s.shadows.synced() && s.pods.synced() }

func newSession(ctx context.Context, n *node, cfg *rest.Config, kubeconfig []byte) (*session, error) {
	cfg.QPS, cfg.Burst = requests, burst
	bounded := rest.CopyConfig(cfg)
	bounded.Wrap(func(t http.RoundTripper) http.RoundTripper { return boundedAnswers{t} })
	clients, err := mirror.NewClients(bounded, component, groups...)
	if err != nil {
		return nil, err
	}
	base, err := baseURL(cfg)
	if err != nil {
		return nil, err
	}
	s := &session{
		base: base, kubeconfig: kubeconfig, clients: clients, config: cfg, spaces: map[string]*space{}, objects: map[string]*objects{},
		core: clients.For(corev1.SchemeGroupVersion), offloading: clients.For(offloadingv1beta1.GroupVersion),
		why: "the provider's API server has not answered yet",
	}
	s.ctx, s.stop = context.WithCancel(ctx)
	s.wg.Go(func() { s.probe(n) })
	return s, nil
}

// end ends the session. What it has made at the provider stays.
func (s *session) end() {
	s.stop()
	s.wg.Wait()
	s.clients.Disconnect()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.upgrades != nil {
		utilnet.CloseIdleConnectionsFor(s.upgrades)
	}
}

// count is how many namespaces are followed.
func (s *session) count() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spaces)
}

// problem says why the provider's API server does not answer; empty: it does.
func (s *session) problem() string {
	if s == nil {
		return "there are no credentials for the provider: the kubeconfig is missing or refused, see the Events of the VirtualNode"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// known tells whether the API server was asked yet.
func (s *session) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// probe asks the API server again and again whether it lives.
func (s *session) probe(n *node) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(s.ctx, probeTimeout)
		err := s.core.Get().AbsPath("/livez").Do(ctx).Error()
		cancel()
		if s.ctx.Err() != nil {
			return
		}
		why := ""
		if err != nil && !apierrors.IsForbidden(err) { // it answers: who may ask whether it lives is the provider's business
			why = "the provider's API server does not answer: " + mirror.PlainError(err)
		}
		s.mu.Lock()
		changed := s.why != why
		s.why, s.asked = why, true
		s.mu.Unlock()
		if changed {
			n.wake()
		}
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// space returns that of a namespace here; nil: it does not stand at the provider.
func (s *session) space(here string) *space {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spaces[here]
}

// opened returns the space of a namespace here or, if that is empty, all of them.
func (s *session) opened(here string) (out []*space) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.spaces {
		if here == "" || sp.here == here {
			out = append(out, sp)
		}
	}
	return out
}

// empty tells whether nothing of the node is left at the provider, as far as that is known.
func (s *session) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.spaces {
		if !sp.synced() || len(sp.shadows.list()) > 0 {
			return false
		}
	}
	return true
}

// synchronize follows what is in the namespaces that stand at the provider. One is followed until it certainly stands
// there no more, and no pod here has to know. What pods need is reflected if this session leads. back are namespaces that stand
// there again, of which something was missed.
func (s *session) synchronize(n *node, m *offloadingv1beta1.NamespaceMap, leads bool) (back []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for here, sp := range s.spaces {
		there, st := stand(m, here)
		if st == unmapped && !n.hasPods(here) || st == mapped && there != sp.there {
			sp.stop()
			delete(s.spaces, here)
		}
	}
	for here, o := range s.objects {
		if _, st := stand(m, here); s.spaces[here] == nil || st == unmapped || !leads {
			o.stop()
			delete(s.objects, here)
		}
	}
	for here, sp := range s.spaces {
		if _, st := stand(m, here); st == mapped && sp.missed.Swap(false) {
			back = append(back, here)
		}
	}
	if m == nil {
		return back
	}
	for here := range m.Status.CurrentMapping {
		there, st := stand(m, here)
		if st != mapped || s.spaces[here] != nil {
			continue
		}
		sp, err := s.open(n, here, there)
		if err != nil {
			n.problem("follow namespace "+there+" of the provider", err)
			continue
		}
		s.spaces[here] = sp
	}
	for here, sp := range s.spaces {
		if _, st := stand(m, here); s.objects[here] != nil || st != mapped || !leads {
			continue
		}
		o, err := s.reflect(n, here, sp.there)
		if err != nil {
			n.problem("reflect objects of namespace "+here, err)
			continue
		}
		s.objects[here] = o
	}
	return back
}

// metadataAndStatus trims a ShadowPod.
func metadataAndStatus(p *offloadingv1beta1.ShadowPod) {
	status := p.Status
	onlyMetadata(p)
	if ended(status.Phase) {
		p.Status.Phase = status.Phase
		return
	}
	p.Status.Reason, p.Status.Message = reflection.Why(status.Reason, status.Message) // nothing else of it is read
}

// over tells on the VirtualNode that the provider has more than is held of it.
func (n *node) over(ctx context.Context) func(error) {
	return func(err error) {
		n.k.log.Warn("too much at the provider", "node", n.name, "error", err)
		if v, _, _ := n.parts(); v != nil {
			n.k.event(ctx, reference(offloadingv1beta1.GroupVersion.String(), "VirtualNode", v), ReasonTooMuch, err.Error())
		}
	}
}

// open begins to follow a namespace.
func (s *session) open(n *node, here, there string) (*space, error) {
	ctx, stop := context.WithCancel(s.ctx)
	sp := &space{here: here, there: there, stop: stop}
	marks := n.k.peering.Marks()
	marks[offloadingv1beta1.LabelNodeName] = n.name
	of := func(c rest.Interface, resource string) mirror.Watched {
		return mirror.Watched{Client: c, Resource: resource, Namespace: there, Labels: labels.Set(marks).String()}
	}
	var err error
	over := n.over(ctx)
	sp.shadows, err = followThere(ctx, &s.wg, of(s.offloading, "shadowpods"), n.k.log, metadataAndStatus, func(p *offloadingv1beta1.ShadowPod) { n.enqueue(here, p.Name) }, over)
	if err == nil {
		keep := func(p *corev1.Pod) { *p = *reflection.HeldPod(p) }
		sp.pods, err = followThere(ctx, &s.wg, of(s.core, "pods"), n.k.log, keep, func(p *corev1.Pod) { n.enqueue(here, p.Name) }, over)
	}
	if err == nil {
		tokens := of(s.core, secrets)
		tokens.Labels += "," + offloadingv1beta1.LabelServiceAccountName
		sp.tokens, err = followThere(ctx, &s.wg, tokens, n.k.log, onlyMetadata, func(o *corev1.Secret) {
			n.enqueue(here, o.Annotations[offloadingv1beta1.AnnotationServiceAccountPodName])
		}, over)
	}
	if err != nil {
		stop()
		return nil, err
	}
	s.wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), sp.synced) {
			n.enqueueAll(here) // what came before could not be judged, and of pods that have nothing there no watch tells
			n.wake()
		}
	})
	return sp, nil
}
