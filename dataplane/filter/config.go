package filter

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Config is a list of chains. It is a plain value; the zero Config lets
// everything pass.
type Config struct {
	Chains []Chain
}

// Chain is a list of rules and the point on a packet's way at which they are
// asked.
type Chain struct {
	// Table and Name say whose chain it is, for display, and tell which
	// counters go on when a configuration is replaced.
	Table, Name string
	// Hook and Priority are the point; see the package comment. Chains of
	// equal hook and priority are asked in the order of the Config.
	Hook     Hook
	Priority int32
	// Family restricts the chain to one address family.
	Family Family
	// Policy is what happens to packets that no rule decided about: Accept or
	// Drop.
	Policy Action
	Rules  []Rule
}

// Rule decides about the packets that it matches.
type Rule struct {
	// Name is for display.
	Name string
	// Matches must all hold. None: every packet matches.
	Matches []Match
	Action  Action
	// MSS belongs to ClampMSS: the largest segment size to announce. Zero
	// stands for what fits the tunnel's MTU, to which it is lowered anyway.
	MSS int
	// Counter counts the packets that match.
	Counter bool
}

// Match is a set of conditions that must all hold. The zero value of a field
// asks nothing.
type Match struct {
	// Not turns every condition about addresses, ports and links around, each
	// by itself. The protocol is always compared for equality.
	Not              bool
	Proto            uint8 // packet.ProtoTCP, packet.ProtoUDP, ...
	Src, Dst         Addrs
	SrcPort, DstPort Ports
	// In and Out are the links by which the packet came and goes. Out is not
	// known at Prerouting.
	In, Out Link
}

// Addrs is a range of addresses of one family, both ends included.
type Addrs struct{ First, Last netip.Addr }

// Ports is a range of ports, both ends included. The zero value is no range.
type Ports struct{ First, Last uint16 }

// Link is an end of the gateway: the tunnel to the peer, or those to the nodes.
type Link struct {
	Side Side
	// Node names one node of NodeSide; empty: all of them.
	Node string
}

// Side says what a Link leads to.
type Side uint8

// The sides of a gateway.
const (
	AnySide  Side = iota // no condition
	PeerSide             // the tunnel to the peer
	NodeSide             // the tunnels to the nodes
	NoSide               // a link that is not there: no packet passes it
)

// Family is a choice of address families.
type Family uint8

// The families of a chain.
const (
	Both Family = iota
	IPv4
	IPv6
)

// Hook is a point on a packet's way; the kernel's input, output and ingress have
// no counterpart here.
type Hook uint8

// The hooks, in the order in which a packet meets them.
const (
	Prerouting Hook = iota
	Forward
	Postrouting

	numHooks
)

var hookNames = [numHooks]string{Prerouting: "prerouting", Forward: "forward", Postrouting: "postrouting"}

// String returns nftables' name.
func (h Hook) String() string { return hookNames[h] }

// The priorities at which addresses are translated, as named in nftables. A chain
// of the same priority as a translation sees its result.
const (
	PriorityDestination = -100 // dstnat: at Prerouting
	PrioritySource      = 100  // srcnat: at Postrouting
)

// Action is what a rule does.
type Action uint8

const (
	// Accept ends the chain; the packet goes on to the next.
	Accept Action = iota
	// Drop drops the packet without a word.
	Drop
	// Reject drops it and tells the sender, if it may be told. As in nftables
	// it is not to be used at Postrouting.
	Reject
	// ClampMSS lowers the MSS option of a SYN; the next rule is asked.
	ClampMSS

	numActions
)

var actionNames = [numActions]string{Accept: "accept", Drop: "drop", Reject: "reject", ClampMSS: "tcpmssclamp"}

// String returns the name as it stands in a FirewallConfiguration.
func (a Action) String() string { return actionNames[a] }

// Bounds of a clamped MSS. Linux takes less for an attack
// (net.ipv4.tcp_min_snd_mss); more does not fit a packet.
const (
	MinMSS = 48
	MaxMSS = 65535 - 40
)

// Validate reports everything that is wrong with c, joined.
func (c Config) Validate() error {
	var errs []error
	for _, ch := range c.Chains {
		for _, err := range ch.validate() {
			errs = append(errs, fmt.Errorf("filter chain %s of table %s: %w", ch.Name, ch.Table, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Chain) validate() (errs []error) {
	if c.Hook >= numHooks {
		return []error{fmt.Errorf("hook %d: unknown", c.Hook)}
	}
	if c.Family > IPv6 {
		errs = append(errs, fmt.Errorf("family %d: unknown", c.Family))
	}
	if c.Policy > Drop {
		errs = append(errs, fmt.Errorf("policy %d: neither accept nor drop", c.Policy))
	}
	for i := range c.Rules {
		for _, err := range c.Rules[i].validate(c) {
			errs = append(errs, fmt.Errorf("rule %s: %w", c.Rules[i].Name, err))
		}
	}
	return errs
}

func (r *Rule) validate(c *Chain) (errs []error) {
	switch {
	case r.Action >= numActions:
		errs = append(errs, fmt.Errorf("action %d: unknown", r.Action))
	case r.Action == Reject && c.Hook == Postrouting:
		errs = append(errs, errors.New("reject at postrouting: the sender cannot be told any more"))
	case r.Action == ClampMSS && r.MSS != 0 && (r.MSS < MinMSS || r.MSS > MaxMSS):
		errs = append(errs, fmt.Errorf("mss %d: must be 0 or %d to %d", r.MSS, MinMSS, MaxMSS))
	}
	for i := range r.Matches {
		errs = append(errs, r.Matches[i].validate(c)...)
	}
	return errs
}

func (m *Match) validate(c *Chain) (errs []error) {
	for _, a := range []Addrs{m.Src, m.Dst} {
		switch {
		case a == Addrs{}:
		case !a.First.IsValid() || a.First.BitLen() != a.Last.BitLen() || a.Last.Less(a.First),
			a.First.Is4In6() || a.First.Zone() != "" || a.Last.Zone() != "":
			errs = append(errs, fmt.Errorf("addresses %s to %s: no range", a.First, a.Last))
		case c.Family != Both && c.Family != familyOf(a.First.Is6()):
			errs = append(errs, fmt.Errorf("address %s: not of the chain's family", a.First))
		}
	}
	for _, p := range []Ports{m.SrcPort, m.DstPort} {
		if p.Last < p.First {
			errs = append(errs, fmt.Errorf("ports %d to %d: no range", p.First, p.Last))
		}
	}
	if m.In.Side > NoSide || m.Out.Side > NoSide {
		errs = append(errs, errors.New("link: unknown side"))
	}
	if m.Out.Side != AnySide && c.Hook == Prerouting {
		errs = append(errs, errors.New("outgoing link at prerouting: not known yet"))
	}
	return errs
}

func familyOf(v6 bool) Family {
	if v6 {
		return IPv6
	}
	return IPv4
}

// equal tells whether two rules do the same.
func (r *Rule) equal(o *Rule) bool {
	return r.Name == o.Name && r.Action == o.Action && r.MSS == o.MSS && r.Counter == o.Counter &&
		slices.Equal(r.Matches, o.Matches)
}
