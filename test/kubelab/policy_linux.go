package kubelab

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// enforcer keeps the rules of a cluster's nodes equal to its NetworkPolicies.
type enforcer struct {
	cluster *Cluster
	facts   func() (policyFacts, error)
	wake    chan struct{}    // one element: something has changed
	applied map[*Node]policy // what each node has; of run alone
}

// policy is a script, and the boot of the node that it was applied in.
type policy struct {
	script string
	boot   int64
}

// enforcePolicies starts what a CNI with NetworkPolicies has. It ends with ctx.
func (c *Cluster) enforcePolicies(ctx context.Context) error {
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	e := &enforcer{cluster: c, wake: make(chan struct{}, 1), applied: map[*Node]policy{}}
	shared := informers.NewSharedInformerFactory(clients, 0)
	pods, namespaces, policies := shared.Core().V1().Pods(), shared.Core().V1().Namespaces(), shared.Networking().V1().NetworkPolicies()
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { e.changed() }, UpdateFunc: func(any, any) { e.changed() }, DeleteFunc: func(any) { e.changed() },
	}
	for _, i := range []cache.SharedIndexInformer{pods.Informer(), namespaces.Informer(), policies.Informer()} {
		if _, err := i.AddEventHandler(changed); err != nil {
			return err
		}
	}
	e.facts = func() (f policyFacts, err error) {
		if f.pods, err = list[corev1.Pod](pods.Lister().List); err != nil {
			return f, err
		}
		if f.namespaces, err = list[corev1.Namespace](namespaces.Lister().List); err != nil {
			return f, err
		}
		f.policies, err = list[networkingv1.NetworkPolicy](policies.Lister().List)
		return f, err
	}
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	go e.run(ctx)
	return nil
}

func list[T any](from func(labels.Selector) ([]*T, error)) ([]*T, error) {
	return from(labels.Everything())
}

func (e *enforcer) changed() {
	select {
	case e.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// run applies what has changed. It looks at times for nodes that have booted,
// too, and tries again what has failed.
func (e *enforcer) run(ctx context.Context) {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		case <-again.C:
		}
		facts, err := e.facts()
		if err != nil {
			continue
		}
		for _, n := range e.cluster.Nodes {
			e.apply(n, policy{facts.rules(n.Name), n.boots.Load()})
		}
	}
}

func (e *enforcer) apply(n *Node, p policy) {
	if e.applied[n] == p {
		return
	}
	if err := n.Host.TryNft(p.script); err == nil {
		e.applied[n] = p
	}
}
