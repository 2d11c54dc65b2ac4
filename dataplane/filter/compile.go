package filter

import (
	"cmp"
	"slices"
)

// Compile checks c and builds its Filter; without chains that is nil. Rules that
// stand unchanged in old, the filter that is being replaced, go on counting
// where they are; old may be nil.
func Compile(c Config, old *Filter) (*Filter, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if len(c.Chains) == 0 {
		return nil, nil
	}
	f := &Filter{chains: c.Chains, counts: carry(c.Chains, old)}
	order := c.order()
	for _, egress := range []bool{false, true} {
		for _, v6 := range []bool{false, true} {
			p := &f.programs[index(egress)][index(v6)]
			p.empty = true
			for _, i := range order {
				ch, ok := c.Chains[i].compile(&f.counts[i], egress, familyOf(v6))
				if !ok {
					continue
				}
				at := c.Chains[i].point()
				p.points[at] = append(p.points[at], ch)
				p.empty = false
			}
		}
	}
	return f, nil
}

// order returns the indices of the chains as a packet meets them.
func (c *Config) order() []int {
	order := make([]int, len(c.Chains))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		x, y := &c.Chains[i], &c.Chains[j]
		return cmp.Or(cmp.Compare(x.Hook, y.Hook), cmp.Compare(x.Priority, y.Priority))
	})
	return order
}

// point returns where the chain runs.
func (c *Chain) point() point {
	switch {
	case c.Hook == Prerouting && c.Priority < PriorityDestination:
		return arrival
	case c.Hook == Postrouting && c.Priority >= PrioritySource:
		return departure
	}
	return between
}

// compile reduces the chain to what concerns one direction and family. It reports
// false when that is nothing.
func (c *Chain) compile(n *counts, egress bool, f Family) (out chain, ok bool) {
	if c.Family != Both && c.Family != f {
		return out, false
	}
	out = chain{policy: c.Policy, dropped: n.policy}
	for i := range c.Rules {
		if r, ok := c.Rules[i].compile(egress, f); ok {
			r.counter = n.rules[i]
			out.rules = append(out.rules, r)
		}
	}
	return out, len(out.rules) > 0 || out.policy != Accept
}

// compile reduces the rule likewise: it reports false when it never matches.
func (r *Rule) compile(egress bool, f Family) (out rule, ok bool) {
	out = rule{action: r.Action, mss: uint16(r.MSS)}
	if r.Action == ClampMSS {
		out.tests = append(out.tests, test{what: onSYN})
	}
	for i := range r.Matches {
		if !r.Matches[i].compile(&out, egress, f) {
			return out, false
		}
	}
	// What costs least is asked first.
	slices.SortStableFunc(out.tests, func(x, y test) int { return cmp.Compare(x.what, y.what) })
	return out, true
}

// compile adds the tests of m to those of the rule. It reports false when m never
// holds.
func (m *Match) compile(out *rule, egress bool, f Family) bool {
	if m.Proto != 0 {
		out.tests = append(out.tests, test{what: onProto, proto: m.Proto})
	}
	m.ports(out, onSrcPort, m.SrcPort)
	m.ports(out, onDstPort, m.DstPort)
	in, goes := PeerSide, NodeSide
	if egress {
		in, goes = NodeSide, PeerSide
	}
	return m.addrs(out, onSrc, m.Src, f) && m.addrs(out, onDst, m.Dst, f) &&
		m.link(out, m.In, in) && m.link(out, m.Out, goes)
}

func (m *Match) ports(out *rule, what field, p Ports) {
	if p != (Ports{}) {
		out.tests = append(out.tests, test{what: what, not: m.Not, port: p.First, width: p.Last - p.First})
	}
}

func (m *Match) addrs(out *rule, what field, a Addrs, f Family) bool {
	if a == (Addrs{}) {
		return true
	}
	if familyOf(a.First.Is6()) != f {
		return false // also with Not: the rule is for the other family
	}
	out.tests = append(out.tests, test{what: what, not: m.Not, span: newSpan(a)})
	return true
}

// link adds a test on a link, if one is needed: mostly the side that the packet
// passes is the answer.
func (m *Match) link(out *rule, l Link, passes Side) bool {
	switch {
	case l.Side == AnySide:
		return true
	case l.Side != passes:
		return m.Not
	case l.Side == NodeSide && l.Node != "":
		out.tests = append(out.tests, test{what: onNode, not: m.Not, node: l.Node})
		return true
	}
	return !m.Not
}
