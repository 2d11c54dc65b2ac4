package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/mirror"
)

// ElectionOptions are the settings of an election. The defaults are Liqo's.
type ElectionOptions struct {
	// Identity names this replica: its pod.
	Identity string
	// LeaseDuration is how long a leader may be silent before another takes over.
	LeaseDuration time.Duration
	// RenewDeadline bounds one attempt to write the lease.
	RenewDeadline time.Duration
	// RetryPeriod lies between two renewals.
	RetryPeriod time.Duration
}

// Elector elects the active one among the replicas of a gateway, by a Lease that
// the controller has made.
//
// client-go's leaderelection is not used, as it would interrupt traffic: its
// leader gives up when it cannot renew (see decide), it releases the Lease only
// after it has stopped leading, while HandOver goes on until a successor leads, it
// creates the Lease, which a gateway has no right to, and every replica polls the
// API server, where this one shares the gateway's watch.
type Elector struct {
	link    *Link
	options ElectionOptions
	name    string
	log     *slog.Logger
	leases  *mirror.Store[coordinationv1.Lease, *coordinationv1.Lease]
	changed chan struct{} // one slot

	forget time.Duration // forgetAfter

	// Owned by Run.
	written, asked      time.Time
	toldFirst, toldLast time.Time
	others              time.Time // when another replica has said that it stands by
	othersSaid          string    // and what
	failing             bool      // the last write failed; said once
	missing             bool      // there is no lease; said once

	mu       sync.Mutex
	answered time.Time             // when the API server has said last that no other replica has the lease
	kept     *coordinationv1.Lease // as it was known before a restart, or as read has found it; until the watch has listed it
	leading  bool
	leaving  bool
	renewed  string // how the holder has renewed the lease that was seen last
	seen     time.Time
}

// LeaseName is the Lease of the gateway.
func (o Options) LeaseName() string {
	return fmt.Sprintf("%s.%s.%s.connections.liqo.io", o.Name, o.Namespace, strings.ToLower(string(o.Type)))
}

// NewElector builds an Elector.
func (l *Link) NewElector(o ElectionOptions) *Elector {
	e := &Elector{link: l, options: o, name: l.options.LeaseName(), log: l.log, changed: make(chan struct{}, 1), forget: forgetAfter}
	e.leases = mirror.NewStore[coordinationv1.Lease]()
	e.leases.Changed = func() {
		e.noteAnswer(e.leases.Only())
		e.wake()
	}
	// What was kept is looked up before it is gone by.
	e.kept = l.before.Lease
	e.failing = e.kept != nil
	return e
}

// lease is what is known of the lease; nil: it does not exist, or nothing is known.
func (e *Elector) lease() *coordinationv1.Lease {
	if _, synced := e.leases.Size(); synced {
		return e.leases.Only()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kept
}

// know takes the lease as the API server has answered.
func (e *Elector) know(l *coordinationv1.Lease) {
	e.mu.Lock()
	e.kept = l
	e.mu.Unlock()
	e.leases.Wrote(l)
}

// wake makes Run look at the lease.
func (e *Elector) wake() {
	select {
	case e.changed <- struct{}{}:
	default: // a look is due already
	}
}

// handOverCheck is how often HandOver looks whether it is done.
const handOverCheck = 50 * time.Millisecond

// HandOver frees the lease while this replica goes on leading, until another one
// has taken it, until nobody will, because the gateway, its lease or its namespace
// is deleted, or until ctx ends. What it leads can end then. Run must be running.
func (e *Elector) HandOver(ctx context.Context) {
	asking, enough := context.WithCancel(ctx)
	namespaceEnds := make(chan struct{})
	var asks sync.WaitGroup
	defer asks.Wait()
	defer enough()
	asks.Go(func() {
		if e.link.namespaceEnds(asking) {
			close(namespaceEnds)
		}
	})
	e.mu.Lock()
	e.leaving = true
	e.mu.Unlock()
	e.wake()
	tick := time.NewTicker(handOverCheck)
	defer tick.Stop()
	for e.State().Leading && !e.noSuccessor() {
		select {
		case <-ctx.Done():
			e.log.Warn("no other replica has taken over in time", "lease", e.name)
			return
		case <-namespaceEnds:
			e.log.Info("the namespace is being deleted: nobody can take over", "lease", e.name)
			return
		case <-tick.C:
		}
	}
}

// noSuccessor tells whether no other replica will come.
func (e *Elector) noSuccessor() bool {
	_, synced := e.leases.Size()
	return !synced || e.leases.Only() == nil || e.link.gatewayGone()
}

// Unconfirmed tells whether the API server has not said for half the time after which
// another replica takes the lease of one that leads that none has: perhaps one has by now.
func (e *Elector) Unconfirmed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.answered) >= e.options.LeaseDuration/2
}

// noteAnswer notes that the API server has answered, unless by that another replica has
// the lease; nil: there is none.
func (e *Elector) noteAnswer(l *coordinationv1.Lease) {
	if holder := holderOf(l); holder != "" && holder != e.options.Identity {
		return
	}
	e.mu.Lock()
	e.answered = time.Now()
	e.mu.Unlock()
}

// Led is what goes by an election.
type Led interface {
	// SetLeading is told every change of the role.
	SetLeading(lead bool)
	// AskedInVain is told that a replica that leads has asked the API server since then,
	// and has got no answer.
	AskedInVain(since time.Time)
}

// Run takes part in the election until ctx ends. A lease that it holds at the end is
// given back, so that another replica takes over at once: what it leads must have
// stopped before, or see HandOver.
func (e *Elector) Run(ctx context.Context, led Led) {
	w := mirror.Watched{
		Client: e.link.coordination, Resource: "leases", Namespace: e.link.options.Namespace,
		Fields: fields.OneTermEqualSelector("metadata.name", e.name).String(),
	}
	var wg sync.WaitGroup
	wg.Go(func() { mirror.Follow(ctx, w, e.leases, e.link.mirror.Contact()) })
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			e.release()
			return
		case <-e.changed:
		case <-timer.C:
		}
		known := !e.failing || e.read(ctx, failingTimeout) || e.readAgain(ctx, led) // else what the lease says is not worth a write
		f := e.facts(time.Now())
		switch decide(f) {
		case standBy:
			e.setRole(false, f.lease, led)
			e.noteMissing(f.lease)
			e.failing = e.failing && !known
		case lead:
			e.setRole(true, f.lease, led)
			e.failing = e.failing && !known
		case ask:
			e.setRole(true, f.lease, led)
			e.failing = e.failing && !known
			e.ask(ctx)
		case renew:
			e.setRole(true, f.lease, led)
			if known {
				e.write(ctx, f)
			}
		case announce:
			e.setRole(false, f.lease, led)
			if known {
				e.announce(ctx, f)
			}
		case acquire:
			// What the watch knows is later than the answer to the write.
			if known && e.write(ctx, f) && holderOf(e.lease()) == e.options.Identity {
				e.setRole(true, e.lease(), led)
			}
		case release:
			e.release()
		}
		e.link.kept.keepLease(e.lease())
		wait := f.next()
		if e.failing {
			wait = min(wait, failingRetry)
		}
		timer.Reset(wait)
	}
}

const (
	// failingRetry is how soon a lease is written again that could not be: it is also
	// how long a leader that was cut off, and has a successor, leads on beside it.
	failingRetry = 500 * time.Millisecond
	// failingTimeout bounds an attempt while others fail. An API server that can be
	// reached answers in milliseconds; what was sent into a cut never comes.
	failingTimeout = time.Second
	// hastyTimeout bounds the attempt after which a leader may have the peer make a
	// session with it: what comes back during that time is not noticed before.
	hastyTimeout = 250 * time.Millisecond
)

// announce has the leader know that this replica stands by.
func (e *Elector) announce(ctx context.Context, f facts) {
	ctx, cancel := context.WithTimeout(ctx, e.options.RenewDeadline)
	defer cancel()
	err := e.patch(ctx, f.lease, map[string]any{"metadata": map[string]any{
		"resourceVersion": f.lease.ResourceVersion,
		"labels":          map[string]string{networkingv1beta1.LabelStandBy: strconv.FormatInt(f.now.UnixMilli(), 10)},
	}})
	switch {
	case err == nil:
		e.failing = false
		if e.toldLast = f.now; e.toldFirst.IsZero() {
			e.toldFirst = f.now
		}
	case !apierrors.IsConflict(err): // or the leader has just renewed
		e.fail("write", err)
	}
}

// noteMissing says why nobody is elected.
func (e *Elector) noteMissing(l *coordinationv1.Lease) {
	_, synced := e.leases.Size()
	missing := synced && l == nil
	if missing && !e.missing {
		e.log.Info("there is no Lease yet: the controller makes it, and until then nobody leads", "lease", e.name)
	}
	e.missing = missing
}

// facts gathers what there is to decide by.
func (e *Elector) facts(now time.Time) facts {
	f := facts{
		lease: e.lease(), self: e.options.Identity, written: e.written, asked: e.asked, now: now, rival: e.link.rival(),
		duration: e.options.LeaseDuration, retry: e.options.RetryPeriod,
	}
	if f.lease != nil {
		if said := f.lease.Labels[networkingv1beta1.LabelStandBy]; said != e.othersSaid {
			e.others, e.othersSaid = now, said
		}
	}
	f.alone = now.Sub(e.others) >= e.forget
	f.toldFirst, f.toldLast = e.toldFirst, e.toldLast
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.lease != nil {
		if renewed := fmt.Sprint(holderOf(f.lease), " ", f.lease.Spec.RenewTime); renewed != e.renewed {
			e.renewed, e.seen = renewed, now
		}
	}
	f.leading, f.leaving, f.seen = e.leading, e.leaving, e.seen
	return f
}

// setRole records the role and tells of a change.
func (e *Elector) setRole(leading bool, l *coordinationv1.Lease, led Led) {
	e.mu.Lock()
	changed := e.leading != leading
	e.mu.Unlock()
	if !changed {
		return
	}
	e.others, e.toldFirst, e.toldLast = time.Now(), time.Time{}, time.Time{}
	if leading {
		e.log.Info("leading", "lease", e.name)
	} else {
		e.log.Info("standing by", "lease", e.name, "leader", holderOf(l))
	}
	led.SetLeading(leading) // before HandOver sees it, and all ends
	e.mu.Lock()
	e.leading = leading
	e.mu.Unlock()
}

// fail records that the API server does not answer as it should, and logs the first
// time.
func (e *Elector) fail(to string, err error) {
	if !e.failing {
		e.log.Warn("cannot reach the lease", "lease", e.name, "to", to, "error", mirror.PlainError(err))
	}
	e.failing = true
}

// patch changes the lease. While the API server does not answer, each request has a connection of its own.
func (e *Elector) patch(ctx context.Context, l *coordinationv1.Lease, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode Lease: %w", err)
	}
	var after coordinationv1.Lease
	client := e.link.coordination
	if e.failing {
		client = e.link.afresh
	}
	err = client.Patch(types.MergePatchType).Namespace(l.Namespace).Resource("leases").Name(l.Name).
		Body(patch).Do(ctx).Into(&after)
	if err != nil {
		return err
	}
	e.know(&after)
	return nil
}

// ElectionState is the state of an election, for display.
type ElectionState struct {
	Lease    string `json:"lease"`
	Identity string `json:"identity"`
	// Holder is the leader as the lease says, empty for none.
	Holder  string `json:"holder,omitempty"`
	Leading bool   `json:"leading"`
}

// State returns the state of the election.
func (e *Elector) State() ElectionState {
	holder := holderOf(e.lease())
	e.mu.Lock()
	defer e.mu.Unlock()
	return ElectionState{Lease: e.name, Identity: e.options.Identity, Holder: holder, Leading: e.leading}
}
