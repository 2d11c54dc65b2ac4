package hostnet

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Apply does what the plan says. Each step that can be done is done; the error
// joins what could not, by link where it is about one (LinkErrors), with the
// plan's problems. A link that cannot be made whole is removed again.
func (c *Conn) Apply(p Plan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, e := range p.Problems {
		errs = append(errs, e)
	}
	var network []networkStep
	for _, s := range p.Steps {
		if s, ok := s.(networkStep); ok {
			network = append(network, s)
			continue
		}
		errs = append(errs, c.applyNetwork(network), s.(loneStep).apply(c))
		network = nil
	}
	errs = append(errs, c.applyNetwork(network))
	return errors.Join(errs...)
}

// loneStep is a Step that is done by itself: what is no networkStep.
type loneStep interface {
	apply(*Conn) error
}

// applyNetwork does steps in order of their phase, all of a phase together. The
// caller holds mu.
func (c *Conn) applyNetwork(steps []networkStep) error {
	a := applier{
		conn:  c,
		made:  make(map[string]int),
		bad:   make(map[string]bool),
		greet: make(map[string]greeting),
	}
	a.checkHeirs(steps)
	for i := 0; i < len(steps); {
		begin := i
		for i < len(steps) && steps[i].phase() == steps[begin].phase() {
			i++
		}
		a.apply(steps[begin:i])
	}
	a.removeUnfinished()
	for _, g := range a.greet {
		c.announcer.announce(g.index, g.link.Address, g.link.GatewayAddress)
	}
	return errors.Join(a.errs...)
}

// applier is the work on one plan.
type applier struct {
	conn *Conn
	// made are the links made from this plan, by name.
	made map[string]int
	// bad are links of which a step failed.
	bad map[string]bool
	// greet are links whose gateway should hear of them.
	greet map[string]greeting
	errs  []error
}

type greeting struct {
	index int
	link  Link
}

// apply does steps of one phase.
func (a *applier) apply(steps []networkStep) {
	var doing []networkStep
	var ms []netlink.Message
	var last []int // index behind the messages of each step
	steps = a.removeTogether(slices.DeleteFunc(steps, a.skip))
	for _, s := range steps {
		if a.skip(s) {
			continue
		}
		if add, ok := s.(addLink); ok && add.want.Kind == KindTUN {
			a.finish(s, a.addTUN(add.want))
			continue
		}
		doing = append(doing, s)
		ms = append(ms, a.messages(s)...)
		last = append(last, len(ms))
	}
	errs, begin := a.conn.batch(ms), 0
	for i, s := range doing {
		a.finish(s, cmp.Or(errs[begin:last[i]]...))
		begin = last[i]
	}
	if len(steps) > 0 && steps[0].phase() == phaseAddLink {
		a.mark(doing)
	}
}

// checkHeirs finds links that cannot be made because somebody else has their name,
// before what they are to replace is removed.
func (a *applier) checkHeirs(steps []networkStep) {
	heirs := make(map[string]bool)
	for _, s := range steps {
		if s, ok := s.(removeLink); ok && s.heir != "" {
			heirs[s.heir] = true
		}
	}
	for _, s := range steps {
		if s, ok := s.(addLink); ok && heirs[s.want.Name] {
			if _, _, err := a.conn.readLink(s.want.Name, 0); err == nil {
				a.finish(s, unix.EEXIST)
			}
		}
	}
}

// togetherAtOnce bounds how many links are removed together, and so for how long
// the kernel lets nobody else change a link.
const togetherAtOnce = 256

// removeTogether removes links, where steps are about that, so that the kernel
// waits for their last readers once and not for each: the difference between
// seconds and minutes for thousands of links. It returns the steps that are left.
func (a *applier) removeTogether(steps []networkStep) []networkStep {
	for len(steps) > 1 {
		if _, ok := steps[0].(removeLink); !ok {
			break
		}
		some := steps[:min(len(steps), togetherAtOnce)]
		// A number that nobody has chosen for a group of theirs.
		group := rand.Uint32()>>1 | 1<<30
		ms := make([]netlink.Message, 0, len(some))
		for _, s := range some {
			ms = append(ms, groupMessage(a.index(s), group))
		}
		errs := a.conn.batch(append(ms, removeGroupMessage(group)))
		if errs[len(some)] != nil {
			break // one by one then, which also tells what is wrong
		}
		for i, s := range some {
			a.finish(s, errs[i])
		}
		steps = steps[len(some):]
	}
	return steps
}

// skip tells whether a step has lost its sense because one before it failed.
func (a *applier) skip(s networkStep) bool {
	if s, ok := s.(removeLink); ok {
		return a.bad[s.heir]
	}
	if !a.bad[s.link()] {
		return false
	}
	switch s.phase() {
	case phaseRemoveRoute, phaseRemoveAddress:
		// What was to replace it is not there: what is in force is better than nothing.
		return true
	case phaseAddRule, phaseRemoveRule:
		return false
	default:
		// A link that is there loses nothing by further steps, one that was to be
		// made has none.
		_, made := a.made[s.link()]
		return made || a.index(s) == 0
	}
}

// index is that of the link of a step, 0 where it could not be made.
func (a *applier) index(s networkStep) int {
	index := 0
	switch s := s.(type) {
	case setLink:
		index = s.index
	case setAlias:
		index = s.index
	case setUp:
		index = s.index
	case addAddress:
		index = s.index
	case putRoute:
		index = s.route.index
	case removeLink:
		index = s.index
	case removeAddress:
		index = s.index
	case removeRoute:
		index = s.route.index
	}
	if index == 0 {
		index = a.made[s.link()]
	}
	return index
}

// finish records what became of a step.
func (a *applier) finish(s networkStep, err error) {
	if err = explain(s, err); err == nil {
		a.succeeded(s)
		return
	}
	taken := errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EADDRINUSE)
	if add, ok := s.(addLink); ok && errors.Is(err, unix.EEXIST) {
		err = a.explainExists(add.want)
	}
	if taken {
		err = inTheWay{err}
	}
	if s.link() == "" {
		a.errs = append(a.errs, fmt.Errorf("%v: %w", s, err))
		return
	}
	a.errs = append(a.errs, &LinkError{Link: s.link(), Err: err})
	if essential(s) {
		a.bad[s.link()] = true
	}
}

// essential tells whether a link is of no use without a step: all but the
// prefixes behind the gateway, and what IPv6 alone needs. What a route that
// cannot be had was to replace stays.
func essential(s networkStep) bool {
	switch s := s.(type) {
	case putRoute:
		return s.route.Src.IsValid() // to the gateway itself
	case addAddress:
		return !s.address.Addr().IsLinkLocalUnicast()
	}
	return true
}

// succeeded notes whose gateway should hear of a change.
func (a *applier) succeeded(s networkStep) {
	var l Link
	switch s := s.(type) {
	case setLink:
		l = s.want
	case setUp:
		l = s.want
	case addAddress:
		l = s.want
	case removeLink:
		delete(a.greet, s.name)
		return
	default:
		return
	}
	if l.ethernet() {
		a.greet[l.Name] = greeting{a.index(s), l}
	}
}

// explainExists tells the two reasons apart for which a link cannot be made
// because there is one.
func (a *applier) explainExists(l Link) error {
	if have, kind, err := a.conn.readLink(l.Name, 0); err == nil {
		return foreignLinkError(ForeignLink{Name: l.Name, Kind: kind, Alias: have.Alias})
	}
	return fmt.Errorf("another %s link has VNI %d on port %d (ip -d link show type %s): remove it or choose another VNI or port", l.Kind, l.VNI, l.Port, l.Kind)
}

// mark gives the new links their alias, and takes their link-local addresses
// from them. Should we die before that, the MAC address tells that they are ours.
func (a *applier) mark(added []networkStep) {
	var steps []networkStep
	var names []string
	for _, s := range added {
		if !a.bad[s.link()] {
			steps = append(steps, s)
			names = append(names, s.link())
		}
	}
	if len(names) == 0 {
		return
	}
	for _, s := range steps {
		delete(a.conn.unknown, s.(addLink).want.Kind)
	}
	indexes, err := a.conn.findLinks(names)
	if err != nil {
		// Unfinished ones cannot be removed either; the next plan will.
		a.errs = append(a.errs, err)
	}
	ms := make([]netlink.Message, 0, 2*len(steps))
	doing := steps[:0]
	for _, s := range steps {
		index, ok := indexes[s.link()]
		if !ok {
			a.finish(s, unix.ENODEV)
			continue
		}
		a.made[s.link()] = index
		a.conn.ours.add(index)
		doing = append(doing, s)
		want := s.(addLink).want
		ms = append(ms, aliasMessage(index, want.alias()), noLinkLocalMessage(index))
	}
	errs := a.conn.batch(ms)
	for i, s := range doing {
		if err := errs[2*i]; err != nil {
			a.finish(s, fmt.Errorf("mark it by its alias: %w", err))
		}
		// The second one fails on a kernel without IPv6, and is not needed there.
	}
}

// removeUnfinished removes the links of this plan that are not whole.
func (a *applier) removeUnfinished() {
	var ms []netlink.Message
	var names []string
	for name, index := range a.made {
		if a.bad[name] {
			names = append(names, name)
			ms = append(ms, removeLinkMessage(index))
			delete(a.greet, name)
		}
	}
	for i, err := range a.conn.batch(ms) {
		if err != nil && !errors.Is(err, unix.ENODEV) {
			a.errs = append(a.errs, &LinkError{Link: names[i], Err: fmt.Errorf("remove what was made of it: %w", err)})
		}
	}
}
