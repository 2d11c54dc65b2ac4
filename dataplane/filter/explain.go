package filter

import (
	"slices"

	"github.com/sluice-net/sluice/nat/packet"
)

// Step is a rule that a packet matches, or the policy of a chain that drops it.
type Step struct {
	Table  string `json:"table"`
	Chain  string `json:"chain"`
	Rule   string `json:"rule,omitempty"` // empty: the policy
	Action string `json:"action"`
}

// Explain returns what Check says of p, and the steps to it in their order; with Drop and
// Reject the last one decides. It counts nothing. A nil Filter accepts everything.
func (f *Filter) Explain(p *packet.Packet, w *Way) (action Action, steps []Step, err error) {
	if f == nil {
		return Accept, nil, nil
	}
	// A filter of its own, in which every rule counts: the packet tells where it has been.
	c := Config{Chains: slices.Clone(f.chains)}
	for i := range c.Chains {
		rules := slices.Clone(c.Chains[i].Rules)
		for j := range rules {
			rules[j].Counter = true
		}
		c.Chains[i].Rules = rules
	}
	own, err := Compile(c, nil)
	if err != nil {
		return Drop, nil, err
	}
	action, _ = own.Check(p, w)
	for _, i := range c.order() {
		chain, counts := &c.Chains[i], &own.counts[i]
		for j := range chain.Rules {
			if counts.rules[j].seen() {
				steps = append(steps, Step{chain.Table, chain.Name, chain.Rules[j].Name, chain.Rules[j].Action.String()})
			}
		}
		if counts.policy.seen() {
			steps = append(steps, Step{Table: chain.Table, Chain: chain.Name, Action: chain.Policy.String()})
		}
	}
	return action, steps, nil
}

func (c *counter) seen() bool { return *c.packets() != Packets{} }
