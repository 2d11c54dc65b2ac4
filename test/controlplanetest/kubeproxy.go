package controlplanetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// KubeProxy carries UDP from node ports and load balancers to pods. Addresses of
// Services inside the cluster (ClusterIP) lead nowhere.
type KubeProxy struct {
	k        *Kubelet
	tb       testing.TB
	services cache.Store
	changed  chan struct{} // one slot; sent to by the informers, received by run

	mu       sync.Mutex
	forwards map[frontend]*forward
	balancer int // how many addresses of load balancers are given away
}

// AnnotationLose, on a Service, has datagrams of one direction get lost, as in a
// firewall: LoseIn those to the pods, LoseOut those from them.
const (
	AnnotationLose = "controlplanetest/lose"
	LoseIn         = "in"
	LoseOut        = "out"
)

// frontend is where a Service is reached from outside.
type frontend struct {
	service types.NamespacedName
	listen  netip.AddrPort
}

// StartKubeProxy serves the Services of a cluster until the test ends.
func StartKubeProxy(tb testing.TB, k *Kubelet) *KubeProxy {
	tb.Helper()
	p := &KubeProxy{k: k, tb: tb, changed: make(chan struct{}, 1), forwards: make(map[frontend]*forward)}
	wake := func(any) {
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }, DeleteFunc: wake}
	factory := informers.NewSharedInformerFactory(k.cluster.Clientset, 0)
	services, pods := factory.Core().V1().Services().Informer(), factory.Core().V1().Pods().Informer()
	for _, i := range []cache.SharedIndexInformer{services, pods} {
		if _, err := i.AddEventHandler(handler); err != nil {
			tb.Fatal(err)
		}
	}
	p.services = services.GetStore()
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-p.changed:
				if err := p.sync(ctx, pods.GetStore()); err != nil && ctx.Err() == nil {
					tb.Logf("kube-proxy: %v", err)
				}
			}
		}
	})
	tb.Cleanup(func() {
		cancel()
		wg.Wait()
		for _, f := range p.forwards {
			f.close()
		}
	})
	return p
}

// sync makes the forwards those that the Services ask for.
func (p *KubeProxy) sync(ctx context.Context, pods cache.Store) error {
	var errs []error
	wanted := make(map[frontend][]backend)
	lose := make(map[types.NamespacedName]string)
	for _, o := range p.services.List() {
		s := o.(*corev1.Service)
		lose[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = s.Annotations[AnnotationLose]
		ingress, err := p.loadBalancer(ctx, s)
		errs = append(errs, err)
		for _, port := range s.Spec.Ports {
			if port.Protocol == corev1.ProtocolUDP {
				p.frontends(wanted, s, port, ingress, backends(s, port, pods))
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, f := range p.forwards {
		if _, ok := wanted[key]; !ok {
			f.close()
			delete(p.forwards, key)
		}
	}
	for key, to := range wanted {
		f := p.forwards[key]
		if f == nil {
			var err error
			if f, err = newForward(key.listen); err != nil {
				errs = append(errs, fmt.Errorf("%s of service %s: %w", key.listen, key.service, err))
				continue
			}
			p.forwards[key] = f
		}
		f.lose.Store(new(lose[key.service]))
		f.set(to)
	}
	return errors.Join(errs...)
}

// frontends adds where a port of a Service is reached, and what is behind it.
func (p *KubeProxy) frontends(wanted map[frontend][]backend, s *corev1.Service, port corev1.ServicePort, ingress netip.Addr, to []backend) {
	name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	local := s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if port.NodePort != 0 {
		for _, n := range p.k.Nodes() {
			here := slices.DeleteFunc(slices.Clone(to), func(b backend) bool { return local && b.node != n.Name })
			wanted[frontend{name, netip.AddrPortFrom(n.IP, uint16(port.NodePort))}] = p.inLoopback(here)
		}
	}
	if ingress.IsValid() {
		wanted[frontend{name, netip.AddrPortFrom(ingress, uint16(port.Port))}] = p.inLoopback(to)
	}
}

// inLoopback replaces the addresses of pods by those of their processes.
func (p *KubeProxy) inLoopback(bs []backend) []backend {
	out := make([]backend, len(bs))
	for i, b := range bs {
		b.addr = netip.AddrPortFrom(p.k.Loopback.Pod(b.addr.Addr()), b.addr.Port())
		out[i] = b
	}
	return out
}

// backends are the pods behind a port of a Service, in order.
func backends(s *corev1.Service, port corev1.ServicePort, pods cache.Store) (bs []backend) {
	if len(s.Spec.Selector) == 0 {
		return nil
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	for _, o := range pods.List() {
		p := o.(*corev1.Pod)
		ip, err := netip.ParseAddr(p.Status.PodIP)
		if err != nil || p.Namespace != s.Namespace || !selector.Matches(labels.Set(p.Labels)) || !isEndpoint(s, p) {
			continue
		}
		bs = append(bs, backend{node: p.Spec.NodeName, addr: netip.AddrPortFrom(ip, targetPort(p, port))})
	}
	slices.SortFunc(bs, func(a, b backend) int { return a.addr.Compare(b.addr) })
	return bs
}

// isEndpoint tells whether a pod that a Service selects is to be sent to.
func isEndpoint(s *corev1.Service, p *corev1.Pod) bool {
	if s.Spec.PublishNotReadyAddresses {
		return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
	}
	return p.DeletionTimestamp == nil && isReady(p)
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func targetPort(p *corev1.Pod, port corev1.ServicePort) uint16 {
	switch {
	case port.TargetPort.Type == intstr.String:
		for _, c := range p.Spec.Containers {
			for _, cp := range c.Ports {
				if cp.Name == port.TargetPort.StrVal {
					return uint16(cp.ContainerPort)
				}
			}
		}
		return 0
	case port.TargetPort.IntVal != 0:
		return uint16(port.TargetPort.IntVal)
	}
	return uint16(port.Port)
}

// loadBalancer is the cloud: it gives a Service the address that it asks for, or
// the next.
func (p *KubeProxy) loadBalancer(ctx context.Context, s *corev1.Service) (netip.Addr, error) {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.DeletionTimestamp != nil {
		return netip.Addr{}, nil
	}
	if in := s.Status.LoadBalancer.Ingress; len(in) > 0 {
		return netip.ParseAddr(in[0].IP)
	}
	addr := p.k.Loopback.LoadBalancer(p.balancer)
	if s.Spec.LoadBalancerIP != "" {
		var err error
		if addr, err = netip.ParseAddr(s.Spec.LoadBalancerIP); err != nil {
			return addr, err
		}
	} else {
		p.balancer++
	}
	s = s.DeepCopy()
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr.String()}}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	_, err := p.k.cluster.Clientset.CoreV1().Services(s.Namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{})
	return addr, err // a conflict is seen again as a change
}
