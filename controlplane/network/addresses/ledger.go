package addresses

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/cidr"
)

// ledger is what this process knows of all IPs: who has which address, and what
// was decided last. It is an index of what the IPs' status says, and ahead of it
// where a write is under way.
type ledger struct {
	entries map[string]entry
	pools   map[string]*pool // by the key of the Network
	// changed are the keys of Networks of which those that wait for an address may
	// get another answer than before.
	changed map[string]bool
}

type entry struct {
	claim    claim
	decision decision
}

// pool is the addresses of a Network.
type pool struct {
	origin    origin
	addresses *cidr.Addresses // nil while the Network has no prefix
	// members are the keys of all IPs of the Network, waiting those that have
	// nothing.
	members, waiting map[string]bool
	changed          func()
}

// lookup finds the Network of an IP.
type lookup func(claim) (o origin, there bool)

func newLedger() *ledger {
	return &ledger{entries: make(map[string]entry), pools: make(map[string]*pool), changed: make(map[string]bool)}
}

// owner is the name under which an IP has an address, as messages show it.
func owner(key string) string { return "IP " + key }

// load takes over what IPs have, and then decides on those that have nothing, so
// that the answers do not depend on who is reconciled first.
func (l *ledger) load(claims []claim, find lookup) {
	claims = slices.SortedFunc(slices.Values(claims), byAge)
	for _, settled := range []bool{true, false} {
		for _, c := range claims {
			if (c.granted != "") == settled && (settled || !c.deleting) {
				l.decide(c, find)
			}
		}
	}
}

// decide answers a claim.
//
//	status.ip | situation                                      | decision
//	set       | nobody older has it                            | Allocated
//	set       | somebody older has it                          | Overlap; it stays
//	set       | the Network has another prefix now             | Invalid; it stays
//	set       | the Network is gone, or has no prefix any more | NetworkNotReady; it stays
//	not set   | spec.ip is none, or of another family          | Invalid
//	not set   | the Network is not there or has no prefix      | NetworkNotReady
//	not set   | an address is free                             | Allocated
//	not set   | none is free                                   | Exhausted
func (l *ledger) decide(c claim, find lookup) decision {
	e, known := l.entries[c.key]
	if known && e.claim.uid != c.uid {
		l.forget(c.key) // deleted and made again
		known = false
	}
	if known && c.granted == "" && e.decision.granted() {
		c = remember(c, e.decision, find)
	}
	o, there := find(c)
	network := c.network
	if there {
		network = o.key
	}
	if known && e.decision.network != network {
		l.leave(e) // it names another Network now
	}
	p := l.pool(network, o)
	p.members[c.key] = true
	d := p.decide(c, there)
	d.network = network
	l.entries[c.key] = entry{claim: c, decision: d}
	if delete(p.waiting, c.key); !d.granted() {
		p.waiting[c.key] = true
	}
	return d
}

// remember completes a claim by what was decided before: the write of it may be
// under way, or done and not seen yet, so that another answer would give away
// what the IP has. This ends when the Network has another prefix.
func remember(c claim, d decision, find lookup) claim {
	before := c
	before.network, before.granted, before.from = d.network, ipamv1alpha1.Address(d.addr.String()), ipamv1alpha1.CIDR(d.prefix.String())
	if o, there := find(before); there && o.prefix == d.prefix {
		return before
	}
	return c
}

// pool returns the addresses of a Network. If it has another prefix than before,
// or keeps more of it, its IPs take what they have in the new one, the oldest
// first.
func (l *ledger) pool(network string, o origin) *pool {
	p, ok := l.pools[network]
	if ok && p.origin == o {
		return p
	}
	if !ok {
		p = &pool{
			members: make(map[string]bool), waiting: make(map[string]bool),
			changed: func() { l.changed[network] = true },
		}
		l.pools[network] = p
	}
	p.origin, p.addresses = o, nil
	p.changed()
	if !o.prefix.IsValid() {
		return p
	}
	p.addresses = cidr.NewAddresses(o.prefix, cidr.WithReserved(o.reserved))
	var members []entry
	for key := range p.members {
		members = append(members, l.entries[key])
	}
	slices.SortFunc(members, func(a, b entry) int { return byAge(a.claim, b.claim) })
	for _, e := range members {
		addr := e.decision.addr
		if granted, err := e.claim.granted.Addr(); err == nil {
			addr = granted
		}
		// One that it cannot have is told so when it is decided on.
		_ = p.addresses.Restore(owner(e.claim.key), addr)
	}
	return p
}

func (p *pool) decide(c claim, there bool) decision {
	if c.granted != "" {
		return p.keep(c, there)
	}
	if why := refuse(c, p.origin); why != "" {
		p.release(c.key)
		return decision{reason: ipamv1alpha1.ReasonInvalid, message: why}
	}
	if p.addresses == nil {
		return decision{reason: ipamv1alpha1.ReasonNetworkNotReady, message: waitFor(c, p.origin, there)}
	}
	addr, err := p.addresses.Acquire(owner(c.key))
	if err != nil {
		return decision{reason: ipamv1alpha1.ReasonExhausted, message: fmt.Sprintf(
			"Network %s: %v: delete IPs that are not needed, or make a larger Network and name it in spec.networkRef", p.origin.key, err)}
	}
	return allocated(addr, p.origin)
}

// keep holds what the status says.
func (p *pool) keep(c claim, there bool) decision {
	addr, err := c.granted.Addr()
	if err != nil {
		return decision{reason: ipamv1alpha1.ReasonInvalid, message: fmt.Sprintf("status.ip: %v: delete this IP and make it again", err)}
	}
	if p.addresses == nil {
		return decision{reason: ipamv1alpha1.ReasonNetworkNotReady, message: fmt.Sprintf(
			"%s; until then, others may be given %s", waitFor(c, p.origin, there), addr)}
	}
	if have, ok := p.addresses.Get(owner(c.key)); ok && have != addr {
		p.release(c.key) // somebody wrote its status
	}
	err = p.addresses.Restore(owner(c.key), addr)
	if _, ok := errors.AsType[*cidr.TakenError](err); ok {
		return decision{reason: ipamv1alpha1.ReasonOverlap, message: fmt.Sprintf(
			"status.ip: %v, which is older: delete and recreate one of the two; nothing is changed until then", err)}
	}
	if err != nil {
		return decision{reason: ipamv1alpha1.ReasonInvalid, message: fmt.Sprintf(
			"status.ip: %v, the prefix that Network %s has now: delete this IP and make it again", err, p.origin.key)}
	}
	return allocated(addr, p.origin)
}

func allocated(addr netip.Addr, o origin) decision {
	return decision{
		addr: addr, prefix: o.prefix, reason: ipamv1alpha1.ReasonAllocated,
		message: fmt.Sprintf("remote clusters reach it as %s of Network %s", addr, o.key),
	}
}

// release gives back the address of an IP.
func (p *pool) release(key string) {
	if p.addresses == nil {
		return
	}
	if _, ok := p.addresses.Get(owner(key)); ok {
		p.addresses.Release(owner(key))
		p.changed()
	}
}

// forget gives back what an IP had.
func (l *ledger) forget(key string) {
	if e, ok := l.entries[key]; ok {
		l.leave(e)
		delete(l.entries, key)
	}
}

// leave takes an IP out of its Network.
func (l *ledger) leave(e entry) {
	p, ok := l.pools[e.decision.network]
	if !ok {
		return
	}
	p.release(e.claim.key)
	p.changed() // it may have been the last one
	delete(p.members, e.claim.key)
	delete(p.waiting, e.claim.key)
}

// retry decides again on all IPs that got nothing, of Networks where anything
// changed, and returns the keys of those with a new answer.
func (l *ledger) retry(find lookup) []string {
	var woken []string
	for len(l.changed) > 0 {
		network := slices.Min(slices.Collect(maps.Keys(l.changed)))
		delete(l.changed, network)
		p, ok := l.pools[network]
		if ok && len(p.members) == 0 {
			delete(l.pools, network)
		}
		if !ok || len(p.waiting) == 0 {
			continue
		}
		waiting := make([]claim, 0, len(p.waiting))
		for key := range p.waiting {
			waiting = append(waiting, l.entries[key].claim)
		}
		slices.SortFunc(waiting, byAge)
		for _, c := range waiting {
			if before := l.entries[c.key].decision; l.decide(c, find) != before {
				woken = append(woken, c.key)
			}
		}
	}
	return woken
}
