package gatewaydeploy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// active chooses the pod that leads, nil if there is none, and moves the mark to it.
//
//	the Lease is held by a pod that lives     that pod
//	the Lease is held by one that is gone     release the Lease, none until it is taken
//	the one that holds it is being restarted  that pod, for a moment
//	several replicas, the Lease is free       none: they elect
//	one replica                               the one that led, else the best of those that run
//
// A pod that is none of these keeps its mark while there is no other to take it.
func (f *Facts) active(p *Plan) *corev1.Pod {
	leader := f.leader()
	p.ReleaseLease = f.HolderGone && holder(f.Lease) != ""
	if f.HolderRestarts {
		p.recheck(restartCheck)
	}
	if leader == nil || !f.marks() {
		return leader
	}
	for i := range f.Pods {
		o := &f.Pods[i]
		marked := o.Labels[networkingv1beta1.LabelActive] == networkingv1beta1.LabelTrue
		switch {
		case o.Name == leader.Name && !marked:
			p.Label = append(p.Label, o.Name)
		case o.Name != leader.Name && marked && !finished(o):
			p.Unlabel = append(p.Unlabel, o.Name)
		}
	}
	return leader
}

// leader is the pod that leads.
func (f *Facts) leader() *corev1.Pod {
	if h := holder(f.Lease); h != "" && !f.HolderGone {
		i := slices.IndexFunc(f.Pods, func(p corev1.Pod) bool { return p.Name == h })
		if i < 0 || !runs(&f.Pods[i]) {
			return nil
		}
		return &f.Pods[i]
	}
	if f.elects() {
		return nil
	}
	var best *corev1.Pod
	for i := range f.Pods {
		if o := &f.Pods[i]; runs(o) && (best == nil || f.compare(o, best) < 0) {
			best = o
		}
	}
	return best
}

// compare orders the pods of a single replica. There are several while one replaces
// another, and the one that led is left to lead until it ends.
func (f *Facts) compare(a, b *corev1.Pod) int {
	first := func(yes func(*corev1.Pod) bool) int {
		switch x, y := yes(a), yes(b); {
		case x && !y:
			return -1
		case y && !x:
			return 1
		}
		return 0
	}
	return cmp.Or(
		first(f.led),
		first(ready),
		first(func(p *corev1.Pod) bool {
			return p.Labels[networkingv1beta1.LabelActive] == networkingv1beta1.LabelTrue
		}),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name),
	)
}

// led tells whether the status names the pod.
func (f *Facts) led(p *corev1.Pod) bool {
	last := *f.Gateway.internalEndpoint
	return last != nil && string(last.IP) == p.Status.PodIP && last.Node == p.Spec.NodeName
}

// runs tells whether a pod can lead.
func runs(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp.IsZero() && p.Status.PodIP != ""
}

// finished tells whether a pod never runs again.
func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// stopped tells whether a container of a pod does not run now.
func stopped(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running == nil })
}

const (
	// restartPatience is how long a container that has ended may take to run again. A
	// first time that takes less than a second, and to go on in its place is faster
	// than to tell nodes and Services of another.
	restartPatience = 2 * time.Second
	restartCheck    = 500 * time.Millisecond
)

// restarts tells whether containers of a pod have just ended: a kubelet that puts
// off the next start, after several ends, says that they wait.
func restarts(p *corev1.Pod, now time.Time) bool {
	ended := false
	for _, c := range p.Status.ContainerStatuses {
		switch t := c.State.Terminated; {
		case c.State.Running != nil:
		case t == nil || now.Sub(t.FinishedAt.Time) > restartPatience:
			return false
		default:
			ended = true
		}
	}
	return ended
}

// standsBy tells whether another pod than this one could lead.
func (f *Facts) standsBy(than *corev1.Pod) bool {
	return slices.ContainsFunc(f.Pods, func(p corev1.Pod) bool { return p.Name != than.Name && runs(&p) && ready(&p) && !stopped(&p) })
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// holder is the name of the pod that holds the Lease. What some clients append to
// it, to tell a restarted process from the one before, is cut off.
func holder(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	name, _, _ := strings.Cut(*l.Spec.HolderIdentity, "_")
	return name
}
