package cluster

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/sluice-net/sluice/objects/mirror"
)

// This file reads and writes the Lease for an Elector.

// read reads the Lease past the watch, on a connection of its own: those from before a
// cut are dead, which shows half a minute later only, and a leader that was cut off
// would fight until then with the one that has taken over. It reports whether that
// worked.
func (e *Elector) read(ctx context.Context, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var list coordinationv1.LeaseList
	err := e.link.afresh.Get().Namespace(e.link.options.Namespace).Resource("leases").
		VersionedParams(&metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", e.name).String()}, metav1.ParameterCodec).
		Do(ctx).Into(&list)
	if err != nil {
		return false
	}
	e.asked = time.Now()
	if len(list.Items) == 0 {
		e.noteAnswer(nil)
		e.mu.Lock()
		e.kept = nil
		e.mu.Unlock()
	}
	for i := range list.Items {
		l := &list.Items[i]
		if other := holderOf(l); other != "" && other != e.options.Identity && e.State().Leading {
			e.log.Warn("another replica has taken over while this one was cut off from the API server", "lease", e.name, "leader", other)
		}
		e.noteAnswer(l)
		e.know(l)
	}
	return true
}

// readAgain reads a second time, for a moment, and tells what leads by it that this was in
// vain.
func (e *Elector) readAgain(ctx context.Context, led Led) bool {
	if !e.State().Leading {
		return false
	}
	since := time.Now()
	if e.read(ctx, hastyTimeout) {
		return true
	}
	led.AskedInVain(since)
	return false
}

// ask asks for the lease, as a leader that has nothing to write. Any version will do:
// what counts is the answer.
func (e *Elector) ask(ctx context.Context) {
	if e.failing {
		return // read has just asked
	}
	ctx, cancel := context.WithTimeout(ctx, e.options.RenewDeadline)
	defer cancel()
	var l coordinationv1.Lease
	err := e.link.coordination.Get().Namespace(e.link.options.Namespace).Resource("leases").Name(e.name).
		VersionedParams(&metav1.GetOptions{ResourceVersion: "0"}, metav1.ParameterCodec).Do(ctx).Into(&l)
	if err != nil && !apierrors.IsNotFound(err) {
		e.fail("read", err)
		return
	}
	e.asked = time.Now()
	if err != nil {
		e.noteAnswer(nil)
	} else {
		e.noteAnswer(&l)
		e.leases.Wrote(&l)
	}
}

// write puts this replica's name and the time into the lease, unless somebody
// was faster. It reports whether that worked.
func (e *Elector) write(ctx context.Context, f facts) bool {
	timeout := e.options.RenewDeadline
	if e.failing {
		timeout = min(timeout, failingTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := e.update(ctx, withHolder(f.lease, e.options, f.now))
	if err == nil {
		e.noteAnswer(nil)
		e.written, e.failing = f.now, false
		return true
	}
	if apierrors.IsConflict(err) {
		return false // somebody was faster: the watch will tell
	}
	e.fail("write", err)
	return false
}

// withHolder is the lease with this replica as its holder.
func withHolder(l *coordinationv1.Lease, o ElectionOptions, now time.Time) *coordinationv1.Lease {
	l = l.DeepCopy()
	at := metav1.NewMicroTime(now)
	if s := &l.Spec; holderOf(l) != o.Identity {
		s.AcquireTime = &at
		transitions := int32(1)
		if s.LeaseTransitions != nil {
			transitions += *s.LeaseTransitions
		}
		s.LeaseTransitions = &transitions
	}
	l.Spec.HolderIdentity = &o.Identity
	l.Spec.LeaseDurationSeconds = new(int32(max(1, o.LeaseDuration/time.Second)))
	l.Spec.RenewTime = &at
	return l
}

// release gives the lease back.
func (e *Elector) release() {
	l := e.lease()
	if holderOf(l) != e.options.Identity {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), mirror.LastTimeout)
	defer cancel()
	l = l.DeepCopy()
	l.Spec.HolderIdentity = new("")
	if err := e.update(ctx, l); err != nil {
		e.log.Warn("cannot give the lease back, another replica waits until it expires", "lease", e.name, "error", mirror.PlainError(err))
	}
}

// update writes the spec of the lease if the lease is as it was seen. Its
// metadata is the controller's.
func (e *Elector) update(ctx context.Context, l *coordinationv1.Lease) error {
	return e.patch(ctx, l, map[string]any{
		"metadata": map[string]any{"resourceVersion": l.ResourceVersion}, "spec": l.Spec,
	})
}
