package prefixes

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/cidr"
)

// ledger is what this process knows of all Networks: who holds what, and what
// was decided last. It is an index of what the Networks' status says, and ahead
// of it where a write is under way.
type ledger struct {
	liqoNamespace string
	allocator     *cidr.Allocator
	entries       map[string]entry
	// reserved are the addresses and networks that are kept free, and who has them.
	reserved map[netip.Prefix]string
	// waiting are the keys of those that have nothing.
	waiting map[string]bool
	// reasons counts the decisions.
	reasons map[ipamv1alpha1.ConditionReason]int
	// changed tells that waiting Networks may get another answer than before.
	changed bool
}

type entry struct {
	claim    claim
	decision decision
	// disputed tells that status.cidr overlaps that of an older Network.
	disputed bool
}

func newLedger(pools []netip.Prefix, liqoNamespace string) (*ledger, error) {
	a, err := cidr.NewAllocator(pools)
	if err != nil {
		return nil, err
	}
	return &ledger{
		liqoNamespace: liqoNamespace, allocator: a,
		reserved: make(map[netip.Prefix]string), entries: make(map[string]entry), waiting: make(map[string]bool), reasons: make(map[ipamv1alpha1.ConditionReason]int),
	}, nil
}

// owner is the name under which a Network holds space, as messages show it.
func owner(key string) string { return "Network " + key }

// load takes over what Networks hold, and then decides on those that hold
// nothing, so that the answers do not depend on who is reconciled first.
func (l *ledger) load(claims []claim) {
	var installed, waiting []claim
	claims = slices.SortedFunc(slices.Values(claims), byAge)
	for _, c := range claims {
		if c.countsAsInstalled() {
			installed = append(installed, c)
		}
		switch {
		case c.granted != "":
			l.decide(c, nil)
		case !c.deleting:
			waiting = append(waiting, c)
		}
	}
	slices.SortFunc(waiting, byNeed)
	for _, c := range waiting {
		l.decide(c, installed)
	}
}

// decide answers a claim. installed are the Networks of the installation, by
// which it is decided whose turn it is.
//
//	status.cidr | situation                                | decision
//	set         | nobody older holds any of it             | Allocated, or Remapped if it is not spec.cidr
//	set         | somebody older does                      | Overlap; it stays, and nobody else gets any of it
//	not set     | a Network of the installation is missing | NetworkNotReady
//	not set     | one that comes first is not decided      | none yet
//	not set     | spec.cidr is free and in a pool, shared, |
//	            | not remapped or of the installation      | Allocated
//	not set     | in use, must not be remapped             | Overlap
//	not set     | in use or in no pool, another is free    | Remapped
//	not set     | in use, none is free                     | Exhausted
//	any         | no prefix, or not to be routed           | Invalid
func (l *ledger) decide(c claim, installed []claim) decision {
	e, ok := l.entries[c.key]
	if ok && e.claim.uid != c.uid {
		l.forget(c.key) // deleted and made again
		e = entry{}
	}
	before := e.decision
	e.claim = c
	if c.granted != "" {
		l.keep(&e)
	} else {
		l.grant(&e, installed)
	}
	// Others wait for those of the installation to be decided, one way or the other.
	l.changed = l.changed || c.class != classOther && before.held() && !e.decision.held()
	l.drop(c.key)
	l.entries[c.key] = e
	l.reasons[e.decision.reason]++
	if !e.decision.granted() {
		l.waiting[c.key] = true
	}
	return e.decision
}

// drop forgets a decision.
func (l *ledger) drop(key string) {
	if e, ok := l.entries[key]; ok {
		l.reasons[e.decision.reason]--
	}
	delete(l.entries, key)
	delete(l.waiting, key)
}

// keep holds what the status says.
func (l *ledger) keep(e *entry) {
	c, who := e.claim, owner(e.claim.key)
	p, err := c.granted.Prefix()
	if err == nil {
		err = l.restore(who, p, c.shared)
	}
	overlap, overlaps := errors.AsType[*cidr.OverlapError](err)
	e.disputed = overlaps
	switch {
	case overlaps:
		e.decision = decision{reason: ipamv1alpha1.ReasonOverlap, message: fmt.Sprintf(
			"status.cidr %v, which is older: delete and recreate one of the two; nothing is changed until then", overlap)}
	case err != nil:
		e.decision = invalid(fmt.Errorf("status.cidr: %w", err))
	default:
		e.decision = l.allocated(c, p)
	}
}

// restore makes p what an owner holds. If it overlaps what others hold, it is
// held as shared, so that nobody gets any of it while this is not settled.
func (l *ledger) restore(who string, p netip.Prefix, shared bool) error {
	before, held := l.allocator.Get(who)
	if held && (before.Prefix != p || before.Shared != shared) {
		// Its labels changed, somebody wrote its status, or it is disputed, in which
		// case the older one may be gone.
		l.allocator.Release(who)
	}
	err := l.allocator.Restore(who, p, shared)
	if _, overlaps := errors.AsType[*cidr.OverlapError](err); overlaps {
		err = errors.Join(err, l.allocator.Restore(who, p, true))
	}
	if after, _ := l.allocator.Get(who); held && after.Prefix != before.Prefix {
		l.changed = true
	}
	return err
}

// grant finds a prefix, if it is the turn of this Network.
func (l *ledger) grant(e *entry, installed []claim) {
	c, who := e.claim, owner(e.claim.key)
	if e.disputed {
		// Somebody took away its status; what it held was not its own.
		l.release(who)
		e.disputed = false
	}
	if _, ok := l.allocator.Get(who); !ok {
		if wait, ok := l.turn(c, installed); !ok {
			e.decision = wait
			return
		}
	}
	asked, err := c.asked.Prefix()
	if err != nil {
		e.decision = invalid(err)
		return
	}
	p, err := l.allocator.Acquire(who, cidr.Request{
		Prefix: asked, NotRemapped: c.notRemapped, Shared: c.shared,
		// A public prefix of a peer would take the place of what the world means by it.
		Pooled: c.class == classOther,
		// In some clusters pods have addresses of the nodes' network.
		OverShared: c.class == classFixed,
	})
	e.decision = l.answer(c, p, err)
}

// turn tells whether all that comes before c is decided, or else what c is told.
func (l *ledger) turn(c claim, installed []claim) (decision, bool) {
	if c.class == classOther {
		if kinds := missing(installed); len(kinds) > 0 {
			return notInstalled(kinds, l.liqoNamespace), false
		}
	}
	for _, i := range installed {
		e, ok := l.entries[i.key]
		if i.class < c.class && (!ok || e.claim.uid != i.uid || e.decision.held()) {
			return decision{}, false
		}
	}
	return decision{}, true
}

// answer puts the answer of the allocator into words.
func (l *ledger) answer(c claim, p netip.Prefix, err error) decision {
	if err == nil {
		return l.allocated(c, p)
	}
	if _, ok := errors.AsType[*cidr.OverlapError](err); ok {
		return decision{reason: ipamv1alpha1.ReasonOverlap, message: fmt.Sprintf(
			"%v: create a Network with another CIDR, delete what conflicts, or let another prefix stand for this one by removing the label %s",
			err, ipamv1alpha1.LabelNetworkNotRemapped)}
	}
	if _, ok := errors.AsType[*cidr.ExhaustedError](err); ok {
		return decision{reason: ipamv1alpha1.ReasonExhausted, message: fmt.Sprintf(
			"%v: give the controller a further pool (--ipam-pools), or delete Networks or peerings that are not needed", err)}
	}
	return invalid(err)
}

func (l *ledger) allocated(c claim, p netip.Prefix) decision {
	asked, err := c.asked.Prefix()
	if err == nil && asked.Masked() == p {
		return decision{prefix: p, reason: ipamv1alpha1.ReasonAllocated, message: "granted as asked for"}
	}
	// Not what is in the way: that may change, and the answer does not.
	why := "was in use in this cluster"
	if err == nil && !l.allocator.Pooled(asked.Masked()) {
		why = "is in no pool (--ipam-pools)"
	}
	return decision{prefix: p, reason: ipamv1alpha1.ReasonRemapped, message: fmt.Sprintf("%s stands for %s, which %s", p, c.asked, why)}
}

func invalid(err error) decision {
	return decision{reason: ipamv1alpha1.ReasonInvalid, message: fmt.Sprintf("%v: create a Network with another CIDR", err)}
}

// forget gives back what a Network held.
func (l *ledger) forget(key string) {
	l.release(owner(key))
	if e, ok := l.entries[key]; ok && e.claim.class != classOther {
		l.changed = true // its type may be missing now
	}
	l.drop(key)
}

func (l *ledger) release(who string) {
	if _, ok := l.allocator.Get(who); ok {
		l.allocator.Release(who)
		l.changed = true
	}
}

// retry decides again on all Networks that got nothing, if anything changed, and
// returns the keys of those with a new answer.
func (l *ledger) retry(installed []claim) []string {
	var woken []string
	for l.changed {
		l.changed = false
		waiting := make([]claim, 0, len(l.waiting))
		for key := range l.waiting {
			waiting = append(waiting, l.entries[key].claim)
		}
		slices.SortFunc(waiting, byNeed)
		for _, c := range waiting {
			if before := l.entries[c.key].decision; l.decide(c, installed) != before {
				woken = append(woken, c.key)
			}
		}
	}
	return woken
}
