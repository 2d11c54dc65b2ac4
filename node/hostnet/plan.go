package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Plan leads from Actual to Desired.
type Plan struct {
	// Steps are in the order in which they are to be done.
	Steps []Step
	// Problems are what is desired and cannot be had, with nothing done about it.
	Problems []*LinkError
}

// Empty tells that there is nothing to do. There may be problems.
func (p Plan) Empty() bool { return len(p.Steps) == 0 }

// Lines are the plan for people: a line for each step, and then for each problem.
func (p Plan) Lines() []string {
	lines := make([]string, 0, len(p.Steps)+len(p.Problems))
	for _, s := range p.Steps {
		lines = append(lines, s.String())
	}
	for _, e := range p.Problems {
		lines = append(lines, e.Error())
	}
	return lines
}

// Step is one change. Apply does those that this package makes.
type Step interface {
	// String reads as a line for people.
	String() string
}

// LinkError is about one link. What it says includes what to do.
type LinkError struct {
	Link string
	Err  error
}

func (e *LinkError) Error() string { return "link " + e.Link + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *LinkError) Unwrap() error { return e.Err }

// LinkErrors sorts what Apply returned by link; what is about none is under "".
func LinkErrors(err error) map[string]error {
	byLink := make(map[string]error)
	var add func(error)
	add = func(err error) {
		var le *LinkError
		switch e := err.(type) { //lint:ignore errorlint this walks the tree itself
		case nil:
			return
		case *LinkError:
			le = e
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				add(err)
			}
			return
		default:
			if !errors.As(err, &le) {
				le = &LinkError{Err: err}
			}
		}
		byLink[le.Link] = errors.Join(byLink[le.Link], le.Err)
	}
	add(err)
	return byLink
}

// phase is when a step is done. All of one phase go to the kernel together, and
// each phase leaves behind what the next one needs: a link is whole before
// routes lead into it, and what is new works before what is old goes.
type phase int

const (
	phaseAddRule phase = iota
	phaseRemoveLinkFirst
	phaseSetLink // may free what a new link needs
	phaseAddLink
	phaseAddAddress
	phaseSetUp
	phasePutRoute
	phaseRemoveRoute
	phaseRemoveAddress
	phaseRemoveLink
	phaseRemoveRule
)

// networkStep is a Step about links, addresses, routes and rules.
type networkStep interface {
	Step
	phase() phase
	// link is the link that it is about, or "".
	link() string
}

type addLink struct {
	want Link
}

func (s addLink) phase() phase { return phaseAddLink }
func (s addLink) link() string { return s.want.Name }
func (s addLink) String() string {
	l := s.want
	return fmt.Sprintf("add link %s: %s, VNI %d, remote %v, MTU %d", l.Name, l.Kind, l.VNI, netip.AddrPortFrom(l.Gateway, l.Port), l.MTU)
}

// removeLink removes the link together with all its addresses and routes.
type removeLink struct {
	name  string
	index int
	kind  Kind
	why   string
	// heir is the link that takes its place, under another name: without it, this
	// one stays.
	heir string
	// first says that another link cannot be made before this one is gone.
	first bool
}

func (s removeLink) phase() phase {
	if s.first {
		return phaseRemoveLinkFirst
	}
	return phaseRemoveLink
}
func (s removeLink) link() string   { return s.name }
func (s removeLink) String() string { return fmt.Sprintf("remove link %s: %s", s.name, s.why) }

// setLink changes attributes of a link that carries packets all the while.
type setLink struct {
	want    Link
	index   int
	changes []string
	// mac tells whether the MAC address is one of them: to set it, even to what it
	// is, makes the kernel forget who answers on the link, and ask for a second.
	mac bool
}

func (s setLink) phase() phase { return phaseSetLink }
func (s setLink) link() string { return s.want.Name }
func (s setLink) String() string {
	return fmt.Sprintf("change link %s: %s", s.want.Name, strings.Join(s.changes, ", "))
}

// setAlias gives a link that was Liqo's our mark, or takes it away, and changes
// nothing else: whatever else is set makes the kernel drop packets for a moment.
type setAlias struct {
	name  string
	index int
	alias string // empty: none
}

func (s setAlias) phase() phase { return phaseSetLink }
func (s setAlias) link() string { return s.name }
func (s setAlias) String() string {
	if s.alias == "" {
		return fmt.Sprintf("leave link %s to Liqo: without alias", s.name)
	}
	return fmt.Sprintf("take over link %s of Liqo: alias %q", s.name, s.alias)
}

type setUp struct {
	want  Link
	index int
}

func (s setUp) phase() phase   { return phaseSetUp }
func (s setUp) link() string   { return s.want.Name }
func (s setUp) String() string { return fmt.Sprintf("set link %s up", s.want.Name) }

type addAddress struct {
	want    Link
	index   int
	address netip.Prefix
}

func (s addAddress) phase() phase { return phaseAddAddress }
func (s addAddress) link() string { return s.want.Name }
func (s addAddress) String() string {
	return fmt.Sprintf("add address %v to link %s", s.address, s.want.Name)
}

type removeAddress struct {
	name    string
	index   int
	address netip.Prefix
}

func (s removeAddress) phase() phase { return phaseRemoveAddress }
func (s removeAddress) link() string { return s.name }
func (s removeAddress) String() string {
	return fmt.Sprintf("remove address %v from link %s", s.address, s.name)
}

// putRoute adds a route, or replaces the first one of ours to the same prefix,
// with no moment in between without any.
type putRoute struct {
	route Route
	old   *Route // nil: there is none
}

func (s putRoute) phase() phase { return phasePutRoute }
func (s putRoute) link() string { return s.route.Device }
func (s putRoute) String() string {
	if s.old != nil {
		return fmt.Sprintf("change route %v: it was %v", s.route, *s.old)
	}
	return fmt.Sprintf("add route %v", s.route)
}

type removeRoute struct {
	route Route
}

func (s removeRoute) phase() phase   { return phaseRemoveRoute }
func (s removeRoute) link() string   { return s.route.Device }
func (s removeRoute) String() string { return fmt.Sprintf("remove route %v", s.route) }

type addRule struct {
	rule Rule
}

func (s addRule) phase() phase   { return phaseAddRule }
func (s addRule) link() string   { return "" }
func (s addRule) String() string { return fmt.Sprintf("add rule %v", s.rule) }

type removeRule struct {
	rule Rule
}

func (s removeRule) phase() phase   { return phaseRemoveRule }
func (s removeRule) link() string   { return "" }
func (s removeRule) String() string { return fmt.Sprintf("remove rule %v", s.rule) }
