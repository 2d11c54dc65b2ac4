package virtualkubelet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/reflection"
)

// events are those of the provider about the pods there and their ShadowPods. They become Events of the pods here.
const events = "events"

const (
	// maxEvents is how many Events a pod gets from the provider in eventPeriod, which is how long an API server keeps one.
	maxEvents   = 25
	eventPeriod = time.Hour
	// eventTries is how often an Event waits for what it is about, of which another watch tells.
	eventTries = 5
)

// budget bounds Events by the pod that they are about.
type budget struct {
	mu    sync.Mutex
	since time.Time
	given map[types.UID]map[string]bool // by pod, the names of its Events
}

// take tells whether a pod gets an Event of this name: it has none yet, and may have one more.
func (b *budget) take(of types.UID, name string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.given == nil || now.Sub(b.since) >= eventPeriod {
		b.since, b.given = now, map[types.UID]map[string]bool{}
	}
	has := b.given[of]
	if has[name] || len(has) >= maxEvents {
		return false
	}
	if has == nil {
		has = map[string]bool{}
		b.given[of] = has
	}
	has[name] = true
	return true
}

// giveBack undoes take: the Event was not made.
func (b *budget) giveBack(of types.UID, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.given[of], name)
}

// openEvents begins to follow the Events of a namespace at the provider.
func (s *session) openEvents(ctx context.Context, n *node, here, there string) (pair, error) {
	k := n.k
	keep := func(e *corev1.Event) { *e = *reflection.HeldEvent(e) }
	f, err := followThere(ctx, &s.wg, mirror.Watched{Client: s.core, Resource: events, Namespace: there}, k.log, keep, func(e *corev1.Event) {
		if kind := e.InvolvedObject.Kind; kind == "Pod" || kind == "ShadowPod" {
			k.queue.Add(key{node: n.name, kind: events, namespace: here, name: e.Name})
		}
	}, n.over(ctx))
	if err != nil {
		return pair{}, err
	}
	step := func(ctx context.Context, name string) error {
		e := f.get(there, name)
		if e == nil || !k.policy(events).Reflects(e.Annotations) {
			return nil
		}
		at := key{node: n.name, kind: events, namespace: here, name: name}
		return k.passOn(ctx, here, e, k.queue.NumRequeues(at) < eventTries)
	}
	return pair{step, func() []string { return nil }}, nil
}

// passOn makes an Event of a pod here of one of the provider. early tells that what it is about may not be known yet.
func (k *Kubelet) passOn(ctx context.Context, namespace string, e *corev1.Event, early bool) error {
	about := e.InvolvedObject
	here, there := k.sides(namespace, about.Kind, about.Name)
	if here == nil {
		return nil
	}
	if there == nil && early {
		return errNotListed
	}
	if there == nil || there.GetUID() != about.UID || reflection.IsOfAnother(here, there) {
		return nil // of an earlier one of the name
	}
	out := reflection.Event(e, reference("v1", "Pod", here))
	sum := sha256.Sum256([]byte(string(here.UID) + out.Type + out.Reason + out.Message))
	out.Name = here.Name[:min(len(here.Name), 230)] + "." + hex.EncodeToString(sum[:8])
	if !matters(here, out, k.started) || !k.events.take(here.UID, out.Name, time.Now()) {
		return nil
	}
	err := k.home.core.Post().Namespace(namespace).Resource(events).Body(out).Do(ctx).Error()
	switch {
	case err == nil || apierrors.IsAlreadyExists(err): // made before a restart
		return nil
	case refused(err) || apierrors.IsNotFound(err):
		k.log.Debug("cannot write an event of the provider", "reason", out.Reason, "error", mirror.PlainError(err))
		return nil
	}
	k.events.giveBack(here.UID, out.Name)
	return err
}

// matters tells whether an Event is passed on: all about a pod that waits, and what has gone wrong since with one that
// does not. At a start of the process there may be many of before, most of which were passed on.
func matters(here *corev1.Pod, e *corev1.Event, started time.Time) bool {
	return here.Status.Phase == corev1.PodPending || e.Type == corev1.EventTypeWarning && !e.LastTimestamp.Time.Before(started)
}

// sides returns a pod on a node of this process, and what stands for it at the provider: its pod, or its ShadowPod. Each
// is nil if there is none.
func (k *Kubelet) sides(namespace, kind, name string) (here *corev1.Pod, there metav1.Object) {
	for _, n := range k.all() {
		s, pods := n.own()
		if pods == nil {
			continue
		}
		if here = pods.get(namespace, name); here == nil {
			continue
		}
		sp := s.space(namespace)
		switch {
		case sp == nil:
		case kind == "Pod":
			if p := sp.pods.get(sp.there, name); p != nil {
				there = p
			}
		default:
			if p := sp.shadows.get(sp.there, name); p != nil {
				there = p
			}
		}
		return here, there
	}
	return nil, nil
}
