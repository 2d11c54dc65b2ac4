package hostnet

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
)

// diffTranslation finds what leads from have to want: one step or none.
//
//	wanted       there                               step
//	------------------------------------------------------------------------------------
//	nothing      nothing                             none
//	nothing      a table                             remove it
//	something    nothing                             add it
//	something    the same                            none
//	something    the same rules, other elements      change the elements
//	something    other rules, chains or sets         replace it: an older version, other
//	                                                 addresses in rules, or a stranger's work
//	whatever     (cannot be had here)                none
func diffTranslation(want Translation, have TranslationState) []TranslationChange {
	switch {
	case !have.Available:
		return nil
	case want.none() && !have.Exists:
		return nil
	case want.none():
		return []TranslationChange{{remove: true}}
	case !have.Exists:
		return []TranslationChange{{add: true, want: want}}
	}
	layout := layoutOf(want)
	if why := layout.differs(have); why != "" {
		return []TranslationChange{{remove: true, add: true, why: why, want: want}}
	}
	var sets []changeSet
	for i, s := range layout.sets {
		if c := diffSet(s, have.Sets[i]); len(c.add)+len(c.remove) > 0 {
			sets = append(sets, c)
		}
	}
	if sets == nil {
		return nil
	}
	return []TranslationChange{{sets: sets, want: want}}
}

// differs says in what the table differs, elements apart. Both sides are sorted.
func (l tableLayout) differs(have TranslationState) string {
	if have.Flags != 0 {
		return fmt.Sprintf("it has flags (%#x)", have.Flags)
	}
	wantSets, haveSets := make([]string, len(l.sets)), make([]string, len(have.Sets))
	for i, s := range l.sets {
		wantSets[i] = s.name + " (" + s.typ() + ")"
	}
	for i, s := range have.Sets {
		haveSets[i] = s.Name + " (" + s.Type + ")"
	}
	if why := difference("set", wantSets, haveSets); why != "" {
		return why
	}
	wantChains, haveChains := make([]string, len(l.chains)), make([]string, len(have.Chains))
	for i, c := range l.chains {
		wantChains[i] = c.state().describe()
	}
	for i, c := range have.Chains {
		haveChains[i] = c.describe()
	}
	if why := difference("chain", wantChains, haveChains); why != "" {
		return why
	}
	for i, c := range l.chains {
		if why := c.differs(have.Chains[i]); why != "" {
			return fmt.Sprintf("chain %s: %s", c.name, why)
		}
	}
	return ""
}

func (c chainLayout) differs(have TranslationChain) string {
	for i := range max(len(c.rules), len(have.Rules)) {
		switch {
		case i >= len(have.Rules):
			return fmt.Sprintf("rule %d is missing (%s)", i+1, c.rules[i].comment)
		case i >= len(c.rules):
			return fmt.Sprintf("rule %d is too many", i+1)
		case have.Rules[i].Comment != c.rules[i].comment || have.Rules[i].Digest != digest(c.rules[i].exprs):
			return fmt.Sprintf("rule %d differs (%s)", i+1, c.rules[i].comment)
		}
	}
	return ""
}

// difference names the first that is on one side only.
func difference(what string, want, have []string) string {
	for _, s := range want {
		if !slices.Contains(have, s) {
			return fmt.Sprintf("%s %s is missing", what, s)
		}
	}
	for _, s := range have {
		if !slices.Contains(want, s) {
			return fmt.Sprintf("%s %s is not ours", what, s)
		}
	}
	return ""
}

// describe says all of a chain but its rules.
func (c TranslationChain) describe() string {
	if c.Hook == "" {
		return c.Name + " (no hook)"
	}
	return fmt.Sprintf("%s (type %s, hook %s, priority %d, policy %s)", c.Name, c.Type, c.Hook, c.Priority, c.Policy)
}

// state is the chain as it is read, without its rules.
func (c chainLayout) state() TranslationChain {
	return TranslationChain{Name: c.name, Type: string(c.typ), Hook: hookName(c.hook), Priority: int32(c.priority), Policy: policyName(nftables.ChainPolicyAccept)}
}

// typ is the type of a set as nft(8) writes it.
func (s setLayout) typ() string {
	typ := s.family.typ.Name
	if s.isMap {
		typ += " : " + s.family.typ.Name
	}
	if s.interval {
		typ += ", interval"
	}
	return typ
}

// diffSet walks both sides, which are sorted, at once.
func diffSet(want setLayout, have TranslationSet) changeSet {
	c := changeSet{name: want.name}
	w, h := want.elements, have.Elements
	for len(w) > 0 || len(h) > 0 {
		order := 0
		switch {
		case len(w) == 0:
			order = 1
		case len(h) == 0:
			order = -1
		default:
			order = w[0].compare(h[0])
		}
		if order < 0 {
			c.add = append(c.add, w[0])
		}
		if order > 0 {
			c.remove = append(c.remove, h[0])
		}
		if order <= 0 {
			w = w[1:]
		}
		if order >= 0 {
			h = h[1:]
		}
	}
	return c
}
