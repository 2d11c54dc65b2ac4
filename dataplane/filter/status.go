package filter

// ChainStatus is one chain and what it counted, as plain values for display.
type ChainStatus struct {
	Table    string `json:"table"`
	Chain    string `json:"chain"`
	Hook     string `json:"hook"`
	Priority int32  `json:"priority"`
	Policy   string `json:"policy"`
	// Dropped are the packets that fell to a policy of drop.
	Dropped Packets      `json:"droppedByPolicy"`
	Rules   []RuleStatus `json:"rules"`
}

// RuleStatus is one rule and what it counted.
type RuleStatus struct {
	Rule   string `json:"rule"`
	Action string `json:"action"`
	// Packets are those that matched; nil when the rule does not count.
	Packets *Packets `json:"packets,omitempty"`
}

// Packets counts packets of each direction.
type Packets struct {
	Egress  uint64 `json:"egress"`
	Ingress uint64 `json:"ingress"`
}

// counts are the counters of one chain.
type counts struct {
	policy *counter
	rules  []*counter // nil: not counted
}

// Status returns the chains in the order of the Config. A nil Filter has none.
func (f *Filter) Status() (status []ChainStatus) {
	if f == nil {
		return nil
	}
	for i, c := range f.chains {
		n := &f.counts[i]
		s := ChainStatus{
			Table: c.Table, Chain: c.Name, Hook: c.Hook.String(), Priority: c.Priority,
			Policy: c.Policy.String(), Dropped: *n.policy.packets(),
		}
		for j, r := range c.Rules {
			s.Rules = append(s.Rules, RuleStatus{Rule: r.Name, Action: r.Action.String(), Packets: n.rules[j].packets()})
		}
		status = append(status, s)
	}
	return status
}

// counted names what a counter counts. Names need not be unique: of several equal
// ones each has its own turn.
type counted struct{ table, chain, rule string }

// carry returns counters for chains: those of old where nothing has changed, so
// that replacing a configuration neither resets them nor loses a packet.
func carry(chains []Chain, old *Filter) []counts {
	type known struct {
		rule    *Rule // nil: the policy
		counter *counter
	}
	before := make(map[counted][]known)
	if old != nil {
		for i := range old.chains {
			c := &old.chains[i]
			policy := counted{table: c.Table, chain: c.Name}
			before[policy] = append(before[policy], known{counter: old.counts[i].policy})
			for j := range c.Rules {
				r := counted{c.Table, c.Name, c.Rules[j].Name}
				before[r] = append(before[r], known{&c.Rules[j], old.counts[i].rules[j]})
			}
		}
	}
	take := func(key counted, r *Rule) *counter {
		for i, k := range before[key] {
			if k.counter != nil && (k.rule == nil) == (r == nil) && (r == nil || r.equal(k.rule)) {
				before[key][i].counter = nil
				return k.counter
			}
		}
		return new(counter)
	}
	out := make([]counts, len(chains))
	for i := range chains {
		c := &chains[i]
		out[i] = counts{policy: take(counted{table: c.Table, chain: c.Name}, nil), rules: make([]*counter, len(c.Rules))}
		for j := range c.Rules {
			if r := &c.Rules[j]; r.Counter {
				out[i].rules[j] = take(counted{c.Table, c.Name, r.Name}, r)
			}
		}
	}
	return out
}
