package virtualkubelet

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/reflection"
)

// Kinds that are reflected beside pods, by their resource here.
const (
	configMaps     = "configmaps"
	secrets        = "secrets"
	services       = "services"
	ingresses      = "ingresses"
	endpointSlices = "endpointslices"
)

// objects are what the pods of one namespace need at the provider: ConfigMaps, Secrets, Services with their
// EndpointSlices, Ingresses. They belong to the namespace and not to a node, so that one session of the process
// reflects them.
type objects struct {
	stop  context.CancelFunc
	kinds map[string]pair
}

// pair is one kind of a namespace, on both sides.
type pair struct {
	// step makes the object at the provider what the one here, of this name, asks for.
	step func(ctx context.Context, name string) error
	// names are those of the objects here.
	names func() []string
}

// sides are what openPair joins: T here, which becomes R there.
type sides[T any, P mirror.Object[T], R any, Q mirror.Object[R]] struct {
	kind        string // key.kind
	here, there mirror.Watched
	to          resource // there
	// desired is what is to be there for an object here; nil: nothing.
	desired func(P) reflected
	// changed is told of changes here, beside the workers; nil: nobody is.
	changed func(P)
	// about names an object in an Event.
	version, object string
}

// openPair begins to follow both sides of a kind.
func openPair[T any, P mirror.Object[T], R any, Q mirror.Object[R]](ctx context.Context, s *session, n *node, x sides[T, P, R, Q]) (pair, *follower[T, P], error) {
	enqueue := func(name string) {
		n.k.queue.Add(key{node: n.name, kind: x.kind, namespace: x.here.Namespace, name: name})
	}
	here, err := follow(ctx, &s.wg, x.here, n.k.log, func(p P) {
		enqueue(p.GetName())
		if x.changed != nil {
			x.changed(p)
		}
	})
	if err != nil {
		return pair{}, nil, err
	}
	there, err := followThere(ctx, &s.wg, x.there, n.k.log, onlyMetadata[R, Q], func(p Q) { enqueue(nameHere(x.kind, p.GetName(), n.k.peering)) }, n.over(ctx))
	if err != nil {
		return pair{}, nil, err
	}
	step := func(ctx context.Context, name string) error {
		if !here.synced() || !there.synced() {
			return errNotListed
		}
		var desired reflected
		from := here.get(x.here.Namespace, name)
		if from != nil && from.GetDeletionTimestamp() == nil {
			desired = x.desired(from)
		}
		var have metav1.Object
		if live := there.get(x.there.Namespace, nameThere(x.kind, name, n.k.peering)); live != nil {
			have = live
		}
		switch {
		case desired == nil && (have == nil || have.GetDeletionTimestamp() != nil):
			return nil
		case desired == nil:
			return x.to.delete(ctx, have, nil)
		}
		_, err := x.to.apply(ctx, n.k.peering, desired, have)
		if !refused(err) {
			return err
		}
		if apierrors.IsInvalid(err) && have != nil && reflection.IsOfAnother(from, have) {
			// What stands for an earlier object cannot become this one, as immutable fields differ.
			return errors.Join(x.to.delete(ctx, have, nil), err)
		}
		n.k.event(ctx, reference(x.version, x.object, from), ReasonFailedReflection, err.Error())
		return err // tried again: nobody tells when it would work
	}
	names := func() (out []string) {
		for _, p := range here.list() {
			out = append(out, p.GetName())
		}
		return out
	}
	return pair{step, names}, here, nil
}

// errNotListed has a worker look again: no event tells when both sides have been listed.
var errNotListed = errors.New("not all objects were listed yet")

// nameThere is the name at the provider of an object here, nameHere the other way. They differ for the certificate
// authority of the API server, which has the same name in every cluster.
func nameThere(kind, name string, p reflection.Peering) string {
	if kind == configMaps && name == reflection.RootCA {
		return reflection.RootCAName(p.Consumer)
	}
	return name
}

func nameHere(kind, name string, p reflection.Peering) string {
	if kind == configMaps && name == reflection.RootCAName(p.Consumer) {
		return reflection.RootCA
	}
	return name
}

// reflect begins to reflect what the pods of a namespace need.
func (s *session) reflect(n *node, here, there string) (*objects, error) {
	k := n.k
	ctx, stop := context.WithCancel(s.ctx)
	o := &objects{stop: stop, kinds: map[string]pair{}}
	filter := func() reflection.Filter {
		if v, _, _ := n.parts(); v != nil {
			return patchOf(v).Filter
		}
		return reflection.DefaultFilter
	}
	allowed := func(kind string, m metav1.Object) bool { return k.policy(kind).Reflects(m.GetAnnotations()) }
	marks := labels.Set(k.peering.Marks()).String()
	coreHere := func(name string) mirror.Watched {
		return mirror.Watched{Client: k.home.core, Resource: name, Namespace: here}
	}
	coreThere := func(name string) mirror.Watched {
		return mirror.Watched{Client: s.core, Resource: name, Namespace: there, Labels: marks}
	}
	fail := func(err error) (*objects, error) {
		stop()
		return nil, err
	}

	p, _, err := openPair(ctx, s, n, sides[corev1.ConfigMap, *corev1.ConfigMap, corev1.ConfigMap, *corev1.ConfigMap]{
		kind: configMaps, here: coreHere(configMaps), there: coreThere(configMaps), to: s.resource(s.core, configMaps), version: "v1", object: "ConfigMap",
		desired: func(m *corev1.ConfigMap) reflected {
			if !allowed(configMaps, m) && (m.Name != reflection.RootCA || k.policy(configMaps) == reflection.DenyList) {
				return nil // the authority of the API server goes with the tokens of pods, and nobody annotates it
			}
			return reflection.ConfigMap(m, there, k.peering, filter())
		},
	})
	if err != nil {
		return fail(err)
	}
	o.kinds[configMaps] = p

	secretsThere := coreThere(secrets)
	secretsThere.Labels += ",!" + offloadingv1beta1.LabelServiceAccountName // tokens of pods stand for no Secret here
	p, _, err = openPair(ctx, s, n, sides[corev1.Secret, *corev1.Secret, corev1.Secret, *corev1.Secret]{
		kind: secrets, here: coreHere(secrets), there: secretsThere, to: s.resource(s.core, secrets), version: "v1", object: "Secret",
		desired: func(m *corev1.Secret) reflected {
			if !allowed(secrets, m) {
				return nil
			}
			if r := reflection.Secret(m, there, k.peering, filter()); r != nil {
				return r
			}
			return nil
		},
	})
	if err != nil {
		return fail(err)
	}
	o.kinds[secrets] = p

	var slices *follower[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice] // set before any Service is told of
	ready := make(chan struct{})
	p, ofServices, err := openPair(ctx, s, n, sides[corev1.Service, *corev1.Service, corev1.Service, *corev1.Service]{
		kind: services, here: coreHere(services), there: coreThere(services), to: s.resource(s.core, services), version: "v1", object: "Service",
		desired: func(m *corev1.Service) reflected {
			if !allowed(services, m) {
				return nil
			}
			v, _, _ := n.parts()
			if r := reflection.Service(m, there, defaultClass(v), k.peering, filter()); r != nil {
				return r
			}
			return nil
		},
		changed: func(m *corev1.Service) {
			select { // its slices go with it
			case <-ready:
			case <-ctx.Done():
				return
			}
			for _, e := range slices.list() {
				if e.Labels[discoveryv1.LabelServiceName] == m.Name {
					k.queue.Add(key{node: n.name, kind: endpointSlices, namespace: here, name: e.Name})
				}
			}
		},
	})
	if err != nil {
		return fail(err)
	}
	o.kinds[services] = p

	p, slices, err = openPair(ctx, s, n, sides[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice, offloadingv1beta1.ShadowEndpointSlice, *offloadingv1beta1.ShadowEndpointSlice]{
		kind: endpointSlices, version: discoveryv1.SchemeGroupVersion.String(), object: "EndpointSlice",
		here:  mirror.Watched{Client: k.home.clients.For(discoveryv1.SchemeGroupVersion), Resource: endpointSlices, Namespace: here},
		there: mirror.Watched{Client: s.offloading, Resource: "shadowendpointslices", Namespace: there, Labels: marks},
		to:    s.resource(s.offloading, "shadowendpointslices"),
		desired: func(e *discoveryv1.EndpointSlice) reflected {
			of := ofServices.get(here, e.Labels[discoveryv1.LabelServiceName])
			if of == nil || !reflection.ReflectsSlice(e) || !allowed(services, of) || !reflection.DenyList.Reflects(e.Annotations) {
				return nil
			}
			endpoints := reflection.Endpoints(e, k.peering, k.isVirtual, k.reachable())
			if len(endpoints) == 0 {
				return nil
			}
			return reflection.ShadowEndpointSlice(e, endpoints, there, k.peering, filter())
		},
	})
	close(ready)
	if err != nil {
		return fail(err)
	}
	o.kinds[endpointSlices] = p

	p, _, err = openPair(ctx, s, n, sides[networkingv1.Ingress, *networkingv1.Ingress, networkingv1.Ingress, *networkingv1.Ingress]{
		kind: ingresses, version: networkingv1.SchemeGroupVersion.String(), object: "Ingress",
		here:  mirror.Watched{Client: k.home.clients.For(networkingv1.SchemeGroupVersion), Resource: ingresses, Namespace: here},
		there: mirror.Watched{Client: s.clients.For(networkingv1.SchemeGroupVersion), Resource: ingresses, Namespace: there, Labels: marks},
		to:    s.resource(s.clients.For(networkingv1.SchemeGroupVersion), ingresses),
		desired: func(m *networkingv1.Ingress) reflected {
			v, _, _ := n.parts()
			if v == nil || !allowed(ingresses, m) {
				return nil
			}
			return reflection.Ingress(m, there, v.Spec.IngressClasses, k.peering, filter())
		},
	})
	if err != nil {
		return fail(err)
	}
	o.kinds[ingresses] = p

	if o.kinds[events], err = s.openEvents(ctx, n, here, there); err != nil {
		return fail(err)
	}
	return o, nil
}

// policy says which objects of a kind are reflected.
func (k *Kubelet) policy(kind string) reflection.Policy {
	return cmp.Or(k.options.Policies[kind], reflection.DenyList)
}

// defaultClass is the class of load balancers that a provider uses where none is named; empty: it says none.
func defaultClass(v *offloadingv1beta1.VirtualNode) string {
	if v == nil {
		return ""
	}
	for _, c := range v.Spec.LoadBalancerClasses {
		if c.Default {
			return c.LoadBalancerClassName
		}
	}
	return ""
}

// localPods are the pod CIDRs of this cluster, as text too: which says whether they have changed.
func (k *Kubelet) localPods() (prefixes []netip.Prefix, text string) {
	for _, c := range k.home.configurations.List() {
		if c.Spec.Local == nil {
			continue
		}
		if p, err := c.Spec.Local.CIDR.Pod.Prefixes(); err == nil {
			prefixes = append(prefixes, p...)
		}
	}
	var b strings.Builder
	for _, p := range prefixes {
		b.WriteString(p.String() + " ")
	}
	return prefixes, b.String()
}

// reachable tells which addresses the provider's side can reach and translates by itself: those of the pods here.
func (k *Kubelet) reachable() func(netip.Addr) (netip.Addr, bool) {
	prefixes, _ := k.localPods()
	return func(a netip.Addr) (netip.Addr, bool) {
		for _, p := range prefixes {
			if p.Contains(a) {
				return a, true
			}
		}
		return netip.Addr{}, false
	}
}

// object works on one object that is no pod.
func (k *Kubelet) object(ctx context.Context, at key) error {
	n := k.node(at.node)
	if n == nil {
		return nil
	}
	_, s, _ := n.parts()
	if _, standing := stand(k.namespaceMap(), at.namespace); s == nil || standing != mapped {
		s.space(at.namespace).miss()
		return nil
	}
	p, ok := s.pair(at.namespace, at.kind)
	if !ok {
		return nil // another session reflects it now
	}
	return p.step(ctx, at.name)
}

// pair returns one kind of a namespace, if the session reflects it.
func (s *session) pair(namespace, kind string) (p pair, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[namespace]; o != nil {
		p, ok = o.kinds[kind]
	}
	return p, ok
}

// enqueueObjects has workers look at all objects of a namespace and a kind; empty: of all.
func (s *session) enqueueObjects(n *node, namespace, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for in, o := range s.objects {
		for of, p := range o.kinds {
			if namespace != "" && in != namespace || kind != "" && of != kind {
				continue
			}
			for _, name := range p.names() {
				n.k.queue.Add(key{node: n.name, kind: of, namespace: in, name: name})
			}
		}
	}
}

// leads tells whether the session of a node reflects what belongs to no node: that of the first node which has one.
// Should two do so for a moment, they write the same.
func (k *Kubelet) leads(n *node) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, other := range k.nodes {
		if _, s, _ := other.parts(); s != nil && name < n.name {
			return false
		}
	}
	return true
}
