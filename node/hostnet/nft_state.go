package hostnet

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// TranslationState is what there is of TranslationTable.
type TranslationState struct {
	// Available: this kernel can translate addresses, and lets us. Reason says why
	// not, and what to do about it.
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
	// Exists: there is such a table.
	Exists bool `json:"exists"`
	// Flags are the table's. Ours has none: they would put it out of force, or make
	// it somebody's property.
	Flags uint32 `json:"flags,omitempty"`
	// Sets and Chains are in the order of their names; rules are in the order in
	// which packets meet them.
	Sets   []TranslationSet   `json:"sets,omitempty"`
	Chains []TranslationChain `json:"chains,omitempty"`
}

// TranslationSet is a set, or a map, of addresses.
type TranslationSet struct {
	Name string `json:"name"`
	// Type is what the elements are, such as "ipv4_addr, interval".
	Type string `json:"type"`
	// Elements are sorted.
	Elements []TranslationElement `json:"elements,omitempty"`
}

// TranslationElement is an address, a range of them or, in a map, what an
// address leads to.
type TranslationElement struct {
	First, Last netip.Addr
	Value       netip.Addr // of maps
}

// String returns an address or a prefix where it can.
func (e TranslationElement) String() string {
	var s string
	switch p := e.prefix(); {
	case e.First == e.Last:
		s = e.First.String()
	case p.IsValid():
		s = p.String()
	default:
		s = e.First.String() + "-" + e.Last.String()
	}
	if e.Value.IsValid() {
		s += " : " + e.Value.String()
	}
	return s
}

// MarshalText returns what String does.
func (e TranslationElement) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads what MarshalText returns.
func (e *TranslationElement) UnmarshalText(text []byte) (err error) {
	*e = TranslationElement{}
	key, value, isMap := strings.Cut(string(text), " : ")
	if isMap {
		if e.Value, err = netip.ParseAddr(value); err != nil {
			return err
		}
	}
	if strings.Contains(key, "/") {
		p, err := netip.ParsePrefix(key)
		if err != nil {
			return err
		}
		e.First, e.Last = p.Masked().Addr(), lastAddr(p)
		return nil
	}
	first, last, isRange := strings.Cut(key, "-")
	if !isRange {
		last = first
	}
	if e.First, err = netip.ParseAddr(first); err != nil {
		return err
	}
	e.Last, err = netip.ParseAddr(last)
	return err
}

// prefix returns the prefix that covers the range and nothing else. It is
// invalid if there is none.
func (e TranslationElement) prefix() netip.Prefix {
	for bits := range e.First.BitLen() + 1 {
		if p := netip.PrefixFrom(e.First, bits); p.Masked() == p {
			if last := lastAddr(p); last == e.Last {
				return p
			} else if last.Less(e.Last) {
				break
			}
		}
	}
	return netip.Prefix{}
}

func (e TranslationElement) compare(o TranslationElement) int {
	return cmp.Or(e.First.Compare(o.First), e.Last.Compare(o.Last), e.Value.Compare(o.Value))
}

// lastAddr returns the last address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := range b {
		if host := 8*(i+1) - p.Bits(); host >= 8 {
			b[i] = 0xff
		} else if host > 0 {
			b[i] |= 1<<host - 1
		}
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// TranslationChain is a chain of rules.
type TranslationChain struct {
	Name string `json:"name"`
	// Type, Hook and Priority say where the kernel calls it, as nft(8) writes them.
	// A chain that is only called by others has none.
	Type     string `json:"type,omitempty"`
	Hook     string `json:"hook,omitempty"`
	Priority int32  `json:"priority"`
	// Policy is what becomes of packets that no rule judges.
	Policy string            `json:"policy,omitempty"`
	Rules  []TranslationRule `json:"rules,omitempty"`
}

// TranslationRule is a rule.
type TranslationRule struct {
	// Comment is the rule's own. Ours begin with the name of their counter and a colon.
	Comment string `json:"comment,omitempty"`
	// Family is "ipv4" or "ipv6".
	Family string `json:"family,omitempty"`
	// Digest is of what the rule does, in the kernel's terms.
	Digest  string `json:"digest"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// TranslationCounter counts what a rule applied to. That is the first packet of
// each connection where addresses are translated, and every packet where they
// are filtered.
type TranslationCounter struct {
	// Name is that of the rule, such as pods_kept.
	Name string `json:"name"`
	// Family is "ipv4" or "ipv6".
	Family  string `json:"family"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Counters returns the counters of our rules by name and family.
func (s TranslationState) Counters() []TranslationCounter {
	var counters []TranslationCounter
	for _, c := range s.Chains {
		for _, r := range c.Rules {
			name, _, ok := strings.Cut(r.Comment, ": ")
			if !ok {
				continue
			}
			i, found := slices.BinarySearchFunc(counters, r, func(c TranslationCounter, r TranslationRule) int {
				return cmp.Or(cmp.Compare(c.Name, name), cmp.Compare(c.Family, r.Family))
			})
			if !found {
				counters = slices.Insert(counters, i, TranslationCounter{Name: name, Family: r.Family})
			}
			counters[i].Packets += r.Packets
			counters[i].Bytes += r.Bytes
		}
	}
	return counters
}

// TranslationError is about the table of address translation: what of Apply's
// error is about no link and no rule.
type TranslationError struct{ Err error }

func (e *TranslationError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *TranslationError) Unwrap() error { return e.Err }

// TranslationChange is the step that makes TranslationTable what it should be,
// in one transaction: no packet meets half of it. Connections that are known
// already go on as they began.
type TranslationChange struct {
	// remove: the table that is there goes, add: a new one for want comes.
	remove, add bool
	why         string
	// want is what the table will be for, unless it goes.
	want Translation
	// sets are what changes in the sets of a table that stays.
	sets []changeSet
}

// changeSet is what changes in one set.
type changeSet struct {
	name        string
	remove, add []TranslationElement
}

// String reads as a line for people.
func (c TranslationChange) String() string {
	switch {
	case c.add && c.remove:
		return fmt.Sprintf("replace table inet %s: %s", TranslationTable, c.why)
	case c.add:
		return fmt.Sprintf("add table inet %s: %s", TranslationTable, c.want.summary())
	case c.remove:
		return fmt.Sprintf("remove table inet %s", TranslationTable)
	}
	var what []string
	for _, s := range c.sets {
		if len(s.add) > 0 {
			what = append(what, fmt.Sprintf("add %s to %s", few(s.add), s.name))
		}
		if len(s.remove) > 0 {
			what = append(what, fmt.Sprintf("remove %s from %s", few(s.remove), s.name))
		}
	}
	return fmt.Sprintf("change table inet %s: %s", TranslationTable, strings.Join(what, ", "))
}

// few names the first elements.
func few(es []TranslationElement) string {
	const most = 3
	names := make([]string, 0, most)
	for _, e := range es[:min(len(es), most)] {
		names = append(names, e.String())
	}
	s := strings.Join(names, " ")
	if len(es) > most {
		s += fmt.Sprintf(" and %d more", len(es)-most)
	}
	return s
}

// summary says for people what is to be translated.
func (t Translation) summary() string {
	source := "no unknown source"
	if len(t.UnknownSource) > 0 {
		source = fmt.Sprintf("unknown source %v", t.UnknownSource)
	}
	return fmt.Sprintf("%d local and %d remote prefixes, %s, %d mapped hosts, %d gateways",
		len(t.Local), len(t.Remote), source, len(t.Hosts), len(t.Gateways))
}

// none tells that there is nothing to translate or to guard.
func (t Translation) none() bool {
	return len(t.Remote) == 0 && len(t.Hosts) == 0 && len(t.Gateways) == 0
}
